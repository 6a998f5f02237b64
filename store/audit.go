package store

import (
	"context"
	"encoding/json"
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

// Audit lists a company's audit, oldest first, after the given row id.
func (s *Store) Audit(ctx context.Context, company CompanyID, limit int) ([]AuditRow, error) {
	panic("being built")
}

// VerifyAudit walks the company's chain and returns how many rows hold; *BrokenChainError names the first that does not.
func (s *Store) VerifyAudit(ctx context.Context, company CompanyID) (rows int64, err error) {
	panic("being built")
}
