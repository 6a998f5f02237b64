package runner

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data and the verdicts of linux/seccomp.h.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16 // eight bytes each; both architectures here are little-endian, so the low half comes first

	verdictAllow = 0x7fff0000
	verdictErrno = 0x00050000
	verdictKill  = 0x80000000
)

// Requests of ioctl that put words into a terminal's mouth.
const (
	ioctlTIOCSTI   = 0x5412
	ioctlTIOCLINUX = 0x541c
)

// cloneNamespaces are clone's flags that make namespaces (cgroup, uts, ipc, user, pid, net, mount). The time namespace
// has no flag there: clone uses its bit for the exit signal.
const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// deniedCalls fail with EPERM: nothing an agent's tools need, and each has been the way into a kernel or a neighbour.
// The CLI, git, curl and perl run without them.
func deniedCalls() []uint32 {
	return append([]uint32{
		unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, // keyrings: a channel between sandboxes
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_USERFAULTFD, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_FANOTIFY_INIT,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
		unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_ACCT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
		unix.SYS_SYSLOG, unix.SYS_PERSONALITY, unix.SYS_VHANGUP,
		unix.SYS_CLOCK_SETTIME, unix.SYS_SETTIMEOFDAY, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
		unix.SYS_MOVE_PAGES, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE, unix.SYS_MIGRATE_PAGES,
		unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_LOOKUP_DCOOKIE,
		unix.SYS_SHMGET, unix.SYS_MEMFD_SECRET, // memory that stays when nobody has it mapped: nobody could count it
	}, deniedArchCalls()...)
}

// seccompProgram is the filter in the form bubblewrap loads: struct sock_filter, one after the other.
func seccompProgram() ([]byte, error) {
	raw, err := bpf.Assemble(seccompInstructions())
	if err != nil {
		return nil, fmt.Errorf("assembling the seccomp filter: %w", err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, in := range raw {
		out = binary.NativeEndian.AppendUint16(out, in.Op)
		out = append(out, in.Jt, in.Jf)
		out = binary.NativeEndian.AppendUint32(out, in.K)
	}
	return out, nil
}

// seccompInstructions lists the checks; each is a test that skips the verdict behind it, so that no jump is long.
func seccompInstructions() []bpf.Instruction {
	p := []bpf.Instruction{
		load(offArch), when(bpf.JumpNotEqual, auditArch), verdict(verdictKill), // another architecture numbers calls differently
		load(offNumber),
	}
	if x32Bit != 0 {
		p = append(p, when(bpf.JumpGreaterOrEqual, x32Bit), verdict(verdictKill))
	}
	for _, nr := range deniedCalls() {
		p = append(p, when(bpf.JumpEqual, nr), refuse(unix.EPERM))
	}
	// So does a file in memory that has no name. Libraries use one in /tmp or /dev/shm, which are bounded, where there is none.
	p = append(p, when(bpf.JumpEqual, unix.SYS_MEMFD_CREATE), refuse(unix.ENOSYS))
	// clone3's flags are behind a pointer, which a filter cannot follow; told that it does not exist, libraries use clone.
	p = append(p, when(bpf.JumpEqual, unix.SYS_CLONE3), refuse(unix.ENOSYS))
	p = append(p, onArg(unix.SYS_CLONE, 0, when(bpf.JumpBitsSet, cloneNamespaces), refuse(unix.EPERM))...)
	p = append(p, onArg(unix.SYS_IOCTL, 1, when(bpf.JumpEqual, ioctlTIOCSTI), refuse(unix.EPERM),
		when(bpf.JumpEqual, ioctlTIOCLINUX), refuse(unix.EPERM))...)
	// A network namespace does not cover AF_VSOCK: without this a connect reaches the virtual machine's monitor.
	// Protocols are the usual ones: others are kernel code that is loaded when somebody asks for it (SCTP), or have been the
	// way around what is said of TCP (MPTCP). Of netlink, what tells of the own network.
	families := []bpf.Instruction{
		when(bpf.JumpEqual, unix.AF_UNIX), verdict(verdictAllow),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipFalse: 4},
		load(offArgs + 2*8), when(bpf.JumpEqual, unix.NETLINK_ROUTE), verdict(verdictAllow), refuse(unix.EPROTONOSUPPORT),
		when(bpf.JumpEqual, unix.AF_INET), bpf.Jump{Skip: 2}, when(bpf.JumpNotEqual, unix.AF_INET6), refuse(unix.EAFNOSUPPORT),
		load(offArgs + 2*8),
	}
	for _, protocol := range []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6} {
		families = append(families, when(bpf.JumpEqual, protocol), verdict(verdictAllow))
	}
	families = append(families, refuse(unix.EPROTONOSUPPORT))
	p = append(p, onArg(unix.SYS_SOCKET, 0, families...)...)
	p = append(p, onArg(unix.SYS_SOCKETPAIR, 0, when(bpf.JumpNotEqual, unix.AF_UNIX), refuse(unix.EAFNOSUPPORT))...)
	// A fence around ports asks at connect. TCP Fast Open connects while it sends, and nobody asks.
	for call, flags := range map[uint32]uint32{unix.SYS_SENDTO: 3, unix.SYS_SENDMSG: 2, unix.SYS_SENDMMSG: 3} {
		p = append(p, onArg(call, flags, when(bpf.JumpBitsSet, unix.MSG_FASTOPEN), refuse(unix.EOPNOTSUPP))...)
	}
	return append(p, verdict(verdictAllow))
}

// onArg runs checks on the low half of one argument of one call, then allows the call. The kernel too looks only at the
// low half: all these arguments are ints or unsigned ints there.
func onArg(call uint32, arg uint32, checks ...bpf.Instruction) []bpf.Instruction {
	block := append([]bpf.Instruction{load(offArgs + 8*arg)}, checks...)
	block = append(block, verdict(verdictAllow))
	skip := bpf.JumpIf{Cond: bpf.JumpEqual, Val: call, SkipFalse: uint8(len(block))}
	return append([]bpf.Instruction{skip}, block...)
}

func load(off uint32) bpf.Instruction     { return bpf.LoadAbsolute{Off: off, Size: 4} }
func verdict(v uint32) bpf.Instruction    { return bpf.RetConstant{Val: v} }
func refuse(e unix.Errno) bpf.Instruction { return verdict(verdictErrno | uint32(e)) }
func when(c bpf.JumpTest, v uint32) bpf.Instruction {
	return bpf.JumpIf{Cond: c, Val: v, SkipFalse: 1}
}
