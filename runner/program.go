package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// How long a program may take to end once its input has, and to read what was written to it.
const (
	programGrace   = 2 * time.Second
	programReading = 10 * time.Second
)

// Program is a program that is no agent, and is talked to over its standard input and output: an MCP server of the
// operator's, say. It runs in a sandbox like an agent's: without network, and with nothing of the host but what is named.
type Program struct {
	// Argv is the program and its arguments; {folder} and {work} in them stand for the two folders as they are seen inside.
	Argv []string
	// Env is what its environment has on top of the plain one.
	Env []string
	// Folder is a host folder it can read, with the program in it. Empty: none.
	Folder string
	// Work is the one host folder it can write: its current folder.
	Work string
}

// StartProgram starts one; ctx bounds the start only. Without a sandbox there is none: what an operator has from elsewhere is
// not run with all that pilder's user can reach.
func (s *Sandbox) StartProgram(ctx context.Context, p Program) (io.ReadWriteCloser, error) {
	if s.cfg.Unsandboxed {
		return nil, fmt.Errorf("starting a program: %w", ErrUnsandboxed)
	}
	l := Launch{Env: append(plainEnvironment(), p.Env...), Work: p.Work, CLI: p.Folder}
	inside := strings.NewReplacer("{folder}", DirCLI, "{work}", DirWork)
	for _, arg := range p.Argv {
		l.Argv = append(l.Argv, inside.Replace(arg))
	}
	process, err := s.Start(ctx, l)
	if err != nil {
		return nil, err
	}
	t := &talk{process: process}
	t.draining.Go(func() { _, _ = io.Copy(io.Discard, process.Stderr) }) // its log is its own; ends with the process
	return t, nil
}

// talk is a conversation with a program.
type talk struct {
	process  *Process
	draining sync.WaitGroup
	close    sync.Once
	err      error
}

func (t *talk) Read(b []byte) (int, error) { return t.process.Stdout.Read(b) }

// Write does not wait for ever for a program that does not read.
func (t *talk) Write(b []byte) (int, error) {
	if err := t.process.Stdin.SetWriteDeadline(time.Now().Add(programReading)); err != nil {
		return 0, err
	}
	return t.process.Stdin.Write(b)
}

// Close ends the program's input, and a moment later the program and all it started.
func (t *talk) Close() error {
	t.close.Do(func() {
		err := t.process.Stdin.Close()
		grace := time.NewTimer(programGrace)
		defer grace.Stop()
		select {
		case <-t.process.Done():
		case <-grace.C:
		}
		t.err = errors.Join(err, t.process.Close())
		t.draining.Wait()
	})
	return t.err
}
