package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"pilder/store"
)

// patience is how long a test waits for what must happen. It is no measure: a slow machine only fails later.
const patience = 2 * time.Minute

// write stores a message of somebody and gives what became of it.
func (w *town) write(t *testing.T, from store.Membership, chat store.Chat, text string) store.Admission {
	t.Helper()
	w.updates++
	w.clock.Advance(time.Second)
	return need(w.Receive(t.Context(), w.poller, []store.Arrival{message(w.updates, from.Person.Telegram, chat, text)}))(t)[0]
}

func message(update, from int64, chat store.Chat, text string) store.Arrival {
	return store.Arrival{
		UpdateID: update, Raw: []byte(`{"secret":"` + text + `"}`), Kind: store.ArrivalMessage, From: store.Person{Telegram: from},
		Chat: chat, Telegram: 1000 + update, Text: text,
	}
}

// command stores a control update in a chat.
func (w *town) command(t *testing.T, from store.Membership, chat store.Chat) store.UpdateRef {
	t.Helper()
	w.updates++
	need(w.Receive(t.Context(), w.poller, []store.Arrival{{
		UpdateID: w.updates, Raw: []byte(`{}`), Kind: store.ArrivalControl, From: store.Person{Telegram: from.Person.Telegram}, Chat: chat,
	}}))(t)
	return store.UpdateRef{Bot: townBot, UpdateID: w.updates}
}

func private(m store.Membership) store.Chat { return store.Chat{ID: m.Person.Telegram, Private: true} }

// group is a group chat in which the people of Acme write.
var group = store.Chat{ID: -500, Topic: 7}

// work is a store that runs and serves turns.
type work struct {
	stop func() // ends it and waits
	errs chan error
}

// serve runs the store and gives its turns to agent until the test ends or stop is called.
func serve(t *testing.T, s *store.Store, agent func(ctx context.Context, turn store.Turn) error) *work {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &work{errs: make(chan error, 2)}
	var all sync.WaitGroup
	all.Go(func() { w.errs <- s.ServeTurns(ctx, 8, patience, agent) })
	all.Go(func() { w.errs <- s.Run(ctx) })
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			all.Wait()
			for range 2 {
				if err := <-w.errs; err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Cleanup(w.stop)
	return w
}

// answer is an agent that answers every turn at once, having said on heard what it is.
func answer(s *store.Store, heard chan<- store.Run) func(context.Context, store.Turn) error {
	return func(ctx context.Context, turn store.Turn) error {
		r, ok, err := s.StartRun(ctx, turn)
		if err != nil || !ok {
			return err
		}
		if err := s.ChildStarted(ctx, r); err != nil {
			return err
		}
		heard <- r // before its end, since the next may begin with that
		_, err = s.FinishRun(ctx, turn, r, succeeded(r))
		return err
	}
}

func succeeded(r store.Run) store.Finish {
	return store.Finish{State: store.RunSucceeded, Reason: "ok", Session: "ses-" + string(r.ID), Turns: 1, Drafts: []store.Draft{{
		Kind: store.DraftAnswer, Markdown: "answer to " + texts(r),
	}}}
}

// texts are the messages of a run as one line.
func texts(r store.Run) string {
	var all []string
	for _, m := range r.Messages {
		all = append(all, m.Text)
	}
	return strings.Join(all, " ")
}

// next receives from a channel.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// until waits until ok, asked whenever the store did something and now and then.
func until(t *testing.T, s *store.Store, ok func() bool) {
	t.Helper()
	end := time.After(patience)
	for {
		wake := s.Wake()
		if ok() {
			return
		}
		select {
		case <-wake:
		case <-time.After(50 * time.Millisecond):
		case <-end:
			t.Fatal("it never came so far")
		}
	}
}

// fates gives what became of the last updates of a chat, oldest first.
func (w *town) fates(t *testing.T, chat int64) []store.Fate {
	t.Helper()
	var all []store.Fate
	for _, f := range need(w.MessageFates(t.Context(), townBot, chat, 1000))(t) {
		all = append([]store.Fate{f.Fate}, all...)
	}
	return all
}
