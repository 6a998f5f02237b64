package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// AccountState is an account's place in its life. Tools are listed and granted for those in use, active and broken; calls
// are made with AccountActive ones only.
type AccountState string

const (
	AccountOffered AccountState = "offered" // bound at the provider; its person has not said yet that it is theirs
	AccountActive  AccountState = "active"
	AccountBroken  AccountState = "broken" // in use, but the provider refuses it until its person connects it again
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
	Chosen     bool   // calls of its app act with this one
	Reason     string // AccountBroken: why, content-free
	Created    time.Time
}

// Usable tells whether a call can be made with the account.
func (a Account) Usable() bool { return a.State == AccountActive }

// OfferAccount binds a provider's account to the link's membership as offered, uses the link up and queues the card that
// asks the person whether it is theirs: one transaction. Called again for the same account it changes nothing, and so it
// does for one this membership has in use already. An account that its person gave away before is offered anew. A second
// account made with one link is offered like the first: each needs its person's own word. ErrNotFound for a link that was
// never opened, or that made as many accounts as one link may.
func (s *Store) OfferAccount(ctx context.Context, link string, provider, name string, card func(Account) Draft) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		l, err := s.link(ctx, tx, `link_id = $1`+s.d.forUpdate, link)
		if err != nil {
			return err
		}
		m := l.Membership
		known, err := s.offeredBefore(ctx, tx, m, l.App, provider, link)
		switch {
		case err != nil:
			return err
		case known:
			return nil
		case l.State == LinkNew || l.accounts >= perLink:
			return ErrNotFound
		}
		if _, err := tx.ExecContext(ctx, `UPDATE link SET state = $3, used_ms = $4, accounts = accounts + 1
			WHERE link_id = $1 AND company_id = $2`, link, m.Company.ID, LinkUsed, s.now()); err != nil {
			return err
		}
		a, err := s.fileAccount(ctx, tx, m, l.App, provider, name, AccountOffered)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE account SET link_id = $3 WHERE account_id = $1 AND company_id = $2`, a.ID, a.Company, link); err != nil {
			return err
		}
		if err := s.extendWaits(ctx, tx, m, l.App, s.now()+offeredFor.Milliseconds()); err != nil {
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

const (
	// perLink bounds the accounts that one link can bring: somebody who presses twice makes two.
	perLink = 5
	// offeredFor is how long a request still waits for the app once an account was offered.
	offeredFor = time.Hour
)

// ofApp is what the audit says of an account or link.
type ofApp struct {
	App string `json:"app"`
}

// ConfirmAccount makes an offered account active, or gone, as its person said; the first of its app becomes the chosen one.
// One that bears the name of a broken account mends it: the row, and with it the choice, stays. ErrNotYours if another person
// presses, ErrNotFound if it is somebody of another company, ErrDecided if it was decided before. forget is what the
// provider should forget: a rejected account, and what a mended one was before; the caller asks it to, after commit.
// What waited for the app goes on with what resume says; nil: nothing does.
func (s *Store) ConfirmAccount(ctx context.Context, from UpdateRef, account AccountID, telegram int64, mine bool, resume Resume, drafts ...Draft) (a Account, forget []Account, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		forget = nil
		state, action := AccountGone, "account.rejected"
		if mine {
			state, action = AccountActive, "account.connected"
		}
		if err := s.settle(ctx, tx, from, FateDone, action); err != nil {
			return err
		}
		company, err := s.companyOfAccount(ctx, tx, account, telegram)
		if err == nil {
			err = s.lockWaiting(ctx, tx, company, account)
		}
		if err != nil {
			return err
		}
		var m Membership
		if a, m, err = s.pressedAccount(ctx, tx, account, telegram); err != nil {
			return err
		}
		if a.State != AccountOffered {
			return ErrDecided
		}
		a.State = state
		if _, err := tx.ExecContext(ctx, `UPDATE account SET state = $3 WHERE account_id = $1 AND company_id = $2`, a.ID, a.Company, a.State); err != nil {
			return err
		}
		if !mine {
			forget = []Account{a}
		} else if a, forget, err = s.takeUp(ctx, tx, a); err != nil {
			return err
		}
		if err := s.say(ctx, tx, origin{bot: from.Bot}, drafts); err != nil {
			return err
		}
		if err := s.audit(ctx, tx, a.Company, string(m.ID), action, string(a.ID), ofApp{a.App}); err != nil || !mine {
			return err
		}
		return s.resume(ctx, tx, m, a.App, resume)
	})
	if err != nil {
		return Account{}, nil, fmt.Errorf("confirming account %s: %w", account, err)
	}
	return a, forget, nil
}

// takeUp puts a confirmed account in use: as the one it mends, which the provider then need not keep, or beside the others.
func (s *Store) takeUp(ctx context.Context, tx *sql.Tx, a Account) (used Account, forget []Account, err error) {
	broken, err := s.accountsWhere(ctx, tx, `company_id = $1 AND membership_id = $2 AND app = $3 AND state = 'broken'`, a.Company, a.Membership, a.App)
	if err != nil {
		return a, nil, err
	}
	for _, b := range broken {
		if b.Name == a.Name && a.Name != "" {
			used, err = s.mend(ctx, tx, b, a)
			return used, []Account{b}, err
		}
	}
	a.Chosen, err = s.chooseFirst(ctx, tx, a)
	return a, nil, err
}

// mend lets a broken account go on as the provider's new one. The row that was offered goes: it was never in use.
func (s *Store) mend(ctx context.Context, tx *sql.Tx, broken, by Account) (Account, error) {
	if _, err := tx.ExecContext(ctx, `DELETE FROM account WHERE account_id = $1 AND company_id = $2`, by.ID, by.Company); err != nil {
		return broken, err
	}
	_, err := tx.ExecContext(ctx, `UPDATE account SET state = 'active', reason = '', told_ms = 0, is_told = 0, provider = $3, provider_mac = $4, checked_ms = $5
		WHERE account_id = $1 AND company_id = $2`, broken.ID, broken.Company, s.seal.seal("account.provider", string(broken.ID), broken.Company, []byte(by.Provider)),
		s.sameProvider(broken.Company, by.Provider), s.now())
	broken.State, broken.Reason, broken.Provider = AccountActive, "", by.Provider
	return broken, err
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
		if a.Chosen, err = s.chooseFirst(ctx, tx, a); err != nil {
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

// offeredBefore tells whether there is nothing to ask about an account: it is in use, its person is being asked, or they
// said no to it when this very link brought it.
func (s *Store) offeredBefore(ctx context.Context, tx *sql.Tx, m Membership, app, provider, link string) (bool, error) {
	var n int
	err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM account WHERE company_id = $1 AND membership_id = $2 AND app = $3 AND provider_mac = $4
		AND (state <> 'gone' OR link_id = $5)`, m.Company.ID, m.ID, app, s.sameProvider(m.Company.ID, provider), link).Scan(&n)
	return n > 0, err
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
	_, err = tx.ExecContext(ctx, `UPDATE account SET state = $3, name = $4 WHERE account_id = $1 AND company_id = $2`,
		a.ID, company, a.State, s.seal.seal("account.name", string(a.ID), company, []byte(name)))
	return a, err
}
