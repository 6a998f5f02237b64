package runner

import (
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
)

// Process is a started program. Whoever starts one must call Close.
type Process struct {
	// Stdin, Stdout and Stderr are ends of socketpairs: a pipe could be reopened through /proc/<pid>/fd by any process of
	// the same user, which would put a forged line into the program's output; opening a socket that way fails. Closing
	// Stdin is the program's end of input. Stdout and Stderr end when every process inside is gone.
	Stdin, Stdout, Stderr *os.File
	// Doors are the listeners by name. A connection on one can only come from this program or its children.
	Doors map[string]net.Listener

	cmd     *exec.Cmd
	program signaller // the program itself: the same process as sandbox-init, which became it by exec
	crowd   *crowd    // everything inside; nil until the handshake
	done    chan struct{}
	exit    int   // valid after done
	err     error // valid after done
	cgroup  *cgroup
	watcher sync.WaitGroup

	outOfMemory atomic.Bool
	close       sync.Once

	looking sync.RWMutex // held by those who look at the crowd; its descriptors are closed when nobody does
	closed  bool
}

// signaller sends a signal to one process that cannot be mistaken for a later one of the same number.
type signaller interface {
	signal(syscall.Signal) error
	close() error
}

// Interrupt sends SIGINT to the program.
func (p *Process) Interrupt() error { return p.program.signal(syscall.SIGINT) }

// Terminate sends SIGTERM to the program.
func (p *Process) Terminate() error { return p.program.signal(syscall.SIGTERM) }

// Kill ends every process inside at once; the program is not asked.
func (p *Process) Kill() error {
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
		return killAll(p.cmd)
	}
}

// Sweep ends everything inside but the program itself, so that nothing one turn has started goes on into the next. It
// returns when it has looked and found nobody; ErrLeftover means that they come faster than they can be ended, or cannot be:
// then only Kill is left. A program that has ended leaves nothing to sweep.
func (p *Process) Sweep() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	p.looking.RLock()
	defer p.looking.RUnlock()
	if p.closed {
		return nil
	}
	return p.crowd.sweep()
}

// Memory is what everything inside uses now, bytes: private and shared memory of all processes and the contents of the
// folders in memory. It may be asked by anybody at any time; a closed process has none to tell of.
func (p *Process) Memory() (int64, error) {
	return p.memory(lookExact)
}

// OutOfMemory tells, once the process has ended, that it was ended because its sandbox used more than SandboxConfig.Memory.
func (p *Process) OutOfMemory() bool { return p.outOfMemory.Load() }

// Done is closed when the program and everything it started are gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait blocks until then and gives the exit code: the program's own, or 128 and the signal that ended it. ErrLeftover
// means that the kernel did not get rid of everything in time.
func (p *Process) Wait() (int, error) {
	<-p.done
	return p.exit, p.err
}

// Close kills what still runs, waits for its end and closes every descriptor. Safe to call again.
func (p *Process) Close() error {
	_ = p.Kill() // already gone is the usual case
	<-p.done
	p.watcher.Wait()
	p.close.Do(func() {
		for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
			_ = f.Close() // Stdin is often closed already, as the end of input
		}
		for _, l := range p.Doors {
			_ = l.Close() // the server of a door closes it too
		}
		_ = p.program.close()
		p.looking.Lock()
		defer p.looking.Unlock()
		p.closed = true
		if p.crowd != nil {
			_ = p.crowd.close()
		}
	})
	return p.err
}

// look is how closely the memory of a sandbox is looked at.
type look int

const (
	lookQuick look = iota // what processes share after a fork is counted for each, and what they share namelessly not at all
	lookWhole             // the latter is
	lookExact             // and the former once
)
