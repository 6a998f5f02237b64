package store

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Errand is a person's way to an upstream server's authorization page and back.
type Errand struct {
	Company    CompanyID
	Membership MembershipID
	App        string // slug
	Notes      Secret // what the way back needs; sealed at rest
}

// BeginErrand notes that a person sets off, before they do. They come back with state, which is kept hashed. ErrNotFound:
// nobody has this external user.
func (s *Store) BeginErrand(ctx context.Context, externalUser, app string, state, notes Secret, ttl time.Duration) error {
	hash := state.Hash()
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		m, err := membership(ctx, tx, `m.external_user = $1`, externalUser)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO errand (state_hash, company_id, membership_id, app, notes, created_ms, expires_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`, hash[:], m.Company.ID, m.ID, app,
			s.seal.seal("errand.notes", hex.EncodeToString(hash[:]), m.Company.ID, []byte(notes.Reveal())), s.now(), s.now()+ttl.Milliseconds())
		return err
	})
	if err != nil {
		return fmt.Errorf("beginning an errand to %s: %w", app, err)
	}
	return nil
}

// Errand looks an errand up by its state. ErrNotFound: unknown, expired or ended.
func (s *Store) Errand(ctx context.Context, state Secret) (Errand, error) {
	hash := state.Hash()
	var e Errand
	var sealed []byte
	err := s.reads.QueryRowContext(ctx, `SELECT company_id, membership_id, app, notes FROM errand WHERE state_hash = $1 AND expires_ms > $2`,
		hash[:], s.now()).Scan(&e.Company, &e.Membership, &e.App, &sealed)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Errand{}, fmt.Errorf("reading an errand: %w", err)
	}
	notes, err := s.seal.open("errand.notes", hex.EncodeToString(hash[:]), e.Company, sealed)
	if err != nil {
		return Errand{}, err
	}
	e.Notes = NewSecret(string(notes))
	return e, nil
}

// EndErrand takes an errand off, once: of two that come back with one state the second gets ErrNotFound.
func (s *Store) EndErrand(ctx context.Context, state Secret) error {
	hash := state.Hash()
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		ok, err := one(tx.ExecContext(ctx, `DELETE FROM errand WHERE state_hash = $1 AND expires_ms > $2`, hash[:], s.now()))
		if err == nil && !ok {
			err = ErrNotFound
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ending an errand: %w", err)
	}
	return nil
}
