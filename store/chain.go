package store

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
)

// The chain makes an audit row that was edited, deleted or moved visible. It is a second step, in batches: chained inside
// the business transaction, the head's lock would serialise a company (4 to 20 times fewer rows a second, measured). It
// does not show a tail that was cut together with the head, nor a chain that was rewritten as a whole: that takes a
// checkpoint kept where the database's owner cannot reach it.

// chainVersion says how leaves are made.
const chainVersion = "pilder.audit.1"

// chainBatch bounds one transaction: longer ones hold up SQLite's writer and bring little (measured).
const chainBatch = 200

// chainLag is how far behind the newest row one is still looked for that was numbered earlier and committed later. A row
// that took longer is found when a process starts. SQLite's rows commit in the order of their numbers.
const chainLag = 10_000

// chain links the rows that are not linked yet, in batches per company. Run calls it every second.
func (s *Store) chain(ctx context.Context) error {
	from := s.chained.Load()
	var top int64
	if err := s.reads.QueryRowContext(ctx, `SELECT COALESCE(MAX(audit_id), 0) FROM audit`).Scan(&top); err != nil {
		return fmt.Errorf("chaining the audit: %w", err)
	}
	unlinked := ` AND NOT EXISTS (SELECT 1 FROM audit_link l WHERE l.audit_id = a.audit_id)`
	if s.pool == nil && from > 0 {
		unlinked = "" // behind what was linked last nothing is
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT DISTINCT a.company_id FROM audit a WHERE a.audit_id > $1`+unlinked, from)
	var all []CompanyID
	err = each(rows, err, func(scan func(...any) error) error {
		var c CompanyID
		defer func() { all = append(all, c) }()
		return scan(&c)
	})
	if err != nil {
		return fmt.Errorf("chaining the audit: %w", err)
	}
	for _, c := range all {
		after := from
		for n := chainBatch; n == chainBatch; {
			if n, after, err = s.chainCompany(ctx, c, after); err != nil {
				return fmt.Errorf("chaining the audit of %s: %w", c, err)
			}
		}
	}
	if s.pool != nil {
		top -= chainLag
	}
	s.chained.Store(max(from, top))
	return nil
}

// chainCompany links one batch of a company's rows after one, and tells how long it was and which was its last. The head is
// locked first and the rows are read then: the other way round two chainers would link the same rows. The order of the chain
// is the chainer's, since rows may commit out of the order of their numbers. Nothing waits for the disk: links that a power
// failure takes are made again from the rows.
func (s *Store) chainCompany(ctx context.Context, company CompanyID, after int64) (n int, last int64, err error) {
	err = s.sharedTx(ctx, throughKill, func(ctx context.Context, tx *sql.Tx) error {
		var seq int64
		var hash []byte
		err := tx.QueryRowContext(ctx, `INSERT INTO audit_head (company_id, seq, hash) VALUES ($1, 0, $2)
			ON CONFLICT (company_id) DO UPDATE SET seq = audit_head.seq RETURNING seq, hash`, company, make([]byte, sha256.Size)).Scan(&seq, &hash)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT audit_id, at_ms, actor, action, subject, detail FROM audit a
			WHERE company_id = $1 AND audit_id > $2 AND NOT EXISTS (SELECT 1 FROM audit_link l WHERE l.audit_id = a.audit_id)
			ORDER BY audit_id LIMIT $3`, company, after, chainBatch)
		var all []auditLeaf
		err = each(rows, err, func(scan func(...any) error) error {
			var l auditLeaf
			defer func() { all = append(all, l) }()
			return scan(&l.id, &l.ms, &l.actor, &l.action, &l.subject, &l.detail)
		})
		if err != nil {
			return err
		}
		for _, l := range all {
			seq++
			hash = l.hash(hash, company, seq)
			last = l.id
			if _, err := s.exec(ctx, tx, `INSERT INTO audit_link (company_id, seq, audit_id, hash) VALUES ($1, $2, $3, $4)`,
				company, seq, l.id, hash); err != nil {
				return err
			}
		}
		n = len(all)
		_, err = tx.ExecContext(ctx, `UPDATE audit_head SET seq = $2, hash = $3 WHERE company_id = $1`, company, seq, hash)
		return err
	})
	return n, last, err
}

// auditLeaf is an audit row as it is chained.
type auditLeaf struct {
	id                             int64
	ms                             int64
	actor, action, subject, detail string
}

// hash is SHA-256 over everything a row says and where it stands, each part after its length, so that no two rows read
// alike.
func (l auditLeaf) hash(before []byte, company CompanyID, seq int64) []byte {
	number := func(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	h := sha256.New()
	for _, part := range []string{
		chainVersion, string(before), string(company), number(seq), number(l.ms), l.actor, l.action, l.subject, l.detail,
	} {
		h.Write([]byte(number(int64(len(part)))))
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// BrokenChainError names the first row of a company's audit that is not what was chained.
type BrokenChainError struct {
	Company CompanyID
	Seq     int64 // its place in the chain
	Reason  BrokenReason
}

// BrokenReason is what happened to a row.
type BrokenReason string

const (
	BrokenEdited  BrokenReason = "edited or moved"
	BrokenDeleted BrokenReason = "deleted"
)

func (e *BrokenChainError) Error() string {
	return fmt.Sprintf("audit of %s: row %d was %s", e.Company, e.Seq, e.Reason)
}

// verifyPage bounds one read of VerifyAudit.
const verifyPage = 1000

// VerifyAudit walks the company's chain and returns how many rows hold; *BrokenChainError names the first that does not.
// Rows of the last moments, not chained yet (AuditRow.Seq 0), are not covered.
func (s *Store) VerifyAudit(ctx context.Context, company CompanyID) (rows int64, err error) {
	if _, err := companyByID(ctx, s.reads, company); err != nil {
		return 0, fmt.Errorf("verifying the audit of %s: %w", company, err)
	}
	var top int64
	var head []byte
	err = s.reads.QueryRowContext(ctx, `SELECT seq, hash FROM audit_head WHERE company_id = $1`, company).Scan(&top, &head)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("verifying the audit of %s: %w", company, err)
	}
	hash := make([]byte, sha256.Size)
	for seq := int64(0); seq < top; {
		next, err := s.verifyPage(ctx, company, seq, top, &hash)
		if err == nil && next == seq {
			err = &BrokenChainError{company, seq + 1, BrokenDeleted}
		}
		if err != nil {
			return next, fmt.Errorf("verifying the audit of %s: %w", company, err)
		}
		seq = next
	}
	if top > 0 && subtle.ConstantTimeCompare(head, hash) != 1 {
		return top - 1, fmt.Errorf("verifying the audit of %s: %w", company, &BrokenChainError{company, top, BrokenEdited})
	}
	return top, nil
}

// verifyPage walks on from seq, whose hash is in hash, and gives the last row that holds.
func (s *Store) verifyPage(ctx context.Context, company CompanyID, seq, top int64, hash *[]byte) (int64, error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT l.seq, l.hash, COALESCE(a.audit_id, 0), COALESCE(a.at_ms, 0), COALESCE(a.actor, ''),
			COALESCE(a.action, ''), COALESCE(a.subject, ''), COALESCE(a.detail, '')
		FROM audit_link l LEFT JOIN audit a ON a.audit_id = l.audit_id AND a.company_id = l.company_id
		WHERE l.company_id = $1 AND l.seq > $2 AND l.seq <= $3 ORDER BY l.seq LIMIT $4`, company, seq, top, verifyPage)
	err = each(rows, err, func(scan func(...any) error) error {
		var at int64
		var stored []byte
		var l auditLeaf
		if err := scan(&at, &stored, &l.id, &l.ms, &l.actor, &l.action, &l.subject, &l.detail); err != nil {
			return err
		}
		if at != seq+1 || l.id == 0 {
			return &BrokenChainError{company, seq + 1, BrokenDeleted}
		}
		*hash = l.hash(*hash, company, at)
		if subtle.ConstantTimeCompare(*hash, stored) != 1 {
			return &BrokenChainError{company, at, BrokenEdited}
		}
		seq = at
		return nil
	})
	return seq, err
}
