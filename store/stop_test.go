package store_test

import (
	"context"
	"testing"

	"pilder/store"
	"pilder/store/storetest"
)

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

// TestAStoppedRunSaysNothingMore: /stop has told what was done, and the run's own words would come after it.
func TestAStoppedRunSaysNothingMore(t *testing.T) {
	for _, ends := range []store.RunState{store.RunCancelled, store.RunFailed} {
		t.Run(string(ends), func(t *testing.T) {
			eachTown(t, func(t *testing.T, w *town) {
				begun, ended := make(chan store.Run, 1), make(chan store.RunState, 1)
				serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
					r, ok, err := w.StartRun(ctx, turn)
					if err != nil || !ok {
						return err
					}
					begun <- r
					<-ctx.Done()
					f := succeeded(r)
					f.State = ends
					state, err := w.FinishRun(ctx, turn, r, f)
					ended <- state
					return err
				})
				chat := private(w.member)
				w.write(t, w.member, chat, "x")
				next(t, begun)
				need(w.Stop(t.Context(), w.command(t, w.member, chat), w.member.Person.Telegram, chat,
					func(store.Stopped) []store.Draft { return nil }))(t)
				same(t, store.RunCancelled, next(t, ended))
				same(t, []said(nil), w.said(t))
			})
		})
	}
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
