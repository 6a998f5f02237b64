// Package e2e runs the built binary as people and operators do: scripts in testdata, and a browser on the chat page.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// binary is the folder of the binary under test, built with the race detector.
var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "pilder-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	build := exec.Command("go", "build", "-race", "-o", filepath.Join(folder, "pilder"), "pilder/cmd/pilder")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building pilder:", err)
		return 1
	}
	binary = folder
	return m.Run()
}

// claude is the pinned CLI that `make setup` fetched; without it there is nothing to test.
func claude(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("../.tools/claude-code/*/claude")
	if err != nil || len(found) == 0 {
		t.Fatal("the CLI is missing; run: bin/pilder cli fetch")
	}
	path, err := filepath.Abs(found[len(found)-1])
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestScripts(t *testing.T) {
	cli := claude(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", binary+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("PILDER_RUNNER_CLAUDE_PATH", cli)
			return nil
		},
	})
}
