package store

import (
	"context"
	"database/sql"
	"time"
)

// tries bounds how often a transaction that lost against another one is begun again.
const tries = 8

// queryer is what a read needs: a transaction or the pool for reading.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// tx runs f in one transaction and wakes this process's waiters after commit. f may run more than once (deadlock, busy),
// so all it may leave outside the database is values it assigns anew each time; it never calls the pool, only its tx: with
// SQLite's one connection that would hang.
//
// Locks are taken in this order, by everybody: lease or instance, arrival, link, conversation, run, account, approval, call,
// undo, message, job, replies, audit. What hangs on a conversation (its messages, its turn's job, what waits for an app) is
// changed under its lock, if at all after another of its kind; what an account lets go on is locked before it (lockWaiting).
func (s *Store) tx(ctx context.Context, f func(tx *sql.Tx) error) error {
	if err := s.quietTx(ctx, f); err != nil {
		return err
	}
	s.wake.broadcast()
	return nil
}

// quietTx is tx for what concerns nobody who waits: beats, leases, the sender's own marks.
func (s *Store) quietTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	return retried(ctx, func() error { return s.tryTx(ctx, f) })
}

// retried begins a transaction again that lost against another one.
func retried(ctx context.Context, try func() error) error {
	var err error
	for i := range tries {
		if err = try(); err == nil || !isContention(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(i+1) * 5 * time.Millisecond):
		}
	}
	return err
}

func (s *Store) tryTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	if s.pool == nil {
		if err := s.catchUp(ctx); err != nil {
			return err
		}
		s.statements.prepare(ctx, s.db)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// one tells whether exactly one row was changed.
func one(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// each reads all rows with scan, which is given the rows' Scan.
func each(rows *sql.Rows, err error, scan func(scan func(...any) error) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ms and at convert between the clock and what is stored: unix milliseconds, 0 for never.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
