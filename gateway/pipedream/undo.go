package pipedream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// undo is the call that takes back what a run of the action did; nil when the house knows none, or the app did not name
// what it made.
func (a *action) undo(args, ret json.RawMessage) *gateway.Undo {
	if a.Undo == nil {
		return nil
	}
	with, ok := gather(a.Undo.With, args, ret)
	if !ok {
		return nil
	}
	return &gateway.Undo{Tool: toolName(a.Undo.Action), Args: with}
}

// gather makes arguments out of a call and its return. An argument the call left out stays out; what the app should have
// answered and did not leaves nothing to go by, and ok is false.
func gather(from map[string]string, args, ret json.RawMessage) (raw json.RawMessage, ok bool) {
	given, _ := decodeNumbers(args).(map[string]any)
	answered := withoutHTTP(decodeNumbers(ret))
	if whole, isObject := answered.(map[string]any); isObject && whole["data"] != nil {
		if _, status := whole["status"].(json.Number); status {
			answered = whole["data"]
		}
	}
	out := map[string]any{}
	for name, source := range from {
		where, path, _ := strings.Cut(source, ".")
		var v any
		if where == "ret" {
			if v = at(answered, path); v == nil {
				return nil, false
			}
		} else {
			v = at(given, path)
		}
		if v != nil {
			out[name] = v
		}
	}
	raw, err := json.Marshal(out)
	return raw, err == nil
}

// at is what stands at a path of objects; nil when nothing does.
func at(v any, path string) any {
	for _, name := range strings.Split(path, ".") {
		object, isObject := v.(map[string]any)
		if !isObject {
			return nil
		}
		v = object[name]
	}
	return v
}

// Describe tells what the id in a call stands for, read through the account the call would act with. The fact has no text
// when that cannot be read; a call without an id has no fact.
func (c *Connector) Describe(ctx context.Context, call gateway.Call) []store.Fact {
	o := c.offerOf(call.Tool, call.Caller.Apps)
	if o == nil || o.Describe == nil {
		return nil
	}
	given, _ := decodeNumbers(call.Args).(map[string]any)
	if id, _ := given[o.Describe.Arg].(string); id == "" {
		return nil
	}
	fact := store.Fact{Arg: o.Describe.Arg}
	with, _ := gather(o.Describe.With, call.Args, nil)
	read := gateway.Call{ID: call.ID, Caller: call.Caller, Tool: toolName(o.Describe.Action), Args: with, Account: call.Account}
	if ready, problem := c.prepare(ctx, read); problem == nil {
		if done, problem := c.run(ctx, policy.ClassRead, c.askFor(read, ready)); problem == nil {
			fact.Text = o.Describe.name(withoutHTTP(decodeNumbers(done.ret)))
		}
	}
	return []store.Fact{fact}
}

// name says in one line what was read.
func (d *Describe) name(v any) string {
	var words []string
	for _, path := range d.Show {
		switch v := at(v, path).(type) {
		case string:
			words = append(words, clean(v, 120))
		case map[string]any:
			if t := moment(v); t != "" {
				words = append(words, t)
			}
		}
	}
	return strings.Join(words, " · ")
}

// moment writes a point in time or a day, as calendars give them, on the clock of its own zone.
func moment(v map[string]any) string {
	day, _ := v["date"].(string)
	at, _ := v["dateTime"].(string)
	zone, _ := v["timeZone"].(string)
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return clean(day, 20)
	}
	if z, err := time.LoadLocation(zone); err == nil && zone != "" {
		return fmt.Sprintf("%s (%s)", t.In(z).Format("2006-01-02 15:04"), clean(zone, 40))
	}
	return t.Format("2006-01-02 15:04 -07:00")
}
