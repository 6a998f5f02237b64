package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FenceABI is the version of Landlock that has all of the shell's fence: files (1), ports (4), signals and abstract sockets
// (6). On an older kernel the fence has what there is, and the probe says so.
const FenceABI = 6

// The kinds of access to files in the fence. The first version knows bits up to MAKE_SYM.
const (
	fsRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fsFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	fsFirst = 1<<13 - 1
	fsAll   = fsFirst | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// shell runs the CLI's shell commands: the command line is its only argument. It fences itself in, drops the variables that
// belong to the CLI alone and becomes bash. What a command starts cannot read the CLI's secrets, state or memory, signal
// it, or knock at its other doors. A fence that this kernel should have and that does not stand is a command that does not run.
func shell(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, ShellName+": expected one command line")
		return 2
	}
	runtime.LockOSThread() // the fence belongs to the thread that becomes bash
	err := enter(LandlockABI(), shellRules(), []int{PortWeb})
	if err == nil {
		err = lower(unix.RLIMIT_DATA, shellData)
	}
	if err == nil {
		err = syscall.Exec("/bin/bash", []string{"bash", "-c", args[0]}, shellEnvironment())
	}
	fmt.Fprintln(os.Stderr, ShellName+":", err)
	return 126
}

func shellEnvironment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "ANTHROPIC_") && !strings.HasPrefix(kv, "CLAUDE_CODE") {
			env = append(env, kv)
		}
	}
	return env
}

// LandlockABI is the version the kernel offers, 0 for none.
func LandlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// shellData is how much private memory one process of a shell command may have, bytes. The CLI itself cannot be bounded so:
// its JavaScript engine claims 5.5 GB and uses a hundredth of it (CLI 2.1.332, measured).
const shellData = 2 << 30

// enter puts the calling thread into a Landlock domain, within the one it may be in already: files by the rules, TCP
// connections to the ports on this machine's own loopback, signals and abstract sockets among those inside. What the kernel
// does not know yet is left out; what it knows must hold.
func enter(abi int, rules []fenceRule, ports []int) error {
	if abi < 1 {
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: fsFirst}
	size := unsafe.Offsetof(attr.Handled_access_net)
	if abi >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = unsafe.Offsetof(attr.Scoped)
	}
	if abi >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = unsafe.Offsetof(attr.Quiet_access_fs)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("making the fence: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, r := range rules {
		if err := allow(int(fd), r.path, r.access&attr.Handled_access_fs); err != nil {
			return err
		}
	}
	if abi >= 4 {
		for _, port := range ports {
			if err := allowPort(int(fd), uint64(port)); err != nil {
				return err
			}
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("entering the fence: %w", errno)
	}
	return nil
}

type fenceRule struct {
	path   string
	access uint64
}

// outerRules are the places the CLI and everything it starts may use. The mounts say the same; this is what holds if one of
// them should be wrong.
func outerRules() []fenceRule {
	rules := append(systemRules(), fenceRule{"/", unix.LANDLOCK_ACCESS_FS_READ_DIR})
	for _, path := range []string{DirWork, DirState, "/tmp", "/run", DirHome, "/dev/shm"} {
		rules = append(rules, fenceRule{path, fsAll})
	}
	return rules
}

// shellRules are the places a shell command may use. The CLI writes its shell snapshot and environment below /state, and
// every command line begins by reading them (CLI 2.1.332, measured).
func shellRules() []fenceRule {
	rules := systemRules()
	for _, path := range []string{DirWork, "/tmp", DirHome, "/dev/shm", DirState + "/shell-snapshots", DirState + "/session-env"} {
		rules = append(rules, fenceRule{path, fsAll})
	}
	return rules
}

func systemRules() []fenceRule {
	var rules []fenceRule
	for _, path := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/dev", "/opt", DirAgent} {
		rules = append(rules, fenceRule{path, fsRead})
	}
	for _, path := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"} {
		rules = append(rules, fenceRule{path, fsFile | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV})
	}
	return rules
}

// allow adds a rule; what does not exist needs none.
func allow(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fencing %s: %w", path, err)
	}
	defer unix.Close(fd)
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("fencing %s: %w", path, errno)
	}
	return nil
}

// allowPort adds a rule for connections to a port (landlock_net_port_attr of linux/landlock.h, which x/sys has not).
func allowPort(ruleset int, port uint64) error {
	const ruleNetPort = 2
	attr := struct{ access, port uint64 }{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, port}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), ruleNetPort, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("leaving port %d out of the fence: %w", port, errno)
	}
	return nil
}
