package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// memberships reads memberships with their company and person, where is a condition on m (membership), c (company) or
// p (person).
func memberships(ctx context.Context, q queryer, where string, args ...any) ([]Membership, error) {
	rows, err := q.QueryContext(ctx, `SELECT m.membership_id, m.role, m.external_user, m.is_current,
			c.company_id, c.name, c.domains, c.zone, c.lang, p.person_id, p.telegram_id, p.name, p.lang, p.zone
		FROM membership m JOIN company c ON c.company_id = m.company_id JOIN person p ON p.person_id = m.person_id
		WHERE `+where, args...)
	var all []Membership
	err = each(rows, err, func(scan func(...any) error) error {
		var m Membership
		var current int64
		var domains string
		err := scan(&m.ID, &m.Role, &m.ExternalUser, &current, &m.Company.ID, &m.Company.Name, &domains, &m.Company.Zone,
			&m.Company.Lang, &m.Person.ID, &m.Person.Telegram, &m.Person.Name, &m.Person.Lang, &m.Person.Zone)
		if err != nil {
			return err
		}
		m.Current = current == 1
		if err := json.Unmarshal([]byte(domains), &m.Company.Domains); err != nil {
			return fmt.Errorf("reading the domains of %s: %w", m.Company.ID, err)
		}
		all = append(all, m)
		return nil
	})
	return all, err
}

// membership reads the one membership that where finds; ErrNotFound when there is none.
func membership(ctx context.Context, q queryer, where string, args ...any) (Membership, error) {
	all, err := memberships(ctx, q, where, args...)
	if err != nil {
		return Membership{}, fmt.Errorf("reading a membership: %w", err)
	}
	if len(all) == 0 {
		return Membership{}, ErrNotFound
	}
	return all[0], nil
}

// membershipOf gives the current membership of a person by Telegram id; ErrNotFound for a stranger.
func membershipOf(ctx context.Context, q queryer, telegram int64) (Membership, error) {
	return membership(ctx, q, `p.telegram_id = $1 AND m.is_current = 1`, telegram)
}
