package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// keeper is a runner with warm processes as the store sees it: after each turn it prepares the next one, and it answers
// at once.
type keeper struct {
	w     *town
	kept  map[store.ConversationID]store.Run // what it holds ready
	heard chan store.Run
	life  time.Duration
}

func newKeeper(w *town) *keeper {
	return &keeper{w: w, kept: map[store.ConversationID]store.Run{}, heard: make(chan store.Run, 99), life: 20 * time.Minute}
}

// turn serves one turn at a time: the tests have one conversation.
func (k *keeper) turn(ctx context.Context, t store.Turn) error {
	t.Prepared, t.Life = k.kept[t.Conversation].ID, k.life
	r, ok, err := k.w.StartRun(ctx, t)
	if err != nil || !ok {
		return err
	}
	delete(k.kept, t.Conversation)
	f := succeeded(r)
	if _, err = k.w.FinishRun(ctx, t, r, f); err != nil {
		return err
	}
	next, err := k.w.Prepare(ctx, r.Conversation, r.Member.ID, f.Session)
	if err == nil {
		k.kept[t.Conversation] = next
	} else if !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrLost) {
		return err
	}
	k.heard <- r
	return nil
}

// prepared leaves a town in which nothing is served, and the member's conversation has a run ready.
func prepared(t *testing.T, w *town) (*keeper, store.Run) {
	t.Helper()
	k := newKeeper(w)
	work := serve(t, w.Store, k.turn)
	in := w.write(t, w.member, private(w.member), "one")
	first := next(t, k.heard)
	same(t, false, first.Warm)
	work.stop() // with which all goes that was prepared
	ready := need(w.Prepare(t.Context(), in.Conversation, w.member.ID, "ses-"+string(first.ID)))(t)
	k.kept[in.Conversation] = ready
	return k, ready
}

func TestAPreparedRunBecomesTheNextTurn(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		k := newKeeper(w)
		serve(t, w.Store, k.turn)
		in := w.write(t, w.member, private(w.member), "one")
		first := next(t, k.heard)
		ready := k.kept[in.Conversation]
		at := w.clock.Now()
		same(t, store.Run{
			ID: ready.ID, Principal: ready.Principal, Member: w.member, Conversation: in.Conversation, Chat: private(w.member),
			Grant: first.Grant, State: store.RunPrepared, Fence: 2, Session: "ses-" + string(first.ID), Started: at, Expires: at.Add(time.Hour),
		}, ready)
		same(t, ready.ID, ready.Principal.Run)
		same(t, first.Principal.Scopes, ready.Principal.Scopes)

		w.clock.Advance(5 * time.Minute)
		in = w.write(t, w.member, private(w.member), "two")
		warm := next(t, k.heard)
		want := ready
		want.State, want.Warm, want.Attempt, want.Started = store.RunRunning, true, 1, w.clock.Now()
		want.Messages = []store.RunMessage{{ID: in.Message, Text: "two", Telegram: 1000 + in.UpdateID, Received: w.clock.Now()}}
		same(t, want, warm)
		view := need(w.RunByID(t.Context(), warm.ID))(t)
		same(t, []any{true, store.RunSucceeded, 1, warm.Started}, []any{view.Warm, view.State, view.Messages, view.Started})
		same(t, false, need(w.RunByID(t.Context(), first.ID))(t).Warm)
	})
}

func TestAPreparedRunIsSeenByNobodyAndCallsNothing(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		_, ready := prepared(t, w)
		same(t, 1, len(need(w.Runs(t.Context(), "", 9))(t)))
		for _, row := range need(w.Audit(t.Context(), w.acme.ID, 1000))(t) {
			if row.Subject == string(ready.ID) {
				t.Errorf("audited: %s", row.Action)
			}
		}
		same(t, store.RunPrepared, need(w.RunByID(t.Context(), ready.ID))(t).State) // its door asks for it
		_, err := w.LiveRun(t.Context(), ready.ID)
		wants(t, err, store.ErrNotFound)
		_, err = w.BeginCall(t.Context(), store.NewCall{Run: ready, Tool: "gmail-list", Class: policy.ClassRead, Args: json.RawMessage("{}"),
			Decision: policy.Decision{Effect: policy.Allow}}, nil)
		wants(t, err, store.ErrRunOver)
		wants(t, w.ChildStarted(t.Context(), ready), store.ErrLost)
	})
}

// TestAChangeBetweenTurnsRetiresThePreparedRun: whatever changed, the turn's run is a new one, frozen as things are now.
func TestAChangeBetweenTurnsRetiresThePreparedRun(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, w *town, k *keeper, ready store.Run)
	}{
		{"a role", func(t *testing.T, w *town, _ *keeper, r store.Run) {
			w.exec(t, `UPDATE membership SET role = 'approver' WHERE membership_id = $1`, r.Member.ID)
		}},
		{"the only others who could approve", func(t *testing.T, w *town, k *keeper, r store.Run) {
			w.exec(t, `UPDATE membership SET role = 'admin' WHERE membership_id = $1`, r.Member.ID)
			k.kept[r.Conversation] = need(w.Prepare(t.Context(), r.Conversation, r.Member.ID, r.Session))(t)
			w.exec(t, `UPDATE membership SET role = 'member' WHERE membership_id <> $1`, r.Member.ID)
		}},
		{"an account comes", func(t *testing.T, w *town, _ *keeper, _ store.Run) {
			need(w.SeedAccount(t.Context(), w.member, "gmail", "apn_9", "x"))(t)
		}},
		{"an account goes", func(t *testing.T, w *town, k *keeper, r store.Run) {
			need(w.SeedAccount(t.Context(), w.member, "gmail", "apn_9", "x"))(t)
			k.kept[r.Conversation] = need(w.Prepare(t.Context(), r.Conversation, r.Member.ID, r.Session))(t)
			w.exec(t, `UPDATE account SET state = 'gone'`)
		}},
		{"one account instead of another of the same app", func(t *testing.T, w *town, k *keeper, r store.Run) {
			need(w.SeedAccount(t.Context(), w.member, "gmail", "apn_9", "x"))(t)
			k.kept[r.Conversation] = need(w.Prepare(t.Context(), r.Conversation, r.Member.ID, r.Session))(t)
			w.exec(t, `UPDATE account SET state = 'gone'`)
			need(w.SeedAccount(t.Context(), w.member, "gmail", "apn_10", "y"))(t)
		}},
		{"the policy", func(t *testing.T, w *town, _ *keeper, r store.Run) {
			text, err := json.Marshal(func(g policy.Grant) policy.Grant { g.Version = "house/0"; return g }(r.Grant))
			if err != nil {
				t.Fatal(err)
			}
			w.exec(t, `UPDATE run SET policy_grant = $2 WHERE run_id = $1`, r.ID, string(text))
		}},
		{"the company's domains", func(t *testing.T, w *town, _ *keeper, _ store.Run) {
			w.exec(t, `UPDATE company SET domains = '["other.example"]'`)
		}},
		{"the scopes", func(t *testing.T, w *town, _ *keeper, r store.Run) {
			w.exec(t, `UPDATE run SET scopes = '[]' WHERE run_id = $1`, r.ID)
		}},
		{"/new", func(t *testing.T, w *town, _ *keeper, _ store.Run) {
			if err := w.NewConversation(t.Context(), w.press(t, 103), 103, private(w.member)); err != nil {
				t.Fatal(err)
			}
		}},
		{"/new before anything was said", func(t *testing.T, w *town, k *keeper, r store.Run) {
			w.exec(t, `UPDATE conversation SET session = ''`)
			k.kept[r.Conversation] = need(w.Prepare(t.Context(), r.Conversation, r.Member.ID, ""))(t)
			if err := w.NewConversation(t.Context(), w.press(t, 103), 103, private(w.member)); err != nil {
				t.Fatal(err)
			}
		}},
		{"the session", func(t *testing.T, w *town, _ *keeper, _ store.Run) {
			w.exec(t, `UPDATE conversation SET session = 'ses-other'`)
		}},
		{"too little of its hour is left", func(t *testing.T, w *town, _ *keeper, _ store.Run) {
			w.clock.Advance(40 * time.Minute)
		}},
		{"it was given up", func(t *testing.T, w *town, _ *keeper, r store.Run) {
			if err := w.Retire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}},
		{"it is another instance's", func(t *testing.T, w *town, _ *keeper, r store.Run) {
			w.exec(t, `UPDATE run SET instance_id = 'ins_other' WHERE run_id = $1`, r.ID)
		}},
		{"somebody raised the fence", func(t *testing.T, w *town, _ *keeper, _ store.Run) {
			w.exec(t, `UPDATE conversation SET fence = fence + 1`)
		}},
		{"it is of another conversation", func(t *testing.T, w *town, k *keeper, r store.Run) {
			other := w.write(t, w.admin, private(w.admin), "x")
			w.exec(t, `DELETE FROM message WHERE conversation_id = $1`, other.Conversation)
			mine := need(w.Prepare(t.Context(), other.Conversation, w.admin.ID, ""))(t)
			w.exec(t, `DELETE FROM river_job`)
			k.kept[r.Conversation] = mine
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachTown(t, func(t *testing.T, w *town) {
				k, ready := prepared(t, w)
				tc.change(t, w, k, ready)
				named := k.kept[ready.Conversation].ID
				serve(t, w.Store, k.turn)
				w.write(t, w.member, private(w.member), "two")
				r := next(t, k.heard)
				same(t, []any{false, "two"}, []any{r.Warm, texts(r)})
				if r.ID == named || r.ID == ready.ID || r.Fence <= ready.Fence {
					t.Errorf("run %s with fence %d after %s with %d", r.ID, r.Fence, ready.ID, ready.Fence)
				}
				_, err := w.RunByID(t.Context(), ready.ID)
				wants(t, err, store.ErrNotFound)
				left := "0"
				if _, kept := k.kept[ready.Conversation]; kept { // else its instance was late, and taken for dead
					left = "1"
				}
				same(t, [][]string{{left}}, ask(t, w.url, `SELECT COUNT(*) FROM run WHERE state = 'prepared' AND conversation_id = $1`, 1, string(ready.Conversation)))
			})
		})
	}
}

func TestAnotherSenderOfAGroupGetsARunOfTheirOwn(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		k := newKeeper(w)
		serve(t, w.Store, k.turn)
		for _, step := range []struct {
			from store.Membership
			warm bool
		}{{w.member, false}, {w.member, true}, {w.approver, false}, {w.approver, true}, {w.member, false}} {
			w.write(t, step.from, group, "x")
			r := next(t, k.heard)
			same(t, []any{step.from.ID, step.warm}, []any{r.Member.ID, r.Warm})
		}
	})
}

func TestPrepareRefuses(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		begun, goOn, ended := make(chan store.Run, 1), make(chan struct{}), make(chan struct{})
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			begun <- r
			<-goOn
			_, err = w.FinishRun(ctx, turn, r, succeeded(r))
			close(ended)
			return err
		})
		w.write(t, w.member, private(w.member), "x")
		r := next(t, begun)
		refused := func(want error, c store.ConversationID, m store.MembershipID, session string) {
			t.Helper()
			_, err := w.Prepare(t.Context(), c, m, session)
			wants(t, err, want)
		}
		refused(store.ErrBusy, r.Conversation, w.member.ID, "")
		close(goOn)
		next(t, ended)
		session := "ses-" + string(r.ID)
		refused(store.ErrLost, r.Conversation, w.member.ID, "")
		refused(store.ErrLost, r.Conversation, w.member.ID, "ses-other")
		refused(store.ErrNotFound, r.Conversation, w.admin.ID, session)
		refused(store.ErrNotFound, r.Conversation, w.rival.ID, session)
		refused(store.ErrNotFound, "con_nothere", w.member.ID, session)
		fence := `SELECT fence FROM conversation`
		same(t, [][]string{{"1"}}, ask(t, w.url, fence, 1)) // a refusal changes nothing
		w.exec(t, `UPDATE membership SET is_current = 0 WHERE membership_id = $1`, w.member.ID)
		refused(store.ErrNotFound, r.Conversation, w.member.ID, session)
		w.exec(t, `UPDATE membership SET is_current = 1 WHERE membership_id = $1`, w.member.ID)

		first := need(w.Prepare(t.Context(), r.Conversation, w.member.ID, session))(t)
		second := need(w.Prepare(t.Context(), r.Conversation, w.member.ID, session))(t)
		same(t, []int64{2, 3}, []int64{first.Fence, second.Fence})
		_, err := w.RunByID(t.Context(), first.ID)
		wants(t, err, store.ErrNotFound)
		for range 2 {
			if err := w.Retire(t.Context(), second); err != nil {
				t.Error(err)
			}
		}
		_, err = w.RunByID(t.Context(), second.ID)
		wants(t, err, store.ErrNotFound)
		if err := w.Retire(t.Context(), r); err != nil {
			t.Error(err)
		}
		same(t, store.RunSucceeded, need(w.RunByID(t.Context(), r.ID))(t).State) // only what is prepared goes
	})
}

// TestWithNothingToTakeAPreparedRunStays: what waited was stopped before its turn came.
func TestWithNothingToTakeAPreparedRunStays(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		k, ready := prepared(t, w)
		w.write(t, w.member, private(w.member), "never mind")
		need(w.Stop(t.Context(), w.press(t, 103), 103, private(w.member), func(store.Stopped) []store.Draft { return nil }))(t)
		idle := make(chan bool, 1)
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			turn.Prepared, turn.Life = ready.ID, k.life
			_, ok, err := w.StartRun(ctx, turn)
			idle <- ok
			return err
		})
		same(t, false, next(t, idle))
		same(t, store.RunPrepared, need(w.RunByID(t.Context(), ready.ID))(t).State)
	})
}

func TestTheReaperDeletesWhatADeadInstanceHadPrepared(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		_, ready := prepared(t, w)
		w.restart(t)
		k := newKeeper(w)
		serve(t, w.Store, k.turn)
		until(t, w.Store, func() bool {
			_, err := w.RunByID(t.Context(), ready.ID)
			return errors.Is(err, store.ErrNotFound)
		})
		w.write(t, w.member, private(w.member), "two")
		r := next(t, k.heard)
		same(t, []any{false, ready.Session}, []any{r.Warm, r.Session})
	})
}

func TestAnExpiredPreparedRunGoes(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		_, ready := prepared(t, w)
		w.clock.Advance(time.Hour)
		serve(t, w.Store, newKeeper(w).turn)
		until(t, w.Store, func() bool {
			_, err := w.RunByID(t.Context(), ready.ID)
			return errors.Is(err, store.ErrNotFound)
		})
	})
}

func TestAnotherInstanceTakesATurnBetween(t *testing.T) {
	w := townOn(t, storetest.Fresh(t, "postgres"))
	k, ready := prepared(t, w)
	heard := make(chan store.Run, 9)
	other := w.start(store.Config{Now: w.clock.Now})
	w.exec(t, `INSERT INTO instance (instance_id, host, pid, beat_ms) VALUES ($1, '', 0, 9000000000000)`, w.Instance()) // it lives
	theirs := serve(t, other, answer(other, heard))
	w.write(t, w.member, private(w.member), "two")
	between := next(t, heard)
	theirs.stop()
	serve(t, w.Store, k.turn)
	w.write(t, w.member, private(w.member), "three")
	r := next(t, k.heard)
	same(t, []any{false, "three", "ses-" + string(between.ID)}, []any{r.Warm, texts(r), r.Session})
	_, err := w.RunByID(t.Context(), ready.ID)
	wants(t, err, store.ErrNotFound)
}
