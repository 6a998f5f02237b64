package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pilder/runner/inside"
)

// Times and sizes of a start and an end.
const (
	leftoverWait = 10 * time.Second // from bubblewrap's end until the kernel has ended everything inside
	stderrKept   = 4 << 10          // of a failed start, bytes
	maxDoors     = 16
)

// Start runs a program in a new sandbox and returns when its doors are open; ctx bounds the start only. A sandbox that
// does not start is an error, never a program without one.
func (s *Sandbox) Start(ctx context.Context, l Launch) (*Process, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	if s.cfg.Unsandboxed {
		return s.startPlain(ctx, l)
	}
	info, err := s.bwrap()
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{l.Work, l.State, l.Run} {
		if err := s.Own(dir); err != nil {
			return nil, fmt.Errorf("preparing the sandbox: %w", err)
		}
	}
	call, err := s.bwrapArguments(info, l)
	defer call.close()
	if err != nil {
		return nil, fmt.Errorf("preparing the sandbox: %w", err)
	}
	program, err := call.program()
	if err != nil {
		return nil, fmt.Errorf("preparing the sandbox: %w", err)
	}
	args, err := memoryFile([]byte(strings.Join(call.args, "\x00") + "\x00"))
	if err != nil {
		return nil, err
	}
	// Host paths travel in a descriptor, not in argv, and values with --setenv: /proc/1/cmdline and /proc/1/environ show
	// inside what bubblewrap was started with (measured: --clearenv does not hide it).
	argv := append([]string{"--args", call.pass(args), "--", dirTools + "/pilder"}, initArguments(l, !l.unfenced)...)
	cmd := exec.Command(program, argv...)
	cmd.Args[0] = "bwrap" // can be read inside
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = call.files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.user.own {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(s.user.uid), Gid: uint32(s.user.gid)} // and no other group
	}
	return s.spawn(ctx, cmd, len(l.Doors), call.stage)
}

// initArguments is what sandbox-init is told: whether to fence itself in, the doors to open, then the program.
func initArguments(l Launch, fence bool) []string {
	args := []string{initName}
	if fence {
		args = append(args, inside.FenceFlag)
	}
	for _, d := range l.Doors {
		args = append(args, "--door="+d.Name+":"+strconv.Itoa(d.Port))
	}
	return append(append(args, "--"), l.Argv...)
}

// spawn starts cmd with socketpairs for its streams and a fourth as descriptor 3, in a group of its own where there are
// groups, and shakes hands over that one descriptor.
func (s *Sandbox) spawn(ctx context.Context, cmd *exec.Cmd, doors int, from *stage) (*Process, error) {
	var ours, theirs [4]*os.File
	defer func() { _ = closeAll(theirs[:]) }() // after errors too; closing twice is harmless
	for i := range ours {
		var err error
		if ours[i], theirs[i], err = socketpair(); err != nil {
			return nil, errors.Join(err, closeAll(ours[:i]))
		}
	}
	p := &Process{Stdin: ours[0], Stdout: ours[1], Stderr: ours[2], cmd: cmd, program: noProgram{}, done: make(chan struct{})}
	var err error
	if p.cgroup, err = s.group(); err != nil {
		return nil, errors.Join(err, closeAll(ours[:]))
	}
	if p.cgroup != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(p.cgroup.fd.Fd())
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	cmd.ExtraFiles = append([]*os.File{theirs[3]}, cmd.ExtraFiles...)
	hello, err := handshakeConn(ours[3])
	if err != nil {
		return nil, errors.Join(err, closeAll(ours[:3]), p.ungroup())
	}
	defer hello.Close()
	started := make(chan error)
	peer := make(chan int, 1) // a pidfd of the namespace's first process, or -1
	go p.live(from, started, peer)
	if err := <-started; err != nil {
		peer <- -1
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrStart, err), closeAll(ours[:3]))
	}
	_ = closeAll(theirs[:]) // or the end of the child would not be seen
	pid1, err := p.shake(ctx, hello, doors, s.cfg.Handshake, s.cfg.Unsandboxed)
	peer <- pid1
	if err != nil {
		return nil, p.failed(err)
	}
	if !s.cfg.Unsandboxed && s.bounded() != nil {
		p.watcher.Go(func() { p.watch(s.cfg.Memory) })
	}
	return p, nil
}

// ungroup removes the run's group, after everybody in it.
func (p *Process) ungroup() error {
	if p.cgroup == nil {
		return nil
	}
	lacked, err := p.cgroup.end()
	if lacked {
		p.outOfMemory.Store(true)
	}
	return err
}

// live starts the command, from a stage if there is one, and waits for it on one thread: the parent-death signal belongs to
// the thread that forked, and Go would be free to end that thread at any time.
func (p *Process) live(from *stage, started chan<- error, peer <-chan int) {
	runtime.LockOSThread()
	if from != nil && unix.Gettid() == os.Getpid() {
		// The first thread cannot end, and what it sees is what /proc shows of pilder: another one enters the stage.
		var other sync.WaitGroup
		other.Go(func() { p.live(from, started, peer) })
		other.Wait()
		runtime.UnlockOSThread()
		return
	}
	defer close(p.done)
	if from == nil {
		defer runtime.UnlockOSThread()
	} else if err := from.enter(); err != nil { // from here on the thread ends with this goroutine
		started <- errors.Join(err, p.ungroup())
		return
	}
	if err := p.cmd.Start(); err != nil {
		started <- errors.Join(err, p.ungroup())
		return
	}
	started <- nil
	_ = p.cmd.Wait() // what matters of it is in ProcessState
	p.exit = exitCode(p.cmd.ProcessState)
	p.err = errors.Join(gone(<-peer), p.ungroup())
}

// gone waits until the first process of the namespace is gone, and with it, by the kernel's rule, all others.
// bubblewrap itself ends a moment earlier.
func gone(pid1 int) error {
	if pid1 < 0 {
		return nil
	}
	defer unix.Close(pid1)
	for deadline := time.Now().Add(leftoverWait); ; {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pid1), Events: unix.POLLIN}}, int(max(left, 0)/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for the sandbox's processes: %w", err)
		case n == 1:
			return nil
		case left <= 0:
			return ErrLeftover
		}
	}
}

// shake receives the doors from sandbox-init, takes hold of its process and of the namespace's first, and lets it go on.
// Until it is let go neither can end and give its number to somebody else.
func (p *Process) shake(ctx context.Context, hello *net.UnixConn, doors int, limit time.Duration, plain bool) (pid1 int, err error) {
	stop := context.AfterFunc(ctx, func() { _ = hello.SetDeadline(time.Unix(1, 0)) }) // the read below then ends at once
	defer stop()
	if err := hello.SetDeadline(time.Now().Add(limit)); err != nil {
		return -1, err
	}
	pid, listeners, err := receiveDoors(hello)
	p.Doors = listeners
	if err != nil {
		return -1, errors.Join(err, ctx.Err())
	}
	if len(listeners) != doors {
		return -1, fmt.Errorf("%d of %d doors came", len(listeners), doors)
	}
	program, err := openProgram(pid)
	if err != nil {
		return -1, err
	}
	p.program = program
	pid1 = -1
	if plain {
		p.crowd, err = plainCrowd(pid)
	} else if err = apart(pid); err == nil {
		if pid1, err = openParent(pid); err == nil {
			p.crowd, err = openCrowd(pid)
		}
	}
	if err == nil {
		err = sacrifice(pid)
	}
	if err != nil {
		return pid1, err
	}
	if _, err := hello.Write([]byte{handshakeGo}); err != nil {
		return pid1, err
	}
	return pid1, nil
}

// apart checks from outside that a process has left the namespaces of this one.
func apart(pid int) error {
	for _, ns := range []string{"user", "pid", "net", "mnt", "ipc", "uts"} {
		theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/" + ns)
		if err != nil {
			return fmt.Errorf("looking at the sandbox's namespaces: %w", err)
		}
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return fmt.Errorf("looking at the own namespaces: %w", err)
		}
		if theirs == ours {
			return fmt.Errorf("%w: %s", ErrNotApart, ns)
		}
	}
	return nil
}

// failed ends what was started and makes the error an operator reads: what bubblewrap or sandbox-init said last.
func (p *Process) failed(cause error) error {
	_ = p.Kill()
	<-p.done
	said, _ := io.ReadAll(io.LimitReader(p.Stderr, stderrKept)) // ends: nobody has the other end any more
	text := strings.TrimSpace(string(said))
	return errors.Join(&StartError{Cause: cause, Stderr: text}, p.Close())
}

// receiveDoors reads the one message of sandbox-init: the names of the doors, their listeners and, put in by the kernel,
// the process id as it is on the host.
func receiveDoors(hello *net.UnixConn) (int, map[string]net.Listener, error) {
	names := make([]byte, 4096)
	oob := make([]byte, unix.CmsgSpace(4*maxDoors)+unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, flags, _, err := hello.ReadMsgUnix(names, oob)
	if err != nil {
		return 0, nil, fmt.Errorf("waiting for the doors: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || flags&unix.MSG_CTRUNC != 0 || n == 0 || names[0] != handshakeDoors {
		return 0, nil, errors.Join(errors.New("not a word of sandbox-init"), err)
	}
	pid, doors := 0, map[string]net.Listener{}
	wanted := strings.Fields(string(names[1:n]))
	for i := range messages {
		if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			pid = int(cred.Pid)
			continue
		}
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return 0, doors, fmt.Errorf("reading the doors: %w", err)
		}
		for _, fd := range fds {
			f := os.NewFile(uintptr(fd), "door")
			l, err := net.FileListener(f)
			_ = f.Close() // the listener has a copy
			if err != nil || len(doors) >= len(wanted) {
				return 0, doors, errors.Join(errors.New("reading a door"), err)
			}
			doors[wanted[len(doors)]] = l
		}
	}
	if pid == 0 {
		return 0, doors, errors.New("sandbox-init came without its process id")
	}
	return pid, doors, nil
}

// pidfd is a program held by a descriptor, so that a signal never reaches a later process of the same number.
type pidfd int

func openProgram(pid int) (signaller, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("taking hold of the program: %w", err)
	}
	return pidfd(fd), nil
}

func (fd pidfd) signal(s syscall.Signal) error { return unix.PidfdSendSignal(int(fd), s, nil, 0) }
func (fd pidfd) close() error                  { return unix.Close(int(fd)) }

// noProgram stands where none has said hello.
type noProgram struct{}

func (noProgram) signal(syscall.Signal) error { return os.ErrProcessDone }
func (noProgram) close() error                { return nil }

// openParent takes hold of the parent of a process that is known to be alive: inside, that is the namespace's first.
func openParent(pid int) (int, error) {
	parent, err := parentOf(pid)
	if err != nil {
		return -1, fmt.Errorf("finding the sandbox's first process: %w", err)
	}
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		return -1, fmt.Errorf("finding the sandbox's first process: %w", err)
	}
	return fd, nil
}

// killAll ends everything inside, then bubblewrap; a plain program with its process group.
//
// Killing bubblewrap alone leaves an orphan when it comes early: its child asks for a parent-death signal only after its
// mounts are made, and until then waits for a parent that is no more (bubblewrap 0.8.0, measured). So bubblewrap is held
// still, its children, whose numbers cannot change hands meanwhile, are ended, and it goes last.
func killAll(cmd *exec.Cmd) error {
	if cmd.SysProcAttr.Setpgid {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // the group may outlive its leader
		return cmd.Process.Kill()
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var stopped error
	if err := cmd.Process.WithHandle(func(pidfd uintptr) {
		stopped = retry(func() error {
			return unix.Waitid(unix.P_PIDFD, int(pidfd), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		})
	}); err != nil || stopped != nil {
		return errors.Join(cmd.Process.Kill(), err) // stopped: it has ended instead
	}
	var errs []error
	for _, pid := range children(cmd.Process.Pid) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone
		}
		errs = append(errs, unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0), gone(fd))
	}
	return errors.Join(append(errs, cmd.Process.Kill())...)
}

// children lists the processes whose parent is pid.
func children(pid int) []int {
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	var found []int
	for _, dir := range all {
		n, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if parent, err := parentOf(n); err == nil && parent == pid {
			found = append(found, n)
		}
	}
	return found
}

// parentOf reads the parent of a process, the second field behind its name, which may hold anything.
func parentOf(pid int) (int, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return 0, errors.New("unknown form of /proc/pid/stat")
	}
	return strconv.Atoi(fields[1])
}

// retry repeats a system call that a signal has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// exitCode is the program's, in the shell's way for one ended by a signal.
func exitCode(st *os.ProcessState) int {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return st.ExitCode()
}

// socketpair makes two connected stream sockets; ours does not block the threads of the runtime.
func socketpair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socketpair: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("making a socketpair: %w", err), unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "socketpair"), os.NewFile(uintptr(fds[1]), "socketpair"), nil
}

// handshakeConn turns our end of descriptor 3 into a connection that tells who is speaking. It takes the file over.
func handshakeConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	if err := unix.SetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return nil, fmt.Errorf("preparing the handshake: %w", err)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("preparing the handshake: %w", err)
	}
	return conn.(*net.UnixConn), nil // a unix socket gives nothing else
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
