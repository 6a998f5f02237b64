// Package e2e runs the built binary as people and operators do: scripts in testdata, and a browser on the chat page.
package e2e

import (
	"encoding/json"
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

// claude is the pinned CLI, where `pilder cli fetch` puts it; without it there is nothing to test.
func claude(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../configs/claude-cli.json")
	if err != nil {
		t.Fatal(err)
	}
	var pin struct{ Version string }
	if err := json.Unmarshal(text, &pin); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(filepath.Join("../.tools/claude-code", pin.Version, "claude"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the CLI is missing; run: bin/pilder cli fetch (%v)", err)
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
