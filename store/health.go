package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// toldEvery is how often a person hears at most that an account broke: one that the provider calls healthy and the app
// refuses would else be told of again and again.
const toldEvery = 24 * time.Hour

// MarkAccountBroken notes that the provider refuses an account, with a content-free reason, and queues the drafts: once
// until it is mended, and once a day. first is false when it was broken before or is not in use, and then nothing is said.
// The account stays in use, so that its tools do not vanish; the calls ask to connect it again. ErrNotFound for another
// company's.
func (s *Store) MarkAccountBroken(ctx context.Context, company CompanyID, account AccountID, reason string, drafts ...Draft) (first bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		a, changed, err := s.turnAccount(ctx, tx, company, account, AccountActive, AccountBroken, reason)
		if first = changed; err != nil || !changed {
			return err
		}
		tell, err := one(tx.ExecContext(ctx, `UPDATE account SET told_ms = $3, is_told = 1
			WHERE account_id = $1 AND company_id = $2 AND told_ms <= $4`, account, company, s.now(), s.now()-toldEvery.Milliseconds()))
		if err != nil {
			return err
		}
		if !tell {
			drafts = nil
		}
		if err := s.say(ctx, tx, origin{}, drafts); err != nil {
			return err
		}
		return s.audit(ctx, tx, company, actorPilder, "account.broken", string(account), struct {
			App    string `json:"app"`
			Reason string `json:"reason"`
		}{a.App, reason})
	})
	if err != nil {
		return false, fmt.Errorf("marking account %s as broken: %w", account, err)
	}
	return first, nil
}

// MarkAccountHealthy notes that the provider takes a broken account again, queues the drafts if its person had been told
// that it was broken, and lets go on what waited for its app. first is false when it was not broken.
func (s *Store) MarkAccountHealthy(ctx context.Context, company CompanyID, account AccountID, resume Resume, drafts ...Draft) (first bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.lockWaiting(ctx, tx, company, account); err != nil {
			return err
		}
		a, changed, err := s.turnAccount(ctx, tx, company, account, AccountBroken, AccountActive, "")
		if first = changed; err != nil || !changed {
			return err
		}
		m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, company, a.Membership)
		if err != nil {
			return err
		}
		told, err := one(tx.ExecContext(ctx, `UPDATE account SET is_told = 0 WHERE account_id = $1 AND company_id = $2 AND is_told = 1`,
			account, company))
		if err != nil {
			return err
		}
		if !told {
			drafts = nil
		}
		if err := s.say(ctx, tx, origin{}, drafts); err != nil {
			return err
		}
		if err := s.audit(ctx, tx, company, actorPilder, "account.mended", string(account), ofApp{a.App}); err != nil {
			return err
		}
		return s.resume(ctx, tx, m, a.App, resume)
	})
	if err != nil {
		return false, fmt.Errorf("marking account %s as healthy: %w", account, err)
	}
	return first, nil
}

// turnAccount changes an account's state if it is the one expected.
func (s *Store) turnAccount(ctx context.Context, tx *sql.Tx, company CompanyID, account AccountID, from, to AccountState, reason string) (Account, bool, error) {
	changed, err := one(tx.ExecContext(ctx, `UPDATE account SET state = $4, reason = $5 WHERE company_id = $1 AND account_id = $2 AND state = $3`,
		company, account, from, to, reason))
	if err != nil {
		return Account{}, false, err
	}
	a, err := s.accountByID(ctx, tx, company, account)
	return a, changed, err
}

// CheckedAccount is an account whose health is to be looked up, and whose it is.
type CheckedAccount struct {
	Account
	Member Membership
}

// TakeAccountsToCheck gives at most n accounts in use that were not looked at for the time every, the longest first, and
// notes that they are looked at now: of several processes each takes others.
func (s *Store) TakeAccountsToCheck(ctx context.Context, every time.Duration, n int) ([]CheckedAccount, error) {
	var taken []CheckedAccount
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		taken = nil
		var ids []string
		rows, err := tx.QueryContext(ctx, `UPDATE account SET checked_ms = $1 WHERE account_id IN (SELECT account_id FROM account
			WHERE checked_ms <= $2 AND `+inUse+` ORDER BY checked_ms, account_id LIMIT $3) AND checked_ms <= $2 RETURNING account_id`,
			s.now(), s.now()-every.Milliseconds(), n)
		err = each(rows, err, func(scan func(...any) error) error {
			var id string
			defer func() { ids = append(ids, id) }()
			return scan(&id)
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		all, err := s.accountsWhere(ctx, tx, s.d.in("account_id", 1), s.d.list(ids))
		if err != nil {
			return err
		}
		for _, a := range all {
			m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, a.Company, a.Membership)
			if err != nil {
				return err
			}
			taken = append(taken, CheckedAccount{a, m})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("taking accounts to check: %w", err)
	}
	return taken, nil
}
