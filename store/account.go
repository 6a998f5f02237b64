package store

import (
	"context"
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

// Link is a personal invitation to connect one app: it leads to pilder's own page.
type Link struct {
	Membership Membership
	App        string
	Chat       Chat
	Expires    time.Time
	State      LinkState
}

// LinkState is how far a connect link has come.
type LinkState string

const (
	LinkNew    LinkState = "new"
	LinkOpened LinkState = "opened" // its person pressed the button and went to the provider
	LinkUsed   LinkState = "used"   // an account was bound
)

// CreateLink makes a link for a membership and app, valid for ttl, and queues the draft made with its secret: the agent
// never sees it. from may be zero (asked by a tool, not by an update).
func (s *Store) CreateLink(ctx context.Context, from UpdateRef, m Membership, app string, chat Chat, ttl time.Duration, draft func(Secret) Draft) error {
	panic("being built")
}

// Link looks a link up by its secret. ErrNotFound: unknown or expired.
func (s *Store) Link(ctx context.Context, secret Secret) (Link, error) { panic("being built") }

// OpenLink records that the person set off, with the provider's connect token (kept hashed) and the provider's account
// ids of the app as they were before, so that the new one can be told from them.
func (s *Store) OpenLink(ctx context.Context, secret Secret, connectToken Secret, before []string) error {
	panic("being built")
}

// OpenedLinks gives the opened links that wait for their account, with the account ids known before: what the poller of
// connections walks.
func (s *Store) OpenedLinks(ctx context.Context) ([]OpenedLink, error) { panic("being built") }

// OpenedLink is a link on its way.
type OpenedLink struct {
	Link   Link
	ID     string // the link's row
	Before []string
}

// OfferAccount binds a provider's account to the link's membership as offered, uses the link up and queues the card that
// asks the person whether it is theirs: one transaction. Called again for the same account it changes nothing.
func (s *Store) OfferAccount(ctx context.Context, link string, provider, name string, card func(Account) Draft) error {
	panic("being built")
}

// ConfirmAccount makes an offered account active, or gone, as its person said. ErrNotYours if another person presses;
// ErrDecided if it was decided before. remove is true when the provider should forget the account; only then, and after
// commit, the caller asks it to.
func (s *Store) ConfirmAccount(ctx context.Context, from UpdateRef, account AccountID, telegram int64, mine bool, drafts ...Draft) (a Account, remove bool, err error) {
	panic("being built")
}

// Accounts gives a membership's active accounts.
func (s *Store) Accounts(ctx context.Context, company CompanyID, m MembershipID) ([]Account, error) {
	panic("being built")
}

// SeedAccount files an active account without the connect flow: for the demo and tests.
func (s *Store) SeedAccount(ctx context.Context, m Membership, app, provider, name string) (Account, error) {
	panic("being built")
}
