package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"pilder/policy"
)

// Invitation is an offer to join a company: a random token stored hashed, spent once.
type Invitation struct {
	Company Company
	Role    policy.Role
	Expires time.Time
}

// ErrNotAdmin is returned when somebody asks for what only an admin of the company may do.
var ErrNotAdmin = errors.New("only an admin may do this")

// Invite makes an invitation. by is an admin of the company, or empty when the operator's command line asks.
func (s *Store) Invite(ctx context.Context, company CompanyID, role policy.Role, by MembershipID, ttl time.Duration) (Secret, error) {
	token := RandomSecret("")
	hash := token.Hash()
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if !role.Known() {
			return errRole
		}
		if _, err := companyByID(ctx, tx, company); err != nil {
			return err
		}
		actor := actorOperator
		if by != "" {
			m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, company, by)
			if err != nil {
				return err
			}
			if m.Role != policy.RoleAdmin {
				return ErrNotAdmin
			}
			actor = string(by)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO invitation (token_hash, company_id, role, by_id, created_ms, expires_ms)
			VALUES ($1, $2, $3, $4, $5, $6)`, hash[:], company, role, by, s.now(), s.now()+ttl.Milliseconds()); err != nil {
			return err
		}
		return s.audit(ctx, tx, company, actor, "invitation.made", string(company), joined{Role: role})
	})
	if err != nil {
		return Secret{}, fmt.Errorf("inviting to %s: %w", company, err)
	}
	return token, nil
}

// Invitation looks at an invitation without spending it. ErrNotFound: unknown, spent or expired.
func (s *Store) Invitation(ctx context.Context, token Secret) (Invitation, error) {
	hash := token.Hash()
	var i Invitation
	var company CompanyID
	var expires int64
	err := s.reads.QueryRowContext(ctx, `SELECT company_id, role, expires_ms FROM invitation
		WHERE token_hash = $1 AND spent_ms = 0 AND expires_ms > $2`, hash[:], s.now()).Scan(&company, &i.Role, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return Invitation{}, ErrNotFound
	}
	if err == nil {
		i.Expires = at(expires)
		i.Company, err = companyByID(ctx, s.reads, company)
	}
	if err != nil {
		return Invitation{}, fmt.Errorf("reading an invitation: %w", err)
	}
	return i, nil
}

// AcceptInvitation spends the invitation in the transaction that creates the membership, settles the update and queues
// the drafts. ErrNotFound as Invitation. Somebody who is a member already keeps their role: no link changes it.
func (s *Store) AcceptInvitation(ctx context.Context, from UpdateRef, token Secret, p Person, drafts ...Draft) (Membership, error) {
	hash := token.Hash()
	var m Membership
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.settle(ctx, tx, from, FateDone, "invitation_accepted"); err != nil {
			return err
		}
		var company CompanyID
		var role policy.Role
		var by MembershipID
		err := tx.QueryRowContext(ctx, `UPDATE invitation SET spent_ms = $2 WHERE token_hash = $1 AND spent_ms = 0 AND expires_ms > $2
			RETURNING company_id, role, by_id`, hash[:], s.now()).Scan(&company, &role, &by)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if m, _, err = s.join(ctx, tx, company, p, role); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE invitation SET spent_by = $2 WHERE token_hash = $1`, hash[:], m.ID); err != nil {
			return err
		}
		if err := s.expect(ctx, tx, from, m); err != nil {
			return err
		}
		if err := s.say(ctx, tx, origin{bot: from.Bot}, drafts); err != nil {
			return err
		}
		return s.audit(ctx, tx, company, string(m.ID), "invitation.accepted", string(m.ID), joined{Role: m.Role, By: by})
	})
	if err != nil {
		return Membership{}, fmt.Errorf("accepting an invitation: %w", err)
	}
	return m, nil
}

// expect begins the conversation of a newcomer where their update came from, if it was their private chat: they are about
// to write there.
func (s *Store) expect(ctx context.Context, tx *sql.Tx, from UpdateRef, m Membership) error {
	var c Chat
	err := tx.QueryRowContext(ctx, `SELECT chat_id, topic_id FROM arrival WHERE bot_id = $1 AND update_id = $2 AND is_private = 1`,
		from.Bot, from.UpdateID).Scan(&c.ID, &c.Topic)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !m.Current {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading update %d: %w", from.UpdateID, err)
	}
	c.Private = true
	_, err = s.conversation(ctx, tx, from.Bot, m, c)
	return err
}
