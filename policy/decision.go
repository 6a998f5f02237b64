package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Effect is what may happen to a call. The zero value is Deny, and of two effects the smaller is the stricter.
type Effect int

// The effects, strictest first.
const (
	Deny    Effect = iota // never
	Hold                  // an approver presses a button
	Confirm               // the person presses a button
	Allow                 // at once
)

// ErrUnknownEffect says that a text names no effect. The effect it was read into is Deny.
var ErrUnknownEffect = errors.New("unknown effect")

// String returns the effect's word as it stands in tables, logs and policy files. A value outside the four is "deny".
func (e Effect) String() string {
	switch e {
	case Hold:
		return "hold"
	case Confirm:
		return "confirm"
	case Allow:
		return "allow"
	default:
		return "deny"
	}
}

// MarshalText writes the word, so that stored effects do not depend on the order of the constants.
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the word. Any other text, another case included, leaves Deny behind and returns ErrUnknownEffect.
func (e *Effect) UnmarshalText(text []byte) error {
	*e = Deny
	switch string(text) {
	case "deny":
	case "hold":
		*e = Hold
	case "confirm":
		*e = Confirm
	case "allow":
		*e = Allow
	default:
		return fmt.Errorf("reading effect %.20q: %w", text, ErrUnknownEffect)
	}
	return nil
}

// stricter returns the stricter of two effects; a value outside the four counts as Deny.
func stricter(a, b Effect) Effect {
	if a < Deny || a > Allow || b < Deny || b > Allow {
		return Deny
	}
	return min(a, b)
}

// Class is what an action does to the world. The zero value is unknown, which counts as destructive and open-world.
type Class string

// The classes of actions.
const (
	ClassUnknown     Class = ""
	ClassRead        Class = "read"
	ClassWrite       Class = "write"
	ClassDestructive Class = "destructive"
)

// Action is one call as policy sees it. Args are the validated arguments, exactly as they would be executed.
type Action struct {
	Tool  string // as listed, "google_calendar-create-event"
	App   string // slug; empty for house tools
	Class Class
	Scope Scope // what the tool needs
	Args  json.RawMessage
	// What conditions of a company may speak of beside that. A zero At makes those over the time hold.
	Hints Hints
	At    time.Time
	Taint []string // where the conversation has taken in other people's words from: slugs of apps, "web"
	Said  string   // the person's own words in this turn
	// Elsewhere tells that a server of somebody else performs it: its arguments leave the house even when it only reads.
	Elsewhere bool
	// Open tells that its arguments may have names that no schema lists.
	Open bool
}

// Hints are what a tool says of itself, as MCP's annotations do.
type Hints struct{ ReadOnly, Destructive, Idempotent, OpenWorld bool }

// Decision is what policy says of one action, and which rule said it.
type Decision struct {
	Effect Effect
	Rule   string // id of the deciding rule, "mail.outside"; "" only for Allow
	// Downgraded tells that a hold became a confirm because the person asking is the company's only admin and nobody else
	// could approve. The audit repeats it.
	Downgraded bool
}

// MayApprove tells whether somebody may press the button of a call that waits for kind (Confirm or Hold).
//
// A confirm belongs to the person who asked, whatever their role. A hold belongs to an approver or admin other than the
// person who asked. soleAdmin lets an admin decide their own hold: it covers holds asked for before they were left alone
// (asked for afterwards, they are confirms already). Nothing else waits, so every other kind is false.
func MayApprove(role Role, kind Effect, requester, approver MembershipID, soleAdmin bool) bool {
	if requester == "" || approver == "" || !role.Known() {
		return false
	}
	switch kind {
	case Confirm:
		return approver == requester
	case Hold:
		if approver == requester {
			return soleAdmin && role == RoleAdmin
		}
		return role.Decides()
	default:
		return false
	}
}
