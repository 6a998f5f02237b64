package runner_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/runner"
)

func TestInsideThereIsNothingButWhatTheLaunchNames(t *testing.T) {
	secret := filepath.Join(folder(t), "canary")
	write(t, secret, "canary")
	for _, c := range []struct {
		claim, script, want string
	}{
		{"the program has user and group 1000", `id -u; id -g`, "1000\n1000\n"},
		{"the first process has no environment", `cat /proc/1/environ 2>/dev/null | wc -c`, "0\n"},
		{"the first process's arguments name no host path", `tr '\0' '\n' </proc/1/cmdline | grep -c '^/tmp/'`, "0\n"},
		{"a host file is absent", `for p in "" /proc/1/root /proc/self/root /proc/1/cwd/..; do cat $p` + secret + ` 2>/dev/null && echo found; done; true`, ""},
		{"the root holds these names only", `echo /*`, "/agent /bin /dev /etc /home /lib /lib64 /opt /proc /run /sbin /tmp /usr /work /state\n"},
		{"no descriptor but the three streams is open", `set -- /proc/self/fd/*; echo $#`, "4\n"}, // and the shell's own on the folder
		{"only loopback exists", `ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '`, "lo\n"},
		{"no user namespace can be made", `unshare -U true 2>/dev/null || echo refused`, "refused\n"},
		{"the kernel's settings cannot be written", `for f in core_pattern modprobe hotplug; do (: >>/proc/sys/kernel/$f) 2>/dev/null && echo opened; done; true`, ""},
		{"oom_score_adj cannot be lowered", `(: >>/proc/self/oom_score_adj) 2>/dev/null || echo refused`, "refused\n"},
		{"the system's folders cannot be written", `for d in / /usr /etc /opt /dev /home; do [ -w $d ] && echo $d; done; true`, ""},
		{"core files are off", `ulimit -c`, "0\n"},
		{"descriptors are limited", `ulimit -n`, "4096\n"},
		{"a file is limited to 1 GiB", `ulimit -f`, "2097152\n"},
		{"files are private by default", `umask`, "0077\n"},
		{"work, state, tmp and home can be written", `for d in /work /state /tmp /home/agent /dev/shm; do echo x >$d/x && echo yes; done`, "yes\nyes\nyes\nyes\nyes\n"},
		{"what the kernel tells of the machine is empty", `cat /proc/kpageflags /proc/kpagecount /proc/slabinfo /proc/vmallocinfo 2>/dev/null | head -c 100 | wc -c`, "0\n"},
		{"own processes only", `ls -d /proc/[0-9]* | wc -l | awk '{print ($1<8)}'`, "1\n"},
		{"there is no terminal", `(: </dev/tty) 2>/dev/null || echo none`, "none\n"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			got, exit := sh(t, runner.Launch{Work: folder(t), State: folder(t)}, c.script)
			if c.claim == "the root holds these names only" {
				got, c.want = sorted(got), sorted(c.want)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("exit %d, output (-want +got):\n%s", exit, diff)
			}
		})
	}
}

// sorted orders names, without those a host may lack or have more of.
func sorted(names string) string {
	var keep []string
	for _, n := range strings.Fields(names) {
		if n != "/lib32" && n != "/lib64" && n != "/agent" {
			keep = append(keep, n)
		}
	}
	return strings.Join(slices.Sorted(slices.Values(keep)), " ")
}

func TestEnvironmentIsTheGoldenList(t *testing.T) {
	t.Setenv("TELEGRAM_BOT_TOKEN", "canary")
	t.Setenv("ANTHROPIC_API_KEY", "canary")
	want := "HOME=/home/agent\nLANG=C.UTF-8\nLOGNAME=agent\nPATH=/usr/local/bin:/usr/bin:/bin\nSHELL=/bin/bash\nTMPDIR=/tmp\nTZ=UTC\nUSER=agent\n"
	var out, errOut bytes.Buffer
	exit, err := newSandbox(t, runner.SandboxConfig{}).Exec(t.Context(), []string{"/usr/bin/env"}, strings.NewReader(""), &out, &errOut)
	if err != nil || exit != 0 {
		t.Fatalf("exit %d, %v: %s", exit, err, errOut.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if diff := cmp.Diff(want, strings.Join(slices.Sorted(slices.Values(lines)), "\n")+"\n"); diff != "" {
		t.Error(diff)
	}
}

func TestDoorIsServedFromOutside(t *testing.T) {
	p := start(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{
		Argv: helper("get", "http://127.0.0.1:7001/"), Doors: []runner.Door{{Name: "tools", Port: 7000}, {Name: "model", Port: 7001}}})
	for name, l := range p.Doors {
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "from "+name) })}
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
	}
	got, exit := output(t, p)
	if got != "from model" || exit != 0 {
		t.Errorf("got %q, exit %d", got, exit)
	}
	if c, err := net.Dial("tcp", "127.0.0.1:7001"); err == nil {
		c.Close()
		t.Error("the door can be reached from the host")
	}
}

func TestNoDoorMeansNoNetwork(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := start(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{Argv: helper("get", "http://"+l.Addr().String()+"/")})
	if got, exit := output(t, p); exit != 1 || !strings.Contains(got, "permission denied") {
		t.Errorf("exit %d: %s", exit, got)
	}
}

func TestStreamsAreSocketsThatCannotBeReopened(t *testing.T) {
	p := start(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{Argv: helper("sockets")})
	if got, _ := output(t, p); got != "true\ntrue\ntrue\n" {
		t.Errorf("sockets: %s", got)
	}
	got, _ := sh(t, runner.Launch{}, `(echo forged >/proc/$$/fd/1) 2>/dev/null || echo refused; (echo forged >/proc/1/fd/1) 2>/dev/null || echo refused`)
	if got != "refused\nrefused\n" {
		t.Errorf("output: %s", got)
	}
}

func TestLongLineArrivesComplete(t *testing.T) {
	p := start(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{Argv: helper("line", "6000000")})
	if got, exit := output(t, p); len(got) != 6_000_001 || exit != 0 {
		t.Errorf("%d bytes, exit %d", len(got), exit)
	}
}

func TestEndOfInputEndsTheProgram(t *testing.T) {
	p := start(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{Argv: []string{"/bin/cat"}})
	if _, err := p.Stdin.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if got, exit := output(t, p); got != "hello\n" || exit != 0 {
		t.Errorf("got %q, exit %d", got, exit)
	}
}

func TestSignalsReachTheProgramItself(t *testing.T) {
	for claim, c := range map[string]struct {
		send func(*runner.Process) error
		want int
	}{
		"interrupt": {(*runner.Process).Interrupt, 42},
		"terminate": {(*runner.Process).Terminate, 43},
		"kill":      {(*runner.Process).Kill, 137},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			p := start(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{Argv: []string{"/bin/bash", "-c",
				`trap 'exit 42' INT; trap 'exit 43' TERM; echo ready; while :; do read -t 1 x; done`}})
			if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatal(line, err)
			}
			if err := c.send(p); err != nil {
				t.Fatal(err)
			}
			if exit, err := p.Wait(); exit != c.want || err != nil {
				t.Errorf("exit %d, %v", exit, err)
			}
		})
	}
}

func TestNothingOutlivesTheProgram(t *testing.T) {
	const daemons = `(setsid sleep 4711.%s >/dev/null 2>&1 </dev/null &) ; (trap '' TERM HUP INT; setsid nohup sleep 4711.%s >/dev/null 2>&1 & ) ; sleep 0.2; `
	for claim, c := range map[string]struct {
		script string
		end    func(*runner.Process) error
	}{
		"when it ends by itself": {"echo ready", func(*runner.Process) error { return nil }},
		"when it is terminated":  {"echo ready; exec sleep 4711.%s", (*runner.Process).Terminate},
		"when it is killed":      {"echo ready; exec sleep 4711.%s", (*runner.Process).Kill},
		"when it kills all":      {"echo ready; [ $$ -lt 20 ] && [ ! -e /root ] && kill -9 -1", func(*runner.Process) error { return nil }},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			mark := "7" + regexp.MustCompile(`\D`).ReplaceAllString(folder(t), "")
			mark = mark[max(0, len(mark)-12):]
			p := start(t, newSandbox(t, runner.SandboxConfig{}),
				runner.Launch{Argv: []string{"/bin/bash", "-c", strings.ReplaceAll(daemons+c.script, "%s", mark)}})
			if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatal(line, err)
			}
			if err := c.end(p); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			if left := hostProcesses(t, "4711."+mark); len(left) > 0 {
				t.Errorf("still there: %v", left)
			}
		})
	}
}

func TestNothingOutlivesPilder(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mark := "4714." + regexp.MustCompile(`\D`).ReplaceAllString(folder(t), "")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pilder, err := os.StartProcess(exe, []string{exe, "helper", "launch", mark}, &os.ProcAttr{Files: []*os.File{nil, w, os.Stderr}, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatal(line, err)
	}
	if len(hostProcesses(t, mark)) < 3 { // pilder, bubblewrap, the program
		t.Fatal("the program does not run")
	}
	if err := pilder.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := pilder.Wait(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left := hostProcesses(t, mark)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %v", left)
		}
	}
}

func TestFoldersAndFilesOfTheLaunch(t *testing.T) {
	dir := folder(t)
	for _, d := range []string{"work", "state", "run", "home/.claude/rules", "cli"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "run/mcp-config.json"), "config\n")
	write(t, filepath.Join(dir, "home/CLAUDE.md"), "rules of the house\n")
	write(t, filepath.Join(dir, "home/.claude/rules/one.md"), "one\n")
	got, _ := sh(t, runner.Launch{
		Work: filepath.Join(dir, "work"), State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run"),
		AgentHome: filepath.Join(dir, "home"), CLI: filepath.Join(dir, "cli"),
		Files: []runner.SandboxFile{{Path: "/state/.claude.json", Mode: 0o600, Data: []byte("{}\n")}},
	}, `pwd; cat /run/pilder/mcp-config.json /etc/claude-code/CLAUDE.md /agent/CLAUDE.md /etc/claude-code/.claude/rules/one.md /state/.claude.json
		for f in /run/pilder/mcp-config.json /agent/CLAUDE.md /etc/claude-code/.claude/rules/one.md /state/.claude.json /opt/claude/x; do
			(echo x >$f) 2>/dev/null && echo written
			rm -f $f 2>/dev/null && [ -e /opt/claude ] && [ $f != /opt/claude/x ] && echo removed
		done
		mv /state/.claude.json /state/y 2>/dev/null && echo moved
		echo kept >/work/file`)
	want := "/work\nconfig\n@/agent/CLAUDE.md\nrules of the house\none\n{}\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "work/file")); err != nil || string(kept) != "kept\n" {
		t.Errorf("the work folder keeps %q, %v", kept, err)
	}
}

func TestLaunchThroughSymbolicLinkIsRefused(t *testing.T) {
	dir, target := folder(t), folder(t)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	write(t, plain, "")
	planted := folder(t)
	if err := os.Symlink(filepath.Join(target, "created"), filepath.Join(planted, ".claude.json")); err != nil {
		t.Fatal(err)
	}
	file := []runner.SandboxFile{{Path: "/state/.claude.json", Data: []byte("{}")}}
	fifo := folder(t)
	if err := os.Mkdir(filepath.Join(fifo, ".claude.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	for claim, l := range map[string]runner.Launch{
		"work is a link":                         {Work: link},
		"state is a link":                        {State: link},
		"a parent is a link":                     {Work: filepath.Join(link, "x")},
		"work is a file":                         {Work: plain},
		"work is relative":                       {Work: "x"},
		"agent home is a link":                   {AgentHome: link},
		"a mount point was replaced by a link":   {State: planted, Files: file},
		"a mount point was replaced by a folder": {State: fifo, Files: file},
	} {
		t.Run(claim, func(t *testing.T) {
			l.Argv = []string{"/bin/true"}
			p, err := newSandbox(t, runner.SandboxConfig{}).Start(t.Context(), l)
			if !errors.Is(err, runner.ErrFolder) {
				t.Errorf("error is %v", err)
			}
			if p != nil {
				p.Close()
			}
		})
	}
	if left, _ := os.ReadDir(target); len(left) > 0 {
		t.Errorf("the target of the link got %v", left)
	}
}

func TestProgramThatDoesNotExistSaysSo(t *testing.T) {
	p := start(t, newSandbox(t, runner.SandboxConfig{}), runner.Launch{Argv: []string{"/opt/claude/claude"}})
	said, err := io.ReadAll(p.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if exit, _ := p.Wait(); exit != 127 || !strings.Contains(string(said), "sandbox-init") {
		t.Errorf("exit %d: %s", exit, said)
	}
}

func TestSandboxThatDoesNotStart(t *testing.T) {
	t.Run("an init that never shakes hands is killed in time", func(t *testing.T) {
		s := newSandbox(t, runner.SandboxConfig{Pilder: "/usr/bin/tail", Handshake: 300 * time.Millisecond})
		_, err := s.Start(t.Context(), runner.Launch{Argv: []string{"/bin/true"}})
		var se *runner.StartError
		if !errors.As(err, &se) || !errors.Is(err, runner.ErrStart) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("bubblewrap that is not there", func(t *testing.T) {
		_, err := newSandbox(t, runner.SandboxConfig{Bwrap: "/nonexistent/bwrap"}).Start(t.Context(), runner.Launch{Argv: []string{"/bin/true"}})
		if !errors.Is(err, runner.ErrNoBwrap) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("a start cancelled at any moment leaves no process", func(t *testing.T) {
		s := newSandbox(t, runner.SandboxConfig{})
		for after := time.Duration(0); after < 40*time.Millisecond; after += time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			p, err := s.Start(ctx, runner.Launch{Argv: []string{"/bin/sleep", "4712.5"}})
			cancel()
			if err == nil {
				err = p.Close()
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error after %s is %v", after, err)
				continue
			} else {
				err = nil
			}
			if left := hostProcesses(t, "4712.5"); err != nil || len(left) > 0 {
				t.Fatalf("after %s: %v, still there: %v", after, err, left)
			}
		}
	})
	t.Run("a port used twice", func(t *testing.T) {
		_, err := newSandbox(t, runner.SandboxConfig{}).Start(t.Context(), runner.Launch{Argv: []string{"/bin/true"},
			Doors: []runner.Door{{Name: "a", Port: 7000}, {Name: "b", Port: 7000}}})
		var se *runner.StartError
		if !errors.As(err, &se) || !strings.Contains(se.Stderr, "door b") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestUnfitBubblewrapIsRefused(t *testing.T) {
	onlyRoot(t)
	dir := folder(t)
	text, err := os.ReadFile("/usr/bin/bwrap")
	if err != nil {
		t.Fatal(err)
	}
	for claim, c := range map[string]struct {
		content []byte
		mode    os.FileMode
	}{
		"setuid":            {text, 0o755 | os.ModeSetuid},
		"writable for all":  {text, 0o757},
		"too old":           {[]byte("#!/bin/sh\necho bubblewrap 0.7.9\n"), 0o755},
		"without a version": {[]byte("#!/bin/sh\necho hello\n"), 0o755},
	} {
		t.Run(claim, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(claim, " ", "-"))
			if err := os.WriteFile(path, c.content, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			tier, found := newSandbox(t, runner.SandboxConfig{Bwrap: path}).Probe(t.Context())
			if tier != runner.TierD || len(found) != 1 || !found[0].Fatal || !strings.HasPrefix(found[0].Remedy, "install bubblewrap 0.8") {
				t.Errorf("tier %s, findings %+v", tier, found)
			}
		})
	}
}

func TestProbeFindsTheTier(t *testing.T) {
	tier, found := newSandbox(t, runner.SandboxConfig{}).Probe(t.Context())
	if tier < runner.TierC || tier == runner.TierC && len(found) == 0 {
		t.Errorf("tier %s, findings %+v", tier, found)
	}
	tier, found = newSandbox(t, runner.SandboxConfig{Bwrap: "/nonexistent/bwrap"}).Probe(t.Context())
	if tier != runner.TierD || found[0].Remedy != "apt-get install bubblewrap" {
		t.Errorf("tier %s, findings %+v", tier, found)
	}
}

func TestProbeSeesASandboxThatDoesNotHold(t *testing.T) {
	onlyRoot(t)
	t.Setenv("TMPDIR", "/var/tmp") // where the probe plants its file: bubblewrap never sees the host's /tmp
	for claim, c := range map[string]struct {
		edit string // of bubblewrap's arguments, by the weak one
		want []string
	}{
		"unchanged":          {"", nil},
		"no seccomp filter":  {"drop --seccomp 1", []string{"seccomp", "T6", "T7", "T9", "T15", "T17"}},
		"the host's network": {"drop --unshare-net 0", []string{"namespaces"}},
		"the host's files":   {"early --ro-bind /var/tmp /var/tmp", []string{"T1"}},
		"a writable /proc":   {"drop '--remount-ro /proc' 0", []string{"T8"}},
		"a writable root":    {"drop '--remount-ro /' 0", []string{"T8"}},
		"no sandbox":         {"none", []string{"namespaces"}},
	} {
		t.Run(claim, func(t *testing.T) {
			path := filepath.Join(folder(t), "bwrap")
			if err := os.WriteFile(path, []byte(strings.Replace(weakBwrap, "EDIT", c.edit, 1)), 0o755); err != nil {
				t.Fatal(err)
			}
			tier, found := newSandbox(t, runner.SandboxConfig{Bwrap: path}).Probe(t.Context())
			var checks []string
			for _, f := range found {
				if f.Fatal {
					checks = append(checks, f.Check)
				}
			}
			if diff := cmp.Diff(c.want, slices.Compact(checks)); diff != "" || (tier == runner.TierD) != (c.want != nil) {
				t.Errorf("tier %s (-want +got):\n%s\n%+v", tier, diff, found)
			}
		})
	}
}

// onlyRoot skips a test that needs a bubblewrap of its own: one that is not root's is refused before anything else.
func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make a bubblewrap that belongs to root")
	}
}

func TestReadyRefusesLessThanRequired(t *testing.T) {
	for claim, c := range map[string]struct {
		cfg  runner.SandboxConfig
		want error
	}{
		"C is the default":            {runner.SandboxConfig{}, nil},
		"A is not to be had":          {runner.SandboxConfig{Require: runner.TierA}, runner.ErrTooWeak},
		"no bubblewrap":               {runner.SandboxConfig{Bwrap: "/nonexistent/bwrap"}, runner.ErrTooWeak},
		"none, said twice, is served": {runner.SandboxConfig{Unsandboxed: true, AcceptUnsandboxed: true}, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			if _, err := newSandbox(t, c.cfg).Ready(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("error is %v", err)
			}
		})
	}
	for _, cfg := range []runner.SandboxConfig{{Unsandboxed: true}, {AcceptUnsandboxed: true}} {
		if _, err := runner.NewSandbox(cfg); !errors.Is(err, runner.ErrUnsandboxed) {
			t.Errorf("%+v: error is %v", cfg, err)
		}
	}
}

func TestUnsandboxedProgramHasItsDoorsAndNothingInherited(t *testing.T) {
	t.Setenv("TELEGRAM_BOT_TOKEN", "canary")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newSandbox(t, runner.SandboxConfig{Unsandboxed: true, AcceptUnsandboxed: true})
	p := start(t, s, runner.Launch{Argv: []string{exe, "helper", "get", "http://127.0.0.1:7001/"}, Env: []string{"PATH=/usr/bin"},
		Work: folder(t), Doors: []runner.Door{{Name: "model", Port: 7001}}})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "yes") })}
	go srv.Serve(p.Doors["model"])
	defer srv.Close()
	if got, exit := output(t, p); got != "yes" || exit != 0 {
		t.Errorf("got %q, exit %d", got, exit)
	}
	p.Close()
	p = start(t, s, runner.Launch{Argv: []string{"/usr/bin/env"}, Env: []string{"A=b"}, Work: folder(t)})
	if got, _ := output(t, p); got != "A=b\n" {
		t.Errorf("environment: %s", got)
	}
}
