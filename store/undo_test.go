package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
)

// back is how the tests' writes are taken back.
func back(args string) *store.Undo {
	return &store.Undo{Tool: "gmail-unwrite", App: "gmail", Class: policy.ClassDestructive, Args: json.RawMessage(args)}
}

// writes lets a run of the member make so many writes that can be taken back, and say so.
func (w *town) writes(t *testing.T, n int) store.RunID {
	t.Helper()
	run := w.talk(t, w.member, private(w.member))
	for i := range n {
		args := string(rune('a' + i))
		c := w.begin(t, run.call(policy.Allow, `{"`+args+`":1}`))
		if err := w.EndCall(t.Context(), w.acme.ID, c.ID, store.OutcomeDone, "ok", nil, back(`{"un":"`+args+`"}`)); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(time.Second)
	}
	run.drafts = []store.Draft{{Kind: store.DraftAnswer, Markdown: "done"}}
	run.end(store.RunSucceeded)
	return run.ID
}

// offers sends what waits and gives the undo buttons that were under it.
func (w *town) offers(t *testing.T) (refs []string) {
	t.Helper()
	for {
		r, ok, _, err := w.NextReply(t.Context(), w.poller)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return refs
		}
		w.send(t, r)
		for _, row := range r.Draft.Buttons {
			for _, b := range row {
				if b.Action == store.ButtonUndo {
					refs = append(refs, b.Ref)
				}
			}
		}
	}
}

func (w *town) takeBack(t *testing.T, telegram int64, id string) error {
	t.Helper()
	_, err := w.TakeBack(t.Context(), w.press(t, telegram), id, telegram)
	return err
}

func TestWhatWasDoneIsTakenBackOnceByWhoeverAskedForIt(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.writes(t, 1)
		offered := w.offers(t)
		if len(offered) != 1 {
			t.Fatalf("offered: %v", offered)
		}
		id := offered[0]
		wants(t, w.takeBack(t, 101, id), store.ErrNotYours) // an admin, who sees the button in a group
		wants(t, w.takeBack(t, 201, id), store.ErrNotFound)
		wants(t, w.takeBack(t, 103, "und_nothere"), store.ErrNotFound)
		if err := w.takeBack(t, 103, id); err != nil {
			t.Fatal(err)
		}
		wants(t, w.takeBack(t, 103, id), store.ErrDecided)

		got := w.perform(t, 1)
		same(t, 1, len(got))
		a := got[0]
		same(t, store.Approval{
			ID: a.ID, Call: a.Call, Company: w.acme.ID, Code: a.Code, Kind: policy.Confirm, Rule: store.RuleUndo, State: store.ApprovalApproved,
			Requester: w.member, Run: run, Chat: private(w.member), Tool: "gmail-unwrite", App: "gmail", Args: json.RawMessage(`{"un":"a"}`),
			Account: "provider-account-1", Digest: a.Digest, Asked: w.clock.Now(), Expires: w.clock.Now().Add(15 * time.Minute),
			DecidedBy: w.member.ID, Decided: w.clock.Now(), Outcome: store.OutcomeHeld, Message: a.Message,
		}, a)
		same(t, []store.Outcome{store.OutcomeDone, store.OutcomeDone}, w.outcomes(t, run))
		actions := w.actions(t, w.acme.ID)
		same(t, []string{"run.finished", "call.decided", "approval.approved", "approval.begun", "call.ended"}, actions[len(actions)-5:])
	})
}

func TestTakingBackIsOfferedForAWhileOnly(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.writes(t, 1)
		id := w.offers(t)[0]
		w.clock.Advance(15 * time.Minute)
		wants(t, w.takeBack(t, 103, id), store.ErrExpired)
		same(t, 0, len(need(w.PendingApprovals(t.Context(), w.member.Principal()))(t)))
	})
}

func TestOfManyThingsTheLastThreeCanBeTakenBack(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.writes(t, 5)
		offered := w.offers(t)
		same(t, 3, len(offered))
		for i, id := range offered {
			more, err := w.TakeBack(t.Context(), w.press(t, 103), id, 103)
			if err != nil {
				t.Fatal(err)
			}
			same(t, i < 2, more)
		}
		var args []string
		for _, a := range w.perform(t, 3) {
			args = append(args, string(a.Args))
		}
		same(t, 3, len(args))
		for _, a := range args {
			if a == `{"un":"a"}` || a == `{"un":"b"}` {
				t.Errorf("%s was offered", a)
			}
		}
	})
}

func TestWhatTheRunTookBackItselfIsNotTakenBackTwice(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		c := w.begin(t, run.call(policy.Allow, `{"a":1}`))
		if err := w.EndCall(t.Context(), w.acme.ID, c.ID, store.OutcomeDone, "ok", nil, back(`{"un" : "a"}`)); err != nil {
			t.Fatal(err)
		}
		own := run.call(policy.Allow, `{"un":"a"}`)
		own.Tool = "gmail-unwrite"
		c = w.begin(t, own)
		if err := w.EndCall(t.Context(), w.acme.ID, c.ID, store.OutcomeDone, "ok", nil, nil); err != nil {
			t.Fatal(err)
		}
		run.drafts = []store.Draft{{Kind: store.DraftAnswer, Markdown: "done"}}
		run.end(store.RunSucceeded)
		u := w.press(t, 103)
		_, err := w.TakeBack(t.Context(), u, w.offers(t)[0], 103)
		wants(t, err, store.ErrDecided)
		same(t, true, w.isOpen(t, u))
	})
}

func TestOnlyWhatWasSurelyDoneAndToldIsOffered(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		for o, args := range map[store.Outcome]string{store.OutcomeUnknown: `{"a":1}`, store.OutcomeFailed: `{"a":2}`} {
			c := w.begin(t, run.call(policy.Allow, args))
			if err := w.EndCall(t.Context(), w.acme.ID, c.ID, o, "x", nil, back(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		run.drafts = []store.Draft{{Kind: store.DraftAnswer, Markdown: "done"}}
		run.end(store.RunSucceeded)
		same(t, []string(nil), w.offers(t))
	})
}

func TestTheOutcomeOfAnApprovedCallOffersToTakeItBack(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Hold)
		need(w.decide(t, a.ID, 102, true))(t)
		w.offers(t)
		same(t, true, need(w.BeginApproved(t.Context(), a))(t))
		u := back(`{"un":"x"}`)
		end := store.Ended{Outcome: store.OutcomeDone, Code: "ok", Undo: u}
		if err := w.EndApproved(t.Context(), a, end, store.Draft{Company: a.Company, Chat: a.Chat, Kind: store.DraftNotice, Notice: "outcome"}); err != nil {
			t.Fatal(err)
		}
		offered := w.offers(t)
		same(t, 1, len(offered))
		wants(t, w.takeBack(t, 102, offered[0]), store.ErrNotYours) // who approved it did not ask for it
		if err := w.takeBack(t, 103, offered[0]); err != nil {
			t.Error(err)
		}
	})
}

func TestATakingBackThatDiesUnderWayIsUnknownAndNotRepeated(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.writes(t, 1)
		if err := w.takeBack(t, 103, w.offers(t)[0]); err != nil {
			t.Fatal(err)
		}
		w.restart(t) // before it began: it is carried out
		a := w.perform(t, 1)[0]
		same(t, false, need(w.BeginApproved(t.Context(), a))(t))
		same(t, 2, len(w.outcomes(t, run)))
	})
}
