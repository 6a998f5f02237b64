package store_test

import (
	"sync"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
)

func resumes(w store.AppWait) (string, store.Draft) {
	return "connected " + w.App + ", go on: " + w.Asked,
		store.Draft{Company: w.Member.Company.ID, Conversation: w.Conversation, Chat: w.Chat, ReplyTo: w.ReplyTo, Kind: store.DraftNotice, Notice: "going on"}
}

// wait lets a run of the member wait for notion and end.
func (w *town) wait(t *testing.T) {
	t.Helper()
	run := w.talk(t, w.member, private(w.member))
	w.await(t, run)
	run.end(store.RunSucceeded)
}

func (w *town) await(t *testing.T, run *agent) {
	t.Helper()
	if err := w.AwaitApp(t.Context(), w.acme.ID, run.ID, "notion", 30*time.Minute); err != nil {
		t.Fatal(err)
	}
}

// connects confirms a new account of notion.
func (w *town) connects(t *testing.T) {
	t.Helper()
	a := w.offer(t, w.opened(t, w.member).ID, "apn_new")
	if _, _, err := w.ConfirmAccount(t.Context(), w.press(t, 103), a.ID, 103, true, resumes); err != nil {
		t.Fatal(err)
	}
}

// queued tells whether a turn waits in the member's conversation.
func (w *town) queued(t *testing.T) bool {
	t.Helper()
	var n int
	if err := behind(t, w.url).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM message WHERE state = 'queued'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func TestARequestThatWaitedForAnAppGoesOnOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.wait(t)
		w.connects(t)
		run := w.take(t)
		same(t, "connected notion, go on: do it", run.Messages[0].Text)
		same(t, []string{"notion"}, run.Grant.Apps)
		run.end(store.RunSucceeded)
		same(t, []said{{103, "link"}, {103, "yours?"}, {103, "going on"}}, w.said(t))

		a := need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t)[0] // mended later: nothing waits any more
		need(w.MarkAccountBroken(t.Context(), w.acme.ID, a.ID, "refused"))(t)
		need(w.MarkAccountHealthy(t.Context(), w.acme.ID, a.ID, resumes))(t)
		same(t, false, w.queued(t))
	})
}

func TestARequestGoesOnWhenItsBrokenAccountIsMended(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.seed(t, "notion", "a")
		need(w.MarkAccountBroken(t.Context(), w.acme.ID, a.ID, "refused"))(t)
		w.wait(t)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := w.MarkAccountHealthy(t.Context(), w.acme.ID, a.ID, resumes); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		run := w.take(t)
		same(t, 1, len(run.Messages))
		run.end(store.RunSucceeded)
		same(t, []said{{103, "going on"}}, w.said(t))
	})
}

func TestARunThatUsedTheAppItWaitedForIsNotGoneOnWith(t *testing.T) {
	for name, uses := range map[string]bool{"used it": true, "did not": false} {
		t.Run(name, func(t *testing.T) {
			eachTown(t, func(t *testing.T, w *town) {
				run := w.talk(t, w.member, private(w.member))
				w.await(t, run)
				w.connects(t)
				if uses {
					c := run.call(policy.Allow, `{}`)
					c.App = "notion"
					w.begin(t, c)
				}
				run.end(store.RunSucceeded)
				same(t, !uses, w.queued(t))
			})
		})
	}
}

func TestARequestThatWentOnDoesNotWaitForTheSameAppAgain(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.wait(t)
		w.connects(t)
		run := w.take(t)
		w.await(t, run)
		run.end(store.RunSucceeded)
		a := need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t)[0]
		need(w.MarkAccountBroken(t.Context(), w.acme.ID, a.ID, "refused"))(t)
		need(w.MarkAccountHealthy(t.Context(), w.acme.ID, a.ID, resumes))(t)
		same(t, false, w.queued(t))
		w.wait(t) // another request does
		need(w.MarkAccountBroken(t.Context(), w.acme.ID, a.ID, "refused"))(t)
		need(w.MarkAccountHealthy(t.Context(), w.acme.ID, a.ID, resumes))(t)
		same(t, true, w.queued(t))
	})
}

func TestAWaitEndsWithItsTimeWithStopAndWithNew(t *testing.T) {
	for name, ends := range map[string]func(t *testing.T, w *town){
		"time": func(_ *testing.T, w *town) { w.clock.Advance(31 * time.Minute) },
		"stop": func(t *testing.T, w *town) {
			need(w.Stop(t.Context(), w.press(t, 103), 103, private(w.member), func(store.Stopped) []store.Draft { return nil }))(t)
		},
		"new": func(t *testing.T, w *town) {
			if err := w.NewConversation(t.Context(), w.press(t, 103), 103, private(w.member)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachTown(t, func(t *testing.T, w *town) {
				w.wait(t)
				ends(t, w)
				w.connects(t)
				same(t, false, w.queued(t))
				same(t, []said{{103, "link"}, {103, "yours?"}}, w.said(t))
			})
		})
	}
}

func TestALinkMadeLaterKeepsTheRequestWaiting(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.wait(t)
		w.clock.Advance(20 * time.Minute)
		l := w.opened(t, w.member) // good for 15 minutes
		w.clock.Advance(14 * time.Minute)
		a := w.offer(t, l.ID, "apn_new")
		w.clock.Advance(50 * time.Minute) // the person was at lunch
		if _, _, err := w.ConfirmAccount(t.Context(), w.press(t, 103), a.ID, 103, true, resumes); err != nil {
			t.Fatal(err)
		}
		same(t, true, w.queued(t))
	})
}

func TestOnlyARunningRunWaitsForAnApp(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		wants(t, w.AwaitApp(t.Context(), w.rival.Company.ID, run.ID, "notion", time.Hour), store.ErrRunOver)
		run.end(store.RunSucceeded)
		wants(t, w.AwaitApp(t.Context(), w.acme.ID, run.ID, "notion", time.Hour), store.ErrRunOver)
	})
}
