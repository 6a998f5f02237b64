package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// groupMax bounds how many transactions share a commit, so that nobody waits for more than that many.
const groupMax = 64

// group lets transactions that come while another one commits share the next commit: with SQLite each commit waits for the
// disk and only one is under way at a time, so that durability would cost every call its own turn (0.2 ms each, measured).
// Nobody waits for company: whoever finds nobody at work begins at once. PostgreSQL does the same by itself.
//
// There is no goroutine to own: one of those who wait leads a group and hands the lead on.
type group struct {
	mu      sync.Mutex
	waiting []*member
	led     bool // somebody commits, and will hand on
}

// member is one transaction of a group.
type member struct {
	ctx  context.Context
	do   func(ctx context.Context, tx *sql.Tx) error
	err  error
	turn chan bool // true: lead the next group; false: err says what became of it
}

// errGroupBroken is what the members of a group get whose leader panicked.
var errGroupBroken = errors.New("the shared transaction was given up")

// sharedTx is quietTx for short transactions of which many come at once. f may run beside others in one transaction: it
// may see what they wrote, is undone alone if it fails, and is durable, like all of them, when sharedTx returns nil. An
// error of the commit is everybody's.
//
// ctx counts until f's turn comes. f is given one that does not end: SQLite would undo the whole transaction if a statement
// of it was interrupted.
func (s *Store) sharedTx(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	if s.pool != nil {
		return s.quietTx(ctx, func(tx *sql.Tx) error { return f(ctx, tx) })
	}
	m := &member{ctx: ctx, do: f, err: errGroupBroken, turn: make(chan bool, 1)}
	if !s.group.join(m) && !<-m.turn {
		return m.err
	}
	s.lead()
	return m.err
}

// join adds a member, and tells whether it leads at once.
func (g *group) join(m *member) (leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, m)
	leads, g.led = !g.led, true
	return leads
}

// lead performs one group, the caller's own transaction first, and hands the lead to the first of those who came meanwhile.
func (s *Store) lead() {
	g := &s.group
	g.mu.Lock()
	n := min(len(g.waiting), groupMax)
	all := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	g.mu.Unlock()
	defer func() { // also when f panics: nobody may wait for ever
		g.mu.Lock()
		g.led = len(g.waiting) > 0
		if g.led {
			g.waiting[0].turn <- true
		}
		g.mu.Unlock()
		for _, m := range all[1:] {
			m.turn <- false
		}
	}()
	err := retried(context.Background(), func() error { return s.tryGroup(all) })
	for _, m := range all {
		if err != nil && (m.err == nil || errors.Is(m.err, errGroupBroken)) {
			m.err = err
		}
	}
}

// tryGroup performs the members in one transaction. The error is of the whole, in which case nothing of anybody is written,
// unless the commit itself failed: then, as ever, nobody knows.
func (s *Store) tryGroup(all []*member) error {
	ctx := context.Background()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	for _, m := range all {
		if m.err = m.ctx.Err(); m.err != nil {
			continue
		}
		ctx := context.WithoutCancel(m.ctx)
		if len(all) == 1 {
			if m.err = m.do(ctx, tx); m.err != nil {
				return m.err
			}
			break
		}
		if m.err, err = apart(ctx, tx, m.do); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// apart performs one member so that it can be undone alone. broken is of the transaction as a whole: SQLite has given it up
// (disk full, input or output), or the member could not be undone.
func apart(ctx context.Context, tx *sql.Tx, do func(context.Context, *sql.Tx) error) (err, broken error) {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT member"); err != nil {
		return nil, fmt.Errorf("beginning a part: %w", err)
	}
	if err = do(ctx, tx); err != nil {
		if _, lost := tx.ExecContext(ctx, "ROLLBACK TO member"); lost != nil {
			return err, err
		}
	}
	if _, lost := tx.ExecContext(ctx, "RELEASE member"); lost != nil {
		return err, fmt.Errorf("ending a part: %w", lost)
	}
	return err, nil
}
