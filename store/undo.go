package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pilder/policy"
)

// RuleUndo is what the call says decided it that takes back another one: the person who asked for that, by a button.
const RuleUndo = "undo"

// Undo is the call that takes back what another one did.
type Undo struct {
	Tool  string
	App   string
	Class policy.Class
	Args  json.RawMessage // sealed at rest
}

// undoLife is how long an effect can be taken back, from the moment it is offered.
const undoLife = 15 * time.Minute

// undosOffered bounds the buttons under one message. Each call has one of its own, since each has an outcome of its own and
// people regret one thing more often than all; of more than fit, the last ones.
const undosOffered = 3

// keepUndo files how a call that was done can be taken back. Whether it is offered depends on there being a message.
func (s *Store) keepUndo(ctx context.Context, tx *sql.Tx, company CompanyID, call CallID, u Undo) error {
	var sealed []byte
	err := tx.QueryRowContext(ctx, `SELECT account FROM call WHERE call_id = $1 AND company_id = $2`, call, company).Scan(&sealed)
	if err != nil {
		return fmt.Errorf("reading the account of %s: %w", call, err)
	}
	account, err := s.seal.open("call.account", string(call), company, sealed)
	if err != nil {
		return err
	}
	id := newID(prefixUndo)
	_, err = tx.ExecContext(ctx, `INSERT INTO undo (undo_id, company_id, call_id, run_id, conversation_id, membership_id, what, tool, app,
			class, args, account, state, kept_ms)
		SELECT $1, company_id, call_id, run_id, conversation_id, membership_id, tool, $3, $4, $5, $6, $7, 'kept', $8
		FROM call WHERE call_id = $2 AND company_id = $9 ON CONFLICT (call_id) DO NOTHING`,
		id, call, u.Tool, u.App, u.Class, s.seal.seal("undo.args", id, company, u.Args),
		s.seal.seal("undo.account", id, company, account), s.now(), company)
	if err != nil {
		return fmt.Errorf("keeping the undo of %s: %w", call, err)
	}
	return nil
}

// offerUndo puts a button under the last of the drafts for each kept undo of a run (or, with call, of that one call), and
// begins their time. Without a message nothing is offered. The button goes out with the very message that tells of the
// effect, in its transaction: nobody is offered to take back what they were not told of.
func (s *Store) offerUndo(ctx context.Context, tx *sql.Tx, company CompanyID, run RunID, call CallID, drafts []Draft) ([]Draft, error) {
	if len(drafts) == 0 {
		return drafts, nil
	}
	type kept struct{ id, what string }
	var all []kept
	rows, err := tx.QueryContext(ctx, `SELECT undo_id, what FROM undo WHERE run_id = $1 AND company_id = $2 AND state = 'kept' AND ($3 = '' OR call_id = $3)
		ORDER BY kept_ms DESC, undo_id LIMIT $4`, run, company, string(call), undosOffered)
	err = each(rows, err, func(scan func(...any) error) error {
		var k kept
		defer func() { all = append(all, k) }()
		return scan(&k.id, &k.what)
	})
	if err != nil {
		return nil, fmt.Errorf("looking what of %s can be taken back: %w", run, err)
	}
	slices.Reverse(all)
	drafts = slices.Clone(drafts)
	last := &drafts[len(drafts)-1]
	for _, k := range all {
		if _, err := tx.ExecContext(ctx, `UPDATE undo SET state = 'offered', expires_ms = $3 WHERE undo_id = $1 AND company_id = $2`,
			k.id, company, s.now()+undoLife.Milliseconds()); err != nil {
			return nil, fmt.Errorf("offering %s: %w", k.id, err)
		}
		b := Button{Label: "button.undo", Args: map[string]string{"tool": k.what}, Action: ButtonUndo, Ref: k.id}
		if len(all) == 1 {
			b.Label = "button.undo_one"
		}
		last.Buttons = append(slices.Clone(last.Buttons), []Button{b})
	}
	return drafts, nil
}

// keptUndo is an undo as its row says.
type keptUndo struct {
	Undo
	company    CompanyID
	run        callingRun
	account    string
	state      string
	expires    int64
	membership MembershipID
}

// TakeBack makes the call that takes back another one, at the word of whoever asked for that: it is held, approved by them
// in the same transaction, and from there on an approved call like any other. more tells whether other offers of the run
// still stand. ErrNotFound for what is not there or of another company, ErrNotYours for anybody else, ErrExpired when it is
// too late, ErrDecided when it was pressed before or the run itself took it back.
func (s *Store) TakeBack(ctx context.Context, from UpdateRef, id string, telegram int64, drafts ...Draft) (more bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		more = false
		if err := s.settle(ctx, tx, from, FateDone, "undo"); err != nil {
			return err
		}
		u, err := s.undo(ctx, tx, id, telegram)
		if err != nil {
			return err
		}
		by, err := membership(ctx, tx, `m.company_id = $1 AND p.telegram_id = $2`, u.company, telegram)
		switch {
		case err != nil:
			return err
		case by.ID != u.membership:
			return ErrNotYours
		case u.state != "offered":
			return ErrDecided
		case s.now() >= u.expires:
			return ErrExpired
		}
		call, err := s.beginUndo(ctx, tx, u)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE undo SET state = 'pressed', by_call = $3 WHERE undo_id = $1 AND company_id = $2`, id, u.company, call); err != nil {
			return err
		}
		var left int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM undo WHERE run_id = $1 AND company_id = $2 AND state = 'offered' AND expires_ms > $3`,
			u.run.id, u.company, s.now()).Scan(&left); err != nil {
			return err
		}
		more = left > 0
		return s.say(ctx, tx, origin{bot: from.Bot, run: u.run.id}, drafts)
	})
	if err != nil {
		return false, fmt.Errorf("taking back: %w", err)
	}
	return more, nil
}

// undo reads and locks an undo of a company that a person is in.
func (s *Store) undo(ctx context.Context, tx *sql.Tx, id string, telegram int64) (u keptUndo, err error) {
	var args, account []byte
	err = tx.QueryRowContext(ctx, `SELECT company_id, run_id, conversation_id, membership_id, tool, app, class, args, account, state, expires_ms
		FROM undo WHERE undo_id = $1 AND `+oneOfTheirs+s.d.forUpdate, id, telegram).Scan(&u.company, &u.run.id, &u.run.conversation, &u.membership, &u.Tool, &u.App,
		&u.Class, &args, &account, &u.state, &u.expires)
	if errors.Is(err, sql.ErrNoRows) {
		return u, ErrNotFound
	}
	if err != nil {
		return u, err
	}
	u.run.company, u.run.membership = u.company, u.membership
	if u.Args, err = s.seal.open("undo.args", id, u.company, args); err != nil {
		return u, err
	}
	account, err = s.seal.open("undo.account", id, u.company, account)
	u.account = string(account)
	return u, err
}

// beginUndo writes the call, decided by its person's button, with an approval that is given already, and wakes its execution.
func (s *Store) beginUndo(ctx context.Context, tx *sql.Tx, u keptUndo) (CallID, error) {
	begun := BegunCall{ID: CallID(newID(prefixCall)), Outcome: OutcomeHeld}
	decision := policy.Decision{Effect: policy.Confirm, Rule: RuleUndo}
	c := NewCall{Tool: u.Tool, App: u.App, Class: u.Class, Args: u.Args, Decision: decision, Account: u.account}
	fresh, err := s.insertCall(ctx, tx, begun, c, u.run)
	if err != nil {
		return "", err
	}
	if !fresh {
		return "", ErrDecided
	}
	approval, sum, now := ApprovalID(newID(prefixApproval)), digest(u.Tool, u.Args), s.now()
	if _, err := tx.ExecContext(ctx, `INSERT INTO approval (approval_id, company_id, call_id, run_id, conversation_id, membership_id,
			bot_id, chat_id, topic_id, is_private, code, kind, rule, state, digest, asked_ms, expires_ms, decided_by, decided_ms)
		SELECT $1, $2, $3, $4, $5, $6, bot_id, chat_id, topic_id, is_private, $7, $8, $9, 'approved', $10, $11, $12, $6, $11
		FROM conversation WHERE conversation_id = $5 AND company_id = $2`, approval, u.company, begun.ID, u.run.id, u.run.conversation, u.membership,
		approvalCode(), decision.Effect.String(), RuleUndo, sum, now, now+undoLife.Milliseconds()); err != nil {
		return "", fmt.Errorf("approving the undo %s: %w", begun.ID, err)
	}
	if err := s.audit(ctx, tx, u.company, string(u.membership), "call.decided", string(begun.ID), decidedCall{
		Run: u.run.id, Tool: u.Tool, App: u.App, Class: u.Class, Decision: decision.Effect, Rule: RuleUndo, Digest: sum,
	}); err != nil {
		return "", err
	}
	detail := decidedApproval{begun.ID, decision.Effect, RuleUndo, sum}
	if err := s.audit(ctx, tx, u.company, string(u.membership), "approval.approved", string(approval), detail); err != nil {
		return "", err
	}
	return begun.ID, s.enqueueApproved(ctx, tx, begun.ID)
}
