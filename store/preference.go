package store

import (
	"context"
	"database/sql"
	"fmt"
)

// Preference is the app a person means by a category when two of theirs would do.
type Preference struct {
	Category string // the house's word for it: "calendar"
	App      string // slug; empty: they were asked and have not said
}

// Preferences gives a membership's preferences, by category.
func (s *Store) Preferences(ctx context.Context, company CompanyID, m MembershipID) ([]Preference, error) {
	return s.preferences(ctx, s.reads, company, m)
}

func (s *Store) preferences(ctx context.Context, q queryer, company CompanyID, m MembershipID) ([]Preference, error) {
	var all []Preference
	rows, err := q.QueryContext(ctx, `SELECT category, app FROM preference WHERE company_id = $1 AND membership_id = $2 ORDER BY category`, company, m)
	err = each(rows, err, func(scan func(...any) error) error {
		var p Preference
		err := scan(&p.Category, &p.App)
		all = append(all, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading preferences of %s: %w", m, err)
	}
	return all, nil
}

// AskPreference queues the card that asks a person which app they mean by a category, once in their life. asked is false
// when they were asked before.
func (s *Store) AskPreference(ctx context.Context, company CompanyID, m MembershipID, category string, card Draft) (asked bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, company, m); err != nil {
			return err
		}
		asked, err = one(tx.ExecContext(ctx, `INSERT INTO preference (company_id, membership_id, category, asked_ms) VALUES ($1, $2, $3, $4)
			ON CONFLICT DO NOTHING`, company, m, category, s.now()))
		if err != nil || !asked {
			return err
		}
		return s.say(ctx, tx, origin{}, []Draft{card})
	})
	if err != nil {
		return false, fmt.Errorf("asking about %s: %w", category, err)
	}
	return asked, nil
}

// SetPreference records which app a person means by a category, as often as they like.
func (s *Store) SetPreference(ctx context.Context, from UpdateRef, m Membership, p Preference, drafts ...Draft) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.settle(ctx, tx, from, FateDone, "preference_set"); err != nil {
			return err
		}
		if _, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, m.Company.ID, m.ID); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO preference (company_id, membership_id, category, app, asked_ms, set_ms) VALUES ($1, $2, $3, $4, $5, $5)
			ON CONFLICT (company_id, membership_id, category) DO UPDATE SET app = $4, set_ms = $5`,
			m.Company.ID, m.ID, p.Category, p.App, s.now()); err != nil {
			return err
		}
		if err := s.say(ctx, tx, origin{bot: from.Bot}, drafts); err != nil {
			return err
		}
		return s.audit(ctx, tx, m.Company.ID, string(m.ID), "preference.set", p.Category, ofApp{p.App})
	})
	if err != nil {
		return fmt.Errorf("setting the preference for %s: %w", p.Category, err)
	}
	return nil
}
