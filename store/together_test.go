package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
)

// asks lets a run of the member hold so many calls, and end.
func (w *town) asks(t *testing.T, n int) (run store.RunID, all []store.Approval) {
	t.Helper()
	a := w.talk(t, w.member, private(w.member))
	for i := range n {
		all = append(all, *w.begin(t, a.call(policy.Hold, fmt.Sprintf(`{"n":%d}`, i))).Approval)
		w.clock.Advance(time.Second)
	}
	a.end(store.RunSucceeded)
	return a.ID, all
}

func (w *town) together(t *testing.T, run store.RunID, telegram int64, yes bool) ([]store.Approval, error) {
	t.Helper()
	return w.DecideTogether(t.Context(), w.press(t, telegram), run, yes, telegram, func(store.Approval) []store.Draft { return nil })
}

func TestSeveralCallsOfATurnAreSummedUpAndDecidedTogether(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run, all := w.asks(t, 3)
		same(t, []said{{101, "card"}, {101, "card"}, {101, "card"}, {101, "together.ask"}, {102, "card"}, {102, "card"}, {102, "card"}, {102, "together.ask"}},
			byChat(w.said(t)))
		_, err := w.together(t, run, 103, true)
		wants(t, err, store.ErrNotYours)
		_, err = w.together(t, run, 201, true)
		wants(t, err, store.ErrNotFound)
		_, err = w.together(t, "run_nothere", 102, true)
		wants(t, err, store.ErrNotFound)

		got := need(w.together(t, run, 102, true))(t)
		same(t, 3, len(got))
		same(t, []said{{101, "together.closed"}, {102, "together.closed"}}, byChat(w.said(t)))
		same(t, 3, len(w.perform(t, 3)))
		_, err = w.together(t, run, 101, false)
		wants(t, err, store.ErrDecided)
		same(t, []store.Outcome{store.OutcomeDone, store.OutcomeDone, store.OutcomeDone}, w.outcomes(t, all[0].Run))
	})
}

func TestASingleCallNeedsNoSummary(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.asks(t, 1)
		same(t, []said{{101, "card"}, {102, "card"}}, byChat(w.said(t)))
	})
}

// The attack: one of the cards hides what runs, or did not arrive, and the summary is pressed for all.
func TestAYesToAllNeedsThatAllWereShown(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run, all := w.asks(t, 3)
		w.said(t)
		w.exec(t, `UPDATE reply SET state = 'failed' WHERE approval_id = $1 AND chat_id = 102 AND kind = 'card'`, string(all[1].ID))
		missing, err := w.together(t, run, 102, true)
		wants(t, err, store.ErrNotShown)
		same(t, 1, len(missing))
		same(t, all[1].ID, missing[0].ID)
		same(t, []store.Outcome{store.OutcomeHeld, store.OutcomeHeld, store.OutcomeHeld}, w.outcomes(t, run))
		same(t, 3, len(need(w.together(t, run, 102, false))(t))) // a no needs nothing
	})
}

func TestATogetherDecidesOnlyWhatStillWaits(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run, all := w.asks(t, 3)
		need(w.decide(t, all[0].ID, 101, false))(t)
		got := need(w.together(t, run, 102, true))(t)
		same(t, 2, len(got))
		for _, a := range w.perform(t, 2) {
			if a.ID == all[0].ID {
				t.Error("a denied call was performed")
			}
		}
		run, _ = w.asks(t, 2)
		w.clock.Advance(24 * time.Hour)
		_, err := w.together(t, run, 102, true)
		wants(t, err, store.ErrExpired)
	})
}

func TestSingleButtonsAndTheSummaryRaceAndEachCallIsDecidedOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run, approvals := w.asks(t, 3)
		w.said(t)
		var all sync.WaitGroup
		none := func(store.Approval) []store.Draft { return nil }
		for i := range 12 {
			who := int64(101 + i%2)
			u := w.press(t, who)
			all.Go(func() {
				var err error
				if i%3 == 0 {
					_, err = w.DecideTogether(context.Background(), u, run, i%2 == 0, who, none)
				} else {
					_, err = w.Decide(context.Background(), u, store.Verdict{Approval: approvals[i%3].ID, Approve: true, Telegram: who}, none)
				}
				if err != nil {
					wants(t, err, store.ErrDecided)
				}
			})
		}
		all.Wait()
		verdicts := 0
		for _, a := range w.actions(t, w.acme.ID) {
			if a == "approval.approved" || a == "approval.denied" {
				verdicts++
			}
		}
		same(t, 3, verdicts)
	})
}
