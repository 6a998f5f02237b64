package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// AuditRow is one line of a company's audit: who did what to what, content-free, chained by hash in batches.
type AuditRow struct {
	Seq     int64           `json:"seq"` // 0 while not chained yet
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`   // membership, "pilder" or "operator"
	Action  string          `json:"action"`  // "call.decided", "approval.approved", …
	Subject string          `json:"subject"` // an id
	Detail  json.RawMessage `json:"detail"`  // exact bytes as hashed: codes, rules, digests; never text of people
}

// Audit lists the newest rows of a company's audit, oldest first, at most limit.
func (s *Store) Audit(ctx context.Context, company CompanyID, limit int) ([]AuditRow, error) {
	if _, err := companyByID(ctx, s.reads, company); err != nil {
		return nil, fmt.Errorf("reading the audit of %s: %w", company, err)
	}
	if err := s.catchUp(ctx); err != nil {
		return nil, fmt.Errorf("reading the audit of %s: %w", company, err)
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT a.at_ms, a.actor, a.action, a.subject, a.detail, COALESCE(l.seq, 0)
		FROM audit a LEFT JOIN audit_link l ON l.audit_id = a.audit_id
		WHERE a.company_id = $1 ORDER BY a.audit_id DESC LIMIT $2`, company, limit)
	var all []AuditRow
	err = each(rows, err, func(scan func(...any) error) error {
		var r AuditRow
		var ms int64
		var detail string
		if err := scan(&ms, &r.Actor, &r.Action, &r.Subject, &detail, &r.Seq); err != nil {
			return err
		}
		r.At, r.Detail = at(ms), json.RawMessage(detail)
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the audit of %s: %w", company, err)
	}
	slices.Reverse(all)
	return all, nil
}

// Actors that are no membership.
const (
	actorPilder   = "pilder"
	actorOperator = "operator"
)

// audit writes an audit row in the transaction it describes. detail is content-free; nil becomes {}.
func (s *Store) audit(ctx context.Context, tx *sql.Tx, company CompanyID, actor, action, subject string, detail any) error {
	text := []byte("{}")
	if detail != nil {
		var err error
		if text, err = json.Marshal(detail); err != nil {
			return fmt.Errorf("auditing %s of %s: %w", action, subject, err)
		}
	}
	_, err := s.exec(ctx, tx, `INSERT INTO audit (company_id, at_ms, actor, action, subject, detail)
		VALUES ($1, $2, $3, $4, $5, $6)`, company, s.now(), actor, action, subject, string(text))
	if err != nil {
		return fmt.Errorf("auditing %s of %s: %w", action, subject, err)
	}
	return nil
}
