package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// startPlain runs the program with no sandbox: sandbox.mode none, said in two places. The doors are ports of the host's
// loopback, so anybody on the machine can knock and only the run's secrets are asked for; a daemon that leaves the process
// group survives. One at a time.
func (s *Sandbox) startPlain(ctx context.Context, l Launch) (*Process, error) {
	select {
	case s.plain <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p, err := s.spawnPlain(ctx, l)
	if err != nil {
		<-s.plain
		return nil, err
	}
	go func() { // ends with the process, which its starter must Close
		<-p.done
		<-s.plain
	}()
	return p, nil
}

func (s *Sandbox) spawnPlain(ctx context.Context, l Launch) (*Process, error) {
	for _, f := range l.Files {
		dir := map[string]string{DirWork: l.Work, DirState: l.State}[filepath.Dir(f.Path)]
		if dir == "" {
			continue // a file of the sandbox's own /etc
		}
		if err := writeBeneath(dir, filepath.Base(f.Path), f.Mode, f.Data); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(s.cfg.Pilder, initArguments(l, false)...)
	cmd.Env = append([]string{}, l.Env...) // never nil, which would inherit
	cmd.Dir = l.Work
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return s.spawn(ctx, cmd, len(l.Doors), nil)
}

// writeBeneath replaces name in dir, whatever an earlier run has put there.
func writeBeneath(dir, name string, mode os.FileMode, data []byte) error {
	d, err := openPath(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Unlinkat(int(d.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("replacing %s: %w", name, err)
	}
	f, err := openBeneath(d, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, uint64(mode.Perm()))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
