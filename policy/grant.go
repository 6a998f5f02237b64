package policy

import (
	"slices"
	"strconv"
	"strings"
)

// Version names the house rules below. It changes whenever a rule's condition, effect or sentence does.
const Version = "house/3"

// Grant is the policy frozen for one run: what was true of the person and the company when the run was made. Its JSON is
// stable (same input, same bytes), so two grants are equal when their JSON is. The zero value allows nothing.
type Grant struct {
	Version    string       `json:"version"`
	Company    CompanyID    `json:"company"`
	Membership MembershipID `json:"membership"`
	Role       Role         `json:"role"`
	// Domains are the company's mail domains in ASCII form, sorted. An address counts as inside only when its domain is
	// exactly one of them; a subdomain must be listed itself.
	Domains []string `json:"domains"`
	// Apps are the slugs of the person's connected apps, sorted.
	Apps []string `json:"apps"`
	// Vetoes are the tools nobody's agent may see or call, sorted.
	Vetoes []string `json:"vetoes"`
	// SoleAdmin says that the person is an admin and nobody else could approve a hold.
	SoleAdmin bool   `json:"sole_admin"`
	Limits    Limits `json:"limits"`
	// Rules are the house's rules with the effects they have in this company. One that a stored grant lacks holds as the
	// house has it.
	Rules []RuleRef `json:"rules"`
	// Own are the company's rules, in their order.
	Own []Own `json:"own"`
}

// RuleRef names a rule of the house and the effect it has.
type RuleRef struct {
	ID     string `json:"id"`
	Effect Effect `json:"effect"`
}

// Limits bound one run, so that an agent in a loop or in wrong hands stays small. The gateway counts, Left compares. The
// zero value leaves nothing.
type Limits struct {
	Calls  int `json:"calls"`  // calls that were not refused
	Writes int `json:"writes"` // those of them that were not reads
	Asked  int `json:"asked"`  // those of them that a human was asked about: people read only so many cards
}

// Left tells whether a run with so many calls behind it may make one more of this class.
func (l Limits) Left(calls, writes int, class Class) bool {
	return calls < l.Calls && (class == ClassRead || writes < l.Writes)
}

// MayAsk tells whether a run that has had so many calls asked about may have one more.
func (l Limits) MayAsk(asked int) bool { return asked < l.Asked }

func houseLimits() Limits { return Limits{Calls: 200, Writes: 50, Asked: 10} }

// within gives the smaller of two limits each; one that is not set is the other's.
func (l Limits) within(most Limits) Limits {
	for _, f := range [][2]*int{{&l.Calls, &most.Calls}, {&l.Writes, &most.Writes}, {&l.Asked, &most.Asked}} {
		if *f[0] > 0 {
			*f[1] = min(*f[0], *f[1])
		}
	}
	return most
}

// GrantInput is what NewGrant freezes.
type GrantInput struct {
	Principal Principal
	Domains   []string // the company's mail domains, "empresa.com"; one that is no domain is dropped, so its mail is outside
	Apps      []string // slugs of the person's connected apps
	Policy    Policy   // the company's own; zero: the house's alone
	// PolicyVersion is its number, from 1; 0: there is none. Broken tells that the company's policy cannot be read any more:
	// then everything is denied, since what it would have forbidden is not known.
	PolicyVersion int
	Broken        bool
	// NobodyElseApproves says that no other approver or admin of the company exists. The zero value keeps holds holds.
	NobodyElseApproves bool
}

// NewGrant freezes the house rules and the company's facts for one run.
func NewGrant(in GrantInput) Grant {
	g := Grant{
		Version:    Version,
		Company:    in.Principal.Company,
		Membership: in.Principal.Membership,
		Role:       in.Principal.Role,
		Domains:    []string{},
		Apps:       set(in.Apps),
		Vetoes:     set(append(houseVetoes(), in.Policy.Vetoes...)),
		SoleAdmin:  in.NobodyElseApproves && in.Principal.Role == RoleAdmin,
		Limits:     in.Policy.Limits.within(houseLimits()),
		Rules:      []RuleRef{},
		Own:        append([]Own{}, in.Policy.Rules...),
	}
	if in.PolicyVersion > 0 {
		g.Version += "+" + strconv.Itoa(in.PolicyVersion)
	}
	for _, d := range in.Domains {
		if ascii, ok := Domain(d); ok {
			g.Domains = append(g.Domains, ascii)
		}
	}
	g.Domains = set(g.Domains)
	for _, r := range House() {
		effect, switched := in.Policy.House[r.ID]
		if !switched {
			effect = r.Effect
		}
		g.Rules = append(g.Rules, RuleRef{ID: r.ID, Effect: effect})
	}
	if in.Broken {
		g.Rules = append(g.Rules, RuleRef{ID: RuleUnknown, Effect: Deny})
	}
	return g
}

// WithApps returns the grant with other connected apps, for a person who connects one while the run goes on.
func (g Grant) WithApps(apps []string) Grant {
	g.Apps = set(apps)
	return g
}

// Vetoed tells whether a tool may be neither listed nor called, whatever the arguments. Case is ignored, so that no
// lenient layer below can be reached by another spelling.
func (g Grant) Vetoed(tool string) bool {
	same := func(v string) bool { return strings.EqualFold(v, tool) }
	return slices.ContainsFunc(g.Vetoes, same) || slices.ContainsFunc(houseVetoes(), same)
}

// Lists tells whether a tool may be shown to the person's agent: a named tool, not vetoed, of a connected app or of the
// house (empty app). A tool of unknown class is shown too: it needs a confirm.
func (g Grant) Lists(tool, app string) bool {
	return tool != "" && g.Version != "" && g.Role.Known() && !g.Vetoed(tool) && g.hasApp(app)
}

// Ids of the refusals that come before any rule.
const (
	RuleNobody       = "principal.unknown"
	RuleOtherGrant   = "principal.other"
	RuleScope        = "scope.missing"
	RuleVetoed       = "tool.vetoed"
	RuleNotConnected = "app.not_connected"
	RuleUnknown      = "rule.unknown" // a rule of the grant that this binary does not know
)

func (g Grant) refusal(p Principal, a Action) string {
	switch {
	case g.Version == "" || !p.Role.Known() || p.Company == "" || p.Membership == "" || p.Person == "":
		return RuleNobody
	case p.Company != g.Company || p.Membership != g.Membership || !g.Role.Known():
		return RuleOtherGrant
	case a.Tool == "" || g.Vetoed(a.Tool):
		return RuleVetoed
	case !p.Can(a.Scope):
		return RuleScope
	case !g.hasApp(a.App):
		return RuleNotConnected
	}
	return ""
}

// hasApp tells whether the app is connected; house tools have none.
func (g Grant) hasApp(app string) bool { return app == "" || slices.Contains(g.Apps, app) }

// inForce returns the house's rules with the effects that the grant has frozen for them, of several for one the strictest.
// A reference to an unknown rule denies everything: what it would have forbidden is not known.
func (g Grant) inForce() []Rule {
	rules := House()
	frozen := map[string]bool{}
	for _, ref := range g.Rules {
		i := slices.IndexFunc(rules, func(r Rule) bool { return r.ID == ref.ID })
		if i < 0 {
			return []Rule{{ID: RuleUnknown, Effect: Deny, Applies: func(Grant, Action) bool { return true }}}
		}
		if frozen[ref.ID] {
			rules[i].Effect = stricter(rules[i].Effect, ref.Effect)
		} else {
			rules[i].Effect, frozen[ref.ID] = stricter(Allow, ref.Effect), true
		}
	}
	return rules
}

// set returns the texts sorted, without blanks and doubles, and never nil.
func set(texts []string) []string {
	out := []string{}
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
