package gateway_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
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

// TestInterleavingsOfRetryCutCrashAndTap lets processes live and be killed in the middle of everything: agents call, repeat
// their calls under other spellings and at the same time, and have their connections cut; people press yes and no, several
// at once, on cards, summaries and undo buttons, and some who may not. Each call is one random interleaving of these. What
// the apps were really made to do stands in a ledger outside: nothing in it may stand twice, and nothing that the database
// had not decided before. PILDER_SEED repeats one choice of dice; the interleaving is the machine's.
func TestInterleavingsOfRetryCutCrashAndTap(t *testing.T) {
	seed := uint64(time.Now().UnixNano() % 1_000_000)
	if text := os.Getenv("PILDER_SEED"); text != "" {
		seed = need(strconv.ParseUint(text, 10, 64))(t)
	}
	for kind, size := range map[string]struct{ lives, runs int }{"sqlite": {5, 5}, "postgres": {2, 2}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", seed)
			dice := rand.New(rand.NewPCG(seed, 7))
			p := play{URL: storetest.Fresh(t, kind), Seed: seed, Runs: size.runs, Ledger: filepath.Join(t.TempDir(), "ledger")}
			p.people(t)
			for p.Life = range size.lives {
				if p.KillAfter = 20 + dice.Int64N(int64(size.runs)*storiesOfRun*6); p.Life == size.lives-1 {
					p.KillAfter = 0 // the last one brings everything to its end
				}
				p.live(t)
			}
			p.check(t, size.lives*size.runs)
		})
	}
}

// play is what a process is told about its life.
type play struct {
	URL       string
	Ledger    string // one line per effect, written by whoever performs it
	Seed      uint64
	Life      int
	Runs      int   // that begin in this life, each with storiesOfRun interleavings
	KillAfter int64 // steps after which the process kills itself; 0: never
}

// people makes the company of the play.
func (p play) people(t *testing.T) {
	t.Helper()
	s := need(store.Open(t.Context(), store.Config{URL: p.URL, Key: storetest.Key()}))(t)
	company := need(s.CreateCompany(t.Context(), store.Company{Name: "Empresa", Domains: []string{"empresa.com"}, Zone: "UTC", Lang: "es"}))(t)
	for telegram, role := range map[int64]policy.Role{101: policy.RoleAdmin, 102: policy.RoleApprover, 103: policy.RoleMember} {
		m := need(s.AddMember(t.Context(), company.ID, store.Person{Telegram: telegram, Name: fmt.Sprint(telegram), Lang: "es"}, role))(t)
		if telegram == 103 {
			need(s.SeedAccount(t.Context(), m, "google_calendar", "apn_calendar", "x"))(t)
			need(s.SeedAccount(t.Context(), m, "gmail", "apn_mail", "x"))(t)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// live lets one process live to its end, which is a kill if one was wished.
func (p play) live(t *testing.T) {
	t.Helper()
	text := need(json.Marshal(p))(t)
	cmd := exec.Command(os.Args[0])
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Env = append(os.Environ(), "PILDER_TEST_PLAYS=life", "PILDER_TEST_PLAY="+string(text))
	err := cmd.Run()
	killed := cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled()
	if err != nil && !killed || killed && p.KillAfter == 0 {
		t.Fatalf("life %d ended badly: %v\n%s", p.Life, err, &said)
	}
	if strings.HasPrefix(p.URL, "sqlite:") {
		return // its owner knows that no other lives
	}
	p.ask(t, `UPDATE instance SET beat_ms = 0 WHERE 1 = $1 RETURNING instance_id`, 1)
	p.ask(t, `UPDATE lease SET until_ms = 0 WHERE 1 = $1 RETURNING name`, 1)
}

// ask reads from the database behind the store's back.
func (p play) ask(t *testing.T, query string, args ...any) (first string) {
	t.Helper()
	driver, dsn := behindOf(p.URL)
	db := need(sql.Open(driver, dsn))(t)
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&first); err != nil && err != sql.ErrNoRows {
		t.Fatal(err)
	}
	return first
}

// behindOf is how a database is opened without the store.
func behindOf(url string) (driver, dsn string) {
	if path, lite := strings.CutPrefix(url, "sqlite:"); lite {
		return "sqlite", "file:" + path + "?_pragma=busy_timeout(5000)"
	}
	return "pgx", url
}

// check compares the ledger with the database.
func (p play) check(t *testing.T, turns int) {
	t.Helper()
	raw := need(os.ReadFile(p.Ledger))(t)
	calls, effects := map[string]bool{}, map[string]bool{}
	kinds := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 4) // call, what stood in the database before, tool, arguments
		if len(f) != 4 || !strings.HasSuffix(line, "\n") {
			t.Fatalf("ledger: %q", line)
		}
		if calls[f[0]] {
			t.Errorf("call %s was performed twice", f[0])
		}
		if effects[f[2]+f[3]] {
			t.Errorf("an effect happened twice: %s", line)
		}
		calls[f[0]], effects[f[2]+f[3]] = true, true
		if f[1] != "allow" && f[1] != "begun" {
			t.Errorf("performed without a decision: %s", line)
		}
		kinds[f[1]+" "+f[2]]++
		row := p.ask(t, `SELECT outcome FROM call WHERE call_id = $1`, f[0])
		if row != string(store.OutcomeDone) && row != string(store.OutcomeUnknown) {
			t.Errorf("what happened is recorded as %q: %s", row, line)
		}
	}
	for what, query := range map[string]string{
		"done without an effect": `SELECT CAST(COUNT(*) AS TEXT) FROM call WHERE outcome = 'done' AND class <> 'read' AND call_id NOT IN ('` +
			strings.Join(slices.Collect(maps.Keys(calls)), "', '") + `')`,
		"approved and never begun":   `SELECT CAST(COUNT(*) AS TEXT) FROM approval a JOIN call c ON c.call_id = a.call_id WHERE a.state = 'approved' AND c.outcome = 'held'`,
		"calls left open":            `SELECT CAST(COUNT(*) AS TEXT) FROM call WHERE outcome = ''`,
		"performed against a no":     `SELECT CAST(COUNT(*) AS TEXT) FROM approval a JOIN call c ON c.call_id = a.call_id WHERE a.state IN ('denied', 'expired', 'cancelled') AND c.outcome NOT IN ('refused', 'expired')`,
		"effects of no audited wish": `SELECT CAST(COUNT(*) AS TEXT) FROM call c WHERE c.outcome <> 'refused' AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.subject = c.call_id AND a.action = 'call.decided')`,
	} {
		n := need(strconv.Atoi(p.ask(t, query)))(t)
		if n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
	for _, must := range []string{"allow " + create, "begun " + mail, "begun " + remove} {
		if kinds[must] == 0 {
			t.Errorf("it never came to this: %s", must)
		}
	}
	if n := need(strconv.Atoi(p.ask(t, `SELECT CAST(COUNT(*) AS TEXT) FROM message WHERE state NOT IN ('queued', 'running')`)))(t); n != turns {
		t.Errorf("%d of %d turns came to an end", n, turns)
	}
	t.Logf("%d interleavings, effects %v; calls %s", turns*storiesOfRun, kinds, p.ask(t, `SELECT CAST(COUNT(*) AS TEXT) FROM call`))
}
