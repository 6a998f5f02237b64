package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pilder/runner"
)

func TestLimitsOfWhatIsInside(t *testing.T) {
	for _, c := range []struct{ claim, script, want string }{
		{"it goes before pilder when memory runs out", `cat /proc/self/oom_score_adj /proc/1/oom_score_adj`, "500\n500\n"},
		{"it steps back when processors are scarce", `nice; nice -n -1 nice 2>/dev/null`, "5\n5\n"},
		{"folders in memory are bounded", `df -m --output=size /tmp /dev/shm /run /home/agent | tail -n +2 | tr -d ' '`, "512\n32\n16\n64\n"},
		{"a full folder is full for its run alone", `head -c 40M /dev/zero >/run/x 2>/dev/null || echo full`, "full\n"},
		{"a shell command's process has 2 GiB of private memory", `/opt/pilder/pilder-sh 'ulimit -d'; ulimit -d`, "2097152\nunlimited\n"},
		{"memory that nobody maps cannot be had", `perl -e 'print syscall(29, $x = 1, $y = 4096, $z = 0) < 0 ? "no" : "yes", " ", syscall(319, $n = "x", $z) < 0 ? "no" : "yes", "\n"'`, "no no\n"},
		{"files of pilder's are read-only beside that", `(echo x >/run/pilder/x) 2>/dev/null || echo refused`, "refused\n"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			run := folder(t)
			if got, exit := sh(t, runner.Launch{Run: run}, c.script); got != c.want {
				t.Errorf("exit %d, output %q, expected %q", exit, got, c.want)
			}
		})
	}
}

func TestRunThatTakesTooMuchMemoryIsEnded(t *testing.T) {
	s := newSandbox(t, runner.SandboxConfig{Memory: 128 << 20})
	for claim, c := range map[string]struct {
		script string
		ended  bool
	}{
		"one process":     {holding("300M"), true},
		"many processes":  {"for i in 1 2 3 4 5 6; do " + holding("40M") + " & done; wait", true},
		"files in memory": {"head -c 200M /dev/zero >/tmp/x; sleep 1000", true},
		"shared memory that nobody has mapped any more": {self + " helper nameless 200", true},
		"a process whose first thread has ended":        {self + " helper headless 300", true},
		"names of files":                                {self + " helper links", true},
		"a mapped file in memory, counted once":         {self + " helper mapped 60", false},
		"less than it may":                              {"exec 3< <(" + holding("40M") + "); head -n 1 <&3; sleep 1", false},
		"one that ends on its own":                      {"exit 3", false},
		"one that is killed inside":                     {"kill -9 $$", false},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			p := start(t, s, runner.Launch{Argv: []string{"/bin/bash", "-c", c.script}})
			exit, err := p.Wait()
			if err != nil || p.OutOfMemory() != c.ended || c.ended && exit != 137 {
				t.Errorf("exit %d, %v, out of memory %t", exit, err, p.OutOfMemory())
			}
		})
	}
}

func TestOnlyTheDoorsOfTheLaunchCanBeKnockedAt(t *testing.T) {
	for claim, c := range map[string]struct {
		argv []string
		want string
	}{
		"a port that is no door":                                  {helper("connect", "7005"), "true false\n"},
		"a door, by another name for itself":                      {[]string{"/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7000 && echo open"}, "open\n"},
		"a door, by a shell command":                              {[]string{"/opt/pilder/pilder-sh", "(exec 3<>/dev/tcp/127.0.0.1/7000) 2>/dev/null || echo refused"}, "refused\n"},
		"a door, by a shell command that connects while it sends": {[]string{"/opt/pilder/pilder-sh", self + " helper fastopen 7000"}, "operation not supported\n"},
		"the web door, by a shell command":                        {[]string{"/opt/pilder/pilder-sh", "exec 3<>/dev/tcp/127.0.0.1/7002 && echo open"}, "open\n"},
		"a folder that is no agent's":                             {[]string{"/bin/bash", "-c", "(: >/home/x) 2>/dev/null || echo refused"}, "refused\n"},
		"the state, by a shell command":                           {[]string{"/opt/pilder/pilder-sh", "ls /state 2>/dev/null || echo refused"}, "refused\n"},
		"the state, by the program":                               {[]string{"/bin/bash", "-c", "ls /state && echo >/state/x && echo listed"}, "listed\n"},
		"the first process, by a signal":                          {[]string{"/bin/bash", "-c", "kill -0 1 2>/dev/null || echo refused"}, "refused\n"},
		"the program itself, by a shell command":                  {[]string{"/bin/bash", "-c", "/opt/pilder/pilder-sh \"kill -0 $$ 2>/dev/null || echo refused\"; true"}, "refused\n"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			p := start(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{Argv: c.argv,
				Doors: []runner.Door{{Name: "tools", Port: 7000}, {Name: "web", Port: 7002}}})
			if got, exit := output(t, p); got != c.want {
				t.Errorf("exit %d: %q, expected %q", exit, got, c.want)
			}
		})
	}
}

// cgroup2 is where the tests' own group is, or "" where none can be made below it.
func cgroup2(t *testing.T) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(own)) {
		path, ok := strings.CutPrefix(line, "0::")
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			dir := filepath.Join(mount, strings.TrimSpace(path))
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); ok && err == nil {
				if try, err := os.MkdirTemp(dir, "try-"); err == nil {
					_ = os.Remove(try)
					return dir
				}
			}
		}
	}
	return ""
}

func TestEachRunHasAGroupThatIsGoneWithIt(t *testing.T) {
	base := cgroup2(t)
	if base == "" {
		t.Skip("no group of cgroup v2 can be made here")
	}
	c := startShell(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{})
	mark := markOf(t)
	c.say(t, "setsid sleep "+mark+" & echo")
	found := awaitProcess(t, mark)
	group, err := os.ReadFile(filepath.Join(filepath.Dir(strings.Fields(found[0])[0]), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	for line := range strings.Lines(string(group)) {
		if own, ok := strings.CutPrefix(line, "0::"); ok {
			path = filepath.Join(filepath.Dir(base), filepath.Base(base), strings.TrimSpace(own)[strings.Index(own, "/pilder-runs-"):])
		}
	}
	if _, err := os.Stat(path); err != nil || !strings.Contains(path, "/run-") {
		t.Fatalf("the daemon is in %q: %v", path, err)
	}
	if got := c.say(t, "cat /proc/self/cgroup | grep ^0::"); got != "0::/" {
		t.Errorf("inside the group is called %q", got)
	}
	if err := c.p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Errorf("%s is still there", path)
	}
}
