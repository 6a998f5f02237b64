package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"pilder/runner/inside"
)

// What is said between the two sides of a sandbox's border.
const (
	initName       = inside.InitName
	probeName      = inside.ProbeName
	shellName      = inside.ShellName
	handshakeDoors = inside.HandshakeDoors
	handshakeGo    = inside.HandshakeGo
)

// Reexec does what the binary is for when a sandbox has started it, and tells whether it was so. main calls it first,
// with os.Args, before it reads a configuration or an environment: inside there is none.
func Reexec(args []string) (code int, handled bool) { return inside.Reexec(args) }

// Exec runs one command as an agent's program would be run: the same mounts, limits and basic environment. There are no
// doors and no workspace, and /work and /state are empty folders in memory. It is `pilder sandbox exec`.
func (s *Sandbox) Exec(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	return s.run(ctx, Launch{Argv: argv}, stdin, stdout, stderr)
}

func (s *Sandbox) run(ctx context.Context, l Launch, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	l.Env, l.AgentHome, l.CLI = plainEnvironment(), s.cfg.AgentHome, s.cfg.CLI
	p, err := s.Start(ctx, l)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	defer stop()
	go func() { // ends when stdin does or the program has gone; not waited for, since a terminal's read cannot be broken off
		_, _ = io.Copy(p.Stdin, stdin)
		_ = p.Stdin.Close()
	}()
	var copies sync.WaitGroup
	errs := make([]error, 2)
	for i, c := range []struct {
		to   io.Writer
		from io.Reader
	}{{stdout, p.Stdout}, {stderr, p.Stderr}} {
		copies.Go(func() { _, errs[i] = io.Copy(c.to, c.from) })
	}
	copies.Wait()
	exit, err := p.Wait()
	if err := errors.Join(err, ctx.Err(), errors.Join(errs...)); err != nil {
		return exit, fmt.Errorf("running %s in the sandbox: %w", filepath.Base(l.Argv[0]), err)
	}
	return exit, nil
}

// ShellArgv is how the CLI's Bash tool starts a command line.
func ShellArgv(line string) []string { return []string{dirTools + "/" + shellName, line} }

// plainEnvironment is what every program inside has; a run's own variables come on top.
func plainEnvironment() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dirHome, "USER=agent", "LOGNAME=agent", "SHELL=/bin/bash",
		"LANG=C.UTF-8", "TZ=UTC", "TMPDIR=/tmp",
	}
}
