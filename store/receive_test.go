package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pilder/store"
	"pilder/store/storetest"
)

// unnamed leaves out ids that the store makes.
var unnamed = cmpopts.IgnoreFields(store.Admission{}, "Conversation", "Message")

func TestEveryUpdateGetsItsPlace(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		stranger := message(14, 999, store.Chat{ID: 999, Private: true}, "who are you")
		batch := []store.Arrival{
			message(10, w.member.Person.Telegram, private(w.member), "hello"),
			{UpdateID: 11, Raw: []byte("{}"), Kind: store.ArrivalControl, From: store.Person{Telegram: w.admin.Person.Telegram}, Chat: private(w.admin)},
			{UpdateID: 12, Raw: []byte("{}"), Kind: store.ArrivalIgnored},
			{UpdateID: 13, Raw: []byte("]"), Kind: store.ArrivalBroken, Reason: "json"},
			stranger,
			{UpdateID: 15, Raw: []byte("{}"), Kind: "from the future"},
		}
		got := need(w.Receive(t.Context(), w.poller, batch))(t)
		acme := w.acme.ID
		want := []store.Admission{
			{UpdateID: 10, Fate: store.FateQueued, Company: acme},
			{UpdateID: 11, Fate: store.FateReceived, Company: acme},
			{UpdateID: 12, Fate: store.FateIgnored},
			{UpdateID: 13, Fate: store.FateBroken},
			{UpdateID: 14, Fate: store.FateReceived, Stranger: true},
			{UpdateID: 15, Fate: store.FateBroken},
		}
		if d := cmp.Diff(want, got, unnamed); d != "" {
			t.Error(d)
		}
		if got[0].Message == "" || got[0].Conversation == "" {
			t.Errorf("the message was not filed: %+v", got[0])
		}
		same(t, []store.Update{
			{Ref: store.UpdateRef{Bot: townBot, UpdateID: 11}, Raw: []byte("{}"), Kind: store.ArrivalControl, Received: w.clock.Now()},
			{Ref: store.UpdateRef{Bot: townBot, UpdateID: 14}, Raw: stranger.Raw, Kind: store.ArrivalMessage, Stranger: true, Received: w.clock.Now()},
		}, need(w.OpenUpdates(t.Context(), townBot, 10))(t))
		same(t, int64(16), need(w.AcquirePoller(t.Context(), townBot, time.Hour))(t).Offset)
	})
}

func TestWhatComesTwiceIsDoneOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		first := message(10, w.member.Person.Telegram, private(w.member), "hello")
		again := first
		again.UpdateID = 11 // the same message of the chat under another update
		one := need(w.Receive(t.Context(), w.poller, []store.Arrival{first}))(t)[0]
		two := need(w.Receive(t.Context(), w.poller, []store.Arrival{first, again}))(t)
		want := one
		want.Duplicate = true
		wantAgain := want
		wantAgain.UpdateID = 11
		same(t, []store.Admission{want, wantAgain}, two)
		same(t, []store.Fate{store.FateQueued}, w.fates(t, w.member.Person.Telegram))

		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		same(t, "hello", texts(next(t, heard)))
		until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateAnswered })
		third := need(w.Receive(t.Context(), w.poller, []store.Arrival{first}))(t)[0]
		same(t, true, third.Duplicate)
		same(t, store.FateAnswered, third.Fate)
	})
}

// TestTheSameMessageIdInTwoChatsIsTwoMessages: ids of messages count within a chat only, and presses of one card carry one
// message id and are all presses.
func TestTheSameMessageIdInTwoChatsIsTwoMessages(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		a := message(10, w.member.Person.Telegram, private(w.member), "one")
		b := message(11, w.admin.Person.Telegram, private(w.admin), "two")
		press := store.Arrival{UpdateID: 12, Kind: store.ArrivalControl, From: a.From, Chat: a.Chat, Telegram: a.Telegram}
		press2 := press
		press2.UpdateID = 13
		a.Telegram, b.Telegram = 5, 5
		for _, x := range need(w.Receive(t.Context(), w.poller, []store.Arrival{a, b, press, press2}))(t) {
			if x.Duplicate {
				t.Errorf("update %d counts as seen", x.UpdateID)
			}
		}
	})
}

func TestTheOffsetFollowsTelegramDownwards(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		for _, id := range []int64{900_000_000, 7, 8} {
			got := need(w.Receive(t.Context(), w.poller, []store.Arrival{message(id, w.member.Person.Telegram, private(w.member), "x")}))(t)
			same(t, false, got[0].Duplicate)
			same(t, id+1, need(w.AcquirePoller(t.Context(), townBot, time.Hour))(t).Offset)
		}
		need(w.Receive(t.Context(), w.poller, nil))(t)
		same(t, int64(9), need(w.AcquirePoller(t.Context(), townBot, time.Hour))(t).Offset)
	})
}

func TestAnOldFenceWritesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		if err := w.Say(t.Context(), store.Draft{Company: w.acme.ID, Chat: private(w.member), Kind: store.DraftNotice, Notice: "hi"}); err != nil {
			t.Fatal(err)
		}
		old := w.poller
		reply, _, _, err := w.NextReply(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.ReleasePoller(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		s := open(store.Config{Now: w.clock.Now})
		p := need(s.AcquirePoller(t.Context(), townBot, time.Hour))(t)
		if p.Fence <= old.Fence {
			t.Errorf("the fence went from %d to %d", old.Fence, p.Fence)
		}
		_, err = s.Receive(t.Context(), old, []store.Arrival{message(1, w.member.Person.Telegram, private(w.member), "x")})
		wants(t, err, store.ErrLost)
		_, err = s.SplitReply(t.Context(), old, reply.ID, [][]byte{[]byte("a")})
		wants(t, err, store.ErrLost)
		wants(t, s.MarkSending(t.Context(), old, reply.ID), store.ErrLost)
		wants(t, s.MarkSent(t.Context(), old, reply.ID, 1), store.ErrLost)
		wants(t, s.MarkRetry(t.Context(), old, reply.ID, w.clock.Now(), true, "x"), store.ErrLost)
		wants(t, s.MarkFailed(t.Context(), old, reply.ID, true, "x"), store.ErrLost)
		_, err = s.RecoverReplies(t.Context(), old)
		wants(t, err, store.ErrLost)
		wants(t, s.ReleasePoller(t.Context(), old), store.ErrLost)

		same(t, []store.MessageFate(nil), need(s.MessageFates(t.Context(), townBot, w.member.Person.Telegram, 9))(t))
		now, ok, _, err := s.NextReply(t.Context(), p)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		same(t, reply, now)
		same(t, int64(0), p.Offset)
	})
}

func TestOfTwoPollersOneHoldsTheBot(t *testing.T) {
	url := storetest.Fresh(t, "postgres") // a SQLite file has one process anyway
	open := func() *store.Store {
		s := need(store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key()}))(t)
		t.Cleanup(func() { s.Close() })
		return s
	}
	a, b := open(), open()
	pa := need(a.AcquirePoller(t.Context(), 1, time.Hour))(t)
	_, err := b.AcquirePoller(t.Context(), 1, time.Hour)
	var held *store.HeldError
	if !errors.As(err, &held) || held.Owner != a.Instance() || held.Until.IsZero() {
		t.Fatalf("got %v", err)
	}
	need(b.AcquirePoller(t.Context(), 2, time.Hour))(t) // another bot is another lease
	same(t, pa, need(a.AcquirePoller(t.Context(), 1, time.Hour))(t))
	if err := a.ReleasePoller(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	pb := need(b.AcquirePoller(t.Context(), 1, time.Hour))(t)
	same(t, pa.Fence+1, pb.Fence)

	// A lease that ran out is taken over without anybody's help.
	need(b.AcquirePoller(t.Context(), 1, time.Millisecond))(t)
	until(t, a, func() bool {
		pa, err = a.AcquirePoller(t.Context(), 1, time.Hour)
		return err == nil
	})
	same(t, pb.Fence+1, pa.Fence)
	_, err = b.Receive(t.Context(), pb, nil)
	wants(t, err, store.ErrLost)
}

func TestStrangersHearLittle(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		refuse := func(telegram int64) (heard bool) {
			t.Helper()
			from := w.press(t, telegram)
			line := store.Draft{Chat: store.Chat{ID: telegram, Private: true}, Kind: store.DraftNotice, Notice: "stranger"}
			if err := w.RefuseStranger(t.Context(), from, telegram, line); err != nil {
				t.Fatal(err)
			}
			wants(t, w.RefuseStranger(t.Context(), from, telegram, line), store.ErrSettled)
			return len(w.said(t)) == 1
		}
		same(t, true, refuse(9000))
		same(t, false, refuse(9000))
		for i := range int64(29) {
			same(t, true, refuse(9001+i))
		}
		same(t, false, refuse(9100)) // the hour is full
		w.clock.Advance(time.Hour)
		same(t, true, refuse(9100))
		same(t, false, refuse(9000)) // the day is not over
		w.clock.Advance(24 * time.Hour)
		same(t, true, refuse(9000))
		same(t, store.FateRefused, w.fates(t, 9000)[0])
	})
}

func TestSettleDecidesOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		from := w.command(t, w.member, private(w.member))
		hello := store.Draft{Company: w.acme.ID, Chat: private(w.member), Kind: store.DraftNotice, Notice: "hello"}
		if err := w.Settle(t.Context(), from, store.FateDone, "help", hello); err != nil {
			t.Fatal(err)
		}
		wants(t, w.Settle(t.Context(), from, store.FateFailed, "help", hello), store.ErrSettled)
		wants(t, w.Settle(t.Context(), store.UpdateRef{Bot: townBot, UpdateID: 4444}, store.FateDone, ""), store.ErrNotFound)
		same(t, []said{{w.member.Person.Telegram, "hello"}}, w.said(t))
		same(t, []store.MessageFate{{UpdateID: from.UpdateID, Fate: store.FateDone, Reason: "help", At: w.clock.Now()}},
			need(w.MessageFates(t.Context(), townBot, w.member.Person.Telegram, 9))(t))
	})
}

// TestAnUpdateThatDoesNotOpenIsSetAside: a damaged row must not hold up everybody's commands.
func TestAnUpdateThatDoesNotOpenIsSetAside(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		bad, good := w.press(t, w.member.Person.Telegram), w.press(t, w.admin.Person.Telegram)
		w.exec(t, `UPDATE arrival SET raw = (SELECT raw FROM arrival WHERE update_id = $1) WHERE update_id = $2`, good.UpdateID, bad.UpdateID)
		wake := w.Wake()
		open := need(w.OpenUpdates(t.Context(), townBot, 1))(t)
		same(t, 0, len(open)) // it filled the page
		select {
		case <-wake:
		default:
			t.Error("nobody is told to look again")
		}
		open = need(w.OpenUpdates(t.Context(), townBot, 9))(t)
		same(t, 1, len(open))
		same(t, good, open[0].Ref)
		same(t, []store.Fate{store.FateBroken}, w.fates(t, w.member.Person.Telegram))
	})
}

// TestNothingSaidIsReadableInTheDatabase looks behind the store's back.
func TestNothingSaidIsReadableInTheDatabase(t *testing.T) {
	for _, kind := range storetest.Databases() {
		t.Run(kind, func(t *testing.T) {
			url := storetest.Fresh(t, kind)
			w := newTown(t, func(cfg store.Config) *store.Store {
				cfg.URL, cfg.Key = url, storetest.Key()
				s := need(store.Open(t.Context(), cfg))(t)
				t.Cleanup(func() { s.Close() })
				return s
			})
			w.write(t, w.member, private(w.member), "marmalade")
			if err := w.Say(t.Context(), store.Draft{Company: w.acme.ID, Chat: private(w.member), Kind: store.DraftAnswer, Markdown: "marmalade"}); err != nil {
				t.Fatal(err)
			}
			for _, q := range []string{`SELECT raw FROM arrival`, `SELECT text FROM message`, `SELECT body FROM reply`} {
				for _, row := range ask(t, url, q, 1) {
					sealed := row[0]
					if len(sealed) < 20 {
						t.Errorf("%s: nothing was kept", q)
					}
					plain := strings.Trim(fmt.Sprint([]byte("marmalade")), "[]") // as ask prints bytes
					if strings.Contains(sealed, plain) || strings.Contains(sealed, "marmalade") {
						t.Errorf("%s can be read", q)
					}
				}
			}
		})
	}
}
