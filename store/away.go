package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Away is somebody who decides for the company and is not there for a while.
type Away struct {
	Until  time.Time
	Deputy MembershipID // empty: nobody was chosen
}

// Deputies are those whom a member may choose to decide in their place: the company's other approvers and admins. A deputy
// decides in their own right, so choosing one gives nobody a right, least of all over what they asked for themselves.
func (s *Store) Deputies(ctx context.Context, m Membership) ([]Membership, error) {
	all, err := members(ctx, s.reads, m.Company.ID)
	if err != nil {
		return nil, fmt.Errorf("listing deputies: %w", err)
	}
	var out []Membership
	for _, o := range all {
		if o.ID != m.ID && o.Role.Decides() {
			out = append(out, o)
		}
	}
	return out, nil
}

// SetAway notes that an approver or admin is away until a time, and who decides meanwhile: empty for nobody in particular.
// Cards still reach them, reminders do not. ErrNotYours for a member who decides nothing, ErrNotFound for a deputy who is
// not one of Deputies. A time that is over ends it.
func (s *Store) SetAway(ctx context.Context, from UpdateRef, id MembershipID, until time.Time, deputy MembershipID, drafts ...Draft) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.settle(ctx, tx, from, FateDone, "away"); err != nil {
			return err
		}
		m, err := membership(ctx, tx, `m.membership_id = $1`, id)
		if err != nil {
			return err
		}
		if !m.Role.Decides() {
			return ErrNotYours
		}
		if deputy != "" {
			d, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, m.Company.ID, deputy)
			if err != nil {
				return err
			}
			if d.ID == m.ID || !d.Role.Decides() {
				return ErrNotFound
			}
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO away (membership_id, company_id, deputy_id, until_ms) VALUES ($1, $2, $3, $4)
			ON CONFLICT (membership_id) DO UPDATE SET deputy_id = excluded.deputy_id, until_ms = excluded.until_ms`,
			m.ID, m.Company.ID, deputy, ms(until)); err != nil {
			return err
		}
		if err := s.say(ctx, tx, origin{bot: from.Bot}, drafts); err != nil {
			return err
		}
		action := "member.away"
		if ms(until) <= s.now() {
			action = "member.back"
		}
		return s.audit(ctx, tx, m.Company.ID, string(m.ID), action, string(m.ID), awayUntil{Deputy: deputy, Until: ms(until)})
	})
	if err != nil {
		return fmt.Errorf("noting who is away: %w", err)
	}
	return nil
}

// awayUntil is what the audit says of an absence.
type awayUntil struct {
	Deputy MembershipID `json:"deputy,omitempty"`
	Until  int64        `json:"until_ms"`
}

// awayNow gives who of a company is away at this moment.
func (s *Store) awayNow(ctx context.Context, q queryer, company CompanyID) (map[MembershipID]Away, error) {
	all := map[MembershipID]Away{}
	rows, err := q.QueryContext(ctx, `SELECT membership_id, deputy_id, until_ms FROM away WHERE company_id = $1 AND until_ms > $2`,
		company, s.now())
	err = each(rows, err, func(scan func(...any) error) error {
		var id MembershipID
		var a Away
		var until int64
		if err := scan(&id, &a.Deputy, &until); err != nil {
			return err
		}
		a.Until = at(until)
		all[id] = a
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading who is away: %w", err)
	}
	return all, nil
}
