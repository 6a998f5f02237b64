package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// inUse is the condition of an account that its person works with. A broken one stays in use: its tools stay listed, and
// its calls ask to connect it again.
const inUse = `state IN ('active', 'broken')`

// Accounts gives a membership's accounts in use, the broken ones too, each app's in the order in which they came.
func (s *Store) Accounts(ctx context.Context, company CompanyID, m MembershipID) ([]Account, error) {
	if _, err := s.Membership(ctx, company, m); err != nil {
		return nil, fmt.Errorf("listing accounts: %w", err)
	}
	return s.accountsWhere(ctx, s.reads, `company_id = $1 AND membership_id = $2 AND `+inUse, company, m)
}

// ChooseAccount makes an account the one that its app's calls act with. ErrNotYours if another person presses, ErrNotFound
// if it is somebody of another company, ErrDecided if it is no longer in use.
func (s *Store) ChooseAccount(ctx context.Context, from UpdateRef, account AccountID, telegram int64, say func(Account) []Draft) (a Account, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if a, _, err = s.ownAccount(ctx, tx, from, account, telegram, "account.chosen"); err != nil {
			return err
		}
		if err := s.choose(ctx, tx, a); err != nil {
			return err
		}
		a.Chosen = true
		if err := s.say(ctx, tx, origin{bot: from.Bot}, say(a)); err != nil {
			return err
		}
		return s.audit(ctx, tx, a.Company, string(a.Membership), "account.chosen", string(a.ID), ofApp{a.App})
	})
	if err != nil {
		return Account{}, fmt.Errorf("choosing account %s: %w", account, err)
	}
	return a, nil
}

// RemoveAccount takes an account out of use; from the commit on no run has its tools. The caller then has the provider
// forget it. Errors as ChooseAccount.
func (s *Store) RemoveAccount(ctx context.Context, from UpdateRef, account AccountID, telegram int64, say func(Account) []Draft) (a Account, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if a, _, err = s.ownAccount(ctx, tx, from, account, telegram, "account.removed"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE account SET state = $3, is_chosen = 0 WHERE account_id = $1 AND company_id = $2`,
			a.ID, a.Company, AccountGone); err != nil {
			return err
		}
		a.State, a.Chosen = AccountGone, false
		if err := s.say(ctx, tx, origin{bot: from.Bot}, say(a)); err != nil {
			return err
		}
		return s.audit(ctx, tx, a.Company, string(a.Membership), "account.removed", string(a.ID), ofApp{a.App})
	})
	if err != nil {
		return Account{}, fmt.Errorf("removing account %s: %w", account, err)
	}
	return a, nil
}

// ownAccount settles a press on an account in use by its own person, and locks the account until commit.
func (s *Store) ownAccount(ctx context.Context, tx *sql.Tx, from UpdateRef, account AccountID, telegram int64, reason string) (Account, Membership, error) {
	if err := s.settle(ctx, tx, from, FateDone, reason); err != nil {
		return Account{}, Membership{}, err
	}
	a, m, err := s.pressedAccount(ctx, tx, account, telegram)
	if err == nil && a.State != AccountActive && a.State != AccountBroken {
		err = ErrDecided
	}
	return a, m, err
}

// pressedAccount reads an account for a person who pressed a button about it.
func (s *Store) pressedAccount(ctx context.Context, tx *sql.Tx, account AccountID, telegram int64) (Account, Membership, error) {
	// The lock makes the second of two presses see the first one's decision.
	if _, err := tx.ExecContext(ctx, `UPDATE account SET state = state WHERE account_id = $1 AND `+oneOfTheirs, account, telegram); err != nil {
		return Account{}, Membership{}, err
	}
	company, err := s.companyOfAccount(ctx, tx, account, telegram)
	if err != nil {
		return Account{}, Membership{}, err
	}
	a, err := s.accountByID(ctx, tx, company, account)
	if err != nil {
		return Account{}, Membership{}, err
	}
	m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, a.Company, a.Membership)
	if err != nil {
		return Account{}, Membership{}, err
	}
	if m.Person.Telegram != telegram {
		return Account{}, Membership{}, ErrNotYours
	}
	return a, m, nil
}

// companyOfAccount gives an account's company to somebody who is in it too; to others the account is not there.
func (s *Store) companyOfAccount(ctx context.Context, tx *sql.Tx, account AccountID, telegram int64) (company CompanyID, err error) {
	err = tx.QueryRowContext(ctx, `SELECT company_id FROM account WHERE account_id = $1 AND `+oneOfTheirs, account, telegram).Scan(&company)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return company, err
}

func (s *Store) accountByID(ctx context.Context, q queryer, company CompanyID, id AccountID) (Account, error) {
	all, err := s.accountsWhere(ctx, q, `account_id = $1 AND company_id = $2`, id, company)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Account{}, err
	}
	return all[0], nil
}

// ErrAccountGone is returned for a call with an account that its person took out of use.
var ErrAccountGone = errors.New("the account is no longer in use")

// stillInUse holds a call against the account it would act with; empty for a call that needs none.
func (s *Store) stillInUse(ctx context.Context, tx *sql.Tx, run callingRun, account AccountID) error {
	if account == "" {
		return nil
	}
	var n int
	err := tx.QueryRowContext(ctx, `SELECT 1 FROM account WHERE account_id = $1 AND company_id = $2 AND membership_id = $3 AND `+inUse+s.d.forShare,
		account, run.company, run.membership).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrAccountGone
	}
	return err
}

// choose makes an account its app's chosen one instead of any other.
func (s *Store) choose(ctx context.Context, tx *sql.Tx, a Account) error {
	if _, err := tx.ExecContext(ctx, `UPDATE account SET is_chosen = 0
		WHERE company_id = $1 AND membership_id = $2 AND app = $3 AND is_chosen = 1`, a.Company, a.Membership, a.App); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE account SET is_chosen = 1 WHERE account_id = $1 AND company_id = $2`, a.ID, a.Company)
	return err
}

// chooseFirst makes an account the chosen one where its app has no other that works.
func (s *Store) chooseFirst(ctx context.Context, tx *sql.Tx, a Account) (bool, error) {
	var others int
	err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM account WHERE company_id = $1 AND membership_id = $2 AND app = $3
		AND account_id <> $4 AND state = 'active'`, a.Company, a.Membership, a.App, a.ID).Scan(&others)
	if err != nil || others > 0 {
		return a.Chosen, err
	}
	return true, s.choose(ctx, tx, a)
}

// AskAccount queues the card that asks a person which of an app's accounts to use: once for each set of accounts. asked is
// false when they were asked before and no account came since.
func (s *Store) AskAccount(ctx context.Context, company CompanyID, m MembershipID, app string, card Draft) (asked bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE account SET asked_ms = $4 WHERE company_id = $1 AND membership_id = $2 AND app = $3
			AND asked_ms = 0 AND `+inUse, company, m, app, s.now())
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if asked = n > 0; err != nil || !asked {
			return err
		}
		return s.say(ctx, tx, origin{}, []Draft{card})
	})
	if err != nil {
		return false, fmt.Errorf("asking which account of %s to use: %w", app, err)
	}
	return asked, nil
}

// accountsWhere reads accounts; where is a condition on account.
func (s *Store) accountsWhere(ctx context.Context, q queryer, where string, args ...any) ([]Account, error) {
	rows, err := q.QueryContext(ctx, `SELECT account_id, company_id, membership_id, app, provider, name, state, is_chosen, reason, created_ms
		FROM account WHERE `+where+` ORDER BY app, created_ms, account_id`, args...)
	var all []Account
	err = each(rows, err, func(scan func(...any) error) error {
		var a Account
		var provider, name []byte
		var chosen, created int64
		if err := scan(&a.ID, &a.Company, &a.Membership, &a.App, &provider, &name, &a.State, &chosen, &a.Reason, &created); err != nil {
			return err
		}
		a.Chosen, a.Created = chosen == 1, at(created)
		all = append(all, a)
		return s.openAccount(&all[len(all)-1], provider, name)
	})
	if err != nil {
		return nil, fmt.Errorf("reading accounts: %w", err)
	}
	return all, nil
}

func (s *Store) openAccount(a *Account, provider, name []byte) error {
	id, err := s.seal.open("account.provider", string(a.ID), a.Company, provider)
	called, err2 := s.seal.open("account.name", string(a.ID), a.Company, name)
	a.Provider, a.Name = string(id), string(called)
	return errors.Join(err, err2)
}
