package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"pilder/policy"
)

// PendingApprovals lists what waits: requested by the principal, or (for approvers) to be decided by it; oldest first.
func (s *Store) PendingApprovals(ctx context.Context, p policy.Principal) ([]Approval, error) {
	me, err := s.Membership(ctx, p.Company, p.Membership)
	if err != nil {
		return nil, fmt.Errorf("listing approvals: %w", err)
	}
	all, err := members(ctx, s.reads, p.Company)
	if err != nil {
		return nil, fmt.Errorf("listing approvals: %w", err)
	}
	waiting, err := s.approvals(ctx, s.reads, `a.company_id = $1 AND a.state = 'pending' AND a.expires_ms > $2
		ORDER BY a.asked_ms, a.approval_id`, p.Company, s.now())
	if err != nil {
		return nil, fmt.Errorf("listing approvals: %w", err)
	}
	waiting = slices.DeleteFunc(waiting, func(a Approval) bool {
		return a.Requester.ID != me.ID && !mayDecide(a, me, all)
	})
	for i, a := range waiting {
		for _, m := range all {
			if mayDecide(a, m, all) {
				waiting[i].Deciders = append(waiting[i].Deciders, m.Person.Name)
			}
		}
	}
	return waiting, nil
}

// expireAtOnce bounds one transaction of ExpireApprovals.
const expireAtOnce = 100

// ExpireApprovals ends what nobody decided in time and says so in the chat (drafts by say); returns how many.
func (s *Store) ExpireApprovals(ctx context.Context, say func(Approval) []Draft) (int, error) {
	var n int
	err := s.tx(ctx, func(tx *sql.Tx) error {
		n = 0
		rows, err := tx.QueryContext(ctx, `SELECT approval_id, company_id FROM approval WHERE state = 'pending' AND expires_ms <= $1
			ORDER BY approval_id LIMIT $2`+s.d.forUpdate, s.now(), expireAtOnce)
		type late struct {
			id      ApprovalID
			company CompanyID
		}
		var all []late
		err = each(rows, err, func(scan func(...any) error) error {
			var l late
			defer func() { all = append(all, l) }()
			return scan(&l.id, &l.company)
		})
		if err != nil {
			return err
		}
		for _, l := range all {
			a, err := s.approval(ctx, tx, l.company, l.id)
			if err != nil {
				return err
			}
			if err := s.expire(ctx, tx, a, say); err != nil {
				return fmt.Errorf("approval %s: %w", a.ID, err)
			}
			n++
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("expiring approvals: %w", err)
	}
	return n, nil
}

func (s *Store) expire(ctx context.Context, tx *sql.Tx, a Approval, say func(Approval) []Draft) error {
	a.State, a.Outcome = ApprovalExpired, OutcomeExpired
	if _, err := tx.ExecContext(ctx, `UPDATE approval SET state = $3 WHERE approval_id = $1 AND company_id = $2`, a.ID, a.Company, a.State); err != nil {
		return err
	}
	if err := s.endHeld(ctx, tx, a, "expired", ""); err != nil {
		return err
	}
	if err := s.sayOfApproval(ctx, tx, a, say(a)); err != nil {
		return err
	}
	if err := s.closeTogether(ctx, tx, a.Company, a.Run); err != nil {
		return err
	}
	return s.audit(ctx, tx, a.Company, actorPilder, "approval.expired", string(a.ID), nil)
}
