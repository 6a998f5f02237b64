//go:build linux

// Package escape makes the attempts T01 to T48 of an agent that wants out of its sandbox, and looks for what it must not
// have got. Each attempt is made by a traitor, a whole pilder whose model has gone over to the enemy, and by `pilder sandbox
// exec`, and once more outside the sandbox, where it has to succeed: an attempt that fails everywhere shows nothing.
//
// It uses the built binary, the real CLI and the real store; Telegram, the model and Pipedream are the stand-ins. The hostile
// program is the command in the folder attack.
package escape

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// patience is how long anything may take on a machine that is busy with other things.
const patience = 3 * time.Minute

// built is the folder of what the tests run: pilder as it is shipped, and the hostile program, which needs nothing around it.
var built string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "pilder-escape-build-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	if err := build(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Chmod(folder, 0o755); err != nil { // a sandbox may be started by another user than this
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	built = folder
	return m.Run()
}

// build makes pilder as the Makefile does, with the small program that it starts inside embedded, and the hostile one.
func build(folder string) error {
	source, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(source, "cmd/pilder/inside.bin"): in("inside")}})
	if err == nil {
		err = os.WriteFile(in("overlay.json"), overlay, 0o600)
	}
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-trimpath", "-ldflags=-s -w", "-o", in("inside"), "pilder/cmd/inside"},
		{"-trimpath", "-ldflags=-s -w", "-o", in("attack"), "pilder/e2e/escape/attack"},
		{"-trimpath", "-tags=embedded", "-overlay=" + in("overlay.json"), "-o", in("pilder"), "pilder/cmd/pilder"},
	} {
		cmd := exec.Command("go", append([]string{"build"}, args...)...)
		if args[1] != "-tags=embedded" {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // these two need no library of wherever they are brought
		}
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", args[len(args)-1], err, said)
		}
	}
	return nil
}

// TestEscape makes all attempts, then judges each by itself: what a test named after an attempt says is about that one alone.
func TestEscape(t *testing.T) {
	s := newSuite(t)
	t.Run("attempts are made", func(t *testing.T) {
		if err := s.makeAttempts(t.Context()); err != nil {
			t.Errorf("%v\npilder's log:\n%s", err, s.log)
		}
	})
	for _, a := range attempts() {
		t.Run(a.id+" "+a.title, func(t *testing.T) { s.judge(t, a) })
	}
	t.Run("no canary was seen anywhere", func(t *testing.T) {
		for _, leak := range s.leaks() {
			t.Error(leak)
		}
	})
	s.print(t)
}
