package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pilder/policy"
)

// Verdict is a human's decision.
type Verdict struct {
	Approval ApprovalID // from a button
	Code     string     // or from /approve CODE, /deny CODE
	Approve  bool
	Telegram int64 // who says so
}

// Errors of Decide. Nothing was changed, and the update stays open for the caller to settle with a kind word.
var (
	ErrNotYours = errors.New("this person may not decide this approval")
	ErrDecided  = errors.New("approval already decided")
	ErrExpired  = errors.New("approval expired")
	// ErrNotShown is returned for a yes of somebody to whom the whole card has not gone out: they have not seen what would
	// be executed. They are to be shown it (the approval comes along), not refused.
	ErrNotShown = errors.New("what would be executed was not shown to this person")
	// ErrArriving is returned instead while parts of that card are still on their way.
	ErrArriving = errors.New("what would be executed is still being shown to this person")
)

// Decide records the first verdict of somebody who may give it, audits it, settles the update, makes the cards lose their
// buttons (drafts made by say), and wakes the execution of an approved call: one transaction. ErrNotFound for an approval
// of a company the person is not in. With ErrDecided and ErrExpired the approval is returned as it is.
func (s *Store) Decide(ctx context.Context, from UpdateRef, v Verdict, say func(Approval) []Draft) (Approval, error) {
	var a Approval
	err := s.tx(ctx, func(tx *sql.Tx) error {
		a = Approval{}
		if err := s.settle(ctx, tx, from, FateDone, string(v.state())); err != nil {
			return err
		}
		found, by, err := s.judge(ctx, tx, v)
		if err != nil {
			return err
		}
		a = found
		if err := s.decidable(ctx, tx, a, v); err != nil {
			return err
		}
		return s.decide(ctx, tx, &a, by, v.Approve, say)
	})
	if err != nil {
		return a, fmt.Errorf("deciding an approval: %w", err)
	}
	return a, nil
}

// state is what the verdict makes of an approval.
func (v Verdict) state() ApprovalState {
	if v.Approve {
		return ApprovalApproved
	}
	return ApprovalDenied
}

// decidable is nil when an approval still waits and, for a yes, whoever says it has been shown everything.
func (s *Store) decidable(ctx context.Context, tx *sql.Tx, a Approval, v Verdict) error {
	switch {
	case a.State == ApprovalExpired, a.State == ApprovalPending && s.now() >= ms(a.Expires):
		return ErrExpired
	case a.State != ApprovalPending:
		return ErrDecided
	case v.Approve:
		return s.shown(ctx, tx, a, v)
	}
	return nil
}

// decide records a verdict on a pending approval that the caller holds locked, with all that follows from it.
func (s *Store) decide(ctx context.Context, tx *sql.Tx, a *Approval, by Membership, yes bool, say func(Approval) []Draft) error {
	a.State, a.DecidedBy, a.Decided = Verdict{Approve: yes}.state(), by.ID, at(s.now())
	if _, err := tx.ExecContext(ctx, `UPDATE approval SET state = $3, decided_by = $4, decided_ms = $5
		WHERE approval_id = $1 AND company_id = $2`, a.ID, a.Company, a.State, a.DecidedBy, ms(a.Decided)); err != nil {
		return err
	}
	var err error
	if yes {
		err = s.enqueueApproved(ctx, tx, a.Call)
	} else {
		a.Outcome = OutcomeRefused
		err = s.endHeld(ctx, tx, *a, "denied", "")
	}
	if err != nil {
		return err
	}
	if err := s.cutCards(ctx, tx, *a); err != nil {
		return err
	}
	if err := s.sayOfApproval(ctx, tx, *a, say(*a)); err != nil {
		return err
	}
	if err := s.closeTogether(ctx, tx, a.Company, a.Run); err != nil {
		return err
	}
	detail := decidedApproval{a.Call, a.Kind, a.Rule, a.Digest}
	return s.audit(ctx, tx, a.Company, string(by.ID), "approval."+string(a.State), string(a.ID), detail)
}

// shown is nil when a card of the approval has gone out whole to whoever says yes, else ErrNotShown or ErrArriving. A press
// proves that the part with the buttons arrived, even before its send is recorded; a typed code proves nothing, since the
// requester's agent knows it too.
func (s *Store) shown(ctx context.Context, tx *sql.Tx, a Approval, v Verdict) error {
	arrived := `'sent'`
	if v.Approval != "" {
		arrived = `'sending', 'sent', 'uncertain'`
	}
	const card = `SELECT COUNT(*) FROM reply c WHERE c.approval_id = $1 AND c.company_id = $2 AND c.kind = 'card' AND c.chat_id = $3 AND c.part = 1 `
	for _, look := range []struct {
		where string
		found error
	}{
		{`AND c.state IN (` + arrived + `)
			AND NOT EXISTS (SELECT 1 FROM reply p WHERE p.group_id = c.group_id AND p.part > 1 AND p.state <> 'sent')`, nil},
		{`AND EXISTS (SELECT 1 FROM reply p WHERE p.group_id = c.group_id AND p.state IN ('queued', 'sending'))
			AND NOT EXISTS (SELECT 1 FROM reply p WHERE p.group_id = c.group_id AND p.state IN ('failed', 'uncertain', 'folded'))`, ErrArriving},
	} {
		var cards int
		if err := tx.QueryRowContext(ctx, card+look.where, a.ID, a.Company, v.Telegram).Scan(&cards); err != nil {
			return fmt.Errorf("looking for the card of %s: %w", a.ID, err)
		}
		if cards > 0 {
			return look.found
		}
	}
	return ErrNotShown
}

// cutCards ends what is still to be sent of the cards of a decided approval.
func (s *Store) cutCards(ctx context.Context, tx *sql.Tx, a Approval) error {
	_, err := tx.ExecContext(ctx, `UPDATE reply SET state = 'failed', reason = 'decided', ended_ms = $3
		WHERE approval_id = $1 AND company_id = $2 AND kind = 'card' AND part > 1 AND state IN ('queued', 'folded')`, a.ID, a.Company, s.now())
	if err != nil {
		return fmt.Errorf("cutting the cards of %s: %w", a.ID, err)
	}
	return nil
}

// decidedApproval is what the audit says of a verdict: the digest names the very arguments.
type decidedApproval struct {
	Call   CallID        `json:"call"`
	Kind   policy.Effect `json:"kind"`
	Rule   string        `json:"rule,omitempty"`
	Digest string        `json:"digest"`
}

// oneOfTheirs is the condition on a row that it is of a company which the person with the Telegram id $2 is in: what is asked
// for by somebody who pressed a button is not even locked in any other.
const oneOfTheirs = `company_id IN (SELECT m.company_id FROM membership m JOIN person p ON p.person_id = m.person_id
	WHERE p.telegram_id = $2)`

// judge finds the approval a verdict is about, locks it, and the membership of whoever gives it. Their role is read now:
// who may decide is not a matter of who got a card.
func (s *Store) judge(ctx context.Context, tx *sql.Tx, v Verdict) (Approval, Membership, error) {
	var id ApprovalID
	var company CompanyID
	row := tx.QueryRowContext(ctx, `SELECT approval_id, company_id FROM approval WHERE approval_id = $1 AND `+oneOfTheirs+s.d.forUpdate,
		v.Approval, v.Telegram)
	if v.Approval == "" {
		// Of the companies this person is in, since codes are unique only within one; what still waits first.
		row = tx.QueryRowContext(ctx, `SELECT approval_id, company_id FROM approval WHERE code = $1 AND `+oneOfTheirs+`
			ORDER BY CASE WHEN state = 'pending' THEN 0 ELSE 1 END, asked_ms DESC LIMIT 1`+s.d.forUpdate,
			strings.ToUpper(strings.TrimSpace(v.Code)), v.Telegram)
	}
	err := row.Scan(&id, &company)
	if errors.Is(err, sql.ErrNoRows) {
		return Approval{}, Membership{}, ErrNotFound
	}
	if err != nil {
		return Approval{}, Membership{}, err
	}
	by, err := membership(ctx, tx, `m.company_id = $1 AND p.telegram_id = $2`, company, v.Telegram)
	if err != nil {
		return Approval{}, Membership{}, err
	}
	a, err := s.approval(ctx, tx, company, id)
	if err != nil {
		return Approval{}, Membership{}, err
	}
	all, err := members(ctx, tx, company)
	if err != nil {
		return Approval{}, Membership{}, err
	}
	if !mayDecide(a, by, all) {
		return Approval{}, Membership{}, ErrNotYours
	}
	return a, by, nil
}

// endHeld ends an approval's held call with a.Outcome and files it as news for the conversation's next turn.
func (s *Store) endHeld(ctx context.Context, tx *sql.Tx, a Approval, code, text string) error {
	first, err := s.endCall(ctx, tx, a.Company, a.Call, OutcomeHeld, endedCall{a.Outcome, code}, nil)
	if err != nil || !first {
		return err
	}
	return s.news(ctx, tx, a.Company, a.Call, text)
}

// news tells the next turn of a call's conversation what came of it.
func (s *Store) news(ctx context.Context, tx *sql.Tx, company CompanyID, call CallID, text string) error {
	id := newID(prefixNews)
	_, err := tx.ExecContext(ctx, `INSERT INTO news (news_id, company_id, conversation_id, membership_id, tool, outcome, text, at_ms)
		SELECT $1, company_id, conversation_id, membership_id, tool, outcome, $4, $5 FROM call WHERE call_id = $2 AND company_id = $3`,
		id, call, company, s.seal.seal("news.text", id, company, []byte(text)), s.now())
	if err != nil {
		return fmt.Errorf("filing news of call %s: %w", call, err)
	}
	return nil
}

// sayOfApproval queues drafts through the bot that asked.
func (s *Store) sayOfApproval(ctx context.Context, tx *sql.Tx, a Approval, drafts []Draft) error {
	from, err := s.originOf(ctx, tx, a)
	if err != nil {
		return err
	}
	return s.say(ctx, tx, from, drafts)
}

func (s *Store) originOf(ctx context.Context, tx *sql.Tx, a Approval) (origin, error) {
	from := origin{run: a.Run}
	err := tx.QueryRowContext(ctx, `SELECT bot_id FROM approval WHERE approval_id = $1 AND company_id = $2`, a.ID, a.Company).Scan(&from.bot)
	if err != nil {
		return origin{}, fmt.Errorf("finding the bot of %s: %w", a.ID, err)
	}
	return from, nil
}

// mayDecide tells whether a member may decide an approval, among all members of the company as they are now.
func mayDecide(a Approval, m Membership, all []Membership) bool {
	alone := !slices.ContainsFunc(all, func(o Membership) bool {
		return o.ID != a.Requester.ID && o.Role.Decides()
	})
	return policy.MayApprove(m.Role, a.Kind, a.Requester.ID, m.ID, alone)
}
