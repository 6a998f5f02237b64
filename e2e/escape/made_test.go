//go:build linux

package escape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// plainAttempts are those that the hostile program makes by itself, in every way.
func plainAttempts() []string {
	return strings.Fields("T01 T02 T03 T04 T05 T06 T07 T08 T09 T10 T11 T12 T13 T14 T15 T16 T17 T24 T25 T26 T27 T30 T41 T42 T43 T44 T45 T47")
}

// outsideAttempts makes the controls: the same program on the host, as the user that pilder is run by.
func (s *suite) outsideAttempts(ctx context.Context) error {
	dir := filepath.Join(s.dir, "outside")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "protected"), nil, 0o644), s.host.privileged(dir), os.Chmod(s.dir, 0o711)); err != nil {
		return err
	}
	text, err := json.Marshal(s.host.targetsOutside(dir))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "targets")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	left, err := os.Open(filepath.Join(s.data, "canary"))
	if err != nil {
		return err
	}
	defer left.Close()
	attack := func(change func(*exec.Cmd), ids ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(built, "attack"), append([]string{file}, ids...)...)
		cmd.Dir, cmd.Env, cmd.Stderr = dir, s.environ, os.Stderr
		change(cmd)
		said, err := cmd.Output()
		s.evidence.note(outside, s.golden(lines(said))...)
		return err
	}
	var plain []string
	for _, id := range plainAttempts() {
		if id != "T07" && id != "T04" {
			plain = append(plain, id)
		}
	}
	return errors.Join(
		attack(func(*exec.Cmd) {}, plain...),
		attack(func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{left} }, "T04"),
		attack(func(cmd *exec.Cmd) { // mounts need a namespace of their own, or the host would have them
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		}, "T07"),
	)
}

// exec runs `pilder sandbox exec`.
func (s *suite) exec(ctx context.Context, stdin io.Reader, argv ...string) (out []byte, code int, err error) {
	return s.execWith(ctx, s.environ, stdin, argv...)
}

func (s *suite) execWith(ctx context.Context, environ []string, stdin io.Reader, argv ...string) (out []byte, code int, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(built, "pilder"), append([]string{"--config", os.DevNull, "sandbox", "exec", "--"}, argv...)...)
	var said, errs bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, s.dir, stdin, &said, &errs
	err = cmd.Run()
	_, _ = s.spoken.Write(append(said.Bytes(), errs.Bytes()...)) // never fails
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return said.Bytes(), exit.ExitCode(), nil
	}
	if err != nil {
		err = fmt.Errorf("pilder sandbox exec: %w: %s", err, errs.String())
	}
	return said.Bytes(), 0, err
}

// carry is a shell's command line that takes the hostile program and its targets from standard input, and then does the rest.
func (s *suite) carry(rest string) ([]string, io.Reader, error) {
	program, err := os.ReadFile(filepath.Join(built, "attack"))
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(s.host.targetsInside("/work"))
	if err != nil {
		return nil, nil, err
	}
	line := "cd /work && head -c " + strconv.Itoa(len(program)) + " >attack && head -c " + strconv.Itoa(len(text)) + " >targets && chmod +x attack && " + rest
	return []string{"/bin/bash", "-c", line}, io.MultiReader(bytes.NewReader(program), bytes.NewReader(text)), nil
}

// execAttempts makes all of them in one sandbox, and the ones that end it in others.
func (s *suite) execAttempts(ctx context.Context) error {
	argv, stdin, err := s.carry("exec ./attack targets " + strings.Join(plainAttempts(), " "))
	if err != nil {
		return err
	}
	said, code, err := s.exec(ctx, stdin, argv...)
	if err != nil || code != 0 {
		return fmt.Errorf("sandbox exec ended with %d: %w", code, errors.Join(err))
	}
	s.evidence.note(byExec, s.golden(lines(said))...)
	s.host.victim.heard()
	_, code, err = s.exec(ctx, nil, "/bin/bash", "-c", "kill -9 -1; kill -9 1; kill -9 $$; exec sleep 1000")
	if err != nil {
		return err
	}
	hit := strings.Join(s.host.victim.heard(), "")
	s.evidence.held(byExec, "T05", "kill -9 -1 ends the sandbox alone", code != 128+9 || hit != "", fmt.Sprint("exit ", code, " ", hit))
	return nil
}

// offering keeps what another sandbox offers, and the same on the host, until done.
func (s *suite) offering(ctx context.Context) (done func() error, err error) {
	argv, stdin, err := s.carry("exec ./attack as offer " + s.host.meeting)
	if err != nil {
		return nil, err
	}
	var ends []func() error
	start := func(cmd *exec.Cmd, before io.Reader) error {
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		ends = append(ends, func() error { return errors.Join(in.Close(), cmd.Wait()) })
		if _, err := io.Copy(in, before); err != nil {
			return err
		}
		ready := make([]byte, 100)
		if n, err := out.Read(ready); !strings.HasPrefix(string(ready[:n]), "ready") {
			return fmt.Errorf("the offer said %q: %w", ready[:n], errors.Join(err))
		}
		return nil
	}
	sandboxed := exec.CommandContext(ctx, filepath.Join(built, "pilder"), append([]string{"--config", os.DevNull, "sandbox", "exec", "--"}, argv...)...)
	sandboxed.Env, sandboxed.Dir, sandboxed.Stderr = s.environ, s.dir, os.Stderr
	plain := exec.CommandContext(ctx, filepath.Join(built, "attack"), "as", "offer", s.host.meeting)
	err = errors.Join(start(sandboxed, stdin), start(plain, strings.NewReader("")))
	return func() error {
		var errs []error
		for _, end := range ends {
			errs = append(errs, end())
		}
		return errors.Join(errs...)
	}, err
}
