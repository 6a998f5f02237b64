//go:build linux

package escape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"pilder/sim/anthropic"
)

// makeAttempts makes everything that is judged later, as much of it at once as does not disturb the rest.
func (s *suite) makeAttempts(ctx context.Context) error {
	if err := s.serve(); err != nil {
		return err
	}
	var errs []error
	for _, together := range [][]func(context.Context) error{
		{s.withOffers},
		{s.leftBehind, s.planted, s.written, s.files, s.probes},
		{s.spinning},
		{s.killed},
		{s.web, s.warm},
	} {
		var group errgroup.Group
		for _, do := range together {
			group.Go(func() error { return do(ctx) })
		}
		errs = append(errs, group.Wait())
	}
	return errors.Join(errs...)
}

// withOffers makes the attempts of the hostile program, while another sandbox and the host wait to be met.
func (s *suite) withOffers(ctx context.Context) error {
	done, err := s.offering(ctx)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.Go(func() error { return errors.Join(s.outsideAttempts(ctx), s.execAttempts(ctx)) })
	group.Go(func() error { return s.traitorAttempts(ctx) })
	return errors.Join(group.Wait(), done())
}

// traitorAttempts is one long turn of Anacleta's traitor, while Brunilda's is held in the middle of its own.
func (s *suite) traitorAttempts(ctx context.Context) error {
	other, mine := newPause(), newPause()
	defer other.release()
	defer mine.release()
	stay := "stay-" + random(8)
	var stolen string
	s.orders.give("orden ajena", whose(brunilda),
		first(s.plantOther, bash("wc -c </work/canary; echo secreto-de-brunilda >/tmp/mine; ls /tmp")), other.hold(answer("fin ajena")))
	s.orders.give("orden principal", whose(anacleta),
		first(s.bring(anacleta), attack("T01", "T02", "T03", "T04", "T05", "T06")),
		attack("T07", "T08"), attack("T09", "T10", "T11", "T12", "T13", "T14", "T15", "T16", "T17"),
		attack("T24", "T25", "T26", "T27"), attack("T41", "T42", "T43", "T44", "T45", "T47"),
		bash("cat /tmp/mine /work/canary; ls -la /tmp /work"), s.readTool, s.secondCLI,
		bash("cd /work && ./attack targets T30; kill -9 -1"), bash("cd /work && ./attack as linger "+stay),
		mine.hold(func(t anthropic.Turn) []anthropic.Block { return s.done("fin principal " + stolen)(t) }))
	otherSaid := s.say(brunilda, "orden ajena")
	if err := s.reaches(ctx, other, brunilda, otherSaid); err != nil {
		return err
	}
	queued := s.say(brunilda, "orden en espera")
	s.orders.give("orden en espera", answer("fin de la espera"))
	said := s.say(anacleta, "orden principal")
	if err := s.reaches(ctx, mine, anacleta, said); err != nil {
		return err
	}
	a, err := s.insiderOf(anacleta)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := s.insiderOf(brunilda)
	if err != nil {
		return err
	}
	defer b.close()
	s.apart(a, b)
	s.evidence.held(traitor, "T48", "a second run of one conversation at once", len(s.upstream("orden en espera")) > 0, queued)
	s.evidence.held(traitor, "T47", "other variables than the golden list in the CLI", s.cliEnvironment(a) != "", s.cliEnvironment(a))
	err = s.doorAttempts(ctx, a, b)
	stolen = a.token + " " + a.key
	s.evidence.held(outside, "T29", "processes stay while the run lives", len(marked(stay)) >= 4, len(marked(stay)))
	mine.release()
	other.release()
	_, heard := s.hear(ctx, brunilda, otherSaid)
	return errors.Join(err, heard, s.afterwards(ctx, a, said, stay))
}

// plantOther puts a canary into Brunilda's work folder.
func (s *suite) plantOther() error {
	dir, err := s.conversation(brunilda)
	if err != nil {
		return err
	}
	return s.canaries.plant("file of another conversation", filepath.Join(dir, "work", "canary"))
}

// apart (T48) compares the namespaces of two runs.
func (s *suite) apart(a, b *insider) {
	link := func(in *insider, ns string) string {
		name, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(in.pid), "ns", ns))
		if err != nil {
			return err.Error()
		}
		return name
	}
	for _, ns := range []string{"user", "pid", "net", "mnt", "ipc", "uts"} {
		s.evidence.held(traitor, "T48", "a shared namespace "+ns, link(a, ns) == link(b, ns), link(a, ns))
	}
	mine, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(b.pid), "root/tmp/mine"))
	s.evidence.held(outside, "T48", "the other's file in /tmp is there", err == nil && len(mine) > 0, string(mine))
}

// readTool has the CLI's own reading tool, which no fence is around, look at files.
func (s *suite) readTool(t anthropic.Turn) []anthropic.Block {
	for _, c := range t.Calls {
		if text := c.Result.Text; strings.Contains(string(c.Input), "/tmp/mine") {
			s.evidence.held(traitor, "T48", "the other's file in /tmp", strings.Contains(text, "secreto"), text)
		}
	}
	var all []anthropic.Block
	for _, path := range append([]string{"/proc/self/environ", "/proc/1/environ", "/run/pilder/mcp-config.json"}, s.canaries.homes...) {
		all = append(all, anthropic.Use("Read", map[string]any{"file_path": path}))
	}
	return all
}

// secondCLI (T34, T35) starts the CLI from the shell: with another's session, with other flags, and to have it changed.
func (s *suite) secondCLI(t anthropic.Turn) []anthropic.Block {
	for _, c := range t.Calls {
		if c.Name != "Read" {
			continue
		}
		id, own := "T01", strings.Contains(string(c.Input), "/run/pilder") || strings.Contains(string(c.Input), "/proc/")
		if own {
			id = "T40"
		}
		s.evidence.held(traitor, id, "the reading tool: "+string(c.Input), !c.Result.IsError, c.Result.Text)
	}
	s.controlCLI()
	session := s.sessionOf(brunilda)
	s.evidence.held(outside, "T34", "the other's session is there", session != "", session)
	script := `cd /work; export ANTHROPIC_BASE_URL=http://127.0.0.1:7001 ANTHROPIC_API_KEY=x CLAUDE_CODE_MAX_RETRIES=0 DISABLE_AUTOUPDATER=1
c() { echo "== $*"; timeout 20 /opt/claude/claude "$@" </dev/null 2>&1 | head -c 600; echo; }
CLAUDE_CONFIG_DIR=/state c -p --resume ` + session + ` T34-hola &
export CLAUDE_CONFIG_DIR=/work/cfg
c -p --dangerously-skip-permissions --setting-sources=user,project,local T35-hola &
wait; c mcp add --scope=user evil -- /work/evil & c update & wait`
	return bash(script)(t)
}

// controlCLI changes the CLI's configuration on the host, in a folder of its own: there it stays changed.
func (s *suite) controlCLI() {
	dir := filepath.Join(s.dir, "cli-config")
	cmd := exec.Command(s.cli, "mcp", "add", "--scope=user", "evil", "--", "/bin/true")
	cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CLAUDE_CONFIG_DIR=" + dir, "DISABLE_AUTOUPDATER=1"}, s.dir
	said, err := cmd.CombinedOutput()
	kept, _ := os.ReadFile(filepath.Join(dir, ".claude.json"))
	s.evidence.held(outside, "T35", "a server added to the configuration stays", strings.Contains(string(kept), "evil"), fmt.Sprint(string(said), err))
}

// sessionOf is the newest session of a person's conversation.
func (s *suite) sessionOf(p person) string {
	dir, err := s.conversation(p)
	if err != nil {
		return ""
	}
	all, err := filepath.Glob(filepath.Join(dir, "state/projects/*/*.jsonl"))
	if err != nil || len(all) == 0 {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(all[len(all)-1]), ".jsonl")
}

// afterwards looks at what is left of Anacleta's run when it is over.
func (s *suite) afterwards(ctx context.Context, a *insider, said int64, stay string) error {
	text, err := s.hear(ctx, anacleta, said)
	if err != nil {
		return err
	}
	s.evidence.held(outside, "T40", "the answer with secrets came", strings.Contains(text, "fin principal"), text)
	s.evidence.held(traitor, "T40", "the run token in the chat", strings.Contains(text, a.token), text)
	s.evidence.held(traitor, "T40", "the process key in the chat", strings.Contains(text, a.key), text)
	s.evidence.held(traitor, "T30", "a forged line in the chat", strings.Contains(text, "forged"), text)
	s.evidence.held(traitor, "T29", "processes after the end of the run", s.left(stay) > 0, s.left(stay))
	s.evidence.held(traitor, "T18", "a process kept alive by setsid", s.left(stay) > 0, s.left(stay))
	again := newPause()
	defer again.release()
	s.orders.give("orden segunda", whose(anacleta), again.hold(answer("fin segunda")))
	for _, door := range []string{toolsDoor, modelDoor} {
		got := a.raw(ctx, door, a.after(door))
		s.evidence.held(inside, "T18", "the door "+door+" after the end", got.status > 0 && got.status < 400, got)
	}
	said = s.say(anacleta, "orden segunda")
	if err := s.reaches(ctx, again, anacleta, said); err != nil {
		return err
	}
	next, err := s.insiderOf(anacleta)
	if err == nil {
		got := next.tools(ctx, a.token, "server/discover", "", map[string]any{})
		s.evidence.held(inside, "T18", "the token at the next run's door", got.status < 400, got)
		next.close()
	}
	for _, r := range s.upstream("orden segunda") {
		s.evidence.held(traitor, "T35", "a server of its own in the next run", strings.Contains(strings.Join(append(r.Tools, r.Deferred...), " "), "evil"), len(r.Tools))
	}
	s.evidence.held(inside, "T18", "something of it upstream", len(s.upstream("T18")) > 0, "")
	for _, mark := range []string{"T34-hola", "T35-hola"} {
		s.evidence.held(traitor, mark[:3], "a request of another CLI upstream", s.asked(mark), mark)
	}
	again.release()
	_, heard := s.hear(ctx, anacleta, said)
	return errors.Join(err, heard)
}

// asked tells whether a text came to the model as what somebody asks for, and not as part of a command line.
func (s *suite) asked(words string) bool {
	for _, r := range s.anthropic.Requests() {
		if strings.Contains(r.Text, words) {
			return true
		}
	}
	return false
}

// cliEnvironment names the variables of the CLI that are not on the golden list.
func (s *suite) cliEnvironment(in *insider) string {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(in.pid), "environ"))
	if err != nil {
		return err.Error()
	}
	var others []string
	for kv := range strings.SplitSeq(strings.TrimRight(string(env), "\x00"), "\x00") {
		if !golden(kv, true) {
			others = append(others, kv)
		}
	}
	return strings.Join(others, " ")
}
