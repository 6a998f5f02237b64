package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// groupMax bounds how many transactions share a commit, so that nobody waits for more than that many.
const groupMax = 64

// group lets transactions that come while another one commits share the next commit: with SQLite each commit waits for the
// disk and only one is under way at a time, so that durability would cost every call its own turn (0.2 ms each, measured).
// Nobody waits for company: whoever finds nobody at work begins at once. PostgreSQL does the same by itself.
//
// There is no goroutine to own: one of those who wait leads a group and hands the lead on.
//
// What leads to an effect outside is on the disk before sharedTx returns. A group of nothing but reads is not waited for: a
// process that is killed loses none of it, and when the power fails the last of them may be missing. That is no loss of
// record: what a read told can get out only by something that is written later, and whose commit takes all before it along.
type group struct {
	mu      sync.Mutex
	waiting []*member
	later   []*member // for whose end nobody waits
	led     bool      // somebody commits, and will hand on
	timer   *time.Timer
	timing  sync.WaitGroup // the timer is set, or at work
}

// laterAtMost is how long what nobody waits for may lie around.
const laterAtMost = 100 * time.Millisecond

// member is one transaction of a group.
type member struct {
	ctx      context.Context
	do       func(ctx context.Context, tx *sql.Tx) error
	last     durability
	err      error
	panicked any       // what do panicked with
	turn     chan bool // true: lead the next group; false: err says what became of it
}

// durability is what a transaction must outlive.
type durability bool

const (
	throughPowerLoss durability = false // the zero value is the safe one
	throughKill      durability = true
)

var (
	// errGroupBroken is what the members of a group get whose leader did not come to its end.
	errGroupBroken = errors.New("the shared transaction was given up")
	// errPanicked is of a member that panicked.
	errPanicked = errors.New("a part of the shared transaction panicked")
)

// sharedTx is quietTx for short transactions of which many come at once. f may run beside others in one transaction: it
// may see what they wrote, is undone alone if it fails, and is as durable as it asked, or more, when sharedTx returns nil. An
// error of the commit is everybody's. If f panics, so does sharedTx, whoever led: nobody else is to pay for it.
//
// ctx counts until f's turn comes. f is given one that does not end: SQLite would undo the whole transaction if a statement
// of it was interrupted.
func (s *Store) sharedTx(ctx context.Context, last durability, f func(ctx context.Context, tx *sql.Tx) error) error {
	if s.pool != nil {
		return s.quietTx(ctx, func(tx *sql.Tx) error { return f(ctx, tx) })
	}
	m := &member{ctx: ctx, do: f, last: last, err: errGroupBroken, turn: make(chan bool, 1)}
	if s.group.join(m) || <-m.turn {
		s.lead()
	}
	if m.panicked != nil {
		panic(m.panicked)
	}
	return m.err
}

// laterTx is sharedTx for what nobody waits for: it is written with the next group, and soon. Until then a read that has ended
// stands as open: every transaction and whatever shows outcomes or the audit (runViews, Audit) catches up first. What a run was
// tainted by, and what waits for people, is the same before and after.
func (s *Store) laterTx(f func(ctx context.Context, tx *sql.Tx) error) {
	g := &s.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.later = append(g.later, &member{ctx: context.Background(), do: f, last: throughKill, err: errGroupBroken})
	if g.timer == nil {
		g.timing.Add(1)
		g.timer = time.AfterFunc(laterAtMost, func() {
			defer g.timing.Done()
			g.mu.Lock()
			g.timer = nil
			g.mu.Unlock()
			_ = s.catchUp(context.Background()) // what failed is in the log
		})
	}
}

// catchUp waits until what laterTx was given is written.
func (s *Store) catchUp(ctx context.Context) error {
	s.group.mu.Lock()
	idle := len(s.group.later) == 0 && !s.group.led
	s.group.mu.Unlock()
	if idle {
		return nil
	}
	return s.sharedTx(ctx, throughKill, func(context.Context, *sql.Tx) error { return nil })
}

// catchUpForGood is catchUp when no more comes.
func (s *Store) catchUpForGood() {
	g := &s.group
	g.mu.Lock()
	if g.timer != nil && g.timer.Stop() {
		g.timing.Done()
	}
	g.timer = nil
	g.mu.Unlock()
	g.timing.Wait()
	_ = s.catchUp(context.Background()) // what failed is in the log
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
	later := g.later
	g.later = nil
	g.mu.Unlock()
	all = append(all, later...)
	over := false
	defer func() { // also when the leader is ended in the middle: nobody may wait for ever, or take for written what is not
		if !over {
			for _, m := range all {
				m.err = errGroupBroken
			}
		}
		g.mu.Lock()
		g.led = len(g.waiting) > 0
		if g.led {
			g.waiting[0].turn <- true
		}
		g.mu.Unlock()
		for _, m := range all[1:n] {
			m.turn <- false
		}
		for _, m := range later {
			if m.err != nil {
				s.log.Error().Str("event", "store.unrecorded").Err(m.err).Send()
			}
		}
	}()
	err := retried(context.Background(), func() error { return s.tryGroup(all, together) })
	if errors.Is(err, errOneFailed) {
		err = retried(context.Background(), func() error { return s.tryGroup(all, apart) })
	}
	for _, m := range all {
		if err != nil && (m.err == nil || errors.Is(m.err, errGroupBroken)) {
			m.err = err
		}
	}
	over = true
}

// errOneFailed is of a group of which one member failed.
var errOneFailed = errors.New("a part of the shared transaction failed")

// tryGroup performs the members in one transaction, first in the way that costs less. The error is of the whole, in which
// case nothing of anybody is written, unless the commit itself failed: then, as ever, nobody knows.
func (s *Store) tryGroup(all []*member, perform func(context.Context, *Store, *sql.Tx, *member) error) (err error) {
	ctx := context.Background()
	s.statements.prepare(ctx, s.db)
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // gives it back
	if !slices.ContainsFunc(all, func(m *member) bool { return m.last == throughPowerLoss }) {
		done, err := relax(ctx, conn)
		if err != nil {
			return err
		}
		defer done()
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	for _, m := range all {
		if m.err = m.ctx.Err(); m.err != nil {
			continue
		}
		if err := perform(context.WithoutCancel(m.ctx), s, tx, m); err != nil {
			if len(all) == 1 {
				return m.err
			}
			return err
		}
	}
	return tx.Commit()
}

// relax lets a connection commit without waiting for the disk until done is called. A connection that cannot be made to wait
// again is thrown away.
func relax(ctx context.Context, conn *sql.Conn) (done func(), err error) {
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = NORMAL"); err != nil {
		return nil, fmt.Errorf("relaxing a group: %w", err)
	}
	return func() {
		if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = FULL"); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the next one is opened with FULL
		}
	}, nil
}

// run performs a member's own part, and keeps a panic for the one whose part it is.
func (m *member) run(ctx context.Context, tx *sql.Tx) (err error) {
	defer func() {
		if m.panicked = recover(); m.panicked != nil {
			err = errPanicked
		}
	}()
	return m.do(ctx, tx)
}

// together performs one member as if it were alone: if it fails, all that was done in the transaction has to be undone.
func together(ctx context.Context, _ *Store, tx *sql.Tx, m *member) error {
	if m.err = m.run(ctx, tx); m.err != nil {
		return errOneFailed
	}
	return nil
}

// apart performs one member so that it can be undone alone. The error is of the transaction as a whole: SQLite has given it
// up (disk full, input or output), or the member could not be undone.
func apart(ctx context.Context, s *Store, tx *sql.Tx, m *member) error {
	if _, err := s.exec(ctx, tx, "SAVEPOINT member"); err != nil {
		return fmt.Errorf("beginning a part: %w", err)
	}
	if m.err = m.run(ctx, tx); m.err != nil {
		if _, err := s.exec(ctx, tx, "ROLLBACK TO member"); err != nil {
			return m.err
		}
	}
	if _, err := s.exec(ctx, tx, "RELEASE member"); err != nil {
		return fmt.Errorf("ending a part: %w", err)
	}
	return nil
}
