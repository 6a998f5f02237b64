package store_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// TestNothingIsLostOrDoubledUnderKills kills processes at random moments while updates go on coming, and then looks at
// what the outside saw: the agents' own log, the effects, the sent replies. PILDER_KILLS makes it longer, PILDER_SEED
// repeats one.
func TestNothingIsLostOrDoubledUnderKills(t *testing.T) {
	kills := number(t, "PILDER_KILLS", 6)
	seed := uint64(number(t, "PILDER_SEED", int(time.Now().UnixNano()%1_000_000)))
	for kind, nodes := range map[string]int{"sqlite": 1, "postgres": 2} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d, %d kills", seed, kills)
			l := newLoop(t, kind, seed, 200*kills/6)
			l.kill(t, nodes, kills)
			l.finish(t)
			l.check(t)
		})
	}
}

func number(t *testing.T, name string, or int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return or
	}
	return need(strconv.Atoi(text))(t)
}

// loop is the harness: it owns the processes and knows nothing of the store but its tables.
type loop struct {
	script
	dice  *rand.Rand
	nodes []*process
}

type process struct {
	cmd  *exec.Cmd
	said bytes.Buffer
	gone *os.File // ends when the process and all its agents are gone
}

func newLoop(t *testing.T, kind string, seed uint64, updates int) *loop {
	t.Helper()
	l := &loop{dice: rand.New(rand.NewPCG(seed, 0)), script: script{
		URL: storetest.Fresh(t, kind), Seed: seed, Updates: updates, Every: 20 * time.Millisecond, Logs: t.TempDir(), TTL: 6 * time.Second,
		People: []int64{11, 12},
	}}
	s := need(store.Open(t.Context(), store.Config{URL: l.URL, Key: storetest.Key()}))(t)
	c := need(s.CreateCompany(t.Context(), store.Company{Name: "Acme", Lang: "es"}))(t)
	for _, id := range l.People {
		need(s.AddMember(t.Context(), c.ID, store.Person{Telegram: id, Lang: "es"}, policy.RoleMember))(t)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l.Begin = time.Now()
	return l
}

func (l *loop) start(t *testing.T) *process {
	t.Helper()
	text, err := json.Marshal(l.script)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := &process{cmd: exec.Command(os.Args[0]), gone: r}
	p.cmd.Env = append(os.Environ(), "PILDER_TEST_PLAYS=node", "PILDER_TEST_SCRIPT="+string(text), "PILDER_TEST_KEY="+storetest.Key().Reveal())
	p.cmd.Stderr = &p.said
	p.cmd.ExtraFiles = []*os.File{w}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill() // an ended process is an error that says nothing
		p.cmd.Wait()
		r.Close()
	})
	return p
}

// kill starts the nodes and kills and replaces one of them again and again.
func (l *loop) kill(t *testing.T, nodes, kills int) {
	t.Helper()
	for range nodes {
		l.nodes = append(l.nodes, l.start(t))
	}
	for range kills {
		time.Sleep(time.Duration(300+l.dice.IntN(1000)) * time.Millisecond) // how far they come is chance, and may be
		i := l.dice.IntN(nodes)
		p := l.nodes[i]
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatalf("a node ended by itself: %v\n%s", err, &p.said)
		}
		p.cmd.Wait() // killed, as wished
		if state := p.cmd.ProcessState; state.Exited() {
			t.Fatalf("a node ended by itself: %v\n%s", state, &p.said)
		}
		if _, err := p.gone.Read(make([]byte, 1)); err == nil {
			t.Fatal("a node wrote where it should not")
		}
		l.nodes[i] = l.start(t)
	}
}

// finish waits until nothing is open and stops the nodes. What does not move for a minute is stranded.
func (l *loop) finish(t *testing.T) {
	t.Helper()
	moved, last := time.Now(), ""
	for {
		open := l.open(t)
		if open == "0 0 0 0" && l.count(t, `SELECT COUNT(*) FROM arrival`) == l.Updates {
			break
		}
		if now := open + strconv.Itoa(l.count(t, `SELECT COUNT(*) FROM arrival`)); now != last {
			moved, last = time.Now(), now
		}
		if time.Since(moved) > time.Minute {
			for _, q := range []string{
				`SELECT id, kind, state, attempt FROM river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded')`,
				`SELECT conversation_id, instance_id, job_id, cancel_requested_ms FROM run WHERE state = 'running'`,
				`SELECT conversation_id, state, COUNT(*), MIN(seq) FROM message WHERE state IN ('queued', 'running') GROUP BY conversation_id, state`,
				`SELECT instance_id, pid, beat_ms, host FROM instance`,
			} {
				t.Log(ask(t, l.URL, q, 4))
			}
			t.Fatalf("stranded with updates, messages, replies, jobs open: %s\n%s", open, &l.nodes[0].said)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, p := range l.nodes {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("a node ended by itself: %v\n%s", err, &p.said)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("a node ended badly: %v\n%s", err, &p.said)
		}
	}
}

// open counts what is not at its end.
func (l *loop) open(t *testing.T) string {
	t.Helper()
	return fmt.Sprint(
		l.count(t, `SELECT COUNT(*) FROM arrival WHERE fate = 'received'`),
		l.count(t, `SELECT COUNT(*) FROM message WHERE state IN ('queued', 'running')`),
		l.count(t, `SELECT COUNT(*) FROM reply WHERE state IN ('queued', 'sending')`),
		l.count(t, `SELECT COUNT(*) FROM river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded')`))
}

func (l *loop) count(t *testing.T, query string) int {
	t.Helper()
	return need(strconv.Atoi(ask(t, l.URL, query, 1)[0][0]))(t)
}

func (l *loop) check(t *testing.T) {
	t.Helper()
	zero := map[string]string{
		"runs still going on":       `SELECT COUNT(*) FROM run WHERE state = 'running'`,
		"calls of a prepared run":   `SELECT COUNT(*) FROM call c WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.run_id = c.run_id AND r.state <> 'prepared')`,
		"turns of a prepared run":   `SELECT COUNT(*) FROM message m WHERE m.run_id <> '' AND NOT EXISTS (SELECT 1 FROM run r WHERE r.run_id = m.run_id AND r.state <> 'prepared')`,
		"no run was ever warm":      `SELECT CASE WHEN COUNT(*) > 0 THEN 0 ELSE 1 END FROM run WHERE warm = 1`,
		"succeeded without a reply": `SELECT COUNT(*) FROM run r WHERE r.state = 'succeeded' AND 1 <> (SELECT COUNT(*) FROM reply p WHERE p.run_id = r.run_id AND p.kind = 'answer')`,
		"answered by no success":    `SELECT COUNT(*) FROM message m JOIN run r ON r.run_id = m.run_id WHERE m.state = 'answered' AND r.state <> 'succeeded'`,
		"calls left open":           `SELECT COUNT(*) FROM call WHERE outcome = ''`,
		"repeats nobody heard of":   `SELECT COUNT(*) FROM run r WHERE r.state = 'interrupted' AND r.started_child_ms > 0 AND NOT EXISTS (SELECT 1 FROM reply p WHERE p.run_id = r.run_id)`,
		"audit rows missing":        `SELECT COUNT(*) FROM run r WHERE r.state <> 'prepared' AND 2 <> (SELECT COUNT(*) FROM audit a WHERE a.subject = r.run_id AND a.action IN ('run.started', 'run.finished'))`,
	}
	for what, query := range zero {
		if n := l.count(t, query); n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
	for _, line := range l.lines(t, "log") { // it would hide that a wake-up was lost
		if strings.Contains(line, "store.swept") {
			t.Errorf("the sweeper was needed: %s", line)
		}
	}
	l.checkAgents(t)
	for _, log := range []string{"effects", "sent"} {
		seen := map[string]bool{}
		for _, line := range l.lines(t, log) {
			if seen[line] {
				t.Errorf("%s: %s twice", log, line)
			}
			seen[line] = true
		}
	}
	t.Logf("%v", ask(t, l.URL, `SELECT state, warm, COUNT(*) FROM run GROUP BY state, warm ORDER BY state, warm`, 3))
	t.Logf("%v", ask(t, l.URL, `SELECT state, COUNT(*) FROM message GROUP BY state ORDER BY state`, 2))
}

// checkAgents reads what the agents saw: no overlap, no orphan, one sender to a run, everything in order, and nothing begun
// more than twice.
func (l *loop) checkAgents(t *testing.T) {
	t.Helper()
	last := map[string][2]int{} // chat → first and last message of its last start
	starts := map[int]int{}
	for _, line := range l.lines(t, "agents") {
		f := strings.Fields(line)
		if f[0] == "overlap" || f[0] == "orphan" {
			t.Error(line)
		}
		if f[0] != "start" {
			continue
		}
		var ids []int
		for _, text := range strings.Split(f[3], ",") {
			id, sender, _ := strings.Cut(text, "/")
			ids = append(ids, need(strconv.Atoi(id))(t))
			starts[ids[len(ids)-1]]++
			if sender != f[2] {
				t.Errorf("mixed senders: %s", line)
			}
		}
		before := last[f[1]]
		if !slices.IsSorted(ids) || ids[0] <= before[1] && ids[0] != before[0] {
			t.Errorf("out of order after %v: %s", before, line)
		}
		last[f[1]] = [2]int{ids[0], ids[len(ids)-1]}
	}
	for id, n := range starts {
		if n > 2 {
			t.Errorf("message %d was begun %d times", id, n)
		}
	}
	if len(starts) == 0 {
		t.Error("no agent ever worked")
	}
}

func (l *loop) lines(t *testing.T, log string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.Logs, log))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(b)))
}
