package inside

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rlimits of every program: CORE because a core file is a copy of secrets, NPROC against fork bombs (the kernel does not
// count host uid 0, so it does not hold for agents that are root), FSIZE against a full disk. Not AS: the CLI's JavaScript
// engine reserves tens of gigabytes of address space.
func rlimits() map[int]uint64 {
	return map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NPROC: 256, unix.RLIMIT_NOFILE: 4096, unix.RLIMIT_FSIZE: 1 << 30}
}

// initialize is what runs first inside: it opens the doors in the new network namespace, hands them out over descriptor
// 3, bounds itself and becomes the program. It returns only if it could not, with the exit code; args are those behind
// its name.
func initialize(args []string) int {
	err := becomeProgram(args)
	fmt.Fprintln(os.Stderr, "sandbox-init:", err)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return 127 // as a shell says it
	}
	return 126
}

func becomeProgram(args []string) error {
	runtime.LockOSThread() // the fence and the priority belong to the thread that becomes the program
	var names []string
	var fds []int
	var ports []int
	fence := len(args) > 0 && args[0] == FenceFlag
	if fence {
		args = args[1:]
	}
	for ; len(args) > 0 && args[0] != "--"; args = args[1:] {
		door, ok := strings.CutPrefix(args[0], "--door=")
		name, port, ok2 := strings.Cut(door, ":")
		if !ok || !ok2 {
			return fmt.Errorf("unknown argument %q", args[0])
		}
		fd, err := listen(port)
		if err != nil {
			return fmt.Errorf("opening door %s: %w", name, err)
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return fmt.Errorf("opening door %s: %w", name, err)
		}
		names, fds, ports = append(names, name), append(fds, fd), append(ports, number)
	}
	if len(args) < 2 {
		return errors.New("no program named")
	}
	argv := args[1:]
	if err := handOver(names, fds); err != nil {
		return err
	}
	for resource, limit := range rlimits() {
		if err := lower(resource, limit); err != nil {
			return err
		}
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, niceness); err != nil {
		return fmt.Errorf("stepping behind pilder: %w", err)
	}
	syscall.Umask(0o077)
	if err := unix.CloseRange(HandshakeFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("closing descriptors: %w", err)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	if fence {
		if err := enter(LandlockABI(), outerRules(), ports); err != nil {
			return err
		}
	}
	return fmt.Errorf("starting %s: %w", filepath.Base(path), syscall.Exec(path, argv, environment()))
}

// listen opens a door on the sandbox's loopback and gives a descriptor of it that the runtime will not close.
func listen(port string) (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:"+port)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 10)
}

// handOver sends the doors and waits to be let go: by then the other side has hold of this process.
func handOver(names []string, fds []int) error {
	message := append([]byte{HandshakeDoors}, strings.Join(names, " ")...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(HandshakeFD, message, rights, nil, 0); err != nil {
		return fmt.Errorf("handing over the doors: %w", err)
	}
	word := make([]byte, 1)
	for {
		n, err := unix.Read(HandshakeFD, word)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 || word[0] != HandshakeGo {
			return errors.Join(errors.New("not let go"), err)
		}
		return nil
	}
}

// niceness is how far an agent steps back when processors are scarce: pilder answers first.
const niceness = 5

// lower sets a limit, never above what is allowed already.
func lower(resource int, limit uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return fmt.Errorf("reading limit %d: %w", resource, err)
	}
	limit = min(limit, now.Max)
	if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		return fmt.Errorf("setting limit %d: %w", resource, err)
	}
	return nil
}

// environment is what was set for the program: bubblewrap adds PWD by itself.
func environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PWD=") {
			env = append(env, kv)
		}
	}
	return env
}
