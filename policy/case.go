package policy

import (
	"fmt"
	"strings"
)

// Case is one expectation of a policy file.
type Case struct {
	Name   string
	Role   Role   // who asks; default member
	Action Action // without Scope: a case is about rules
	Expect Effect
}

// Met tells whether a policy does what the case expects, for a company with these mail domains in which somebody else can
// approve, and what it does.
func (c Case) Met(p Policy, domains []string) (Decision, bool) {
	who := Principal{Company: "company", Membership: "membership", Person: "person", Role: c.Role, Scopes: []Scope{c.Action.Scope}}
	g := NewGrant(GrantInput{Principal: who, Domains: domains, Apps: []string{c.Action.App}, Policy: p})
	d := g.Decide(who, c.Action)
	return d, d.Effect == c.Expect
}

// CaseError is a case that a policy does not meet.
type CaseError struct {
	Case Case
	Got  Decision
}

func (e *CaseError) Error() string {
	return strings.TrimRight(fmt.Sprintf("case %q expects %s, and it is %s %s", e.Case.Name, e.Case.Expect, e.Got.Effect, e.Got.Rule), " ")
}

// Unmet gives the first of the policy's cases that it does not meet as a *CaseError, or nil.
func (p Policy) Unmet(domains []string) error {
	for _, c := range p.Cases {
		if d, met := c.Met(p, domains); !met {
			return &CaseError{c, d}
		}
	}
	return nil
}
