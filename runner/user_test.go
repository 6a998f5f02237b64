package runner_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/runner"
)

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(st.Sys().(*syscall.Stat_t).Uid)
}

// closed is a folder whose parent nobody but its owner can pass.
func closed(t *testing.T) string {
	t.Helper()
	parent := folder(t)
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "inner")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAgentsHaveAUserOfTheirOwnUnderRoot(t *testing.T) {
	onlyRoot(t)
	for user, want := range map[string]int{"": 61000, "61001": 61001, "root": 0} {
		t.Run("user "+user, func(t *testing.T) {
			work, state, home := closed(t), closed(t), closed(t)
			write(t, filepath.Join(home, "CLAUDE.md"), "read me\n")
			if err := os.Chmod(home, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/etc/hostname", filepath.Join(work, "link")); err != nil {
				t.Fatal(err)
			}
			c := startShell(t, newSandbox(t, runner.SandboxConfig{User: user}), runner.Launch{Work: work, State: state, AgentHome: home})
			if got := c.say(t, "cat /agent/CLAUDE.md"); got != "read me" {
				t.Errorf("the agent home says %q", got)
			}
			mark := markOf(t)
			c.say(t, "echo x >/work/made; echo x >/state/made; sleep "+mark+" & echo")
			for _, path := range []string{"made", "link", "."} {
				if got := ownerOf(t, filepath.Join(work, path)); got != want {
					t.Errorf("%s belongs to %d", path, got)
				}
			}
			for _, p := range awaitProcess(t, mark) {
				if got := ownerOf(t, filepath.Dir(strings.Fields(p)[0])); got != want {
					t.Errorf("%s runs as %d", p, got)
				}
			}
			if ownerOf(t, "/etc/hostname") != 0 {
				t.Error("a link was followed")
			}
		})
	}
}

func TestUserThatAgentsCannotHave(t *testing.T) {
	users := []string{"no-such-user-here", "-1"}
	if os.Getuid() != 0 {
		users = append(users, "root", strconv.Itoa(os.Getuid()+1))
	}
	for _, user := range users {
		if _, err := runner.NewSandbox(runner.SandboxConfig{User: user}); !errors.Is(err, runner.ErrUser) {
			t.Errorf("%s: error is %v", user, err)
		}
	}
}

func TestProcessesAreLimited(t *testing.T) {
	// A shell that may not fork ends, so the shell that counts is another one.
	const script = `(for i in {1..300}; do sleep 100 & done) >/dev/null 2>&1; set -- /proc/[0-9]*; echo $#`
	count := func(cfg runner.SandboxConfig) int {
		c := startShell(t, newSandbox(t, cfg), runner.Launch{})
		n, err := strconv.Atoi(c.say(t, script))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(runner.SandboxConfig{}); n < 200 || n > 260 {
		t.Errorf("%d processes at once", n)
	}
	if os.Getuid() == 0 { // the positive control: root is not bound
		if n := count(runner.SandboxConfig{User: "root"}); n < 300 {
			t.Errorf("%d processes of root", n)
		}
	}
}

func TestReadyNamesWhatAgentsCannotRead(t *testing.T) {
	onlyRoot(t)
	open, shut := folder(t), closed(t)
	write(t, filepath.Join(open, "claude"), "")
	for claim, c := range map[string]struct {
		cfg    runner.SandboxConfig
		remedy string
	}{
		"all can be read":            {runner.SandboxConfig{AgentHome: open, CLI: open}, ""},
		"the agent home is closed":   {runner.SandboxConfig{AgentHome: shut}, "chmod -R a+rX " + shut},
		"the CLI's folder is closed": {runner.SandboxConfig{AgentHome: open, CLI: shut}, "chmod -R a+rX " + shut},
	} {
		t.Run(claim, func(t *testing.T) {
			found, err := newSandbox(t, c.cfg).Ready(t.Context())
			var remedies []string
			for _, f := range found {
				if f.Fatal {
					remedies = append(remedies, f.Remedy)
				}
			}
			if diff := cmp.Diff(c.remedy, strings.Join(remedies, "\n")); diff != "" || (err == nil) != (c.remedy == "") {
				t.Errorf("error %v, remedies (-want +got):\n%s", err, diff)
			}
		})
	}
}
