package store_test

import (
	"fmt"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
)

// splits renders the cards that wait in so many parts, and sends what goes out by itself; "chat/part" of each.
func (w *town) splits(t *testing.T, parts int) (sent []string) {
	t.Helper()
	for {
		r, ok, _, err := w.NextReply(t.Context(), w.poller)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return sent
		}
		if r.Parts == 0 {
			var all [][]byte
			for range parts {
				all = append(all, []byte("{}"))
			}
			need(w.SplitReply(t.Context(), w.poller, r.ID, all))(t)
			continue
		}
		w.send(t, r)
		sent = append(sent, fmt.Sprintf("%d/%d", r.Draft.Chat.ID, r.Part))
	}
}

func TestALongCardIsFoldedAndCountsOnceAllOfItWasShown(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Hold)
		same(t, []string{"101/1", "102/1"}, w.splits(t, 3))
		_, err := w.decide(t, a.ID, 102, true)
		wants(t, err, store.ErrNotShown)

		show := func(telegram int64) error {
			_, err := w.ShowAll(t.Context(), w.press(t, telegram), a.ID, telegram, card)
			return err
		}
		wants(t, show(103), store.ErrNotYours)
		wants(t, show(201), store.ErrNotFound)
		if err := show(102); err != nil {
			t.Fatal(err)
		}
		u := w.command(t, w.approver, private(w.approver)) // pressed while it is on its way
		_, err = w.Decide(t.Context(), u, store.Verdict{Approval: a.ID, Approve: true, Telegram: 102}, verdict)
		wants(t, err, store.ErrArriving)
		same(t, []string{"102/2", "102/3"}, w.splits(t, 3))
		wants(t, show(102), store.ErrShown)
		_, err = w.decide(t, a.ID, 101, true) // somebody else has still not seen it
		wants(t, err, store.ErrNotShown)
		need(w.decide(t, a.ID, 102, true))(t)
		wants(t, show(101), store.ErrDecided)
	})
}

func TestWhatWasLostOfACardIsShownAnew(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		w.splits(t, 2)
		w.exec(t, `UPDATE reply SET state = 'failed' WHERE part = 2`)
		need(w.ShowAll(t.Context(), w.press(t, 103), a.ID, 103, card))(t)
		w.exec(t, `UPDATE reply SET state = 'queued' WHERE part = 1 AND parts = 0`) // press had it sent unseen
		same(t, []string{"103/1", "103/2"}, w.splits(t, 2))                         // whole: nothing is folded
		need(w.decide(t, a.ID, 103, true))(t)
	})
}

func TestAFoldedCardOfAnEndedApprovalShowsNothingMore(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		w.splits(t, 2)
		w.clock.Advance(24 * time.Hour)
		_, err := w.ShowAll(t.Context(), w.press(t, 103), a.ID, 103, card)
		wants(t, err, store.ErrExpired)
		same(t, []string(nil), w.splits(t, 2))
	})
}
