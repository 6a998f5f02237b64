package store

import (
	"context"
	"database/sql"
	"fmt"
)

// Definition is one action of the registry of connected apps: as a human accepted it, and as the registry has it now when
// that is something else.
type Definition struct {
	Action  string
	Version string
	Hash    string // of what was reviewed
	Text    []byte // the definition's JSON as it came

	NextVersion string // empty: nothing waits for review
	NextHash    string
	NextText    []byte
}

// Definitions gives all definitions that are kept, by action.
func (s *Store) Definitions(ctx context.Context) ([]Definition, error) {
	all, err := s.definitions(ctx, s.reads, `TRUE ORDER BY action`)
	if err != nil {
		return nil, fmt.Errorf("reading definitions: %w", err)
	}
	return all, nil
}

// KeepDefinition files what the registry says of an action at the version that the house has pinned. The first that is seen
// of a version is what the pin means. Another text under the same version waits for AcceptDefinition and changes nothing;
// fresh tells that it was not known yet. What is accepted comes back.
func (s *Store) KeepDefinition(ctx context.Context, d Definition) (kept Definition, fresh bool, err error) {
	err = s.quietTx(ctx, func(tx *sql.Tx) error {
		fresh = false
		if _, err := tx.ExecContext(ctx, `INSERT INTO definition (action, version, hash, text, accepted_ms, seen_ms) VALUES ($1, $2, $3, $4, $5, $5)
			ON CONFLICT (action) DO UPDATE SET seen_ms = $5`, d.Action, d.Version, d.Hash, d.Text, s.now()); err != nil {
			return err
		}
		if kept, err = s.definition(ctx, tx, d.Action); err != nil {
			return err
		}
		switch {
		case kept.Version != d.Version: // the house pins another version now: somebody changed the table of apps
			kept = Definition{Action: d.Action, Version: d.Version, Hash: d.Hash, Text: d.Text}
			_, err = tx.ExecContext(ctx, `UPDATE definition SET version = $2, hash = $3, text = $4, next_version = '', next_hash = '',
				next_text = NULL, accepted_ms = $5 WHERE action = $1`, d.Action, d.Version, d.Hash, d.Text, s.now())
			return err
		case kept.Hash == d.Hash && kept.NextVersion == d.Version: // it went back to what was accepted
			return s.propose(ctx, tx, d.Action, Definition{})
		case kept.Hash == d.Hash || kept.NextHash == d.Hash && kept.NextVersion == d.Version:
			return nil
		}
		fresh = true
		return s.propose(ctx, tx, d.Action, d)
	})
	if err != nil {
		return Definition{}, false, fmt.Errorf("keeping the definition of %s: %w", d.Action, err)
	}
	return kept, fresh, nil
}

// ProposeDefinition files a version of an action newer than the pinned one, for a human to look at; fresh tells that it was
// not known yet. What is in use does not change. ErrNotFound for an action that is not kept.
func (s *Store) ProposeDefinition(ctx context.Context, d Definition) (fresh bool, err error) {
	err = s.quietTx(ctx, func(tx *sql.Tx) error {
		kept, err := s.definition(ctx, tx, d.Action)
		if err != nil {
			return err
		}
		if fresh = kept.NextVersion != d.Version || kept.NextHash != d.Hash; !fresh {
			return nil
		}
		return s.propose(ctx, tx, d.Action, d)
	})
	if err != nil {
		return false, fmt.Errorf("proposing a definition of %s: %w", d.Action, err)
	}
	return fresh, nil
}

// AcceptDefinition takes over what waits for review under the version in use. ErrNotFound when nothing does: a newer version
// is taken over by pinning it in the table of apps, which says more of an action than its version.
func (s *Store) AcceptDefinition(ctx context.Context, action string) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		ok, err := one(tx.ExecContext(ctx, `UPDATE definition SET hash = next_hash, text = next_text, next_version = '', next_hash = '',
			next_text = NULL, accepted_ms = $2 WHERE action = $1 AND next_version = version`, action, s.now()))
		if err == nil && !ok {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		return s.audit(ctx, tx, "", actorOperator, "definition.accepted", action, nil)
	})
	if err != nil {
		return fmt.Errorf("accepting the definition of %s: %w", action, err)
	}
	return nil
}

func (s *Store) propose(ctx context.Context, tx *sql.Tx, action string, d Definition) error {
	_, err := tx.ExecContext(ctx, `UPDATE definition SET next_version = $2, next_hash = $3, next_text = $4 WHERE action = $1`,
		action, d.Version, d.Hash, d.Text)
	return err
}

func (s *Store) definition(ctx context.Context, q queryer, action string) (Definition, error) {
	all, err := s.definitions(ctx, q, `action = $1`, action)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Definition{}, err
	}
	return all[0], nil
}

func (s *Store) definitions(ctx context.Context, q queryer, where string, args ...any) (all []Definition, err error) {
	rows, err := q.QueryContext(ctx, `SELECT action, version, hash, text, next_version, next_hash, next_text FROM definition WHERE `+where, args...)
	err = each(rows, err, func(scan func(...any) error) error {
		var d Definition
		err := scan(&d.Action, &d.Version, &d.Hash, &d.Text, &d.NextVersion, &d.NextHash, &d.NextText)
		all = append(all, d)
		return err
	})
	return all, err
}
