package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// AccountState is an account's place in its life. Only AccountActive ones are listed, granted or called.
type AccountState string

const (
	AccountOffered AccountState = "offered" // bound at the provider; its person has not said yet that it is theirs
	AccountActive  AccountState = "active"
	AccountGone    AccountState = "gone"
)

// Account is one person's connected account of one app, in one company.
type Account struct {
	ID         AccountID
	Company    CompanyID
	Membership MembershipID
	App        string // slug
	Provider   string // the provider's account id; sealed at rest, never shown to an agent
	Name       string // as the provider calls it, often a mail address: untrusted data
	State      AccountState
	Created    time.Time
}

// OfferAccount binds a provider's account to the link's membership as offered, uses the link up and queues the card that
// asks the person whether it is theirs: one transaction. Called again for the same account it changes nothing, and so it
// does for one this membership has already. An account that its person gave away before is offered anew. ErrNotFound for
// a link that was not opened, or was used for another account.
func (s *Store) OfferAccount(ctx context.Context, link string, provider, name string, card func(Account) Draft) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		l, err := s.link(ctx, tx, `link_id = $1`+s.d.forUpdate, link)
		if err != nil {
			return err
		}
		m := l.Membership
		a, known, err := s.accountOf(ctx, tx, m, l.App, provider)
		if err != nil {
			return err
		}
		if l.State != LinkOpened {
			if known {
				return nil // told of again
			}
			return ErrNotFound
		}
		if _, err := tx.ExecContext(ctx, `UPDATE link SET state = $2, used_ms = $3 WHERE link_id = $1`, link, LinkUsed, s.now()); err != nil {
			return err
		}
		if known && a.State == AccountActive {
			return nil // connected once more: nothing to ask
		}
		if a, err = s.fileAccount(ctx, tx, m, l.App, provider, name, AccountOffered); err != nil {
			return err
		}
		if err := s.say(ctx, tx, origin{bot: l.bot}, []Draft{card(a)}); err != nil {
			return err
		}
		return s.audit(ctx, tx, m.Company.ID, actorPilder, "account.offered", string(a.ID), ofApp{a.App})
	})
	if err != nil {
		return fmt.Errorf("offering an account of link %s: %w", link, err)
	}
	return nil
}

// ofApp is what the audit says of an account or link.
type ofApp struct {
	App string `json:"app"`
}

// ConfirmAccount makes an offered account active, or gone, as its person said. ErrNotYours if another person presses,
// ErrNotFound if it is somebody of another company, ErrDecided if it was decided before. remove is true when the provider
// should forget the account; only then, and after commit, the caller asks it to.
func (s *Store) ConfirmAccount(ctx context.Context, from UpdateRef, account AccountID, telegram int64, mine bool, drafts ...Draft) (a Account, remove bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		a = Account{}
		state, action := AccountGone, "account.rejected"
		if mine {
			state, action = AccountActive, "account.connected"
		}
		if err := s.settle(ctx, tx, from, FateDone, action); err != nil {
			return err
		}
		// The lock makes the second of two presses see the first one's decision.
		if _, err := tx.ExecContext(ctx, `UPDATE account SET state = state WHERE account_id = $1`, account); err != nil {
			return err
		}
		all, err := s.accountsWhere(ctx, tx, `account_id = $1`, account)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return ErrNotFound
		}
		m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, all[0].Company, all[0].Membership)
		if err != nil {
			return err
		}
		if m.Person.Telegram != telegram {
			if _, err := membership(ctx, tx, `m.company_id = $1 AND p.telegram_id = $2`, m.Company.ID, telegram); err != nil {
				return err // of another company: it is not there
			}
			return ErrNotYours
		}
		if all[0].State != AccountOffered {
			return ErrDecided
		}
		a = all[0]
		a.State = state
		if _, err := tx.ExecContext(ctx, `UPDATE account SET state = $2 WHERE account_id = $1`, a.ID, a.State); err != nil {
			return err
		}
		if err := s.say(ctx, tx, origin{bot: from.Bot}, drafts); err != nil {
			return err
		}
		return s.audit(ctx, tx, a.Company, string(m.ID), action, string(a.ID), ofApp{a.App})
	})
	if err != nil {
		return Account{}, false, fmt.Errorf("confirming account %s: %w", account, err)
	}
	return a, !mine, nil
}

// Accounts gives a membership's active accounts.
func (s *Store) Accounts(ctx context.Context, company CompanyID, m MembershipID) ([]Account, error) {
	if _, err := s.Membership(ctx, company, m); err != nil {
		return nil, fmt.Errorf("listing accounts: %w", err)
	}
	return s.accountsWhere(ctx, s.reads, `company_id = $1 AND membership_id = $2 AND state = 'active'`, company, m)
}

// SeedAccount files an active account without the connect flow: for the demo and tests.
func (s *Store) SeedAccount(ctx context.Context, m Membership, app, provider, name string) (Account, error) {
	var a Account
	err := s.tx(ctx, func(tx *sql.Tx) error {
		m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, m.Company.ID, m.ID)
		if err != nil {
			return err
		}
		if a, err = s.fileAccount(ctx, tx, m, app, provider, name, AccountActive); err != nil {
			return err
		}
		return s.audit(ctx, tx, a.Company, actorOperator, "account.seeded", string(a.ID), ofApp{a.App})
	})
	if err != nil {
		return Account{}, fmt.Errorf("seeding an account: %w", err)
	}
	return a, nil
}

// accountOf finds a membership's account by the provider's id.
func (s *Store) accountOf(ctx context.Context, q queryer, m Membership, app, provider string) (a Account, known bool, err error) {
	all, err := s.accountsWhere(ctx, q, `company_id = $1 AND membership_id = $2 AND app = $3 AND provider_mac = $4`,
		m.Company.ID, m.ID, app, s.sameProvider(m.Company.ID, provider))
	if err != nil || len(all) == 0 {
		return Account{}, false, err
	}
	return all[0], true, nil
}

// sameProvider is what a provider's account id is known by.
func (s *Store) sameProvider(company CompanyID, provider string) []byte {
	return s.seal.recognise("account.provider", company, provider)
}

// fileAccount writes an account, or gives the one there is another state and name.
func (s *Store) fileAccount(ctx context.Context, tx *sql.Tx, m Membership, app, provider, name string, state AccountState) (Account, error) {
	id, company := newID(prefixAccount), m.Company.ID
	fresh, err := one(tx.ExecContext(ctx, `INSERT INTO account (account_id, company_id, membership_id, app, provider, provider_mac, name, state, created_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (company_id, membership_id, app, provider_mac) DO NOTHING`,
		id, company, m.ID, app, s.seal.seal("account.provider", id, company, []byte(provider)), s.sameProvider(company, provider),
		s.seal.seal("account.name", id, company, []byte(name)), state, s.now()))
	if err != nil {
		return Account{}, fmt.Errorf("writing an account: %w", err)
	}
	a, known, err := s.accountOf(ctx, tx, m, app, provider)
	if err != nil || fresh {
		return a, err
	}
	if !known {
		return Account{}, fmt.Errorf("account of %s: %w", m.ID, ErrNotFound)
	}
	a.State, a.Name = state, name
	_, err = tx.ExecContext(ctx, `UPDATE account SET state = $2, name = $3 WHERE account_id = $1`,
		a.ID, a.State, s.seal.seal("account.name", string(a.ID), company, []byte(name)))
	return a, err
}
