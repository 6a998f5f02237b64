package policy

import "encoding/json"

// Effect is what may happen to a call. The zero value is Deny, and of two effects the smaller is the stricter.
type Effect int

// The effects, strictest first.
const (
	Deny    Effect = iota // never
	Hold                  // an approver presses a button
	Confirm               // the person presses a button
	Allow                 // at once
)

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
}

// Decision is what policy says of one action, and which rule said it.
type Decision struct {
	Effect Effect
	Rule   string // id of the deciding rule, "mail.outside"; "" only for Allow
	// Downgraded tells that a hold became a confirm because the person asking is the company's only admin and nobody else
	// could approve. The audit repeats it.
	Downgraded bool
}
