package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// sendAll sends what waits and gives "chat:text/part" of each, in order.
func (w *town) sendAll(t *testing.T) []string {
	t.Helper()
	var all []string
	for {
		r, ok, _, err := w.NextReply(t.Context(), w.poller)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		w.send(t, r)
		all = append(all, fmt.Sprintf("%d:%s/%d", r.Draft.Chat.ID, r.Draft.Markdown, r.Part))
	}
}

// send marks a reply as sent and gives its message id.
func (w *town) send(t *testing.T, r store.Reply) int64 {
	t.Helper()
	w.updates++
	if err := w.MarkSending(t.Context(), w.poller, r.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.MarkSent(t.Context(), w.poller, r.ID, w.updates); err != nil {
		t.Fatal(err)
	}
	return w.updates
}

func (w *town) next(t *testing.T) store.Reply {
	t.Helper()
	r, ok, wait, err := w.NextReply(t.Context(), w.poller)
	if err != nil || !ok {
		t.Fatalf("nothing to send: %v, wait until %v", err, wait)
	}
	return r
}

func (w *town) say(t *testing.T, chat int64, text string, priority int) {
	t.Helper()
	d := store.Draft{Company: w.acme.ID, Chat: store.Chat{ID: chat}, Kind: store.DraftAnswer, Markdown: text, Priority: priority}
	if err := w.Say(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func TestRepliesLeaveInOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		w.say(t, 1, "notice", 1)
		w.say(t, 2, "other", 0)
		w.say(t, 1, "first", 0)
		w.say(t, 1, "second", 0)
		want := []string{"1:first/1", "1:second/1", "1:notice/1", "2:other/1"}
		same(t, want, w.sendAll(t)) // the oldest chat first, in it by priority and age
	})
}

func TestNothingComesBetweenThePartsOfAReply(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		w.say(t, 1, "long", 1)
		r := w.next(t)
		parts := need(w.SplitReply(t.Context(), w.poller, r.ID, [][]byte{[]byte("a"), []byte("b"), []byte("c")}))(t)
		again := need(w.SplitReply(t.Context(), w.poller, r.ID, [][]byte{[]byte("z")}))(t)
		same(t, parts, again)
		var rendered string
		for _, p := range parts {
			rendered += string(p.Rendered)
		}
		same(t, "abc", rendered)
		same(t, r.ID, parts[0].ID)
		same(t, 3, w.next(t).Parts)
		w.send(t, w.next(t))
		w.say(t, 1, "urgent", 0)
		same(t, []string{"1:long/2", "1:long/3", "1:urgent/1"}, w.sendAll(t))
		_, err := w.SplitReply(t.Context(), w.poller, "rep_none", [][]byte{[]byte("z")})
		wants(t, err, store.ErrNotFound)
	})
}

func TestAChatWaitsForWhatIsBeingSent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		w.say(t, 1, "a", 0)
		w.say(t, 1, "b", 0)
		w.say(t, 2, "c", 0)
		a := w.next(t)
		if err := w.MarkSending(t.Context(), w.poller, a.ID); err != nil {
			t.Fatal(err)
		}
		wants(t, w.MarkSending(t.Context(), w.poller, a.ID), store.ErrLost) // it is sent once
		same(t, []string{"2:c/1"}, w.sendAll(t))
		if err := w.MarkFailed(t.Context(), w.poller, a.ID, true, "cut"); err != nil {
			t.Fatal(err)
		}
		wants(t, w.MarkSent(t.Context(), w.poller, a.ID, 5), store.ErrLost)
		same(t, []string{"1:b/1"}, w.sendAll(t))
	})
}

func TestPauses(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		w.say(t, 1, "a", 0)
		w.say(t, 2, "b", 0)
		a := w.next(t)
		until := w.clock.Now().Add(time.Minute)
		if err := w.MarkSending(t.Context(), w.poller, a.ID); err != nil {
			t.Fatal(err)
		}
		if err := w.MarkRetry(t.Context(), w.poller, a.ID, until, false, "flood"); err != nil {
			t.Fatal(err)
		}
		b := w.next(t)
		same(t, "b", b.Draft.Markdown)
		whole := until.Add(time.Minute)
		if err := w.MarkRetry(t.Context(), w.poller, b.ID, whole, true, "pace"); err != nil { // not tried at all
			t.Fatal(err)
		}
		_, ok, wait, err := w.NextReply(t.Context(), w.poller)
		if ok || err != nil {
			t.Fatal(ok, err)
		}
		same(t, whole, wait)
		w.clock.Advance(2 * time.Minute)
		first := w.next(t)
		same(t, []any{"a", 1, "flood"}, []any{first.Draft.Markdown, first.Attempts, first.Reason})
		same(t, []string{"1:a/1", "2:b/1"}, w.sendAll(t))
		_, ok, wait, err = w.NextReply(t.Context(), w.poller)
		if ok || err != nil || !wait.IsZero() {
			t.Errorf("got %v %v %v", ok, wait, err)
		}
	})
}

func TestWhatADeadSenderLeftIsUncertain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		w.say(t, 1, "a", 0)
		w.say(t, 1, "b", 0)
		if err := w.MarkSending(t.Context(), w.poller, w.next(t).ID); err != nil {
			t.Fatal(err)
		}
		same(t, 1, need(w.RecoverReplies(t.Context(), w.poller))(t))
		same(t, 0, need(w.RecoverReplies(t.Context(), w.poller))(t))
		same(t, []string{"1:b/1"}, w.sendAll(t))
		same(t, 0, need(w.OutboxWaiting(t.Context(), townBot, 1))(t))
	})
}

func TestAnEditKnowsWhatItChanges(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		w.say(t, 1, "a", 0)
		a := w.next(t)
		edit := store.Draft{Company: w.acme.ID, Chat: store.Chat{ID: 1}, Kind: store.DraftEdit, Notice: "x", EditOf: a.ID, Priority: 2}
		if err := w.Say(t.Context(), edit); err != nil {
			t.Fatal(err)
		}
		id := w.send(t, a)
		got := w.next(t)
		same(t, id, got.EditMessage)
		same(t, edit, got.Draft)
	})
}

// TestAChangedCardSpeaksItsReadersLanguage: the cards of one approval may stand in chats of two languages.
func TestAChangedCardSpeaksItsReadersLanguage(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		langs := map[int64]string{w.admin.Person.Telegram: "es", w.approver.Person.Telegram: "en"}
		run := w.talk(t, w.member, private(w.member))
		begun := need(w.BeginCall(t.Context(), run.call(policy.Hold, `{}`), func(a store.Approval, to store.Approver) store.Draft {
			d := card(a, to)
			d.Lang = langs[to.Chat.ID]
			return d
		}))(t)
		run.end(store.RunSucceeded)
		w.said(t)
		say := func(a store.Approval) []store.Draft {
			return []store.Draft{{Company: a.Company, Lang: "es", Kind: store.DraftEdit, Approval: a.ID, Notice: "card.denied"}}
		}
		v := store.Verdict{Approval: begun.Approval.ID, Telegram: w.admin.Person.Telegram}
		need(w.Decide(t.Context(), w.press(t, v.Telegram), v, say))(t)
		got := map[int64]string{}
		for range langs {
			r := w.next(t)
			got[r.Draft.Chat.ID] = r.Draft.Lang
			w.send(t, r)
		}
		same(t, langs, got)
	})
}

// TestAReplyThatDoesNotOpenIsSetAside: a damaged row must not keep everybody else's answers back.
func TestAReplyThatDoesNotOpenIsSetAside(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.say(t, 1, "a", 0)
		w.say(t, 2, "b", 0)
		w.exec(t, `UPDATE reply SET body = (SELECT body FROM reply WHERE chat_id = 2) WHERE chat_id = 1`)
		same(t, []string{"2:b/1"}, w.sendAll(t))
		same(t, 0, need(w.OutboxWaiting(t.Context(), townBot, 1))(t))
	})
}

func TestADraftComesBackAsItWasWritten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		d := store.Draft{
			Company: w.acme.ID, Chat: store.Chat{ID: -5, Topic: 3}, ReplyTo: 99, Lang: "en", Kind: store.DraftNotice, Notice: "invite",
			Args: map[string]string{"who": "Mia"}, Priority: 1,
			Buttons: [][]store.Button{{
				{Label: "button.accept_invite", Action: store.ButtonAcceptInvite, Ref: "inv-secret"},
				{Label: "button.connect_link", Args: map[string]string{"app": "gmail"}, URL: store.NewSecret("https://pilder.example/connect/x")},
			}},
		}
		if err := w.Say(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		r := w.next(t)
		text := cmp.Comparer(func(a, b store.Secret) bool { return a.Reveal() == b.Reveal() }) // Equal holds zero secrets apart
		if diff := cmp.Diff(d, r.Draft, text); diff != "" {
			t.Error(diff)
		}
		token := r.ButtonTokens[0][0]
		same(t, true, len(token.Reveal()) >= 32 && len(token.Reveal()) <= 64) // Telegram carries 64 bytes
		same(t, true, r.ButtonTokens[0][1].IsZero())
		pressed := need(w.Button(t.Context(), token))(t)
		same(t, store.PressedButton{
			Action: store.ButtonAcceptInvite, Ref: store.NewSecret("inv-secret"), Company: w.acme.ID, Expires: pressed.Expires,
		}, pressed)
		_, err := w.Button(t.Context(), store.NewSecret("made up"))
		wants(t, err, store.ErrNotFound)
		w.clock.Advance(pressed.Expires.Sub(w.clock.Now()))
		_, err = w.Button(t.Context(), token)
		wants(t, err, store.ErrNotFound)
	})
}

func TestWakeTellsOfWhatWasCommitted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		before := w.Wake()
		w.say(t, 1, "a", 0)
		next(t, before)
		after := w.Wake()
		w.next(t) // looking wakes nobody, or the sender would wake itself for ever
		select {
		case <-after:
			t.Error("looking woke somebody")
		default:
		}
	})
}

func TestARunKnowsHowLongItsFirstReplyTook(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		heard := make(chan store.Run, 1)
		serve(t, w.Store, answer(w.Store, heard))
		w.write(t, w.member, private(w.member), "x")
		r := next(t, heard)
		until(t, w.Store, func() bool { return need(w.OutboxWaiting(t.Context(), townBot, w.member.Person.Telegram))(t) == 1 })
		w.clock.Advance(2 * time.Second)
		w.send(t, w.next(t))
		got := need(w.RunByID(t.Context(), r.ID))(t)
		same(t, int64(2000), got.Stages.Delivery)
		same(t, []store.ReplyView{{ID: got.Replies[0].ID, Kind: store.DraftAnswer, Part: 1, State: store.ReplySent}}, got.Replies)
	})
}

// Telegram refuses part 1 for now (429), or it is put off before it was tried: its own parts must not overtake it, and what
// has not begun must not overtake an answer.
func TestPartsStayInOrderWhenTheFirstIsPutOff(t *testing.T) {
	for _, begun := range []bool{true, false} {
		eachTown(t, func(t *testing.T, w *town) {
			w.say(t, 7, "long", 1)
			first := w.next(t)
			need(w.SplitReply(t.Context(), w.poller, first.ID, [][]byte{[]byte("a"), []byte("b")}))(t)
			if begun {
				if err := w.MarkSending(t.Context(), w.poller, first.ID); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.MarkRetry(t.Context(), w.poller, first.ID, w.clock.Now(), false, "paced"); err != nil {
				t.Fatal(err)
			}
			w.say(t, 7, "answer", 0)
			want := []string{"7:answer/1", "7:long/1", "7:long/2"}
			if begun {
				want = []string{"7:long/1", "7:long/2", "7:answer/1"}
			}
			if diff := cmp.Diff(want, w.sendAll(t)); diff != "" {
				t.Errorf("begun %v:\n%s", begun, diff)
			}
		})
	}
}
