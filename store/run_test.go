package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

func TestATurnIsTheUnbrokenRowOfOneSender(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		for _, m := range []struct {
			from store.Membership
			text string
		}{{w.member, "a1"}, {w.member, "a2"}, {w.approver, "b1"}, {w.member, "a3"}} {
			w.write(t, m.from, group, m.text)
		}
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		var got []string
		for range 3 {
			got = append(got, texts(next(t, heard)))
		}
		same(t, []string{"a1 a2", "b1", "a3"}, got)
		answered := slices.Repeat([]store.Fate{store.FateAnswered}, 4)
		until(t, w.Store, func() bool { return slices.Equal(answered, w.fates(t, group.ID)) })
		same(t, []string{"-500:answer to a1 a2/1", "-500:answer to b1/1", "-500:answer to a3/1"}, w.sendAll(t))
	})
}

func TestALongTurnIsCut(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		for range 53 {
			w.write(t, w.member, private(w.member), "x")
		}
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		same(t, 50, len(next(t, heard).Messages))
		same(t, 3, len(next(t, heard).Messages))
	})
}

func TestARunIsFrozenAsItsPersonIs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		in := w.write(t, w.member, private(w.member), "hello")
		w.clock.Advance(3 * time.Second)
		begun := w.clock.Now()
		heard := make(chan store.Run, 9)
		live := make(chan store.Run, 9)
		work := serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			l, err := w.LiveRun(ctx, r.ID)
			if err != nil {
				return err
			}
			live <- l
			_, err = w.FinishRun(ctx, turn, r, store.Finish{State: store.RunSucceeded, Reason: "ok", Session: "ses-1", Turns: 2,
				Tokens: store.Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, CostUSD: 0.25, Stages: store.Stages{Spawn: 5, Total: 9}})
			heard <- r
			return err
		})
		r := next(t, heard)
		p := policy.Principal{Company: w.acme.ID, Membership: w.member.ID, Person: w.member.Person.ID, Role: policy.RoleMember, Run: r.ID,
			Scopes: []policy.Scope{policy.ScopeAppsRead, policy.ScopeAppsWrite, policy.ScopeMailSend, policy.ScopeApprovalsRead, policy.ScopeAccountsWrite}}
		want := store.Run{
			ID: r.ID, Principal: p, Member: w.member, Conversation: in.Conversation, Chat: private(w.member), State: store.RunRunning,
			Grant: policy.NewGrant(policy.GrantInput{Principal: p, Domains: []string{"acme.example"}}),
			Fence: 1, Attempt: 1, Started: begun, Expires: begun.Add(time.Hour),
			Messages: []store.RunMessage{{ID: in.Message, Text: "hello", Telegram: 1000 + in.UpdateID, Received: begun.Add(-3 * time.Second)}},
		}
		same(t, want, r)
		want.Messages = nil
		same(t, want, next(t, live))

		until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateAnswered })
		_, err := w.LiveRun(t.Context(), r.ID)
		wants(t, err, store.ErrNotFound)
		same(t, store.RunView{
			ID: r.ID, Company: w.acme.ID, Person: w.member.Person.ID, Conversation: in.Conversation, State: store.RunSucceeded, Reason: "ok",
			Messages: 1, Turns: 2, Tokens: store.Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, CostUSD: 0.25,
			Stages: store.Stages{Queue: 3000, Spawn: 5, Total: 9}, Started: begun, Ended: begun,
		}, need(w.RunByID(t.Context(), r.ID))(t))
		same(t, 1, len(need(w.Runs(t.Context(), w.acme.ID, 9))(t)))
		same(t, 0, len(need(w.Runs(t.Context(), w.rival.Company.ID, 9))(t)))

		w.write(t, w.member, private(w.member), "more")
		same(t, "ses-1", next(t, heard).Session)
		work.stop()
	})
}

func TestASoleAdminIsKnownAsSuch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		w.write(t, w.admin, private(w.admin), "x")
		same(t, false, next(t, heard).Grant.SoleAdmin)
		w.write(t, w.rival, private(w.rival), "x")
		same(t, true, next(t, heard).Grant.SoleAdmin)
	})
}

func TestMessagesOfABusyTimeBecomeTheNextTurn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		begun, goOn := make(chan string, 9), make(chan struct{})
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			begun <- texts(r)
			<-goOn
			_, err = w.FinishRun(ctx, turn, r, succeeded(r))
			return err
		})
		same(t, false, w.write(t, w.member, private(w.member), "one").Waits)
		same(t, "one", next(t, begun))
		same(t, []store.Chat{private(w.member)}, need(w.BusyChats(t.Context(), townBot))(t))
		same(t, true, w.write(t, w.member, private(w.member), "two").Waits)
		same(t, true, w.write(t, w.member, private(w.member), "three").Waits)
		close(goOn)
		same(t, "two three", next(t, begun))
		until(t, w.Store, func() bool { return len(need(w.BusyChats(t.Context(), townBot))(t)) == 0 })
	})
}

// crash is an agent whose worker gives up without an end, as often as told, after doing before; then it answers.
func crash(s *store.Store, times int, before func(ctx context.Context, r store.Run) error, heard chan<- store.Run) func(context.Context, store.Turn) error {
	left := times
	return func(ctx context.Context, turn store.Turn) error {
		if left == 0 {
			return answer(s, heard)(ctx, turn)
		}
		r, ok, err := s.StartRun(ctx, turn)
		if err != nil || !ok {
			return err
		}
		left--
		if before != nil {
			if err := before(ctx, r); err != nil {
				return err
			}
		}
		return errors.New("gone")
	}
}

func TestATurnWhoseWorkerDiedIsTakenUpOnce(t *testing.T) {
	for _, tc := range []struct {
		name  string
		dies  int
		child bool
		fate  store.Fate
		said  []string
	}{
		{"before its child started: nobody hears of it", 1, false, store.FateAnswered, []string{""}},
		{"after its child started: it is told", 1, true, store.FateAnswered, []string{"run.restarted", ""}},
		{"twice: it fails", 2, true, store.FateFailed, []string{"run.restarted", "run.failed_twice"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
				w := newTown(t, open)
				heard := make(chan store.Run, 9)
				var before func(context.Context, store.Run) error
				if tc.child {
					before = w.ChildStarted
				}
				serve(t, w.Store, crash(w.Store, tc.dies, before, heard))
				w.write(t, w.member, private(w.member), "x")
				until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == tc.fate })
				var notices []string
				for _, s := range w.said(t) {
					notices = append(notices, s.Notice)
				}
				same(t, tc.said, notices)
				runs := need(w.Runs(t.Context(), "", 9))(t)
				states := map[store.RunState]int{}
				for _, r := range runs {
					states[r.State]++
				}
				same(t, tc.dies, states[store.RunInterrupted])
				if tc.fate == store.FateAnswered {
					same(t, 2, next(t, heard).Attempt)
				}
			})
		})
	}
}

func TestAnOldRunWritesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		var old store.Run
		got := make(chan [3]error, 1)
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			if old.ID == "" {
				old = r
				return errors.New("gone")
			}
			var errs [3]error
			_, errs[0] = w.FinishRun(ctx, turn, old, succeeded(old))
			errs[1] = w.ChildStarted(ctx, old)
			_, errs[2] = w.LiveRun(ctx, old.ID)
			got <- errs
			_, err = w.FinishRun(ctx, turn, r, store.Finish{State: store.RunFailed, Reason: "no_result"})
			return err
		})
		w.write(t, w.member, private(w.member), "x")
		errs := next(t, got)
		wants(t, errs[0], store.ErrLost)
		wants(t, errs[1], store.ErrLost)
		wants(t, errs[2], store.ErrNotFound)
		until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateFailed })
		same(t, []said(nil), w.said(t))
	})
}

// TestATurnNobodyFinishedIsNotLost: an agent that forgets FinishRun must not strand its conversation.
func TestATurnNobodyFinishedIsNotLost(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		heard := make(chan store.Run, 9)
		forgot := false
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			if !forgot {
				forgot = true
				return nil
			}
			return answer(w.Store, heard)(ctx, turn)
		})
		w.write(t, w.member, private(w.member), "x")
		same(t, "x", texts(next(t, heard)))
	})
}

func TestStop(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		begun, ended := make(chan store.Run, 9), make(chan store.RunState, 9)
		wished := make(chan bool, 9)
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			begun <- r
			<-ctx.Done()
			wished <- store.Wished(ctx)
			f := succeeded(r)
			if texts(r) != "result" {
				f.State = store.RunFailed
			}
			state, err := w.FinishRun(ctx, turn, r, f)
			ended <- state
			return err
		})
		stop := func(m store.Membership, chat store.Chat) store.Stopped {
			t.Helper()
			say := func(d store.Stopped) []store.Draft {
				return []store.Draft{{Company: w.acme.ID, Chat: chat, Kind: store.DraftNotice, Notice: "stopped"}}
			}
			from := w.command(t, m, chat)
			got := need(w.Stop(t.Context(), from, m.Person.Telegram, chat, say))(t)
			_, err := w.Stop(t.Context(), from, m.Person.Telegram, chat, say)
			wants(t, err, store.ErrSettled)
			return got
		}
		same(t, store.Stopped{}, stop(w.member, group)) // nothing to stop is no error
		w.write(t, w.member, group, "running")
		r := next(t, begun)
		w.write(t, w.member, group, "waiting")
		w.write(t, w.approver, group, "theirs")
		same(t, store.Stopped{}, stop(w.admin, group)) // not theirs
		same(t, store.Stopped{Run: r.ID, Waiting: 1}, stop(w.member, group))
		same(t, true, next(t, wished))
		same(t, store.RunCancelled, next(t, ended))

		theirs := next(t, begun)
		same(t, "theirs", texts(theirs))
		same(t, store.Stopped{Run: theirs.ID}, stop(w.approver, group))
		same(t, store.RunCancelled, next(t, ended))
		until(t, w.Store, func() bool { return len(need(w.BusyChats(t.Context(), townBot))(t)) == 0 })
		same(t, []store.Fate{store.FateDone, store.FateCancelled, store.FateCancelled, store.FateCancelled, store.FateDone, store.FateDone, store.FateDone},
			w.fates(t, group.ID))
		for _, s := range w.said(t) {
			same(t, "stopped", s.Notice) // the cancelled run itself says nothing
		}

		w.write(t, w.member, private(w.member), "result")
		next(t, begun)
		stop(w.member, private(w.member))
		same(t, store.RunSucceeded, next(t, ended)) // a result is never thrown away
		_, err := w.Stop(t.Context(), w.command(t, w.member, group), 987654, group, nil)
		wants(t, err, store.ErrNotFound)
	})
}

// TestAWishFromElsewhereArrives: the process that hears /stop is not the one that works.
func TestAWishFromElsewhereArrives(t *testing.T) {
	url := storetest.Fresh(t, "postgres")
	open := func(cfg store.Config) *store.Store {
		cfg.URL, cfg.Key = url, storetest.Key()
		s := need(store.Open(t.Context(), cfg))(t)
		t.Cleanup(func() { s.Close() })
		return s
	}
	w := newTown(t, open)
	worker := open(store.Config{})
	begun, wished := make(chan store.Run, 1), make(chan bool, 1)
	serve(t, worker, func(ctx context.Context, turn store.Turn) error {
		r, ok, err := worker.StartRun(ctx, turn)
		if err != nil || !ok {
			return err
		}
		begun <- r
		<-ctx.Done()
		wished <- store.Wished(ctx)
		_, err = worker.FinishRun(ctx, turn, r, store.Finish{State: store.RunCancelled})
		return err
	})
	w.write(t, w.member, private(w.member), "x")
	next(t, begun)
	need(w.Stop(t.Context(), w.command(t, w.member, private(w.member)), w.member.Person.Telegram, private(w.member),
		func(store.Stopped) []store.Draft { return nil }))(t)
	same(t, true, next(t, wished))
	until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateCancelled })
}

func TestNewForgetsTheTranscript(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		begun, goOn := make(chan store.Run, 9), make(chan struct{}, 9)
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			begun <- r
			<-goOn
			_, err = w.FinishRun(ctx, turn, r, succeeded(r))
			return err
		})
		chat := private(w.member)
		turn := func(text string) store.Run {
			t.Helper()
			w.write(t, w.member, chat, text)
			return next(t, begun)
		}
		idle := func() {
			t.Helper()
			goOn <- struct{}{}
			until(t, w.Store, func() bool { return len(need(w.BusyChats(t.Context(), townBot))(t)) == 0 })
		}
		forget := func() {
			t.Helper()
			if err := w.NewConversation(t.Context(), w.command(t, w.member, chat), w.member.Person.Telegram, chat); err != nil {
				t.Fatal(err)
			}
		}
		forget() // before anything was said
		one := turn("one")
		same(t, "", one.Session)
		idle()
		two := turn("two")
		same(t, "ses-"+string(one.ID), two.Session)
		forget() // while a run goes on, which must not bring the session back
		idle()
		three := turn("three")
		same(t, "", three.Session)
		idle()
		forget()
		same(t, "", turn("four").Session)
		idle()
	})
}

func TestAStoppedProcessHandsItsTurnOn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		for i := range 3 { // as often as there are deployments: it is not the turn's fault
			begun := make(chan store.Run, 1)
			work := serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
				r, ok, err := w.StartRun(ctx, turn)
				if err != nil || !ok {
					return err
				}
				begun <- r
				<-ctx.Done()
				if store.Wished(ctx) {
					t.Error("the end of the process counts as a wish")
				}
				_, err = w.FinishRun(ctx, turn, r, store.Finish{State: store.RunInterrupted, Reason: "shutdown"})
				return err
			})
			if i == 0 {
				w.write(t, w.member, private(w.member), "x")
			}
			same(t, 1, next(t, begun).Attempt)
			work.stop()
			same(t, []store.Fate{store.FateQueued}, w.fates(t, w.member.Person.Telegram))
		}
		heard := make(chan store.Run, 1)
		serve(t, w.Store, answer(w.Store, heard))
		same(t, "x", texts(next(t, heard)))
	})
}

// TestAFrozenWorkerIsTakenOver plays two processes on one database: one stops beating in the middle of a run.
func TestAFrozenWorkerIsTakenOver(t *testing.T) {
	url := storetest.Fresh(t, "postgres")
	open := func(cfg store.Config) *store.Store {
		cfg.URL, cfg.Key, cfg.BeatTTL = url, storetest.Key(), 3*time.Second
		s := need(store.Open(t.Context(), cfg))(t)
		t.Cleanup(func() { s.Close() })
		return s
	}
	w := newTown(t, open)
	frozen, living := open(store.Config{}), open(store.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	begun, thaw, late := make(chan store.Run, 1), make(chan struct{}), make(chan error, 1)
	served := make(chan error, 1)
	go func() { // its Run is missing, so it beats once and never again
		served <- frozen.ServeTurns(ctx, 1, patience, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := frozen.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			begun <- r
			<-thaw
			_, err = frozen.FinishRun(ctx, turn, r, succeeded(r))
			late <- err
			return err
		})
	}()
	w.write(t, w.member, private(w.member), "x")
	next(t, begun)
	heard := make(chan store.Run, 1)
	serve(t, living, answer(living, heard))
	r := next(t, heard)
	same(t, []any{"x", 2, int64(2)}, []any{texts(r), r.Attempt, r.Fence})
	close(thaw)
	wants(t, next(t, late), store.ErrLost)
	cancel()
	if err := next(t, served); err != nil {
		t.Error(err)
	}
	until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateAnswered })
	same(t, []string{"103:answer to x/1"}, w.sendAll(t))
	same(t, [][]string{{"0"}}, ask(t, url, `SELECT COUNT(*) FROM river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded')`, 1))
}

// TestSmallPools finds a query that goes to the pool inside a transaction: it would wait for itself.
func TestSmallPools(t *testing.T) {
	url := storetest.Fresh(t, "postgres") + "&pool_max_conns=2"
	w := newTown(t, func(cfg store.Config) *store.Store {
		cfg.URL, cfg.Key = url, storetest.Key()
		s := need(store.Open(t.Context(), cfg))(t)
		t.Cleanup(func() { s.Close() })
		return s
	})
	heard := make(chan store.Run, 99)
	serve(t, w.Store, answer(w.Store, heard))
	for range 10 {
		for _, m := range []store.Membership{w.member, w.admin, w.approver, w.rival} {
			w.write(t, m, private(m), "x")
		}
	}
	for n := 0; n < 40; {
		n += len(next(t, heard).Messages)
	}
}

// TestTheSweeperRebuildsLostWakeUps: River's rows are only wake-ups.
func TestTheSweeperRebuildsLostWakeUps(t *testing.T) {
	for _, kind := range storetest.Databases() {
		t.Run(kind, func(t *testing.T) {
			url := storetest.Fresh(t, kind)
			w := newTown(t, func(cfg store.Config) *store.Store {
				cfg.URL, cfg.Key = url, storetest.Key()
				s := need(store.Open(t.Context(), cfg))(t)
				t.Cleanup(func() { s.Close() })
				return s
			})
			w.write(t, w.member, private(w.member), "x")
			if _, err := behind(t, url).ExecContext(t.Context(), `DELETE FROM river_job`); err != nil {
				t.Fatal(err)
			}
			heard := make(chan store.Run, 9)
			serve(t, w.Store, answer(w.Store, heard))
			same(t, "x", texts(next(t, heard)))
		})
	}
}

func TestRunsAreAudited(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		w.write(t, w.member, private(w.member), "x")
		r := next(t, heard)
		until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateAnswered })
		var got []store.AuditRow
		for _, row := range need(w.Audit(t.Context(), w.acme.ID, 1000))(t) {
			if row.Subject == string(r.ID) {
				got = append(got, row)
			}
		}
		want := []store.AuditRow{
			{Actor: string(w.member.ID), Action: "run.started", Subject: string(r.ID), Detail: []byte(`{"attempt":1,"messages":1,"policy":"` + policy.Version + `"}`)},
			{Actor: "pilder", Action: "run.finished", Subject: string(r.ID), Detail: []byte(`{"reason":"ok","state":"succeeded"}`)},
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(store.AuditRow{}, "Seq", "At")); d != "" {
			t.Error(d)
		}
	})
}
