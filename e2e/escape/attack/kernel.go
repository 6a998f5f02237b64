//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func clone3Exit(flags uint64) error {
	args := struct{ flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64 }{flags: flags, exitSignal: uint64(unix.SIGCHLD)}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	return reap(pid, errno)
}

// meet (T10) looks for what another sandbox has left under a name, by every channel that needs no network.
func (a *attacker) meet() {
	payload := []byte("x")
	_, err := unix.AddKey("user", "escape-own", payload, unix.KEY_SPEC_PROCESS_KEYRING)
	a.result("adding a key", err)
	_, err = unix.RequestKey("user", a.Meeting, "", unix.KEY_SPEC_PROCESS_KEYRING)
	a.result("finding the other's key", err)
	_, err = unix.KeyctlJoinSessionKeyring("escape")
	a.result("a keyring of its own", err)
	c, err := net.DialTimeout("unix", "@"+a.Meeting, time.Second)
	if err == nil {
		_ = c.Close()
	}
	a.result("the other's abstract socket", err)
	a.read("the other's file in /dev/shm", "/dev/shm/"+a.Meeting)
	a.read("the other's file in /tmp", "/tmp/"+a.Meeting)
	id, err := unix.SysvShmGet(meetingKey(a.Meeting), 4096, 0)
	if err == nil {
		_, err = unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
	}
	a.result("the other's shared memory", err)
	name := append([]byte(a.Meeting), 0)
	fd, _, errno := unix.RawSyscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_RDONLY, 0, 0, 0, 0)
	if errno == 0 {
		_ = unix.Close(int(fd))
	}
	a.result("the other's message queue", errno)
}

func meetingKey(name string) int {
	n := 0
	for _, b := range []byte(name) {
		n = (n*31 + int(b)) & 0x7fffffff
	}
	return n
}

// offer leaves things to be found under a name until its input ends.
func offer(name string) int {
	l, err := net.Listen("unix", "@"+name)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer l.Close()
	for _, dir := range []string{"/dev/shm/", "/tmp/"} {
		if err := os.WriteFile(dir+name, []byte("met"), 0o644); err != nil {
			fmt.Println(err)
			return 1
		}
		defer os.Remove(dir + name)
	}
	if id, err := unix.SysvShmGet(meetingKey(name), 4096, unix.IPC_CREAT|0o666); err == nil {
		defer func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }()
	}
	queue := append([]byte(name), 0)
	if fd, _, errno := unix.RawSyscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&queue[0])), unix.O_RDWR|unix.O_CREAT, 0o644, 0, 0, 0); errno == 0 {
		_ = unix.Close(int(fd))
		defer unix.RawSyscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&queue[0])), 0, 0)
	}
	if key, err := unix.AddKey("user", name, []byte("met"), unix.KEY_SPEC_USER_KEYRING); err == nil {
		_, _ = unix.KeyctlInt(unix.KEYCTL_LINK, key, unix.KEY_SPEC_SESSION_KEYRING, 0, 0)
		_ = unix.KeyctlSetperm(key, 0x3f3f3f3f)
		defer func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, key, unix.KEY_SPEC_USER_KEYRING, 0, 0) }()
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until its end
	return 0
}

// subsystems (T11) asks for the parts of the kernel that have had the most holes.
func (a *attacker) subsystems() {
	var params [120]byte // struct io_uring_params
	fd, _, errno := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	a.result("io_uring", closed(fd, errno))
	fd, _, errno = unix.RawSyscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0) // 1: faults of user code only
	a.result("userfaultfd", closed(fd, errno))
	attr := struct{ kind, keySize, valueSize, entries, flags, rest uint32 }{kind: 2, keySize: 4, valueSize: 4, entries: 1} // an array
	fd, _, errno = unix.RawSyscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	a.result("bpf", closed(fd, errno))
	event := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	a.result("perf_event_open", second(unix.PerfEventOpen(&event, 0, -1, -1, 0)))
	_, _, errno = unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0) // only asks
	a.result("personality", errno)
	_, _, errno = unix.RawSyscall(unix.SYS_SYSLOG, 10, 0, 0) // the size of the kernel's log
	a.result("the kernel's log", errno)
	a.result("the kernel's clock", second(unix.Adjtimex(&unix.Timex{})))
}

func closed(fd uintptr, errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// terminal (T12) makes a terminal of its own, and has a process on it put words into its input.
func (a *attacker) terminal() {
	a.result("the starter's terminal", second(unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)))
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		a.tell("putting words into a terminal", false, word(err))
		return
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		a.tell("putting words into a terminal", false, word(err))
		return
	}
	defer slave.Close()
	r, w, err := os.Pipe()
	if err != nil {
		a.tell("putting words into a terminal", false, word(err))
		return
	}
	p, err := os.StartProcess(self(), []string{"attack", "as", "tty"}, &os.ProcAttr{Files: []*os.File{slave, w, w},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true}})
	_ = w.Close()
	said := make([]byte, 100)
	n := 0
	if err == nil {
		n, _ = r.Read(said)
		_, err = p.Wait()
	}
	text := strings.TrimSpace(string(said[:n]))
	a.tell("putting words into a terminal", err == nil && text == "done", text)
}

// pushBack is the process on the terminal.
func pushBack() int {
	letter := byte('x')
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&letter)))
	if errno == 0 {
		fmt.Println("done")
	} else {
		fmt.Println(errno.Error())
	}
	return 0
}

// families (T15) asks for sockets that a network namespace does not hold, or that nobody inside needs.
func (a *attacker) families() {
	for _, s := range []struct {
		name                   string
		family, kind, protocol int
	}{
		{"AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0}, {"AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, {"AF_XDP", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"AF_BLUETOOTH", unix.AF_BLUETOOTH, unix.SOCK_STREAM, 3}, {"AF_CAN", unix.AF_CAN, unix.SOCK_RAW, 1},
		{"AF_KEY", unix.AF_KEY, unix.SOCK_RAW, 2}, {"AF_TIPC", unix.AF_TIPC, unix.SOCK_STREAM, 0},
		{"MPTCP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, {"SCTP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{"SCTP over IPv6", unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, {"DCCP", unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP},
		{"raw IP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
	} {
		a.result(s.name, second(unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.protocol)))
	}
	pair, err := unix.Socketpair(unix.AF_TIPC, unix.SOCK_STREAM, 0)
	if err == nil {
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}
	a.result("a pair of AF_TIPC", err)
}

// oldCalls (T45) makes system calls by numbers that the filter does not speak of, each in a process of its own, which may be
// killed for it.
func (a *attacker) oldCalls() {
	for _, kind := range []string{"int80", "x32"} {
		said, err := run(self(), "as", "oldcall", kind)
		if err != nil {
			said = err.Error()
		}
		a.tell("a call by "+kind, err == nil && strings.HasPrefix(said, "came back"), said)
	}
}

// oldCall asks for the process's number. A kernel without such calls answers ENOSYS, and it has come back all the same.
func oldCall(kind string) int {
	got := 0
	switch kind {
	case "int80":
		got = int(int80(20)) // getpid
	case "x32":
		n, _, errno := unix.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
		got = int(n) - int(errno)
	}
	fmt.Println("came back", got)
	return 0
}
