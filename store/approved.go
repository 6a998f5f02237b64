package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"pilder/policy"
)

// approvedCall reads the approval of a call that is approved and still held; ErrNotFound when it is not, or no more.
func (s *Store) approvedCall(ctx context.Context, call CallID) (Approval, error) {
	return s.oneApproval(ctx, s.reads, `a.call_id = $1 AND a.state = 'approved' AND c.outcome = 'held'`, call)
}

// BeginApproved marks an approved call as being performed, durably, before its effect. ok is false when it was begun
// before, whatever became of that: it must not be repeated. If its worker died, RecoverCalls makes it unknown and tells
// its person.
func (s *Store) BeginApproved(ctx context.Context, a Approval) (ok bool, err error) {
	err = s.quietTx(ctx, func(tx *sql.Tx) error {
		ok = false
		begun, err := s.begunApproval(ctx, tx, a)
		if err != nil || begun {
			return err
		}
		// The call is looked at under the approval's lock, which everybody takes who ends a held call.
		ok, err = one(tx.ExecContext(ctx, `UPDATE approval SET begun_by = $3, begun_ms = $4
			WHERE approval_id = $1 AND company_id = $2 AND state = 'approved'
			AND EXISTS (SELECT 1 FROM call c WHERE c.call_id = approval.call_id AND c.outcome = 'held')`,
			a.ID, a.Company, s.instance, s.now()))
		if err != nil || !ok {
			return err
		}
		return s.audit(ctx, tx, a.Company, actorPilder, "approval.begun", string(a.ID), nil)
	})
	if err != nil {
		return false, fmt.Errorf("beginning approved call %s: %w", a.Call, err)
	}
	return ok, nil
}

// begunApproval locks an approval and tells whether its call was begun.
func (s *Store) begunApproval(ctx context.Context, tx *sql.Tx, a Approval) (bool, error) {
	var begun int64
	err := tx.QueryRowContext(ctx, `SELECT begun_ms FROM approval WHERE approval_id = $1 AND call_id = $2 AND company_id = $3`+s.d.forUpdate,
		a.ID, a.Call, a.Company).Scan(&begun)
	if errors.Is(err, sql.ErrNoRows) {
		return false, ErrNotFound
	}
	return begun > 0, err
}

// errNotBegun is EndApproved without BeginApproved.
var errNotBegun = errors.New("approved call was not begun")

// Ended is what came of an approved call.
type Ended struct {
	Outcome Outcome
	Code    string // content-free
	Text    string // for the next turn: untrusted
	Undo    *Undo  // how it can be taken back; nil: it cannot
}

// EndApproved commits the outcome of an approved call, tells the chat (drafts) and files it as news for the next turn. The
// first outcome stands: if the call was given up for lost meanwhile, the late one is audited and nothing is said. What can
// be taken back is offered under the last draft.
func (s *Store) EndApproved(ctx context.Context, a Approval, end Ended, drafts ...Draft) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		begun, err := s.begunApproval(ctx, tx, a)
		if err != nil {
			return err
		}
		if !begun {
			return errNotBegun
		}
		first, err := s.endCall(ctx, tx, a.Company, a.Call, OutcomeHeld, endedCall{end.Outcome, end.Code}, nil)
		if err != nil || !first {
			return err
		}
		if err := s.news(ctx, tx, a.Company, a.Call, end.Text); err != nil {
			return err
		}
		if end.Undo != nil && end.Outcome == OutcomeDone {
			if err := s.keepUndo(ctx, tx, a.Company, a.Call, *end.Undo); err != nil {
				return err
			}
			if drafts, err = s.offerUndo(ctx, tx, a.Company, a.Run, a.Call, drafts); err != nil {
				return err
			}
		}
		return s.sayOfApproval(ctx, tx, a, drafts)
	})
	if err != nil {
		return fmt.Errorf("ending approved call %s: %w", a.Call, err)
	}
	return nil
}

// How RecoverCalls knows that nobody will end a call any more: its process is dead, or it has taken longer than any call
// may. The gateway's own deadline for a call is far below.
const callPatience = 15 * time.Minute

// recoverAtOnce bounds one transaction of RecoverCalls.
const recoverAtOnce = 100

// RecoverCalls marks calls that a dead process left open, of ended runs or approved by somebody, as unknown and tells
// their people (drafts by say); an open read is simply failed. Calls of a run that still counts as running are left to
// whoever takes its conversation over. Called at start and every minute.
func (s *Store) RecoverCalls(ctx context.Context, say func(CallView, Run) []Draft) (int, error) {
	if s.guest {
		return 0, ErrGuest // beside a SQLite file's owner it would take that one for dead
	}
	var n int
	err := s.tx(ctx, func(tx *sql.Tx) error {
		n = 0
		open, err := s.lostCalls(ctx, tx, `JOIN run r ON r.run_id = c.run_id
			WHERE c.outcome = '' AND r.state <> 'running' AND (`+s.dead("r.instance_id")+` OR c.begun_ms < $2)`)
		if err != nil {
			return err
		}
		held, err := s.lostCalls(ctx, tx, `JOIN approval a ON a.call_id = c.call_id
			WHERE c.outcome = 'held' AND a.state = 'approved' AND a.begun_ms > 0 AND (`+s.dead("a.begun_by")+` OR a.begun_ms < $2)`)
		if err != nil {
			return err
		}
		for _, l := range append(held, open...) {
			lost, err := s.lose(ctx, tx, l, say)
			if err != nil {
				return fmt.Errorf("call %s: %w", l.call, err)
			}
			if lost {
				n++
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("recovering calls: %w", err)
	}
	return n, nil
}

// dead is the condition that an instance is not this one and does not live. A SQLite file belongs to one process, so there
// no other lives; elsewhere the database's clock judges. The instance that asks is $1.
func (s *Store) dead(column string) string {
	if s.pool == nil {
		return column + " <> $1"
	}
	return fmt.Sprintf(`%s <> $1 AND NOT EXISTS (SELECT 1 FROM instance i WHERE i.instance_id = %s AND i.beat_ms > %s - %d)`,
		column, column, s.d.nowMS, s.ttl.Milliseconds())
}

// lostCall is a call that nobody will end any more.
type lostCall struct {
	call    CallID
	company CompanyID
	run     RunID
	class   policy.Class
	waiting Outcome
}

func (s *Store) lostCalls(ctx context.Context, tx *sql.Tx, from string) ([]lostCall, error) {
	rows, err := tx.QueryContext(ctx, `SELECT c.call_id, c.company_id, c.run_id, c.class, c.outcome FROM call c `+from+`
		ORDER BY c.call_id LIMIT $3`, s.instance, s.now()-callPatience.Milliseconds(), recoverAtOnce)
	var all []lostCall
	err = each(rows, err, func(scan func(...any) error) error {
		var l lostCall
		defer func() { all = append(all, l) }()
		return scan(&l.call, &l.company, &l.run, &l.class, &l.waiting)
	})
	return all, err
}

// lose ends one call of which nobody knows what came of it. lost is false when it was ended meanwhile.
func (s *Store) lose(ctx context.Context, tx *sql.Tx, l lostCall, say func(CallView, Run) []Draft) (lost bool, err error) {
	end := endedCall{OutcomeUnknown, "worker_died"}
	if l.waiting == OutcomeOpen && l.class == policy.ClassRead {
		end.Outcome = OutcomeFailed
	}
	if l.waiting == OutcomeHeld {
		// Approval before call: the order in which EndApproved locks them.
		var begun int64
		if err := tx.QueryRowContext(ctx, `SELECT begun_ms FROM approval WHERE call_id = $1 AND company_id = $2`+s.d.forUpdate,
			l.call, l.company).Scan(&begun); err != nil {
			return false, err
		}
	}
	var now Outcome
	err = tx.QueryRowContext(ctx, `SELECT outcome FROM call WHERE call_id = $1 AND company_id = $2`+s.d.forUpdate, l.call, l.company).Scan(&now)
	if err != nil || now != l.waiting {
		return false, err
	}
	if _, err := s.endCall(ctx, tx, l.company, l.call, l.waiting, end, nil); err != nil {
		return false, err
	}
	if end.Outcome == OutcomeFailed {
		return true, nil
	}
	if err := s.news(ctx, tx, l.company, l.call, ""); err != nil {
		return false, err
	}
	views, err := callViews(ctx, tx, `call_id = $1 AND company_id = $2`, l.call, l.company)
	if err != nil {
		return false, err
	}
	row, err := s.runRow(ctx, tx, `r.run_id = $1 AND r.company_id = $2`, l.run, l.company)
	if err != nil {
		return false, err
	}
	m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, row.company, row.membership)
	if err != nil {
		return false, err
	}
	run := Run{ID: row.id, Principal: m.Principal(), Member: m, Conversation: row.conversation, Chat: row.chat, State: row.state,
		Fence: row.fence, Attempt: row.attempt, Started: at(row.started)}
	run.Principal.Run = row.id
	return true, s.sayOf(ctx, tx, row, say(views[0], run))
}
