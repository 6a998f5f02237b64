package gateway

import (
	"context"
	"encoding/json"

	"pilder/policy"
	"pilder/store"
)

// Connector is a source of tools: native, pipedream, upstream, later storefront.
//
// Tools gives what this caller's connected apps offer, schemas included; it makes no upstream request once its
// definitions are warm. Call performs one call whose decision is already made and whose row is already committed; it
// never repeats an effect. A failure of the outside is a Result with its Outcome, never an error: an error means that the
// gateway itself is at fault, and is told to nobody but the operator.
//
// Check tells what Call would refuse before it did anything (a missing field, no usable account); nil when nothing is known
// to stand in the way. It is asked before a human is, so that nobody presses a button for a call that cannot work.
type Connector interface {
	Tools(ctx context.Context, c Caller) ([]Tool, error)
	Check(ctx context.Context, c Call) *Result
	Call(ctx context.Context, c Call) (Result, error)
}

// Caller is the person a list or a call is for.
type Caller struct {
	Principal    policy.Principal
	ExternalUser string   // the membership's opaque id at the connected-apps provider
	Lang         string   // "es" or "en": the language of every text made for this person
	Apps         []string // slugs of the apps with an account in use
}

// HouseApp stands in Tool.App for the house's own tools. Policy knows them by having no app.
const HouseApp = "pilder"

// Tool is one tool as a caller sees it. Every field but AppFrom, Uses, AlwaysLoad, Open and Elsewhere must be set; CheckTool
// says what is missing, and a tool that lacks anything is not listed.
type Tool struct {
	Name         string // ^[A-Za-z0-9_-]{1,64}$
	Title        string
	Description  string // "our hint | the registry's text untouched"
	App          string // slug; HouseApp for house tools
	AppFrom      string // a house tool's argument whose text begins with the slug of the app that answers it; empty: none does
	Uses         string // slug of the app whose account a house tool acts with; empty: App's own
	Connector    string // "native", "pipedream", "upstream"
	Class        policy.Class
	Scope        policy.Scope
	InputSchema  json.RawMessage // JSON Schema 2020-12, type object
	OutputSchema json.RawMessage
	Annotations  Annotations
	AlwaysLoad   bool // _meta["anthropic/alwaysLoad"]: schema known from the start, not found through tool search
	Open         bool // arguments may have names that the schema does not list
	Elsewhere    bool // a server of somebody else performs it: its arguments leave the house even when it only reads
}

// Annotations are MCP's hints, all said aloud: a missing hint is read as its worst.
type Annotations struct {
	ReadOnly    bool
	Destructive bool
	Idempotent  bool
	OpenWorld   bool
}

// Call is one call to perform.
type Call struct {
	ID     store.CallID // committed before the connector hears of it
	Caller Caller
	Tool   string
	Args   json.RawMessage // validated against the tool's InputSchema, exactly as decided upon
	// Account is the provider's account id the call was frozen with; empty means: the caller's usable account of the app.
	Account string
	// Progress hands on how far the call is, for the caller's own progress token; nil when nobody wants to know. It never
	// blocks and may be called from any goroutine until Call returns.
	Progress func(Progress)
	// Cancelled is closed when the caller takes the call back; nil when it cannot. A read's context ends as well. A write's
	// does not: its connector hands the cancellation on, and still reports what came of it.
	Cancelled <-chan struct{}
}

// Progress is how far a call is, as MCP says it.
type Progress struct {
	Done    float64 // grows with every report
	Total   float64 // 0: unknown
	Message string  // untrusted; may be empty
}

// Result is what came of a call, for the model and for the person. Text and Structured say the same, since a client may
// show the model only one of them; neither holds tokens, stack traces, internal addresses or provider ids.
type Result struct {
	Outcome    store.Outcome   // done, failed or unknown
	Text       string          // in the caller's language
	Structured json.RawMessage // a JSON object
	IsError    bool
	Code       string // content-free, for logs and the audit: "ok", "reconnect", "busy", "outcome_unknown", …
	Undo       *Undo  // of what was done; nil: nothing takes it back
}
