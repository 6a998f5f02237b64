package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// agent is a run that goes on until it is told to end.
type agent struct {
	store.Run
	end    func(state store.RunState) // ends the run and waits; again, it does nothing
	drafts []store.Draft              // what it says then
}

// talk lets somebody write and gives the run that it becomes.
func (w *town) talk(t *testing.T, from store.Membership, chat store.Chat) *agent {
	t.Helper()
	w.write(t, from, chat, "do it")
	return w.take(t)
}

// take begins the turn that waits.
func (w *town) take(t *testing.T) *agent {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	began, finish := make(chan store.Run, 1), make(chan store.RunState, 1)
	served := make(chan error, 1)
	s := w.Store
	a := &agent{}
	go func() {
		served <- s.ServeTurns(ctx, 1, patience, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := s.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			began <- r
			_, err = s.FinishRun(ctx, turn, r, store.Finish{State: <-finish, Reason: "ok", Drafts: a.drafts})
			cancel()
			return err
		})
	}()
	a.Run = next(t, began)
	var once sync.Once
	a.end = func(state store.RunState) {
		once.Do(func() {
			finish <- state
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { a.end(store.RunFailed) })
	return a
}

// calls of the tests: one kind for each decision.
func (a *agent) call(effect policy.Effect, args string) store.NewCall {
	c := store.NewCall{
		Run: a.Run, Tool: "gmail-write", App: "gmail", Class: policy.ClassWrite, Args: json.RawMessage(args), Account: "provider-account-1",
		Decision: policy.Decision{Effect: effect, Rule: "rule.of.test"},
	}
	if effect == policy.Allow {
		c.Decision.Rule = ""
	}
	return c
}

func read(c store.NewCall) store.NewCall {
	c.Class = policy.ClassRead
	return c
}

// card is the question as the tests put it.
func card(a store.Approval, to store.Approver) store.Draft {
	return store.Draft{
		Chat: to.Chat, Lang: "es", Notice: "card",
		Buttons: [][]store.Button{{{Label: "yes", Action: store.ButtonApprove, Ref: string(a.ID)}}},
	}
}

func (w *town) begin(t *testing.T, c store.NewCall) store.BegunCall {
	t.Helper()
	return need(w.BeginCall(t.Context(), c, card))(t)
}

// outcomes are those of a run's calls, as begun.
func (w *town) outcomes(t *testing.T, run store.RunID) []store.Outcome {
	t.Helper()
	var all []store.Outcome
	for _, c := range need(w.RunByID(t.Context(), run))(t).Calls {
		all = append(all, c.Outcome)
	}
	return all
}

func TestACallIsWrittenBeforeItsEffect(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		c := w.begin(t, run.call(policy.Allow, `{"a":1}`))
		same(t, store.BegunCall{ID: c.ID}, c)
		same(t, []store.Outcome{store.OutcomeOpen}, w.outcomes(t, run.ID))
		if err := w.EndCall(t.Context(), w.acme.ID, c.ID, store.OutcomeDone, "ok", json.RawMessage(`{"x":1}`), nil); err != nil {
			t.Fatal(err)
		}
		want := store.CallView{ID: c.ID, Tool: "gmail-write", App: "gmail", Class: policy.ClassWrite, Decision: policy.Allow,
			Outcome: store.OutcomeDone, Code: "ok", Begun: w.clock.Now()}
		same(t, []store.CallView{want}, need(w.RunByID(t.Context(), run.ID))(t).Calls)
		got := w.actions(t, w.acme.ID)
		same(t, []string{"call.decided", "call.ended"}, got[len(got)-2:])
	})
}

func TestADeniedCallIsRefusedAtOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		unknown := run.call(policy.Allow, `{"a":1}`)
		unknown.Decision.Effect = 9
		early := run.call(policy.Allow, `{"a":2}`)
		early.Why = "bad_arguments"
		for _, c := range []store.NewCall{run.call(policy.Deny, `{}`), unknown, early} {
			same(t, store.OutcomeRefused, w.begin(t, c).Outcome)
		}
		same(t, []store.Outcome{store.OutcomeRefused, store.OutcomeRefused, store.OutcomeRefused}, w.outcomes(t, run.ID))
		same(t, []said(nil), w.said(t))
	})
}

func TestACallNeedsARunThatGoesOn(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		refused := func(t *testing.T, c store.NewCall) {
			t.Helper()
			_, err := w.BeginCall(t.Context(), c, card)
			wants(t, err, store.ErrRunOver)
		}
		run := w.talk(t, w.member, private(w.member))
		foreign := run.call(policy.Allow, `{}`)
		foreign.Run.Principal.Company = w.rival.Company.ID
		refused(t, foreign)
		unknown := run.call(policy.Allow, `{}`)
		unknown.Run.ID = "run_nothere"
		refused(t, unknown)
		open := w.begin(t, run.call(policy.Allow, `{"a":1}`))
		run.end(store.RunSucceeded)
		refused(t, run.call(policy.Allow, `{"a":2}`))
		refused(t, read(run.call(policy.Allow, `{"a":2}`)))
		// An effect that happened is recorded all the same.
		if err := w.EndCall(t.Context(), w.acme.ID, open.ID, store.OutcomeDone, "ok", nil, nil); err != nil {
			t.Error(err)
		}
		same(t, []store.Outcome{store.OutcomeDone}, w.outcomes(t, run.ID))

		stopped := w.talk(t, w.member, private(w.member))
		need(w.Stop(t.Context(), w.press(t, 103), 103, private(w.member), func(store.Stopped) []store.Draft { return nil }))(t)
		refused(t, stopped.call(policy.Allow, `{}`))
		stopped.end(store.RunCancelled)

		old := w.talk(t, w.member, private(w.member))
		w.clock.Advance(time.Hour)
		refused(t, old.call(policy.Allow, `{}`))
	})
}

func TestAnIdenticalWriteIsMadeOnceInARun(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		const n = 20
		begun := make([]store.BegunCall, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				var err error
				if begun[i], err = w.BeginCall(context.Background(), run.call(policy.Allow, `{"a":1}`), card); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		fresh := 0
		for _, b := range begun {
			if !b.Repeat {
				fresh++
			}
			same(t, begun[0].ID, b.ID)
		}
		same(t, 1, fresh)
		same(t, 1, len(w.outcomes(t, run.ID)))
	})
}

func TestARepeatIsAnsweredWithTheFirstResult(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		for _, o := range []store.Outcome{store.OutcomeDone, store.OutcomeUnknown} {
			c := run.call(policy.Allow, `{"o":"`+string(o)+`"}`)
			first := w.begin(t, c)
			same(t, store.BegunCall{ID: first.ID, Repeat: true}, w.begin(t, c)) // still under way
			if err := w.EndCall(t.Context(), w.acme.ID, first.ID, o, "code", json.RawMessage(`{"o": 1}`), nil); err != nil {
				t.Fatal(err)
			}
			same(t, store.BegunCall{ID: first.ID, Repeat: true, Outcome: o, Result: json.RawMessage(`{"o": 1}`)}, w.begin(t, c))
		}
		denied := run.call(policy.Deny, `{"d":1}`)
		same(t, false, w.begin(t, denied).Repeat)
		same(t, true, w.begin(t, denied).Repeat)

		held := run.call(policy.Confirm, `{"h":1}`)
		first := w.begin(t, held)
		again := w.begin(t, held)
		same(t, store.BegunCall{ID: first.ID, Repeat: true, Outcome: store.OutcomeHeld, Approval: first.Approval}, again)
	})
}

// The attack: the same write again in another spelling, after the first one's outcome is unknown.
func TestAnotherSpellingOfAWriteIsTheSameWrite(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		first := w.begin(t, run.call(policy.Allow, `{"s":"x","n":10,"o":{"a":1,"b":[1,2]}}`))
		if err := w.EndCall(t.Context(), w.acme.ID, first.ID, store.OutcomeUnknown, "cut", json.RawMessage(`{}`), nil); err != nil {
			t.Fatal(err)
		}
		for _, again := range []string{
			`{"n":10,"s":"x","o":{"b":[1,2],"a":1}}`, `{ "s" : "x", "n" : 10, "o" : {"a":1,"b":[1,2]} }`,
			`{"s":"x","n":10,"o":{"a":1,"b":[1,2]},"absent":null}`,
			`{"s":"\u0078","n":10.0,"o":{"a":1,"b":[1,2]}}`, `{"s":"x","n":1e1,"o":{"a":1,"b":[1,2]}}`,
		} {
			if b := w.begin(t, run.call(policy.Allow, again)); !b.Repeat || b.ID != first.ID {
				t.Errorf("%s was begun anew", again)
			}
		}
		for _, other := range []string{
			`{"s":"x","n":10,"o":{"a":1,"b":[2,1]}}`, `{"s":"X","n":10,"o":{"a":1,"b":[1,2]}}`, `{"s":"x","n":"10","o":{"a":1,"b":[1,2]}}`,
			`{"s":"x","n":9007199254740993,"o":{}}`, `{"s":"x","n":9007199254740992.0,"o":{}}`,
			`{"n":12345678901234567890}`, `{"n":12345678901234567891}`, `{"n":0.1}`, `{"n":0.10000000000000000001}`, `{"n":1e-400}`, `{"n":0}`,
			`{"n":1e999999999}`, `{"n":["\u0000number"]}`, `{"l":[]}`, `{}`,
		} {
			if w.begin(t, run.call(policy.Allow, other)).Repeat {
				t.Errorf("%s is taken for the first", other)
			}
		}
	})
}

func TestAWriteThatCertainlyDidNotHappenMayBeTriedAgain(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		c := run.call(policy.Allow, `{"a":1}`)
		first := w.begin(t, c)
		if err := w.EndCall(t.Context(), w.acme.ID, first.ID, store.OutcomeFailed, "busy", json.RawMessage(`{}`), nil); err != nil {
			t.Fatal(err)
		}
		second := w.begin(t, c)
		if second.Repeat || second.ID == first.ID {
			t.Fatalf("the second try is %+v", second)
		}
		same(t, store.BegunCall{ID: second.ID, Repeat: true}, w.begin(t, c)) // one at a time, all the same
	})
}

func TestWhatIsNoIdenticalWriteIsBegun(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		w.begin(t, run.call(policy.Allow, `{"a":1}`))
		otherArgs, otherTool := run.call(policy.Allow, `{"a":2}`), run.call(policy.Allow, `{"a":1}`)
		otherTool.Tool = "gmail-write-2"
		reading := read(run.call(policy.Allow, `{"a":1}`))
		early := run.call(policy.Deny, `{"b":1}`)
		early.Why = "unknown_tool"
		for i, c := range []store.NewCall{otherArgs, otherTool, reading, reading, early, early, run.call(policy.Allow, `{"b":1}`)} {
			if w.begin(t, c).Repeat {
				t.Errorf("call %d is a repeat", i)
			}
		}
		run.end(store.RunSucceeded)
		next := w.talk(t, w.member, private(w.member))
		if w.begin(t, next.call(policy.Allow, `{"a":1}`)).Repeat {
			t.Error("another run's call is a repeat")
		}
	})
}

func TestTheFirstOutcomeStands(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		c := w.begin(t, run.call(policy.Allow, `{}`))
		for _, o := range []store.Outcome{store.OutcomeDone, store.OutcomeDone, store.OutcomeFailed} {
			if err := w.EndCall(t.Context(), w.acme.ID, c.ID, o, "x", nil, nil); err != nil {
				t.Error(err)
			}
		}
		same(t, []store.Outcome{store.OutcomeDone}, w.outcomes(t, run.ID))
		got := w.actions(t, w.acme.ID)
		same(t, []string{"call.decided", "call.ended", "call.late"}, got[len(got)-3:])

		wants(t, w.EndCall(t.Context(), w.rival.Company.ID, c.ID, store.OutcomeDone, "x", nil, nil), store.ErrNotFound)
		wants(t, w.EndCall(t.Context(), w.acme.ID, "cal_nothere", store.OutcomeDone, "x", nil, nil), store.ErrNotFound)
		held := w.begin(t, run.call(policy.Hold, `{}`+" "))
		if err := w.EndCall(t.Context(), w.acme.ID, held.ID, store.OutcomeHeld, "x", nil, nil); err == nil {
			t.Error("held was taken for an end")
		}
	})
}

func TestArgumentsAndAccountsAreSealed(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		c := w.begin(t, run.call(policy.Allow, `{"to":"somebody@private.example"}`))
		if err := w.EndCall(t.Context(), w.acme.ID, c.ID, store.OutcomeDone, "ok", json.RawMessage(`{"seen":"private"}`), nil); err != nil {
			t.Fatal(err)
		}
		var args, hash, account, result []byte
		err := behind(t, w.url).QueryRowContext(t.Context(), `SELECT args, args_hash, account, result FROM call WHERE call_id = $1`, string(c.ID)).
			Scan(&args, &hash, &account, &result)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{args, hash, account, result} {
			if len(b) == 0 || bytes.Contains(b, []byte("private")) || bytes.Contains(b, []byte("provider")) {
				t.Errorf("column holds %q", b)
			}
		}
	})
}

// lost are the notices of RecoverCalls in the tests.
func lost(c store.CallView, r store.Run) []store.Draft {
	return []store.Draft{{Company: r.Principal.Company, Conversation: r.Conversation, Chat: r.Chat, Kind: store.DraftNotice, Notice: "lost " + c.Tool}}
}

func TestCallsOfADeadProcessAreUnknownOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		w.begin(t, run.call(policy.Allow, `{"a":1}`))
		w.begin(t, read(run.call(policy.Allow, `{"a":1}`)))
		held := w.begin(t, run.call(policy.Confirm, `{"b":1}`))
		w.said(t)
		run.end(store.RunCancelled)
		// Its process lives: the effect may still end well.
		same(t, 0, need(w.RecoverCalls(t.Context(), lost))(t))
		same(t, []store.Outcome{"", "", store.OutcomeHeld}, sorted(w.outcomes(t, run.ID)))

		w.restart(t)
		same(t, 2, need(w.RecoverCalls(t.Context(), lost))(t))
		same(t, 0, need(w.RecoverCalls(t.Context(), lost))(t))
		same(t, []store.Outcome{store.OutcomeFailed, store.OutcomeHeld, store.OutcomeUnknown}, sorted(w.outcomes(t, run.ID)))
		same(t, []said{{103, "lost gmail-write"}}, w.said(t))
		same(t, store.ApprovalPending, need(w.PendingApprovals(t.Context(), w.member.Principal()))(t)[0].State)
		same(t, held.Approval.ID, need(w.PendingApprovals(t.Context(), w.member.Principal()))(t)[0].ID)
		following := w.talk(t, w.member, private(w.member))
		same(t, []store.News{{At: w.clock.Now().Add(-time.Second), Tool: "gmail-write", Outcome: store.OutcomeUnknown}}, following.News)
	})
}

func TestCallsOfALivingProcessAreLeftToIt(t *testing.T) {
	url := storetest.Fresh(t, "postgres") // a SQLite file has one process
	w := townOn(t, url)
	run := w.talk(t, w.member, private(w.member))
	w.begin(t, run.call(policy.Allow, `{"a":1}`))
	run.end(store.RunSucceeded)
	other := w.start(store.Config{Now: w.clock.Now})
	same(t, 0, need(other.RecoverCalls(t.Context(), lost))(t))
	w.exec(t, `UPDATE instance SET beat_ms = 0`)
	same(t, 0, need(w.RecoverCalls(t.Context(), lost))(t)) // who asks lives
	same(t, 1, need(other.RecoverCalls(t.Context(), lost))(t))
	same(t, 0, need(w.RecoverCalls(t.Context(), lost))(t))
}

func TestACallThatTookTooLongIsUnknown(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		w.begin(t, run.call(policy.Allow, `{"a":1}`))
		w.clock.Advance(16 * time.Minute)
		same(t, 0, need(w.RecoverCalls(t.Context(), lost))(t)) // its run goes on
		run.end(store.RunTimedOut)
		same(t, 1, need(w.RecoverCalls(t.Context(), lost))(t))
		same(t, []store.Outcome{store.OutcomeUnknown}, w.outcomes(t, run.ID))
	})
}

func sorted(all []store.Outcome) []store.Outcome {
	slices.Sort(all)
	return all
}
