package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// TestPreparedRunsKeepTheOrderUnderAnyInterleaving lets two instances (one on SQLite, which has no second) prepare, start,
// put off, give up, finish and retire in any order for 100 turns and more, and looks at what every agent saw. PILDER_TURNS
// makes it longer, PILDER_SEED repeats one choice of dice; the interleaving is the machine's.
func TestPreparedRunsKeepTheOrderUnderAnyInterleaving(t *testing.T) {
	for kind, instances := range map[string]int{"sqlite": 1, "postgres": 2} {
		t.Run(kind, func(t *testing.T) {
			w := townOn(t, storetest.Fresh(t, kind))
			seed := uint64(number(t, "PILDER_SEED", int(time.Now().UnixNano()%1_000_000)))
			t.Logf("seed %d", seed)
			f := &fair{w: w, turns: number(t, "PILDER_TURNS", 100), at: map[store.ConversationID]store.RunID{}, begun: map[store.MessageID][]store.RunID{},
				ready: map[store.ConversationID]store.Run{}, seen: map[string]int{}, enough: make(chan struct{})}
			stores := []*store.Store{w.Store}
			for len(stores) < instances {
				stores = append(stores, w.start(store.Config{Now: w.clock.Now}))
			}
			var works []*work
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var loose sync.WaitGroup
			for i, s := range stores {
				v := &visitor{fair: f, s: s, dice: rand.New(rand.NewPCG(seed, uint64(i))), own: map[store.ConversationID]store.Run{}}
				works = append(works, serve(t, s, v.turn))
				loose.Go(func() { v.meddle(ctx) })
			}
			f.talk(t, rand.New(rand.NewPCG(seed, 99)))
			cancel()
			loose.Wait()
			until(t, w.Store, func() bool { return len(need(w.BusyChats(t.Context(), townBot))(t)) == 0 })
			for _, work := range works {
				work.stop()
			}
			f.check(t)
		})
	}
}

// fair is where all that happens: what its visitors saw, kept outside the database.
type fair struct {
	w      *town
	turns  int // how many are to begin before it ends
	enough chan struct{}

	mu    sync.Mutex
	at    map[store.ConversationID]store.RunID // at work right now
	begun map[store.MessageID][]store.RunID    // which runs took a message
	ready map[store.ConversationID]store.Run   // what was prepared there last, by anybody
	seen  map[string]int                       // how often each thing happened, so that a test of nothing is found
	wrong []string
}

func (f *fair) fail(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

func (f *fair) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[what]++
}

// talk writes messages of two people, in a group and in private, until enough turns have begun.
func (f *fair) talk(t *testing.T, dice *rand.Rand) {
	t.Helper()
	from := []store.Membership{f.w.member, f.w.approver}
	for i := 0; ; i++ {
		m := from[dice.IntN(2)]
		chat := group
		if dice.IntN(2) == 0 {
			chat = private(m)
		}
		f.w.write(t, m, chat, fmt.Sprint(i))
		switch dice.IntN(25) {
		case 0:
			if err := f.w.NewConversation(t.Context(), f.w.command(t, m, chat), m.Person.Telegram, chat); err != nil {
				t.Fatal(err)
			}
		case 1:
			need(f.w.SeedAccount(t.Context(), m, "gmail", fmt.Sprint("apn_", i), "x"))(t)
		case 2:
			need(f.w.Stop(t.Context(), f.w.command(t, m, chat), m.Person.Telegram, chat, func(store.Stopped) []store.Draft { return nil }))(t)
		}
		select {
		case <-f.enough:
			return
		case <-time.After(time.Duration(dice.IntN(30)) * time.Millisecond): // turns come one by one and in heaps
		}
	}
}

// visitor is one instance with a runner that does everything a runner may do, and much that it should not.
type visitor struct {
	*fair
	s    *store.Store
	mu   sync.Mutex
	dice *rand.Rand
	own  map[store.ConversationID]store.Run // what it prepared last
}

func (v *visitor) roll(n int) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.dice.IntN(n)
}

// named is the run that a turn says is ready: its own, mostly, but also somebody else's, and that may be gone.
func (v *visitor) named(c store.ConversationID) store.RunID {
	others := v.roll(4) == 0
	v.fair.mu.Lock()
	defer v.fair.mu.Unlock()
	if others {
		return v.ready[c].ID
	}
	return v.own[c].ID
}

func (v *visitor) turn(ctx context.Context, t store.Turn) error {
	if v.roll(8) == 0 {
		v.count("put off")
		return store.ErrLater
	}
	if v.roll(8) > 0 {
		t.Prepared, t.Life = v.named(t.Conversation), time.Duration(v.roll(2))*time.Minute
	}
	r, ok, err := v.s.StartRun(ctx, t)
	if err != nil || !ok {
		return err
	}
	v.enter(t, r)
	for range v.roll(3) {
		v.call(ctx, r)
	}
	if v.roll(4) == 0 {
		v.prepare(ctx, r.Conversation, r.Member.ID, r.Session, store.ErrBusy)
	}
	v.leave(r)
	if v.roll(10) == 0 {
		v.count("given up")
		return errors.New("gone")
	}
	f := succeeded(r)
	if v.roll(5) == 0 {
		f.State = store.RunFailed
	}
	if _, err = v.s.FinishRun(ctx, t, r, f); err != nil {
		return err
	}
	for range v.roll(3) {
		v.prepare(ctx, r.Conversation, r.Member.ID, f.Session)
	}
	return nil
}

// enter and leave are the outside's word on who is at work where.
func (v *visitor) enter(t store.Turn, r store.Run) {
	v.fair.mu.Lock()
	defer v.fair.mu.Unlock()
	if other, busy := v.at[r.Conversation]; busy {
		v.wrong = append(v.wrong, fmt.Sprintf("%s began beside %s", r.ID, other))
	}
	if v.at[r.Conversation] = r.ID; r.Warm != (r.ID == t.Prepared) {
		v.wrong = append(v.wrong, fmt.Sprintf("%s is warm: %v, prepared was %q", r.ID, r.Warm, t.Prepared))
	}
	for _, m := range r.Messages {
		v.begun[m.ID] = append(v.begun[m.ID], r.ID)
	}
	v.seen[fmt.Sprint("warm ", r.Warm)]++
	if v.turns--; v.turns == 0 {
		close(v.enough)
	}
}

func (v *visitor) leave(r store.Run) {
	v.fair.mu.Lock()
	defer v.fair.mu.Unlock()
	delete(v.at, r.Conversation)
}

// call makes a call that may be refused: whose call was taken is looked at in the end.
func (v *visitor) call(ctx context.Context, r store.Run) {
	_, err := v.s.BeginCall(ctx, store.NewCall{Run: r, Tool: "gmail-list", Class: policy.ClassRead, Args: json.RawMessage("{}"),
		Decision: policy.Decision{Effect: policy.Allow}}, nil)
	if err != nil && !errors.Is(err, store.ErrRunOver) && ctx.Err() == nil {
		v.fail("a call of %s: %v", r.ID, err)
	}
}

// prepare makes a run ready, or is refused for one of the reasons there are.
func (v *visitor) prepare(ctx context.Context, c store.ConversationID, m store.MembershipID, session string, only ...error) {
	r, err := v.s.Prepare(ctx, c, m, session)
	switch {
	case err == nil && len(only) == 0:
		v.fair.mu.Lock()
		v.ready[c], v.own[c] = r, r
		v.fair.mu.Unlock()
		v.count("prepared")
	case ctx.Err() != nil, len(only) == 0 && (errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrLost)):
		v.count("not prepared")
	case len(only) == 0 || !errors.Is(err, only[0]):
		v.fail("preparing in %s: %v, not %v", c, err, only)
	}
}

// meddle prepares, retires and calls in whatever conversation there is, beside everything else.
func (v *visitor) meddle(ctx context.Context) {
	for ctx.Err() == nil {
		rest(ctx, time.Duration(v.roll(40))*time.Millisecond)
		v.fair.mu.Lock()
		var all []store.Run
		for _, r := range v.ready {
			all = append(all, r)
		}
		v.fair.mu.Unlock()
		if len(all) == 0 {
			continue
		}
		r := all[v.roll(len(all))]
		switch v.roll(3) {
		case 0:
			v.prepare(ctx, r.Conversation, r.Member.ID, r.Session)
		case 1:
			if err := v.s.Retire(ctx, r); err != nil && ctx.Err() == nil {
				v.fail("retiring: %v", err)
			}
		case 2:
			v.call(ctx, r)
		}
	}
}

// check looks at what is left when everything is over.
func (f *fair) check(t *testing.T) {
	t.Helper()
	for _, line := range f.wrong {
		t.Error(line)
	}
	for _, what := range []string{"warm true", "warm false", "put off", "given up", "prepared", "not prepared"} {
		if f.seen[what] == 0 {
			t.Errorf("it never came to this: %s", what)
		}
	}
	for m, runs := range f.begun {
		if len(runs) > 2 {
			t.Errorf("%s was in %v", m, runs)
		}
		for _, r := range runs[:len(runs)-1] {
			same(t, store.RunInterrupted, need(f.w.RunByID(t.Context(), r))(t).State)
		}
	}
	for what, query := range map[string]string{
		"messages without an end":         `SELECT COUNT(*) FROM message WHERE state IN ('queued', 'running')`,
		"runs still going on or prepared": `SELECT COUNT(*) FROM run WHERE state IN ('running', 'prepared')`,
		"jobs left open":                  `SELECT COUNT(*) FROM river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded')`,
		"calls of no begun run":           `SELECT COUNT(*) FROM call c WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.run_id = c.run_id)`,
		"fences of two runs":              `SELECT COUNT(*) FROM run r JOIN run o ON o.conversation_id = r.conversation_id AND o.fence = r.fence WHERE o.run_id < r.run_id`,
		"audited and not there":           `SELECT COUNT(*) FROM audit a WHERE a.action = 'run.started' AND NOT EXISTS (SELECT 1 FROM run r WHERE r.run_id = a.subject)`,
		"not audited": `SELECT COUNT(*) FROM run r WHERE 2 <> (
			SELECT COUNT(*) FROM audit a WHERE a.subject = r.run_id AND a.action IN ('run.started', 'run.finished'))`,
	} {
		if n := ask(t, f.w.url, query, 1)[0][0]; n != "0" {
			t.Errorf("%s: %s", what, n)
		}
	}
	t.Logf("%v, %d messages", f.seen, len(f.begun))
}
