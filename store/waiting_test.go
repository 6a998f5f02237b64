package store_test

import (
	"testing"

	"pilder/store"
)

func TestHowMuchWaitsForAChat(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		waiting := func() int { return need(w.OutboxWaiting(t.Context(), townBot, 103))(t) }
		same(t, 0, waiting())
		for _, m := range []store.Membership{w.member, w.member, w.admin} {
			if err := w.Say(t.Context(), store.Draft{Company: w.acme.ID, Chat: private(m), Kind: store.DraftNotice, Notice: "hello"}); err != nil {
				t.Fatal(err)
			}
		}
		same(t, 2, waiting())
		r, _, _, err := w.NextReply(t.Context(), w.poller)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.MarkSending(t.Context(), w.poller, r.ID); err != nil {
			t.Fatal(err)
		}
		same(t, 2, waiting())
		w.said(t)
		if err := w.MarkFailed(t.Context(), w.poller, r.ID, true, "cut"); err != nil {
			t.Fatal(err)
		}
		w.said(t)
		same(t, 0, waiting())
	})
}
