package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ToolDefinition is what a tool of an upstream said of itself at one time, known by its hash.
type ToolDefinition struct {
	Hash string // SHA-256 of Text, hex
	Text json.RawMessage
	At   time.Time
}

// UpstreamTool is what is remembered of one tool of an upstream. Company is empty where all companies see the same.
type UpstreamTool struct {
	Upstream string // slug
	Company  CompanyID
	Tool     string // the upstream's name for it
	Listed   bool   // it was in the upstream's last list
	// Accepted is the definition that is offered; none when nobody has accepted any yet.
	Accepted ToolDefinition
	// Held waits for an operator: a definition other than the accepted one; none when the two agree.
	Held ToolDefinition
}

// SeenUpstream is the result of looking at an upstream's list.
type SeenUpstream struct {
	Tools []UpstreamTool // all that are remembered, by name
	Held  []UpstreamTool // those held back by this look
}

// SeeUpstreamTools remembers an upstream's list, in one transaction. A tool seen for the first time is accepted, unless
// review says that an operator does that; one that reads otherwise than when it was accepted is held. A definition that is
// back as accepted is no longer held.
func (s *Store) SeeUpstreamTools(ctx context.Context, upstream string, company CompanyID, list map[string]ToolDefinition, review bool) (SeenUpstream, error) {
	var seen SeenUpstream
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		seen = SeenUpstream{}
		// Locked: an acceptance between this reading and the writing would be undone.
		known, err := s.upstreamToolsWhere(ctx, tx, `upstream = $1 AND company_id = $2 ORDER BY tool`+s.d.forUpdate, upstream, company)
		if err != nil {
			return err
		}
		byName := map[string]UpstreamTool{}
		for _, t := range known {
			byName[t.Tool] = t
			if _, listed := list[t.Tool]; t.Listed && !listed {
				if _, err := tx.ExecContext(ctx, `UPDATE upstream_tool SET is_listed = 0 WHERE upstream = $1 AND company_id = $2 AND tool = $3`,
					upstream, company, t.Tool); err != nil {
					return err
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(list)) { // two that write one list do it in one order
			t, before := byName[name]
			if !before {
				t = UpstreamTool{Upstream: upstream, Company: company, Tool: name}
			}
			held, err := s.seeUpstreamTool(ctx, tx, t, before, list[name], review)
			if err != nil {
				return err
			}
			if held.Tool != "" {
				seen.Held = append(seen.Held, held)
			}
		}
		seen.Tools, err = s.upstreamTools(ctx, tx, upstream, company)
		return err
	})
	if err != nil {
		return SeenUpstream{}, fmt.Errorf("remembering the tools of %s: %w", upstream, err)
	}
	return seen, nil
}

// seeUpstreamTool files what a tool says now, and gives the tool if that is held back from now on.
func (s *Store) seeUpstreamTool(ctx context.Context, tx *sql.Tx, t UpstreamTool, before bool, now ToolDefinition, review bool) (held UpstreamTool, err error) {
	was := t
	now.At = at(s.now())
	t.Listed = true
	switch {
	case now.Hash == t.Accepted.Hash:
		t.Held = ToolDefinition{}
	case t.Accepted.Hash == "" && !review:
		t.Accepted, t.Held = now, ToolDefinition{}
	case now.Hash != t.Held.Hash:
		t.Held, held = now, t
		held.Held = now
	}
	if before && t.Listed == was.Listed && t.Accepted.Hash == was.Accepted.Hash && t.Held.Hash == was.Held.Hash {
		return held, nil
	}
	return held, s.fileUpstreamTool(ctx, tx, t)
}

// fileUpstreamTool writes a tool as it is given.
func (s *Store) fileUpstreamTool(ctx context.Context, tx *sql.Tx, t UpstreamTool) error {
	row := t.Upstream + "/" + t.Tool
	_, err := tx.ExecContext(ctx, `INSERT INTO upstream_tool (upstream, company_id, tool, is_listed, accepted_hash, accepted, accepted_ms, held_hash, held, held_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (upstream, company_id, tool) DO UPDATE SET is_listed = excluded.is_listed, accepted_hash = excluded.accepted_hash,
			accepted = excluded.accepted, accepted_ms = excluded.accepted_ms, held_hash = excluded.held_hash, held = excluded.held,
			held_ms = excluded.held_ms`,
		t.Upstream, t.Company, t.Tool, bit(t.Listed),
		t.Accepted.Hash, s.seal.seal("upstream_tool.accepted", row, t.Company, t.Accepted.Text), ms(t.Accepted.At),
		t.Held.Hash, s.seal.seal("upstream_tool.held", row, t.Company, t.Held.Text), ms(t.Held.At))
	return err
}

// UpstreamTools gives what is remembered of an upstream's tools, by name.
func (s *Store) UpstreamTools(ctx context.Context, upstream string, company CompanyID) ([]UpstreamTool, error) {
	all, err := s.upstreamTools(ctx, s.reads, upstream, company)
	if err != nil {
		return nil, fmt.Errorf("reading the tools of %s: %w", upstream, err)
	}
	return all, nil
}

// UpstreamCompanies gives the companies that have a list of an upstream's tools to themselves.
func (s *Store) UpstreamCompanies(ctx context.Context, upstream string) ([]CompanyID, error) {
	var all []CompanyID
	rows, err := s.reads.QueryContext(ctx, `SELECT DISTINCT company_id FROM upstream_tool WHERE upstream = $1 AND company_id <> '' ORDER BY company_id`, upstream)
	err = each(rows, err, func(scan func(...any) error) error {
		var c CompanyID
		defer func() { all = append(all, c) }()
		return scan(&c)
	})
	if err != nil {
		return nil, fmt.Errorf("reading who has tools of %s: %w", upstream, err)
	}
	return all, nil
}

// HeldUpstreamTools gives every tool that waits for an operator.
func (s *Store) HeldUpstreamTools(ctx context.Context) ([]UpstreamTool, error) {
	all, err := s.upstreamToolsWhere(ctx, s.reads, `held_hash <> ''`)
	if err != nil {
		return nil, fmt.Errorf("reading what upstreams have changed: %w", err)
	}
	return all, nil
}

// AcceptUpstreamTool makes the held definition of that hash the one that is offered. ErrNotFound when another one, or none,
// is held by now: an operator accepts what they have read.
func (s *Store) AcceptUpstreamTool(ctx context.Context, upstream string, company CompanyID, tool, hash string) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		all, err := s.upstreamToolsWhere(ctx, tx, `upstream = $1 AND company_id = $2 AND tool = $3 AND held_hash = $4 AND held_hash <> ''`+s.d.forUpdate,
			upstream, company, tool, hash)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return ErrNotFound
		}
		t := all[0]
		before := t.Accepted.Hash
		t.Accepted, t.Held = t.Held, ToolDefinition{}
		if err := s.fileUpstreamTool(ctx, tx, t); err != nil {
			return err
		}
		return s.audit(ctx, tx, company, actorOperator, "upstream.accepted", upstream, acceptedTool{Was: before, Is: t.Accepted.Hash})
	})
	if err != nil {
		return fmt.Errorf("accepting a tool of %s: %w", upstream, err)
	}
	return nil
}

// acceptedTool is what the audit says of an accepted definition: the tool's own name is an outsider's text.
type acceptedTool struct {
	Was string `json:"was,omitempty"`
	Is  string `json:"is"`
}

func (s *Store) upstreamTools(ctx context.Context, q queryer, upstream string, company CompanyID) ([]UpstreamTool, error) {
	return s.upstreamToolsWhere(ctx, q, `upstream = $1 AND company_id = $2 ORDER BY tool`, upstream, company)
}

func (s *Store) upstreamToolsWhere(ctx context.Context, q queryer, where string, args ...any) ([]UpstreamTool, error) {
	rows, err := q.QueryContext(ctx, `SELECT upstream, company_id, tool, is_listed, accepted_hash, accepted, accepted_ms, held_hash, held, held_ms
		FROM upstream_tool WHERE `+where, args...)
	var all []UpstreamTool
	err = each(rows, err, func(scan func(...any) error) error {
		var t UpstreamTool
		var listed, accepted, held int64
		var acceptedText, heldText []byte
		if err := scan(&t.Upstream, &t.Company, &t.Tool, &listed, &t.Accepted.Hash, &acceptedText, &accepted, &t.Held.Hash, &heldText, &held); err != nil {
			return err
		}
		row := t.Upstream + "/" + t.Tool
		t.Listed, t.Accepted.At, t.Held.At = listed == 1, at(accepted), at(held)
		var err, wrong error
		t.Accepted.Text, err = s.seal.open("upstream_tool.accepted", row, t.Company, acceptedText)
		t.Held.Text, wrong = s.seal.open("upstream_tool.held", row, t.Company, heldText)
		all = append(all, t)
		return errors.Join(err, wrong)
	})
	return all, err
}

// SetUpstreamSecret keeps what an upstream knows all of pilder by, sealed. A zero secret forgets it.
func (s *Store) SetUpstreamSecret(ctx context.Context, upstream string, secret Secret) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM upstream_secret WHERE upstream = $1`, upstream); err != nil {
			return err
		}
		action := "upstream.secret_removed"
		if !secret.IsZero() {
			action = "upstream.secret_set"
			if _, err := tx.ExecContext(ctx, `INSERT INTO upstream_secret (upstream, secret, set_ms) VALUES ($1, $2, $3)`,
				upstream, s.seal.seal("upstream_secret.secret", upstream, "", []byte(secret.Reveal())), s.now()); err != nil {
				return err
			}
		}
		return s.audit(ctx, tx, "", actorOperator, action, upstream, nil)
	})
	if err != nil {
		return fmt.Errorf("keeping the secret of upstream %s: %w", upstream, err)
	}
	return nil
}

// UpstreamSecret gives it; ErrNotFound when none was set.
func (s *Store) UpstreamSecret(ctx context.Context, upstream string) (Secret, error) {
	var sealed []byte
	err := s.reads.QueryRowContext(ctx, `SELECT secret FROM upstream_secret WHERE upstream = $1`, upstream).Scan(&sealed)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	var open []byte
	if err == nil {
		open, err = s.seal.open("upstream_secret.secret", upstream, "", sealed)
	}
	if err != nil {
		return Secret{}, fmt.Errorf("reading the secret of upstream %s: %w", upstream, err)
	}
	return NewSecret(string(open)), nil
}
