package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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
func (s *Store) CreateCompany(ctx context.Context, c Company) (Company, error) {
	c.ID = CompanyID(newID(prefixCompany))
	domains := []string{}
	for _, d := range c.Domains {
		domains = append(domains, strings.ToLower(strings.TrimSpace(d)))
	}
	c.Domains = domains
	text, err := json.Marshal(domains)
	if err != nil {
		return Company{}, fmt.Errorf("creating a company: %w", err)
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO company (company_id, name, domains, zone, lang, created_ms)
			VALUES ($1, $2, $3, $4, $5, $6)`, c.ID, c.Name, string(text), c.Zone, c.Lang, s.now()); err != nil {
			return err
		}
		return s.audit(ctx, tx, c.ID, actorOperator, "company.created", string(c.ID), nil)
	})
	if err != nil {
		return Company{}, fmt.Errorf("creating a company: %w", err)
	}
	return c, nil
}

// AddMember makes (or finds by Telegram id) a person and their membership. It is what `init`, the demo and the tests use;
// people normally come by invitation. Somebody who is a member already keeps their role.
func (s *Store) AddMember(ctx context.Context, company CompanyID, p Person, role policy.Role) (Membership, error) {
	var m Membership
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var fresh bool
		var err error
		if m, fresh, err = s.join(ctx, tx, company, p, role); err != nil || !fresh {
			return err
		}
		return s.audit(ctx, tx, company, actorOperator, "member.added", string(m.ID), joined{Role: m.Role})
	})
	if err != nil {
		return Membership{}, fmt.Errorf("adding a member to %s: %w", company, err)
	}
	return m, nil
}

// joined is what the audit says of a new membership.
type joined struct {
	Role policy.Role  `json:"role"`
	By   MembershipID `json:"by,omitempty"` // who invited; empty: the operator
}

// errRole is a role that may do nothing, which nobody is given.
var errRole = errors.New("unknown role")

// join finds or makes the person and their membership. Only a person's first membership becomes the current one: a link
// must not decide in which company what somebody writes next is read.
func (s *Store) join(ctx context.Context, tx *sql.Tx, company CompanyID, p Person, role policy.Role) (m Membership, fresh bool, err error) {
	if !role.Known() {
		return Membership{}, false, errRole
	}
	if _, err := companyByID(ctx, tx, company); err != nil {
		return Membership{}, false, err
	}
	// What is known of a person stays. The update locks the row, so that of two first memberships one is current.
	var person PersonID
	err = tx.QueryRowContext(ctx, `INSERT INTO person (person_id, telegram_id, name, lang, zone, created_ms)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (telegram_id) DO UPDATE SET
			name = CASE WHEN person.name = '' THEN excluded.name ELSE person.name END,
			lang = CASE WHEN person.lang = '' THEN excluded.lang ELSE person.lang END,
			zone = CASE WHEN person.zone = '' THEN excluded.zone ELSE person.zone END
		RETURNING person_id`, newID(prefixPerson), p.Telegram, p.Name, p.Lang, p.Zone, s.now()).Scan(&person)
	if err != nil {
		return Membership{}, false, err
	}
	fresh, err = one(tx.ExecContext(ctx, `INSERT INTO membership (membership_id, company_id, person_id, role, external_user, is_current, created_ms)
		VALUES ($1, $2, $3, $4, $5, CASE WHEN EXISTS (SELECT 1 FROM membership WHERE person_id = $3 AND is_current = 1) THEN 0 ELSE 1 END, $6)
		ON CONFLICT (company_id, person_id) DO NOTHING`,
		newID(prefixMembership), company, person, role, newID(prefixExternalUser), s.now()))
	if err != nil {
		return Membership{}, false, err
	}
	m, err = membership(ctx, tx, `m.company_id = $1 AND m.person_id = $2`, company, person)
	return m, fresh, err
}

// Companies lists all companies by name, for the operator's command line.
func (s *Store) Companies(ctx context.Context) ([]Company, error) {
	all, err := companies(ctx, s.reads, `TRUE ORDER BY name, company_id`)
	if err != nil {
		return nil, fmt.Errorf("listing companies: %w", err)
	}
	return all, nil
}

func companyByID(ctx context.Context, q queryer, id CompanyID) (Company, error) {
	all, err := companies(ctx, q, `company_id = $1`, id)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Company{}, err
	}
	return all[0], nil
}

func companies(ctx context.Context, q queryer, where string, args ...any) ([]Company, error) {
	rows, err := q.QueryContext(ctx, `SELECT company_id, name, domains, zone, lang FROM company WHERE `+where, args...)
	var all []Company
	err = each(rows, err, func(scan func(...any) error) error {
		var c Company
		var domains string
		if err := scan(&c.ID, &c.Name, &domains, &c.Zone, &c.Lang); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(domains), &c.Domains); err != nil {
			return fmt.Errorf("reading the domains of %s: %w", c.ID, err)
		}
		all = append(all, c)
		return nil
	})
	return all, err
}

// Members lists a company's memberships, oldest first.
func (s *Store) Members(ctx context.Context, company CompanyID) ([]Membership, error) {
	if _, err := companyByID(ctx, s.reads, company); err != nil {
		return nil, fmt.Errorf("listing the members of %s: %w", company, err)
	}
	all, err := members(ctx, s.reads, company)
	if err != nil {
		return nil, fmt.Errorf("listing the members of %s: %w", company, err)
	}
	return all, nil
}

func members(ctx context.Context, q queryer, company CompanyID) ([]Membership, error) {
	return memberships(ctx, q, `m.company_id = $1 ORDER BY m.created_ms, m.membership_id`, company)
}

// Membership reads one membership of a company.
func (s *Store) Membership(ctx context.Context, company CompanyID, id MembershipID) (Membership, error) {
	return membership(ctx, s.reads, `m.company_id = $1 AND m.membership_id = $2`, company, id)
}

// MembershipOf gives the current membership of the person with this Telegram id; ErrNotFound for a stranger.
func (s *Store) MembershipOf(ctx context.Context, telegram int64) (Membership, error) {
	return membershipOf(ctx, s.reads, telegram)
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
