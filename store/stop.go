package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river/rivertype"
)

// Stopped is what /stop did.
type Stopped struct {
	Run       RunID // empty: nothing was running
	Waiting   int   // messages that waited and are now cancelled
	Approvals int   // pending approvals that are now cancelled
	Done      []CallView
}

// Stop cancels what waits in the sender's conversation, wishes the end of its running run and cancels that run's pending
// approvals; it settles the update and queues the draft made from what was done. The running worker's context ends within
// a second. In a group all this is about the sender's own messages and run: what others asked for goes on. ErrNotFound for
// a stranger; the update then stays open.
func (s *Store) Stop(ctx context.Context, from UpdateRef, telegram int64, chat Chat, say func(Stopped) []Draft) (Stopped, error) {
	var done Stopped
	var job int64
	err := s.tx(ctx, func(tx *sql.Tx) error {
		done, job = Stopped{}, 0
		m, err := membershipOf(ctx, tx, telegram)
		if err != nil {
			return err
		}
		if err := s.settle(ctx, tx, from, FateDone, "stop"); err != nil {
			return err
		}
		c, err := findConversation(ctx, tx, from.Bot, m, chat)
		if err == nil {
			done, job, err = s.stop(ctx, tx, c, m)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return s.say(ctx, tx, origin{bot: from.Bot, run: done.Run}, say(done))
	})
	if err != nil {
		return Stopped{}, fmt.Errorf("stopping: %w", err)
	}
	s.wish(job)
	return done, nil
}

func (s *Store) stop(ctx context.Context, tx *sql.Tx, c ConversationID, m Membership) (done Stopped, job int64, err error) {
	var locked int64
	if err := tx.QueryRowContext(ctx, `SELECT fence FROM conversation WHERE conversation_id = $1`+s.d.forUpdate, c).Scan(&locked); err != nil {
		return done, 0, err
	}
	err = tx.QueryRowContext(ctx, `UPDATE run SET cancel_requested_ms = CASE WHEN cancel_requested_ms = 0 THEN $3 ELSE cancel_requested_ms END
		WHERE conversation_id = $1 AND person_id = $2 AND state = 'running' RETURNING run_id, job_id`,
		c, m.Person.ID, s.now()).Scan(&done.Run, &job)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return done, 0, err
	}
	r, err := tx.ExecContext(ctx, `UPDATE message SET state = 'cancelled', reason = 'stopped', ended_ms = $3
		WHERE conversation_id = $1 AND person_id = $2 AND `+waits, c, m.Person.ID, s.now())
	if err != nil {
		return done, 0, err
	}
	waiting, err := r.RowsAffected()
	if err != nil {
		return done, 0, err
	}
	done.Waiting = int(waiting)
	if err := s.cancelWaits(ctx, tx, c, m); err != nil {
		return done, 0, err
	}
	if done.Run == "" {
		return done, 0, s.audit(ctx, tx, m.Company.ID, string(m.ID), "run.stopped", "", map[string]any{"waiting": waiting})
	}
	if err := s.cancelJob(ctx, tx, c, job); err != nil {
		return done, 0, err
	}
	if done.Done, err = callViews(ctx, tx, `run_id = $1 AND class <> 'read' AND outcome IN ('', 'done', 'unknown')`, done.Run); err != nil {
		return done, 0, err
	}
	if done.Approvals, err = s.cancelApprovals(ctx, tx, done.Run, m); err != nil {
		return done, 0, err
	}
	return done, job, s.audit(ctx, tx, m.Company.ID, string(m.ID), "run.stopped", string(done.Run),
		map[string]any{"waiting": waiting, "approvals": done.Approvals})
}

// cancelJob carries the wish to the worker. A job that is not being worked on just now (its worker failed and it waits for
// its retry) is finalised by River at once, and would strand the conversation: a new one takes its place.
func (s *Store) cancelJob(ctx context.Context, tx *sql.Tx, c ConversationID, job int64) error {
	j, err := s.queue.JobCancelTx(ctx, tx, job)
	if err != nil && !errors.Is(err, rivertype.ErrNotFound) {
		return fmt.Errorf("cancelling job %d: %w", job, err)
	}
	if err == nil && j.State == rivertype.JobStateRunning {
		return nil
	}
	_, err = s.enqueueTurn(ctx, tx, c)
	return err
}

// cancelApprovals ends what a stopped run still waits for: nothing of it will be done, and its cards say so.
func (s *Store) cancelApprovals(ctx context.Context, tx *sql.Tx, run RunID, m Membership) (int, error) {
	type pending struct {
		id   ApprovalID
		call CallID
		code string
		tool string
	}
	var all []pending
	rows, err := tx.QueryContext(ctx, `SELECT a.approval_id, a.call_id, a.code, c.tool FROM approval a JOIN call c ON c.call_id = a.call_id
		WHERE a.run_id = $1 AND a.company_id = $2 AND a.state = 'pending' ORDER BY a.approval_id`, run, m.Company.ID)
	err = each(rows, err, func(scan func(...any) error) error {
		var p pending
		if err := scan(&p.id, &p.call, &p.code, &p.tool); err != nil {
			return err
		}
		all = append(all, p)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("finding the approvals of %s: %w", run, err)
	}
	n := 0
	for _, p := range all {
		ok, err := one(tx.ExecContext(ctx, `UPDATE approval SET state = 'cancelled', decided_by = $3, decided_ms = $4
			WHERE approval_id = $1 AND company_id = $2 AND state = 'pending'`, p.id, m.Company.ID, m.ID, s.now()))
		if err != nil {
			return 0, fmt.Errorf("cancelling %s: %w", p.id, err)
		}
		if !ok {
			continue // decided between the two statements
		}
		n++
		if _, err := tx.ExecContext(ctx, `UPDATE call SET outcome = 'refused', code = 'cancelled', ended_ms = $3
			WHERE call_id = $1 AND company_id = $2 AND outcome = 'held'`, p.call, m.Company.ID, s.now()); err != nil {
			return 0, fmt.Errorf("cancelling %s: %w", p.call, err)
		}
		card := Draft{Company: m.Company.ID, Lang: langOf(m), Kind: DraftEdit, Notice: "card.cancelled", Approval: p.id, Priority: 2,
			Args: map[string]string{"tool": p.tool, "code": p.code, "by": m.Person.Name,
				"at": at(s.now()).UTC().Format(time.RFC3339)}}
		if err := s.say(ctx, tx, origin{run: run}, []Draft{card}); err != nil {
			return 0, err
		}
		if err := s.audit(ctx, tx, m.Company.ID, string(m.ID), "approval.cancelled", string(p.id), nil); err != nil {
			return 0, err
		}
	}
	if n == 0 {
		return 0, nil
	}
	return n, s.closeTogether(ctx, tx, m.Company.ID, run)
}

// NewConversation forgets the transcript of the sender's conversation: the next turn starts a new session, also when a run
// goes on now. Messages that wait stay; what waited for an app does not go on any more. ErrNotFound for a stranger.
func (s *Store) NewConversation(ctx context.Context, from UpdateRef, telegram int64, chat Chat, drafts ...Draft) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		m, err := membershipOf(ctx, tx, telegram)
		if err != nil {
			return err
		}
		if err := s.settle(ctx, tx, from, FateDone, "new"); err != nil {
			return err
		}
		c, err := findConversation(ctx, tx, from.Bot, m, chat)
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE conversation SET session = '', forget_fence = fence WHERE conversation_id = $1`, c)
		}
		if err == nil {
			err = s.cancelWaits(ctx, tx, c, m)
		}
		if err == nil {
			err = s.audit(ctx, tx, m.Company.ID, string(m.ID), "conversation.new", string(c), nil)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return s.say(ctx, tx, origin{bot: from.Bot}, drafts)
	})
	if err != nil {
		return fmt.Errorf("beginning a new conversation: %w", err)
	}
	return nil
}
