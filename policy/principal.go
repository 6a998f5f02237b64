// Package policy says what a principal may do: it turns one action and one frozen grant into one decision.
// It reads no clock, does no input or output, remembers nothing and imports none of our packages; carrying a decision
// out, recording it and asking people are the work of others.
package policy

import "slices"

// CompanyID, PersonID, MembershipID and RunID name who is asking. They are opaque random ids made by the store.
type (
	CompanyID    string
	PersonID     string
	MembershipID string
	RunID        string
)

// Role is a person's place in a company. The zero value is nobody and may do nothing.
type Role string

// The roles, weakest first. An approver decides held calls; an admin also runs the company's settings.
const (
	RoleNone     Role = ""
	RoleMember   Role = "member"
	RoleApprover Role = "approver"
	RoleAdmin    Role = "admin"
)

// Known tells whether the role is one of the three that may do something.
func (r Role) Known() bool { return r == RoleMember || r == RoleApprover || r == RoleAdmin }

// Decides tells whether somebody with this role decides what others of the company ask for.
func (r Role) Decides() bool { return r == RoleApprover || r == RoleAdmin }

// Scope is what a principal's token lets it ask for, in the OAuth sense.
type Scope string

// The scopes of a run. A tool names the one it needs; a token without it is refused.
const (
	ScopeAppsRead      Scope = "apps:read"
	ScopeAppsWrite     Scope = "apps:write"
	ScopeMailSend      Scope = "mail:send"
	ScopeApprovalsRead Scope = "approvals:read"
	ScopeAccountsWrite Scope = "accounts:write"
)

// Scopes are what a run of somebody with this role may ask for. All roles ask for the same; what comes of it is the grant's
// to say. A role that this binary does not know asks for nothing.
func (r Role) Scopes() []Scope {
	if !r.Known() {
		return nil
	}
	return []Scope{ScopeAppsRead, ScopeAppsWrite, ScopeMailSend, ScopeApprovalsRead, ScopeAccountsWrite}
}

// Principal is who is asking. The zero value is nobody: every decision for it is Deny.
type Principal struct {
	Company    CompanyID
	Membership MembershipID
	Person     PersonID
	Role       Role
	Scopes     []Scope
	Run        RunID // empty outside a run
}

// Can tells whether the principal's token carries the scope. The empty scope is never carried.
func (p Principal) Can(s Scope) bool { return s != "" && slices.Contains(p.Scopes, s) }
