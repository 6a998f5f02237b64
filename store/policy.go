package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"pilder/policy"
)

// PolicyVersion is a company's policy as it was set once. Versions are counted from 1 and stay.
type PolicyVersion struct {
	Version int       `json:"version"`
	Text    string    `json:"text"`
	By      string    `json:"by"` // membership, or "operator"
	At      time.Time `json:"at"`
}

// setPolicy is what the audit says of a policy that was set.
type setPolicy struct {
	Version int    `json:"version"`
	Digest  string `json:"digest"` // SHA-256 of the text, hex
}

// ErrPolicyChanged is returned for a policy that was made over another version than the one in force.
var ErrPolicyChanged = errors.New("the policy was changed meanwhile")

// SetPolicy makes a text the company's policy from the next turn on. Approvals and runs keep what they were frozen with. over
// is the version that it was made over, 0 when there was none; by is empty for an operator. A text that is no policy is a
// *policy.FileError, one that does not meet its own cases a *policy.CaseError, and the old one stays.
func (s *Store) SetPolicy(ctx context.Context, from UpdateRef, company CompanyID, by MembershipID, over int, text string, drafts ...Draft) (int, error) {
	p, err := policy.Parse([]byte(text))
	if err != nil {
		return 0, fmt.Errorf("setting the policy of %s: %w", company, err)
	}
	actor := string(by)
	if by == "" {
		actor = actorOperator
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.settle(ctx, tx, from, FateDone, "policy.set"); err != nil {
			return err
		}
		// The lock makes the second of two see the first one's version.
		there, err := one(tx.ExecContext(ctx, `UPDATE company SET name = name WHERE company_id = $1`, company))
		if err != nil {
			return err
		}
		if !there {
			return ErrNotFound
		}
		c, err := companyByID(ctx, tx, company)
		if err == nil {
			err = p.Unmet(c.Domains)
		}
		if err != nil {
			return err
		}
		if by != "" {
			m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, company, by)
			if err != nil {
				return err
			}
			if m.Role != policy.RoleAdmin {
				return ErrNotYours
			}
		}
		now, err := s.policyOf(ctx, tx, company)
		if err != nil {
			return err
		}
		if now.Version != over {
			return ErrPolicyChanged
		}
		version := over + 1
		if _, err := tx.ExecContext(ctx, `INSERT INTO policy (company_id, version, text, set_by, set_ms) VALUES ($1, $2, $3, $4, $5)`,
			company, version, s.seal.seal("policy.text", strconv.Itoa(version), company, []byte(text)), actor, s.now()); err != nil {
			return err
		}
		if err := s.say(ctx, tx, origin{bot: from.Bot}, drafts); err != nil {
			return err
		}
		digest := sha256.Sum256([]byte(text))
		return s.audit(ctx, tx, company, actor, "policy.set", string(company), setPolicy{version, hex.EncodeToString(digest[:])})
	})
	if err != nil {
		return 0, fmt.Errorf("setting the policy of %s: %w", company, err)
	}
	return over + 1, nil
}

// Policy gives the policy in force; one with version 0 and no text when the company has set none.
func (s *Store) Policy(ctx context.Context, company CompanyID) (PolicyVersion, error) {
	p, err := s.policyOf(ctx, s.reads, company)
	if err == nil && p.Version == 0 {
		_, err = companyByID(ctx, s.reads, company)
	}
	if err != nil {
		return PolicyVersion{}, fmt.Errorf("reading the policy of %s: %w", company, err)
	}
	return p, nil
}

// Policies lists the newest versions, oldest first, at most limit.
func (s *Store) Policies(ctx context.Context, company CompanyID, limit int) ([]PolicyVersion, error) {
	if _, err := companyByID(ctx, s.reads, company); err != nil {
		return nil, fmt.Errorf("listing policies of %s: %w", company, err)
	}
	all, err := s.policies(ctx, s.reads, company, limit)
	if err != nil {
		return nil, fmt.Errorf("listing policies of %s: %w", company, err)
	}
	slices.Reverse(all)
	return all, nil
}

func (s *Store) policyOf(ctx context.Context, q queryer, company CompanyID) (PolicyVersion, error) {
	all, err := s.policies(ctx, q, company, 1)
	if err != nil || len(all) == 0 {
		return PolicyVersion{}, err
	}
	return all[0], nil
}

// policies gives the newest first.
func (s *Store) policies(ctx context.Context, q queryer, company CompanyID, limit int) ([]PolicyVersion, error) {
	rows, err := q.QueryContext(ctx, `SELECT version, text, set_by, set_ms FROM policy WHERE company_id = $1 ORDER BY version DESC LIMIT $2`, company, limit)
	var all []PolicyVersion
	err = each(rows, err, func(scan func(...any) error) error {
		var p PolicyVersion
		var text []byte
		var set int64
		if err := scan(&p.Version, &text, &p.By, &set); err != nil {
			return err
		}
		open, err := s.seal.open("policy.text", strconv.Itoa(p.Version), company, text)
		if err != nil {
			return err
		}
		p.Text, p.At = string(open), at(set)
		all = append(all, p)
		return nil
	})
	return all, err
}
