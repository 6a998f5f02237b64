package main

import (
	"context"
	"strings"

	"pilder/policy"
	"pilder/sim/pipedream"
	"pilder/sim/telegram"
	"pilder/store"
)

// demoZone is where the demo's company works.
const demoZone = "America/Argentina/Buenos_Aires"

// demoPerson is somebody one can be in the demo.
type demoPerson struct {
	as   string // value of --as
	id   int64
	name string
	role policy.Role
	apps []string
}

// demoPeople are the people of the demo. The approver makes a hold a hold: a sole admin would be asked themselves.
func demoPeople() []demoPerson {
	return []demoPerson{
		{"admin", 1001, "Ana", policy.RoleAdmin, []string{"google_calendar", "calendly_v2", "gmail", "notion"}},
		{"approver", 1002, "Bruno", policy.RoleApprover, nil},
		{"member", 1003, "Marta", policy.RoleMember, []string{"gmail"}},
		{"newcomer", 1004, "Nico", policy.RoleMember, nil},
		{"stranger", 1005, "Eva", policy.RoleNone, nil},
	}
}

// demoPersonAs finds whom --as names.
func demoPersonAs(as string) (demoPerson, error) {
	for _, p := range demoPeople() {
		if p.as == as {
			return p, nil
		}
	}
	return demoPerson{}, usageError("--as must be admin, approver, member, newcomer or stranger, not %q", as)
}

func demoChatPeople() []telegram.Person {
	var all []telegram.Person
	for _, p := range demoPeople() {
		all = append(all, telegram.Person{ID: p.id, Name: p.name, Language: "es"})
	}
	return all
}

// seedDemo makes the demo's company, its people and their connected apps.
func seedDemo(ctx context.Context, s *store.Store, apps *pipedream.Server) error {
	company, err := s.CreateCompany(ctx, store.Company{
		Name: "Empresa", Domains: []string{"empresa.com"}, Zone: demoZone, Lang: "es",
	})
	if err != nil {
		return err
	}
	for _, p := range demoPeople() {
		if p.role == policy.RoleNone {
			continue
		}
		m, err := s.AddMember(ctx, company.ID, store.Person{Telegram: p.id, Name: p.name, Lang: "es"}, p.role)
		if err != nil {
			return err
		}
		for _, app := range p.apps {
			name := strings.ToLower(p.name) + "@empresa.com"
			if _, err := s.SeedAccount(ctx, m, app, apps.AddAccount(m.ExternalUser, app, name), name); err != nil {
				return err
			}
		}
	}
	return nil
}
