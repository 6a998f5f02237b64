package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pilder/store"
)

// Times of the look for signs of life.
const (
	signsGap     = 200 * time.Millisecond // between two looks
	signsOverlap = time.Second            // a sign may be committed a moment after its time
	signsKept    = 2 * time.Minute        // one older than this is no reason to start a process
)

// greet starts processes for people who have shown signs of life and not written yet, while there is room that nobody
// needs, until ctx ends.
func (r *Runner) greet(ctx context.Context, spaces *workspaces) {
	seen := r.cfg.Now().Add(-signsKept) // who was there just before is there still
	greeted := map[store.ConversationID]time.Time{}
	pause := time.NewTicker(signsGap)
	defer pause.Stop()
	for {
		wake := r.store.Wake()
		signs, err := r.store.SignsOfLife(ctx, seen.Add(-signsOverlap))
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Error().Str("event", "warm.signs_failed").Err(err).Send()
		}
		now := r.cfg.Now()
		for _, s := range signs {
			seen = latest(seen, s.At)
			if now.Sub(s.At) < signsKept && s.At.After(greeted[s.Conversation]) && r.gate.idle() && !r.pool.full() && r.hasRoom() {
				greeted[s.Conversation] = s.At // once: one that could not be started, or was retired, is no better now
				r.welcome(ctx, s, spaces)
			}
		}
		maps.DeleteFunc(greeted, func(_ store.ConversationID, at time.Time) bool { return now.Sub(at) > signsKept })
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// welcome starts a process for a conversation whose next text has not come yet.
func (r *Runner) welcome(ctx context.Context, s store.Sign, spaces *workspaces) {
	free, ok := r.tryOccupy(s.Conversation)
	if !ok || slices.Contains(r.pool.conversations(), s.Conversation) {
		if ok {
			free()
		}
		return
	}
	defer free()
	ctx, cancel := context.WithTimeout(ctx, 3*readying)
	defer cancel()
	a, err := r.startPrepared(ctx, s, spaces)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, store.ErrBusy) {
			r.cfg.Log.Warn().Str("event", "warm.not_started").Str("conversation", string(s.Conversation)).Err(err).Send()
		}
		return
	}
	if !r.park(ctx, a) {
		r.retire(ctx, a, "full")
		return
	}
	r.cfg.Log.Info().Str("event", "warm.started").Str("run", string(a.prepared.ID)).Str("conversation", string(a.conversation)).
		Int64("ms", r.cfg.Now().Sub(a.began).Milliseconds()).Send()
}

// startPrepared starts a process and lets it get ready, all but the person's text.
func (r *Runner) startPrepared(ctx context.Context, s store.Sign, spaces *workspaces) (*agent, error) {
	run, err := r.store.Prepare(ctx, s.Conversation, s.Membership, s.Session)
	if err != nil {
		return nil, fmt.Errorf("preparing a first run: %w", err)
	}
	a, err := r.startAgent(ctx, run, spaces, false)
	if err != nil {
		return nil, errors.Join(err, r.store.Retire(context.WithoutCancel(ctx), run))
	}
	a.prepared = run
	a.openTools(run)
	hello, err := r.introduction(run, a.launch.mark)
	if err == nil {
		err = a.introduce(ctx, hello)
	}
	if err == nil {
		a.used, err = a.p.Memory()
	}
	if err != nil {
		return nil, errors.Join(err, a.close(), r.store.Retire(context.WithoutCancel(ctx), run))
	}
	return a, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
