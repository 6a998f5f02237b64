package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// ErrFenced is what Run returns when this process could not show for too long that it lives: others will take its work
// over, so it gives it up and must end.
var ErrFenced = errors.New("no beat for too long")

// How often what is done, in parts of Config.BeatTTL or as such.
const (
	beatsInTTL  = 6
	reapsInTTL  = 4
	sweepEvery  = 10 * time.Second
	chainEvery  = time.Second
	tidyEvery   = time.Hour
	fenceAfter  = 6 // tenths of the TTL without a beat
	arrivalKept = 6 * 24 * time.Hour
)

// Run beats, reaps the work of dead instances, sweeps lost wake-ups, chains the audit and returns when ctx ends, and every
// Serve verb has returned: its turns are drained under this process's name. ErrFenced ends it early.
func (s *Store) Run(ctx context.Context) error {
	if err := s.beat(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	// The loops outlive ctx for as long as something is served.
	g, gctx := errgroup.WithContext(context.WithoutCancel(ctx))
	gctx, stop := context.WithCancel(gctx)
	defer stop()
	g.Go(func() error { return s.beatLoop(gctx) })
	g.Go(func() error { return s.every(gctx, "store.reap_failed", s.ttl/reapsInTTL, s.reap) })
	g.Go(func() error { return s.every(gctx, "store.sweep_failed", min(sweepEvery, s.ttl), s.sweep) })
	g.Go(func() error { return s.every(gctx, "store.chain_failed", chainEvery, s.chain) })
	g.Go(func() error { return s.every(gctx, "store.tidy_failed", tidyEvery, s.tidy) })
	g.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
		case <-gctx.Done():
			return nil
		}
		return s.served(gctx)
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("running the store: %w", err)
	}
	return s.leave(context.WithoutCancel(ctx))
}

// every does f now and then each interval until ctx ends. What fails is logged and tried again: only a missing beat is a
// reason to give up.
func (s *Store) every(ctx context.Context, event string, interval time.Duration, f func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			s.log.Error().Str("event", event).Err(err).Send()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// beatLoop beats, and gives all work up when no beat was written for 0.6 TTL. That narrows the window in which two own
// the same work, and does not close it (a stopped process cannot act): the fences and the doors do.
func (s *Store) beatLoop(ctx context.Context) error {
	tick := time.NewTicker(s.ttl / beatsInTTL)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, s.ttl/reapsInTTL)
		err := s.beat(limited)
		if err == nil {
			last = began
			err = s.lookAtOwnRuns(limited)
		}
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.log.Error().Str("event", "store.beat_failed").Err(err).Send()
		}
		// A SQLite file belongs to this process alone, as long as it holds the lock: a database that does not answer (a full
		// disk, a backup) is no reason to give up what nobody else can take.
		if s.lock == nil && time.Since(last) > s.ttl*fenceAfter/10 {
			s.fence()
			return ErrFenced
		}
	}
}

// beat says that this instance lives, by the database's clock.
func (s *Store) beat(ctx context.Context) error {
	if s.guest {
		return ErrGuest
	}
	host, _ := os.Hostname() // only to be read by people
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO instance (instance_id, host, pid, beat_ms, serves_turns) VALUES ($1, $2, $3, `+s.d.nowMS+`, $4)
			ON CONFLICT (instance_id) DO UPDATE SET beat_ms = excluded.beat_ms, serves_turns = excluded.serves_turns`,
			s.instance, host, os.Getpid(), bit(s.servesTurns()))
		return err
	})
	if err != nil {
		return fmt.Errorf("beating: %w", err)
	}
	return nil
}

// leave takes this instance off the list, so that nobody waits for it, with what it had prepared.
func (s *Store) leave(ctx context.Context) error {
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		for _, q := range []string{`DELETE FROM run WHERE instance_id = $1 AND state = 'prepared'`, `DELETE FROM instance WHERE instance_id = $1`} {
			if _, err := tx.ExecContext(ctx, q, s.instance); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	return nil
}

// lookAtOwnRuns finds wishes whose broadcast was lost, and own turns that somebody else took over: both end the turn's
// context.
func (s *Store) lookAtOwnRuns(ctx context.Context) error {
	s.mu.Lock()
	mine := map[RunID]*liveTurn{}
	for _, l := range s.live {
		if l.run != "" && !l.done {
			mine[l.run] = l
		}
	}
	s.mu.Unlock()
	if len(mine) == 0 {
		return nil
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT run_id, cancel_requested_ms FROM run WHERE instance_id = $1 AND state = 'running'`, s.instance)
	err = each(rows, err, func(scan func(...any) error) error {
		var id RunID
		var wished int64
		if err := scan(&id, &wished); err != nil {
			return err
		}
		if l := mine[id]; l != nil && wished > 0 {
			l.cancel(ErrWished)
		}
		delete(mine, id)
		return nil
	})
	if err != nil {
		return fmt.Errorf("looking at own runs: %w", err)
	}
	for _, l := range mine { // taken over, or ended just now: then it does no harm
		l.cancel(ErrLost)
	}
	return nil
}

// wish ends the context of a job's turn, if it is worked on here.
func (s *Store) wish(job int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[job]; l != nil {
		l.cancel(ErrWished)
	}
}

// fence gives all work of this process up.
func (s *Store) fence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced = true
	for _, l := range s.live {
		l.cancel(ErrFenced)
	}
}

func (s *Store) isFenced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fenced
}

// orphan is a job that runs under a name that may be dead.
type orphan struct {
	id       int64
	kind     string
	args     []byte
	instance string
}

// reap wakes anew what dead instances worked on, and deletes what they had prepared. River's own rescue goes by age: it
// cannot be both prompt and safe, and a job without a time-out is never rescued (0.51.2, read).
func (s *Store) reap(ctx context.Context) error {
	if err := s.reapPrepared(ctx); err != nil {
		return err
	}
	all, err := s.orphans(ctx)
	if err != nil {
		return err
	}
	for _, o := range all {
		if err := s.reapOne(ctx, o); err != nil {
			return fmt.Errorf("reaping job %d: %w", o.id, err)
		}
	}
	return nil
}

func (s *Store) orphans(ctx context.Context) ([]orphan, error) {
	var all []orphan
	rows, err := s.db.QueryContext(ctx, s.d.runningJobs)
	err = each(rows, err, func(scan func(...any) error) error {
		var o orphan
		var by sql.NullString
		if err := scan(&o.id, &o.kind, &o.args, &by); err != nil {
			return err
		}
		if o.instance = strings.TrimSuffix(by.String, approvedSuffix); o.instance != s.instance {
			all = append(all, o)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("finding orphaned jobs: %w", err)
	}
	return all, nil
}

// reapOne discards the job of a dead instance and inserts a new one, unless it lives or somebody else was quicker.
func (s *Store) reapOne(ctx context.Context, o orphan) error {
	reaped := false
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		reaped = false
		var alive int
		err := tx.QueryRowContext(ctx, `SELECT CASE WHEN beat_ms > `+s.d.nowMS+` - $2 THEN 1 ELSE 0 END FROM instance WHERE instance_id = $1`+s.d.forUpdate,
			o.instance, s.ttl.Milliseconds()).Scan(&alive)
		if err != nil && !errors.Is(err, sql.ErrNoRows) || alive == 1 {
			return err
		}
		if reaped, err = one(tx.ExecContext(ctx, s.d.discardJob, o.id)); err != nil || !reaped {
			return err
		}
		if o.kind == "approved" {
			var a approvedArgs
			if err := json.Unmarshal(o.args, &a); err != nil {
				return err
			}
			return s.enqueueApproved(ctx, tx, a.Call)
		}
		var a turnArgs
		if err := json.Unmarshal(o.args, &a); err != nil {
			return err
		}
		_, err = s.enqueueTurn(ctx, tx, a.Conversation)
		return err
	})
	if reaped && err == nil {
		s.log.Warn().Str("event", "store.reaped").Str("kind", o.kind).Str("instance", o.instance).Int64("job", o.id).Send()
	}
	return err
}

// takeOverFile is reaping for SQLite: whoever holds the file's lock is alone, so everything under another name is dead.
func (s *Store) takeOverFile(ctx context.Context) error {
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		for _, q := range []string{`DELETE FROM instance WHERE instance_id <> $1`, `UPDATE lease SET until_ms = 0 WHERE owner <> $1`} {
			if _, err := tx.ExecContext(ctx, q, s.instance); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("taking the file over: %w", err)
	}
	return s.reap(ctx)
}

// sweep inserts the wake-ups that should exist: idempotent, so it repairs whatever was lost. The kill loops pass without
// it (measured), so what it finds is worth a look.
func (s *Store) sweep(ctx context.Context) error {
	asleep := `SELECT conversation_id FROM message WHERE ` + waits + ` UNION SELECT conversation_id FROM run WHERE state = 'running' AND instance_id NOT IN (
		SELECT instance_id FROM instance WHERE beat_ms > ` + s.d.nowMS + ` - $1)`
	var all []ConversationID
	rows, err := s.reads.QueryContext(ctx, asleep, s.ttl.Milliseconds())
	err = each(rows, err, func(scan func(...any) error) error {
		var c ConversationID
		if err := scan(&c); err != nil {
			return err
		}
		all = append(all, c)
		return nil
	})
	if err != nil {
		return fmt.Errorf("finding sleeping conversations: %w", err)
	}
	for _, c := range all {
		if err := s.sweepOne(ctx, c, asleep); err != nil {
			return err
		}
	}
	return s.sweepApproved(ctx)
}

func (s *Store) sweepOne(ctx context.Context, c ConversationID, asleep string) error {
	added := false
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		added = false
		var locked ConversationID // and looked at again: its turn may have ended meanwhile
		err := tx.QueryRowContext(ctx, `SELECT conversation_id FROM conversation WHERE conversation_id = $2 AND conversation_id IN (`+asleep+`)`+s.d.forUpdate,
			s.ttl.Milliseconds(), c).Scan(&locked)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err == nil {
			added, err = s.enqueueTurn(ctx, tx, c)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("sweeping %s: %w", c, err)
	}
	if added {
		s.log.Warn().Str("event", "store.swept").Str("conversation", string(c)).Send()
	}
	return nil
}

// sweepApproved wakes approved calls that nobody has begun.
func (s *Store) sweepApproved(ctx context.Context) error {
	var all []CallID
	rows, err := s.reads.QueryContext(ctx, `SELECT a.call_id FROM approval a JOIN call c ON c.call_id = a.call_id
		WHERE a.state = 'approved' AND a.begun_ms = 0 AND c.outcome = 'held'`)
	err = each(rows, err, func(scan func(...any) error) error {
		var c CallID
		if err := scan(&c); err != nil {
			return err
		}
		all = append(all, c)
		return nil
	})
	if err != nil {
		return fmt.Errorf("finding approved calls: %w", err)
	}
	for _, c := range all {
		if err := s.quietTx(ctx, func(tx *sql.Tx) error { return s.enqueueApproved(ctx, tx, c) }); err != nil {
			return err
		}
	}
	return nil
}
