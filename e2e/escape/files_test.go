//go:build linux

package escape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"pilder/runner"
	"pilder/sim/anthropic"
)

// files (T27, T37, T38) is a run that prepares its folders for whoever takes files out of them or lays files into them, while
// those parts of the host are at work in them, and then fills them.
func (s *suite) files(ctx context.Context) error {
	racing := newPause()
	defer racing.release()
	fill := bash("cd /work && ./attack as fill; touch filled; sleep 80")
	s.orders.give("orden de llenar", whose(eduviges), first(s.bring(eduviges), attack("T37", "T38")),
		bash("cd /work && (setsid ./attack as swap "+s.canaries.homes[0]+" >/dev/null 2>&1 </dev/null &) ; sleep 0.1"),
		racing.hold(func(t anthropic.Turn) []anthropic.Block { s.collect(t); return fill(t) }), answer("fin de llenar"))
	said := s.say(eduviges, "orden de llenar")
	if err := s.reaches(ctx, racing, eduviges, said); err != nil {
		return err
	}
	dir, err := s.conversation(eduviges)
	if err != nil {
		return err
	}
	work := filepath.Join(dir, "work")
	// A reader that believes in names is led astray: that is what there is to be held.
	led, err := os.ReadFile(filepath.Join(work, "outbox", "link-4.txt"))
	s.evidence.held(outside, "T37", "a link leads to a canary", err == nil && s.canaries.in(string(led)) != "", len(led))
	if err := errors.Join(s.picked(ctx, work), s.laid(ctx, work), s.fillsOutside(ctx)); err != nil {
		return err
	}
	racing.release()
	return s.filled(ctx, dir, said)
}

// fillsOutside (T27) is the same filling where there is no quota.
func (s *suite) fillsOutside(ctx context.Context) error {
	dir := filepath.Join(s.dir, "filled")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(built, "attack"), "as", "fill")
	cmd.Dir = dir
	said, err := cmd.Output()
	s.evidence.held(outside, "T27", "filling a folder of the host", strings.Count(string(said), "<nil>") == 5, strings.ReplaceAll(string(said), "\n", " "))
	return errors.Join(err, os.Chmod(filepath.Join(dir, "closed"), 0o700), exec.CommandContext(ctx, "rm", "-rf", dir).Run()) // deeper than a path can name
}

// filled (T27) sees that the run is stopped, that the folders are brought back under the quota, and that the conversation
// goes on.
func (s *suite) filled(ctx context.Context, dir string, said int64) error {
	text, err := s.hear(ctx, eduviges, said)
	if err != nil {
		return err
	}
	s.evidence.held(traitor, "T27", "a run that fills the disk goes on", strings.Contains(text, "fin de llenar"), text)
	s.orders.give("orden de seguir", answer("fin de seguir"))
	err = s.ask(ctx, eduviges, "orden de seguir", "fin de seguir")
	use, lost := runner.Quota{Bytes: 64 << 20, Files: 2000}.Look(ctx, filepath.Join(dir, "work"), filepath.Join(dir, "state"))
	s.evidence.held(traitor, "T27", "the folders stay over the quota", use.Over != "" || lost != nil, fmt.Sprint(use, lost))
	return err
}

// picked (T37) takes up the outbox again and again while a link and a file change places in it.
func (s *suite) picked(ctx context.Context, work string) error {
	box := runner.Outbox{Dir: filepath.Join(s.dir, "picked")}
	if err := os.Mkdir(box.Dir, 0o700); err != nil {
		return err
	}
	good := 0
	for i := range 50 {
		all, err := box.Pick(ctx, fmt.Sprint("run-", i), work)
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.Err != nil {
				continue
			}
			text, err := os.ReadFile(p.Path)
			if err != nil {
				return err
			}
			if p.Name == "good.txt" && string(text) == "plain" {
				good++
			}
			if bad := string(text) != "plain" || strings.ContainsAny(p.Name, "\n\x1b/"); bad || i == 0 {
				s.evidence.held(inside, "T37", fmt.Sprintf("picking %q", p.Name), bad, string(text))
			}
		}
		if i == 0 {
			for _, p := range all {
				if p.Err != nil {
					s.evidence.held(inside, "T37", fmt.Sprintf("picking %q", p.Name), false, p.Err)
				}
			}
		}
	}
	s.evidence.held(outside, "T37", "a good file is picked", good == 1, good)
	return os.WriteFile(filepath.Join(work, "stop"), nil, 0o644)
}

// laid (T38) lays files of a person into an inbox that leads elsewhere, under names that lead elsewhere.
func (s *suite) laid(ctx context.Context, work string) error {
	names := []string{"../../CLAUDE.md", ".claude/settings.json", "/etc/passwd", "a\x00b.txt", strings.Repeat("n", 4096), "..", "", "-rf", "evil\u202etxt.exe", "x.zip", "x.sh", ".bashrc"}
	var files []runner.Incoming
	for _, name := range names {
		files = append(files, runner.Incoming{Kind: "document", Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte("sent"))), nil }})
	}
	outsideWork := 0
	for _, name := range names {
		if at := filepath.Join(work, "inbox", name); !strings.HasPrefix(at, filepath.Join(work, "inbox")+"/") {
			outsideWork++
		}
	}
	s.evidence.held(outside, "T38", "names that lead elsewhere", outsideWork > 1, outsideWork)
	before, err := s.listed(s.data)
	if err != nil {
		return err
	}
	all, err := runner.Inbox{}.Lay(ctx, work, files)
	if err != nil {
		return err
	}
	house := regexp.MustCompile(`^inbox/[0-9]+(\.[a-z0-9]{1,5})?$`)
	for i, l := range all {
		st, err := os.Lstat(filepath.Join(work, l.Path))
		s.evidence.held(inside, "T38", fmt.Sprintf("laying %.40q", names[i]), l.Err == nil && (!house.MatchString(l.Path) || err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 != 0), fmt.Sprint(l.Path, l.Err))
		s.evidence.held(inside, "T38", fmt.Sprintf("the name told for %.40q", names[i]), strings.ContainsAny(l.Name, "\x00\n/\u202e"), l.Name)
	}
	after, err := s.listed(s.data)
	if err != nil {
		return err
	}
	s.evidence.held(inside, "T38", "a file in the house's own folder", after != before, after)
	return nil
}

// listed names what lies directly in a folder, but for what its owner makes there as it works.
func (s *suite) listed(dir string) (string, error) {
	all, err := os.ReadDir(dir)
	var names []string
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), "pilder.db") {
			names = append(names, e.Name())
		}
	}
	return strings.Join(names, " "), err
}

// web (T23) asks the web door, where one is open, for everything but what it is open for.
func (s *suite) web(ctx context.Context) error {
	// It is not the model that waits here: with a request under way others may have to wait for what is left of the budget.
	s.orders.give("orden de red", whose(fulgencio), bash("cd /work; touch waiting; until [ -e go-on ]; do sleep 0.2; done"), answer("fin de red"))
	said := s.say(fulgencio, "orden de red")
	if err := s.appears(ctx, fulgencio, "waiting"); err != nil {
		return err
	}
	in, err := s.insiderOf(fulgencio)
	if err != nil {
		return err
	}
	defer in.close()
	connecting := func(target string) string { return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n" }
	passes := in.raw(ctx, webDoor, connecting("allowed.example:443"))
	s.evidence.held(outside, "T23", "a listed name passes the list", passes.status == 200 || passes.status == 502, passes)
	local := s.host.tcp[1] // on 127.0.0.1
	port := local[strings.LastIndexByte(local, ':'):]
	targets := []string{"allowed.example\x00.evil.example:443", "allowed.example.evil.example:443", "evil.example#allowed.example:443", "evil.example/allowed.example:443",
		"evil.example?allowed.example:443", "user@allowed.example:443", "allowed.example:443@127.0.0.1" + port, "allowed.example@127.0.0.1" + port, "allowed.example%00.evil.example:443",
		"other.example:443", "a.b.wild.example:443", "wild.example:443", "xn--allowed-.example:443", "\u0430llowed.example:443", "allowed\u3002example:443", "allowed.example:22", "allowed.example:80", "allowed.example:0443", "allowed.example",
		"localhost" + port, "localhost:443", "127.0.0.1" + port, "127.1:443", "2130706433:443", "0x7f000001:443", "0x7f.0.0.1:443", "017700000001:443", "0177.0.0.1:443", "[::1]:443", "[::ffff:127.0.0.1]:443", "[64:ff9b::7f00:1]:443",
		"169.254.169.254:443", "metadata.google.internal:443", "10.0.0.1:443", "[fd00:ec2::254]:443", "allowed.example:443 HTTP/1.1\r\nX: "}
	for _, ip := range ownAddresses() {
		targets = append(targets, "["+ip+"]:443", ip+":443")
	}
	lines := map[string]string{}
	for _, target := range targets {
		lines[target] = connecting(target)
	}
	for target, got := range in.rawAll(ctx, webDoor, lines) {
		s.evidence.held(inside, "T23", fmt.Sprintf("CONNECT %q", target), got.status == 200 || got.status == 502, got)
	}
	for try, got := range in.rawAll(ctx, webDoor, map[string]string{
		"GET":              "GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n",
		"another Host":     "CONNECT allowed.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
		"two Hosts":        "CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example:443\r\nHost: evil.example\r\n\r\n",
		"a body":           "CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example:443\r\nContent-Length: 5\r\n\r\nhello",
		"bare line ends":   "CONNECT allowed.example:443 HTTP/1.1\nHost: allowed.example:443\n\n",
		"another protocol": "\x05\x01\x00\r\n\r\n",
	}) {
		s.evidence.held(inside, "T23", try, got.status == 200 || got.status == 502, got)
	}
	for _, address := range []string{local, strings.Replace(local, "127.0.0.1", "[::ffff:127.0.0.1]", 1), strings.Replace(local, "127.0.0.1", "localhost", 1)} {
		s.evidence.held(outside, "T23", "the host's own listener at "+strings.TrimSuffix(address, port), reachable(address), address)
	}
	return s.spends(ctx, in, said)
}

// spends (T22) asks the model until the run's budget is used up: then nothing more goes through, and the run ends.
func (s *suite) spends(ctx context.Context, in *insider, said int64) error {
	passed, refused := 0, answered{}
	for range 20 {
		refused = in.askModel(ctx, ask("T22-spend "+strings.Repeat("palabra ", 8000)))
		if refused.status >= 400 {
			break
		}
		passed++
	}
	again := in.askModel(ctx, ask("T22-after"))
	s.evidence.held(outside, "T22", "requests within the budget pass", passed > 0, passed)
	s.evidence.held(inside, "T22", "asking on and on", refused.status < 400 || again.status < 400, fmt.Sprint(passed, " passed, then ", refused))
	s.evidence.held(inside, "T22", "a request without budget upstream", len(s.upstream("T22-after")) > 0, again)
	dir, err := s.conversation(fulgencio)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "work", "go-on"), nil, 0o644)
	}
	if err != nil {
		return err
	}
	text, err := s.hear(ctx, fulgencio, said)
	s.evidence.held(inside, "T22", "a run without budget goes on", strings.Contains(text, "fin de red"), text)
	return err
}
