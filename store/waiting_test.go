package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pilder/store"
	"pilder/store/storetest"
)

// openJobs are the conversations' jobs that have not ended, with the errors of theirs that River counted.
const openJobs = `SELECT COUNT(*), COALESCE(MAX(attempt), 0) FROM river_job WHERE kind = 'turn' AND state NOT IN ('completed', 'cancelled', 'discarded')`

func TestATurnPutOffComesAgainAndIsNoFailure(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		const times = 3
		off, heard := make(chan struct{}, times), make(chan store.Run, 9)
		var left atomic.Int64
		left.Store(times)
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			if left.Add(-1) >= 0 {
				off <- struct{}{}
				return fmt.Errorf("at the gate: %w", store.ErrLater)
			}
			return answer(w.Store, heard)(ctx, turn)
		})
		w.write(t, w.member, private(w.member), "one")
		for i := range times {
			next(t, off)
			w.write(t, w.member, private(w.member), fmt.Sprint(i)) // whose job is the one that was put off
			jobs := ask(t, w.url, openJobs, 2)
			same(t, "1", jobs[0][0])
		}
		r := next(t, heard)
		same(t, []any{"one 0 1 2", 1}, []any{texts(r), r.Attempt})
		until(t, w.Store, func() bool { return w.fates(t, 103)[3] == store.FateAnswered })
		same(t, [][]string{{"1", "1"}}, ask(t, w.url, `SELECT COUNT(*), MAX(attempt) FROM river_job WHERE kind = 'turn'`, 2)) // one job, one attempt
		same(t, 1, len(need(w.Runs(t.Context(), "", 9))(t)))
	})
}

// TestAStartedTurnCannotBePutOff: its run is open, so that is a failure like any other.
func TestAStartedTurnCannotBePutOff(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		heard := make(chan store.Run, 9)
		first := true
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			if !first {
				return answer(w.Store, heard)(ctx, turn)
			}
			first = false
			if _, ok, err := w.StartRun(ctx, turn); err != nil || !ok {
				return err
			}
			return store.ErrLater
		})
		w.write(t, w.member, private(w.member), "x")
		same(t, 2, next(t, heard).Attempt)
	})
}

func TestATurnPutOffSurvivesItsProcess(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		off := make(chan struct{}, 9)
		work := serve(t, w.Store, func(context.Context, store.Turn) error {
			off <- struct{}{}
			return store.ErrLater
		})
		w.write(t, w.member, private(w.member), "one")
		next(t, off)
		work.stop()
		w.restart(t)
		w.write(t, w.member, private(w.member), "two")
		same(t, "1", ask(t, w.url, openJobs, 2)[0][0])
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		same(t, "one two", texts(next(t, heard)))
	})
}

func TestAnotherInstanceTakesATurnPutOff(t *testing.T) {
	w := townOn(t, storetest.Fresh(t, "postgres"))
	other := w.start(store.Config{Now: w.clock.Now})
	off, heard := make(chan struct{}, 99), make(chan store.Run, 9)
	others := func() int { return need(w.OtherInstances(t.Context()))(t) }
	same(t, 0, others())
	full := serve(t, w.Store, func(context.Context, store.Turn) error {
		off <- struct{}{}
		return store.ErrLater
	})
	w.write(t, w.member, private(w.member), "x")
	next(t, off)
	same(t, 0, others()) // the other is there, and takes nothing yet
	theirs := serve(t, other, answer(other, heard))
	same(t, "x", texts(next(t, heard)))
	same(t, []int{1, 1}, []int{others(), need(other.OtherInstances(t.Context()))(t)})
	theirs.stop()
	same(t, 0, others())
	full.stop()
}

func TestASilentInstanceDoesNotCount(t *testing.T) {
	w := townOn(t, storetest.Fresh(t, "postgres"))
	other := w.start(store.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { // it beats once and never again
		if err := other.ServeTurns(ctx, 1, patience, answer(other, make(chan store.Run, 9))); err != nil {
			t.Error(err)
		}
	})
	until(t, w.Store, func() bool { return need(w.OtherInstances(t.Context()))(t) == 1 })
	w.exec(t, `UPDATE instance SET beat_ms = beat_ms - 10000`)
	same(t, 0, need(w.OtherInstances(t.Context()))(t))
	cancel()
	served.Wait()
}

func TestWhoWaitsIsToldOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		draft := func(m store.Membership, chat store.Chat) store.Draft {
			return store.Draft{Chat: chat, Lang: "es", Kind: store.DraftNotice, Notice: "queue.position"}
		}
		turns, start, heard := make(chan store.Turn, 9), make(chan struct{}), make(chan store.Run, 9)
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			turns <- turn
			<-start
			return answer(w.Store, heard)(ctx, turn)
		})
		in := w.write(t, w.member, group, "one")
		came := w.clock.Now()
		w.write(t, w.approver, group, "two")
		turn := next(t, turns)
		head, ok, err := w.Waiting(t.Context(), turn.Conversation)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		want := store.WaitingTurn{Company: w.acme.ID, Person: w.member.Person.ID, Member: w.member, Chat: group, Message: in.Message, Since: came}
		same(t, want, head)

		var told atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				ok, err := w.TellWaiting(t.Context(), turn, head.Message, draft(head.Member, head.Chat))
				if err != nil {
					t.Error(err)
				}
				if ok {
					told.Add(1)
				}
			})
		}
		all.Wait()
		same(t, int64(1), told.Load())
		r, _, _, err := w.NextReply(t.Context(), w.poller)
		if err != nil {
			t.Fatal(err)
		}
		same(t, []any{w.acme.ID, in.Conversation, group, 1000 + in.UpdateID, "queue.position"},
			[]any{r.Draft.Company, r.Draft.Conversation, r.Draft.Chat, r.Draft.ReplyTo, r.Draft.Notice})
		same(t, []said{{group.ID, "queue.position"}}, w.said(t))
		want.Told = true
		head, _, err = w.Waiting(t.Context(), turn.Conversation)
		if err != nil {
			t.Fatal(err)
		}
		same(t, want, head)

		other := w.write(t, w.admin, private(w.admin), "elsewhere")
		refused := func(turn store.Turn, message store.MessageID) {
			t.Helper()
			ok, err := w.TellWaiting(t.Context(), turn, message, draft(w.admin, private(w.admin)))
			if ok || err != nil {
				t.Error(ok, err)
			}
		}
		refused(turn, other.Message)
		refused(turn, "msg_nothere")
		close(start)
		for range 3 {
			next(t, heard)
		}
		until(t, w.Store, func() bool { return len(need(w.BusyChats(t.Context(), townBot))(t)) == 0 })
		_, err = w.TellWaiting(t.Context(), turn, other.Message, draft(w.admin, private(w.admin)))
		wants(t, err, store.ErrLost) // its job is over
		_, ok, err = w.Waiting(t.Context(), turn.Conversation)
		if ok || err != nil {
			t.Error(ok, err)
		}
	})
}

// TestWhatADeadWorkerLeftWaits: whoever lets turns wait must not take its turn for nothing to do.
func TestWhatADeadWorkerLeftWaits(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		heard, heads := make(chan store.Run, 9), make(chan store.WaitingTurn, 9)
		agent := crash(w.Store, 1, nil, heard)
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			head, ok, err := w.Waiting(ctx, turn.Conversation)
			if err != nil || !ok {
				t.Error(ok, err)
			}
			heads <- head
			return agent(ctx, turn)
		})
		w.write(t, w.member, private(w.member), "x")
		same(t, next(t, heads), next(t, heads))
		same(t, 2, next(t, heard).Attempt)
	})
}

// TestWhoIsServedIsNotToldThatTheyWait: the turn began between the look and the telling.
func TestWhoIsServedIsNotToldThatTheyWait(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		done := make(chan error, 1)
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			head, _, err := w.Waiting(ctx, turn.Conversation)
			if err != nil {
				return err
			}
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			told, err := w.TellWaiting(ctx, turn, head.Message, store.Draft{Chat: private(w.member), Kind: store.DraftNotice, Notice: "queue.position"})
			if told {
				t.Error("told")
			}
			done <- err
			_, err = w.FinishRun(ctx, turn, r, store.Finish{State: store.RunSucceeded, Reason: "ok"})
			return err
		})
		w.write(t, w.member, private(w.member), "x")
		if err := next(t, done); err != nil {
			t.Error(err)
		}
		same(t, []said(nil), w.said(t))
	})
}

func TestSignsOfLife(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		before := w.clock.Now()
		signs := func() []store.Sign { return need(w.SignsOfLife(t.Context(), before))(t) }
		settled := func(m store.Membership, chat store.Chat) {
			t.Helper()
			w.clock.Advance(time.Second)
			if err := w.Settle(t.Context(), w.command(t, m, chat), store.FateDone, "help"); err != nil {
				t.Fatal(err)
			}
		}
		same(t, []store.Sign(nil), signs())
		settled(w.member, group)
		need(w.Receive(t.Context(), w.poller, []store.Arrival{{UpdateID: 900, Raw: []byte("{}"), Kind: store.ArrivalControl,
			From: store.Person{Telegram: 999}, Chat: store.Chat{ID: 999, Private: true}}}))(t)
		if err := w.Settle(t.Context(), store.UpdateRef{Bot: townBot, UpdateID: 900}, store.FateRefused, "stranger"); err != nil {
			t.Fatal(err)
		}
		open := w.command(t, w.admin, private(w.admin))
		same(t, []store.Sign(nil), signs()) // a group, a stranger, and what nobody has looked at yet

		settled(w.member, private(w.member)) // who has never written
		first := w.clock.Now()
		got := signs()
		same(t, []store.Sign{{Conversation: got[0].Conversation, Membership: w.member.ID, At: first}}, got)
		w.clock.Advance(time.Second)
		if err := w.Settle(t.Context(), open, store.FateDone, "help"); err != nil {
			t.Fatal(err)
		}
		settled(w.member, private(w.member))
		got = signs()
		same(t, []store.MembershipID{w.admin.ID, w.member.ID}, []store.MembershipID{got[0].Membership, got[1].Membership}) // once each, the last in time last
		same(t, w.clock.Now(), got[1].At)
		same(t, []store.Sign(nil), need(w.SignsOfLife(t.Context(), w.clock.Now()))(t))

		mine := got[1]
		r := need(w.Prepare(t.Context(), mine.Conversation, mine.Membership, mine.Session))(t)
		same(t, 1, len(signs()))
		if err := w.Retire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		same(t, 2, len(signs()))
		in := w.write(t, w.member, private(w.member), "x") // to the conversation that began with the sign
		same(t, mine.Conversation, in.Conversation)
		same(t, 1, len(signs()))
		heard := make(chan store.Run, 9)
		begun, goOn := make(chan struct{}), make(chan struct{})
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			close(begun)
			<-goOn
			return answer(w.Store, heard)(ctx, turn)
		})
		next(t, begun)
		same(t, 1, len(signs()))
		close(goOn)
		r = next(t, heard)
		until(t, w.Store, func() bool { return len(signs()) == 2 })
		same(t, "ses-"+string(r.ID), signs()[1].Session)
	})
}

func TestANewcomerIsASignOfLife(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		before := w.clock.Now()
		token := need(w.Invite(t.Context(), w.acme.ID, "member", w.admin.ID, time.Hour))(t)
		from := w.press(t, 555)
		m := need(w.AcceptInvitation(t.Context(), from, token, store.Person{Telegram: 555, Name: "Nora"}))(t)
		got := need(w.SignsOfLife(t.Context(), before.Add(-time.Second)))(t)
		same(t, []store.Sign{{Conversation: got[0].Conversation, Membership: m.ID, At: w.clock.Now()}}, got)
		r := need(w.Prepare(t.Context(), got[0].Conversation, m.ID, ""))(t)
		same(t, store.Chat{ID: 555, Private: true}, r.Chat)
		same(t, r.Conversation, w.write(t, m, private(m), "hello").Conversation)
	})
}

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
