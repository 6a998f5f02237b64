package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

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

// TestAWorkerFrozenBeforeItsStartTakesNothing: it wakes up with a job that was given to somebody else, who is at work.
func TestAWorkerFrozenBeforeItsStartTakesNothing(t *testing.T) {
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
	fetched, thaw, late, served := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() {
		served <- frozen.ServeTurns(ctx, 1, patience, func(ctx context.Context, turn store.Turn) error {
			close(fetched)
			<-thaw
			_, _, err := frozen.StartRun(ctx, turn)
			late <- err
			return err
		})
	}()
	w.write(t, w.member, private(w.member), "x")
	next(t, fetched)
	begun, goOn := make(chan store.Run, 1), make(chan struct{})
	serve(t, living, func(ctx context.Context, turn store.Turn) error {
		r, ok, err := living.StartRun(ctx, turn)
		if err != nil || !ok {
			return err
		}
		begun <- r
		<-goOn
		_, err = living.FinishRun(ctx, turn, r, succeeded(r))
		return err
	})
	same(t, 1, next(t, begun).Attempt)
	w.write(t, w.member, private(w.member), "more") // which a greedy zombie would take
	close(thaw)
	wants(t, next(t, late), store.ErrLost)
	close(goOn)
	same(t, "more", texts(next(t, begun)))
	until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[1] == store.FateAnswered })
	same(t, []string{"103:answer to x/1", "103:answer to more/1"}, w.sendAll(t))
	cancel()
	if err := next(t, served); err != nil {
		t.Error(err)
	}
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

// TestWhatADeadWorkerMayHaveDoneIsNotRepeated: with a write begun, the turn ends and the person hears what is known.
func TestWhatADeadWorkerMayHaveDoneIsNotRepeated(t *testing.T) {
	for _, kind := range storetest.Databases() {
		t.Run(kind, func(t *testing.T) {
			url := storetest.Fresh(t, kind)
			w := newTown(t, func(cfg store.Config) *store.Store {
				cfg.URL, cfg.Key = url, storetest.Key()
				s := need(store.Open(t.Context(), cfg))(t)
				t.Cleanup(func() { s.Close() })
				return s
			})
			before := func(ctx context.Context, r store.Run) error {
				for tool, class := range map[string]policy.Class{"gmail-send": policy.ClassWrite, "gmail-list": policy.ClassRead, "notion-add": policy.ClassWrite} {
					c, err := w.BeginCall(ctx, store.NewCall{Run: r, Tool: tool, App: "x", Class: class, Args: []byte("{}"), Decision: policy.Decision{Effect: policy.Allow}}, nil)
					if err == nil && tool == "notion-add" {
						err = w.EndCall(ctx, r.Principal.Company, c.ID, store.OutcomeDone, "", []byte("{}"), nil)
					}
					if err != nil {
						return err
					}
				}
				_, err := behind(t, url).ExecContext(ctx, `UPDATE run SET instance_id = 'ins_dead'`)
				return errors.Join(err, w.ChildStarted(ctx, r), errors.New("gone"))
			}
			serve(t, w.Store, crash(w.Store, 1, before, nil))
			w.write(t, w.member, private(w.member), "x")
			until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateFailed })
			first := w.next(t)
			same(t, []any{"run.interrupted", map[string]string{"done": "notion-add"}, "es"}, []any{first.Draft.Notice, first.Draft.Args, first.Draft.Lang})
			w.send(t, first)
			second := w.next(t)
			same(t, []any{"call.unknown", map[string]string{"tool": "gmail-send", "app": "x"}}, []any{second.Draft.Notice, second.Draft.Args})
			outcomes := map[string]store.Outcome{}
			for _, c := range need(w.Runs(t.Context(), "", 1))(t)[0].Calls {
				outcomes[c.Tool] = c.Outcome
			}
			same(t, map[string]store.Outcome{"gmail-send": store.OutcomeUnknown, "gmail-list": store.OutcomeFailed, "notion-add": store.OutcomeDone}, outcomes)
		})
	}
}

// TestReadsDoNotKeepATurnFromBeingTakenUp: they changed nothing, and neither did what was refused.
func TestReadsDoNotKeepATurnFromBeingTakenUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		before := func(ctx context.Context, r store.Run) error {
			_, err := w.BeginCall(ctx, store.NewCall{Run: r, Tool: "gmail-list", Class: policy.ClassRead, Args: []byte("{}"), Decision: policy.Decision{Effect: policy.Allow}}, nil)
			_, err2 := w.BeginCall(ctx, store.NewCall{Run: r, Tool: "gmail-burn", Class: policy.ClassDestructive, Args: []byte("{}")}, nil)
			return errors.Join(err, err2)
		}
		heard := make(chan store.Run, 1)
		serve(t, w.Store, crash(w.Store, 1, before, heard))
		w.write(t, w.member, private(w.member), "x")
		same(t, 2, next(t, heard).Attempt)
	})
}

// TestAFinishedRunOutlastsAHiccup: the database refuses FinishRun for a while, and the run succeeds all the same.
func TestAFinishedRunOutlastsAHiccup(t *testing.T) {
	url := storetest.Fresh(t, "postgres")
	refused := make(chan struct{}, 99)
	w := newTown(t, func(cfg store.Config) *store.Store {
		cfg.URL, cfg.Key, cfg.Log = url+"&lock_timeout=50", storetest.Key(), zerolog.New(notify{"run.finish_retried", refused})
		s := need(store.Open(t.Context(), cfg))(t)
		t.Cleanup(func() { s.Close() })
		return s
	})
	begun, goOn := make(chan struct{}), make(chan struct{})
	serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
		r, ok, err := w.StartRun(ctx, turn)
		if err != nil || !ok {
			return err
		}
		close(begun)
		<-goOn
		_, err = w.FinishRun(ctx, turn, r, succeeded(r))
		return err
	})
	w.write(t, w.member, private(w.member), "x")
	next(t, begun)
	tx := need(behind(t, url).BeginTx(t.Context(), nil))(t)
	if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM conversation FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	next(t, refused)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateAnswered })
	same(t, 1, len(need(w.Runs(t.Context(), "", 9))(t)))
}

// notify tells of log lines that hold a text.
type notify struct {
	text string
	c    chan<- struct{}
}

func (n notify) Write(line []byte) (int, error) {
	if strings.Contains(string(line), n.text) {
		n.c <- struct{}{}
	}
	return len(line), nil
}

// TestOldUpdatesAreForgotten: after a quiet week Telegram may begin anywhere with its ids, also at one used before.
func TestOldUpdatesAreForgotten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		old := w.command(t, w.member, private(w.member))
		waiting := w.write(t, w.member, private(w.member), "x")
		if err := w.Settle(t.Context(), old, store.FateDone, ""); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(7 * 24 * time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx) }()
		until(t, w.Store, func() bool { return len(w.fates(t, w.member.Person.Telegram)) == 1 }) // what waits is kept
		cancel()
		if err := next(t, ran); err != nil {
			t.Error(err)
		}
		again := message(old.UpdateID, w.member.Person.Telegram, private(w.member), "new")
		same(t, false, need(w.Receive(t.Context(), w.poller, []store.Arrival{again}))(t)[0].Duplicate)
		seen := message(waiting.UpdateID, w.member.Person.Telegram, private(w.member), "x")
		same(t, true, need(w.Receive(t.Context(), w.poller, []store.Arrival{seen}))(t)[0].Duplicate)
	})
}
