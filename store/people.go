package store

import (
	"context"
	"errors"
	"time"

	"pilder/policy"
)

// ErrNotFound is returned by every verb that is asked about something that is not there, or that belongs to another
// company: the two are not told apart.
var ErrNotFound = errors.New("not found")

// Company is a tenant.
type Company struct {
	ID      CompanyID
	Name    string
	Domains []string // mail domains of the company's own people, lower case
	Zone    string   // IANA
	Lang    string   // "es" or "en"
}

// Person is a human, known by a numeric Telegram id and never by a username.
type Person struct {
	ID       PersonID
	Telegram int64
	Name     string
	Lang     string // "es" or "en"
	Zone     string // IANA; empty means the company's
}

// Membership is a person's place in a company.
type Membership struct {
	ID           MembershipID
	Company      Company
	Person       Person
	Role         policy.Role
	ExternalUser string // opaque random id under which the connected-apps provider files this membership's accounts
	Current      bool   // the company this person is speaking to right now
}

// Principal is who a membership acts as outside a run.
func (m Membership) Principal() policy.Principal {
	return policy.Principal{Company: m.Company.ID, Membership: m.ID, Person: m.Person.ID, Role: m.Role}
}

// CreateCompany makes a company and audits it. The id is made here.
func (s *Store) CreateCompany(ctx context.Context, c Company) (Company, error) { panic("being built") }

// AddMember makes (or finds by Telegram id) a person and their membership. It is what `init`, the demo and the tests use;
// people normally come by invitation.
func (s *Store) AddMember(ctx context.Context, company CompanyID, p Person, role policy.Role) (Membership, error) {
	panic("being built")
}

// Companies lists all companies by name, for the operator's command line.
func (s *Store) Companies(ctx context.Context) ([]Company, error) { panic("being built") }

// Members lists a company's memberships.
func (s *Store) Members(ctx context.Context, company CompanyID) ([]Membership, error) {
	panic("being built")
}

// Membership reads one membership of a company.
func (s *Store) Membership(ctx context.Context, company CompanyID, id MembershipID) (Membership, error) {
	panic("being built")
}

// MembershipOf gives the current membership of the person with this Telegram id; ErrNotFound for a stranger.
func (s *Store) MembershipOf(ctx context.Context, telegram int64) (Membership, error) {
	panic("being built")
}

// Invitation is an offer to join a company: a 128-bit token stored hashed, spent once.
type Invitation struct {
	Company Company
	Role    policy.Role
	Expires time.Time
}

// Invite makes an invitation. by is empty when the operator's command line asks.
func (s *Store) Invite(ctx context.Context, company CompanyID, role policy.Role, by MembershipID, ttl time.Duration) (Secret, error) {
	panic("being built")
}

// Invitation looks at an invitation without spending it. ErrNotFound: unknown, spent or expired.
func (s *Store) Invitation(ctx context.Context, token Secret) (Invitation, error) {
	panic("being built")
}

// AcceptInvitation spends the invitation in the transaction that creates the membership, settles the update and queues
// the drafts. ErrNotFound as Invitation.
func (s *Store) AcceptInvitation(ctx context.Context, from UpdateRef, token Secret, p Person, drafts ...Draft) (Membership, error) {
	panic("being built")
}
