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

// commanded is a shell inside that does what it is told, line by line.
type commanded struct {
	p   *runner.Process
	out *bufio.Reader
}

func startShell(t *testing.T, s *runner.Sandbox, l runner.Launch) commanded {
	t.Helper()
	l.Argv = []string{"/bin/bash", "-c", `while read -r line; do eval "$line"; done`}
	p := start(t, s, l)
	return commanded{p, bufio.NewReader(p.Stdout)}
}

// say has a line carried out and gives the next line of output.
func (c commanded) say(t *testing.T, line string) string {
	t.Helper()
	if _, err := fmt.Fprintln(c.p.Stdin, line); err != nil {
		t.Fatal(err)
	}
	answer, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("after %q: %v", line, err)
	}
	return strings.TrimSuffix(answer, "\n")
}

func TestSweepLeavesTheProgramAlone(t *testing.T) {
	for claim, daemon := range map[string]string{
		"a daemon":                            `(setsid sleep MARK >/dev/null 2>&1 </dev/null &); echo`,
		"one that forked twice":               `( ( (setsid sleep MARK & ) & ) & ) >/dev/null 2>&1 </dev/null; echo`,
		"one that ignores signals":            `(trap '' TERM HUP INT; setsid nohup sleep MARK >/dev/null 2>&1 &); echo`,
		"one that is stopped":                 `(setsid sleep MARK & kill -STOP $!) >/dev/null 2>&1; echo`,
		"a child that the program waits for":  `(sleep MARK) & echo`,
		"fifty of them":                       `for i in {1..50}; do sleep MARK & done; echo`,
		"one whose program may not be read":   `cp /bin/sleep /tmp/s; chmod 0111 /tmp/s; /tmp/s MARK & echo`,
		"one whose first thread has ended":    self + ` helper threads MARK &`,
		"one that leaves children when it is": `(while :; do sleep MARK & wait; done) & echo`,
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			c := startShell(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{})
			mark := markOf(t)
			pid := c.say(t, "echo $$")
			c.say(t, strings.ReplaceAll(daemon, "MARK", mark))
			if n := c.say(t, "set -- /proc/[0-9]*; echo $#"); n == "2" { // the first process and the program
				t.Fatal("the daemon does not run")
			}
			if err := c.p.Sweep(); err != nil {
				t.Fatal(err)
			}
			if left := hostProcesses(t, mark); len(left) > 0 {
				t.Errorf("still there: %v", left)
			}
			for ctx := within(t, patience); c.say(t, "set -- /proc/[0-9]*; echo $#") != "2"; { // until the dead are reaped
				if ctx.Err() != nil {
					t.Fatal("there are still processes inside")
				}
			}
			if got := c.say(t, "echo $$"); got != pid {
				t.Errorf("the program was %s and is %q", pid, got)
			}
		})
	}
}

// markOf is a number for sleep that no other test uses.
func markOf(t *testing.T) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	n := strings.TrimLeft(filepath.Base(f.Name()), "0")
	return "4721." + n
}

func TestSweepSparesEverybodyOutside(t *testing.T) {
	s := newSandbox(t, runner.SandboxConfig{})
	one, other := startShell(t, s, runner.Launch{}), startShell(t, s, runner.Launch{})
	mark := markOf(t)
	other.say(t, "sleep "+mark+" & echo")
	awaitProcess(t, mark)
	if err := one.p.Sweep(); err != nil {
		t.Fatal(err)
	}
	if len(hostProcesses(t, mark)) == 0 {
		t.Error("a process of another sandbox was ended")
	}
}

func TestSweepOfABombIsBounded(t *testing.T) {
	c := startShell(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{})
	mark := markOf(t)
	c.say(t, `b() { : `+mark+`; b & b & b & wait; }; (ulimit -u 64; b) >/dev/null 2>&1 & echo`)
	if err := c.p.Sweep(); err != nil && !errors.Is(err, runner.ErrLeftover) {
		t.Fatal(err)
	}
	if err := c.p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.p.Sweep(); err != nil {
		t.Errorf("nothing is left, and sweeping says %v", err)
	}
}

func TestSweepOfAnUnsandboxedProgram(t *testing.T) {
	c := startShell(t, newSandbox(t, runner.SandboxConfig{Unsandboxed: true, AcceptUnsandboxed: true}), runner.Launch{Work: folder(t)})
	mark := markOf(t)
	c.say(t, "sleep "+mark+" & echo")
	if err := c.p.Sweep(); err != nil {
		t.Fatal(err)
	}
	if left := hostProcesses(t, mark); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	if got := c.say(t, "echo here"); got != "here" {
		t.Errorf("the program says %q", got)
	}
}

func TestMemoryCountsProcessesAndFolders(t *testing.T) {
	c := startShell(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{})
	used := func() int64 {
		t.Helper()
		n, err := c.p.Memory()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const mib = 1 << 20
	c.say(t, "echo") // until then the shell may not have begun, and what comes before it is larger
	before := used()
	if before < mib/32 || before > 64*mib {
		t.Errorf("an idle shell uses %d bytes", before)
	}
	c.say(t, holding("100M")+" &")
	grown := used() - before
	if grown < 99*mib || grown > 120*mib {
		t.Errorf("100 MiB of a process are %d bytes", grown)
	}
	before = used()
	c.say(t, "head -c 50M /dev/zero >/tmp/x; head -c 20M /dev/zero >/dev/shm/x; echo")
	if grown := used() - before; grown < 69*mib || grown > 80*mib {
		t.Errorf("70 MiB of files are %d bytes", grown)
	}
}

// holding is a command line whose process takes so much memory, says so, and keeps it.
func holding(size string) string {
	return "dd if=/dev/zero bs=" + size + " count=1 iflag=fullblock status=none | (head -c 1 | tr '\\0' '\\n'; exec sleep 1000)"
}

// awaitProcess waits until a process that has been forked is what it is going to be.
func awaitProcess(t *testing.T, mark string) []string {
	t.Helper()
	for ctx := within(t, patience); ; {
		if found := hostProcesses(t, mark); len(found) > 0 {
			return found
		}
		if ctx.Err() != nil {
			t.Fatalf("%s does not run", mark)
		}
	}
}
