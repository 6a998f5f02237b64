package runner_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/runner"
)

// smallProgram builds what `make build` puts into pilder.
func smallProgram(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inside")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "pilder/cmd/inside")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building it: %v\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func TestTheSmallProgramServesInsideAsPilderDoes(t *testing.T) {
	box := newSandbox(t, runner.SandboxConfig{Inside: smallProgram(t)})
	if tier, found := box.Probe(t.Context()); tier < runner.TierC {
		t.Errorf("the sandbox is of tier %s: %v", tier, found)
	}
	for _, c := range []struct{ claim, script, want string }{
		{"it is the program there", `stat -c '%A %s' /opt/pilder/pilder | cut -d' ' -f1; [ $(stat -c %s /opt/pilder/pilder) -lt 5000000 ] && echo small`, "-r-xr-xr-x\nsmall\n"},
		{"it is the shell of commands", `ANTHROPIC_API_KEY=x /opt/pilder/pilder-sh 'echo "${ANTHROPIC_API_KEY:-no key}"'`, "no key\n"},
		{"nobody inside can change it", `(: >>/opt/pilder/pilder) 2>/dev/null || echo refused`, "refused\n"},
	} {
		var out, errOut bytes.Buffer
		exit, err := box.Exec(t.Context(), []string{"/bin/sh", "-c", c.script}, strings.NewReader(""), &out, &errOut)
		if diff := cmp.Diff(c.want, out.String()); err != nil || diff != "" {
			t.Errorf("%s: exit %d, %v: %s\n%s", c.claim, exit, err, errOut.String(), diff)
		}
	}
}

// TestTheSmallProgramStaysSmall: each package it is linked with has its share in the start of every run and shell command.
func TestTheSmallProgramStaysSmall(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "pilder/cmd/inside")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"golang.org/x/sys/unix", "pilder/runner/inside", "pilder/cmd/inside"}, strings.Fields(string(out))); diff != "" {
		t.Errorf("it is linked with (-want +got):\n%s", diff)
	}
}
