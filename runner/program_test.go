package runner_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pilder/runner"
)

func TestAProgramIsTalkedToOverItsStreamsAndSeesItsTwoFolders(t *testing.T) {
	s, err := runner.NewSandbox(runner.SandboxConfig{})
	if err != nil {
		t.Fatal(err)
	}
	tools, work := folder(t), folder(t)
	write(t, filepath.Join(tools, "tool"), "a tool")
	script := `read line; cat $1/tool; echo " got $line, $NAME"; echo kept >$2/kept; (echo x >$1/x) 2>/dev/null || echo read-only; cat`
	pipe, err := s.StartProgram(t.Context(), runner.Program{
		Argv: []string{"/bin/bash", "-c", script, "bash", "{folder}", "{work}"}, Env: []string{"NAME=value"}, Folder: tools, Work: work,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(pipe, "hello"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(pipe)
	for _, want := range []string{"a tool got hello, value", "read-only"} {
		if got, err := in.ReadString('\n'); strings.TrimSpace(got) != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if err := pipe.Close(); err != nil {
		t.Error(err)
	}
	if _, err := in.ReadString('\n'); err == nil {
		t.Error("it goes on after its end")
	}
	if kept, err := os.ReadFile(filepath.Join(work, "kept")); string(kept) != "kept\n" {
		t.Errorf("kept %q, %v", kept, err)
	}
}

func TestWithoutASandboxThereIsNoProgram(t *testing.T) {
	s, err := runner.NewSandbox(runner.SandboxConfig{Unsandboxed: true, AcceptUnsandboxed: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartProgram(t.Context(), runner.Program{Argv: []string{"/bin/true"}, Work: folder(t)}); !errors.Is(err, runner.ErrUnsandboxed) {
		t.Errorf("started: %v", err)
	}
}
