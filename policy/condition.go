package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"
)

// Bounds of a condition. Cost is CEL's own measure; a comparison costs a handful.
const (
	maxCondition     = 2_000 // bytes of text
	maxConditionCost = 200_000
)

// Variables are what a condition may speak of, with their types in CEL and what they are, in the order of their names.
func Variables() [][3]string {
	return [][3]string{
		{"action", "string", `what the call does: "read", "write", "destructive" or "unknown"`},
		{"amounts", "list(double)", "every number among the arguments, those written as text too"},
		{"app", "string", `slug of the app, "" for the house's own tools`},
		{"args", "map(string, dyn)", "the arguments, exactly as they would be executed"},
		{"domains", "list(string)", "the company's mail domains"},
		{"hints", "map(string, bool)", "read_only, destructive, idempotent, open_world: what the tool says of itself"},
		{"notifies", "bool", "other people may be told of the change: guests are named, or a mail about it is not ruled out"},
		{"now", "timestamp", `when the call is made: now.getHours("America/Montevideo")`},
		{"outside", "list(string)", "recipients that do not surely belong to the company"},
		{"person", "string", "membership id of whoever asks"},
		{"recipients", "list(string)", "whatever stands where recipients, guests or shares are named"},
		{"role", "string", `"member", "approver" or "admin"`},
		{"taint", "list(string)", "where this conversation has taken in other people's words from"},
		{"tool", "string", "name of the tool"},
		{"unnamed", "list(string)", "links, addresses and recipients among the arguments that the person has not written in this turn"},
	}
}

// language is what conditions are written in. It is made once: that takes longer than a condition.
var language = sync.OnceValues(func() (*cel.Env, error) {
	types := map[string]*cel.Type{
		"string": cel.StringType, "bool": cel.BoolType, "timestamp": cel.TimestampType, "list(string)": cel.ListType(cel.StringType),
		"list(double)": cel.ListType(cel.DoubleType), "map(string, dyn)": cel.MapType(cel.StringType, cel.DynType),
		"map(string, bool)": cel.MapType(cel.StringType, cel.BoolType),
	}
	options := []cel.EnvOption{ext.Strings(), cel.CrossTypeNumericComparisons(true), cel.ParserExpressionSizeLimit(maxCondition)}
	for _, v := range Variables() {
		options = append(options, cel.Variable(v[0], types[v[1]]))
	}
	return cel.NewEnv(options...)
})

// ErrCondition says that a text is no condition; what is wrong with it stands before.
var ErrCondition = errors.New("not a condition")

// condition is one that was compiled. It is safe for concurrent use.
type condition struct{ program cel.Program }

// compile reads a condition. Its errors name the column, counted from 1.
func compile(text string) (condition, error) {
	if len(text) > maxCondition {
		return condition{}, fmt.Errorf("%d bytes are more than %d: %w", len(text), maxCondition, ErrCondition)
	}
	env, err := language()
	if err != nil {
		return condition{}, fmt.Errorf("making the language of conditions: %w", err)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return condition{}, fmt.Errorf("column %d: %s: %w", first.Location.Column()+1, first.Message, ErrCondition)
	}
	if ast.OutputType() != cel.BoolType {
		return condition{}, fmt.Errorf("it gives %s and not true or false: %w", ast.OutputType(), ErrCondition)
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxConditionCost))
	if err != nil {
		return condition{}, fmt.Errorf("%w: %w", err, ErrCondition)
	}
	return condition{program}, nil
}

// holds tells whether the condition is fulfilled. One that cannot be told (an argument that is not there, a cost over the
// bound) counts as fulfilled: a rule is rather too strict.
func (c condition) holds(facts map[string]any) bool {
	if c.program == nil || facts == nil {
		return true
	}
	value, _, err := c.program.Eval(facts)
	if err != nil {
		return true
	}
	is, ok := value.Value().(bool)
	return is || !ok
}

// facts are what conditions read of an action; nil when its arguments can be read in two ways or not at all.
func facts(g Grant, p Principal, a Action) map[string]any {
	members, err := arguments(a.Args)
	if err != nil {
		return nil
	}
	args := map[string]any{}
	var names []string
	for _, m := range members {
		names = append(names, strings.ToLower(m.name))
		args[m.name] = m.value
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(members) {
		return nil
	}
	recipients := recipientsIn(args)
	outside := slices.DeleteFunc(slices.Clone(recipients), func(r string) bool { return Inside(r, g.Domains) })
	f := map[string]any{
		"action": a.Class.String(), "amounts": amountsIn(args), "app": a.App, "args": args, "domains": g.Domains,
		"hints": map[string]bool{"read_only": a.Hints.ReadOnly, "destructive": a.Hints.Destructive,
			"idempotent": a.Hints.Idempotent, "open_world": a.Hints.OpenWorld},
		"notifies": notifiesOthers(a.Args), "outside": outside, "person": string(p.Membership), "recipients": recipients,
		"role": string(p.Role), "taint": a.Taint, "tool": a.Tool, "unnamed": unnamed(a),
	}
	if !a.At.IsZero() { // else a condition over the time cannot be told
		f["now"] = a.At
	}
	return f
}

// namesRecipients tells whether a member of arguments, here and in most apps, holds people that something is sent to or
// shared with.
func namesRecipients(member string) bool {
	switch strings.ToLower(member) {
	case "para", "cc", "cco", "to", "bcc", "recipient", "recipients", "attendee", "attendees", "guest", "guests", "invitee", "invitees",
		"email", "emails", "emailaddress", "email_address", "share_with", "sharewith":
		return true
	}
	return false
}

// recipientsIn collects the texts below such members, wherever these stand.
func recipientsIn(value any) []string {
	found := []string{}
	var walk func(value any, named bool)
	walk = func(value any, named bool) {
		switch v := value.(type) {
		case map[string]any:
			for _, name := range sorted(v) {
				walk(v[name], named || namesRecipients(name))
			}
		case []any:
			for _, e := range v {
				walk(e, named)
			}
		case string:
			if named && strings.TrimSpace(v) != "" {
				found = append(found, v)
			}
		}
	}
	walk(value, false)
	return found
}

// amountsIn collects the numbers, wherever they stand.
func amountsIn(value any) []float64 {
	found := []float64{}
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			for _, name := range sorted(v) {
				walk(v[name])
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case float64:
			found = append(found, v)
		case json.Number:
			if n, err := v.Float64(); err == nil {
				found = append(found, n)
			}
		case string:
			if n, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
				found = append(found, n)
			}
		}
	}
	walk(value)
	return found
}

func sorted(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
