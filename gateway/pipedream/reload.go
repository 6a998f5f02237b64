package pipedream

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"pilder/gateway"
)

// Limits of fields that appear after a choice.
const (
	maxReloads      = 3
	maxMoreFields   = 40
	maxMoreFieldsKB = 8 << 10 // bytes of their schema
)

// loaded is the set of fields that applies to a call, those of the first definition first, with the values of all of them.
type loaded struct {
	fields  []field
	values  map[string]any
	dynamic string // dyp_…: the provider's name for the set; never shown, used for this one run
}

// reloadAsk is the body of actions/props.
type reloadAsk struct {
	ID           string         `json:"id"`
	Version      string         `json:"version"`
	ExternalUser string         `json:"external_user_id"`
	Blocking     bool           `json:"blocking"`
	Props        map[string]any `json:"configured_props"`
	Dynamic      string         `json:"dynamic_props_id,omitempty"`
}

// load finds out which fields apply. They are asked for anew in every call, however recently the same was asked: fields
// that changed since then are noticed, and an approval given for the old ones does not run.
func (c *Connector) load(ctx context.Context, call gateway.Call, a *action, account string, args arguments) (loaded, *trouble) {
	out := loaded{fields: a.fields, values: args.values}
	var fresh []field
	asked := map[string]bool{}
	for range maxReloads {
		if !brings(out, asked) {
			break
		}
		var problem *trouble
		if out, problem = c.reload(ctx, call, a, account, out); problem != nil {
			return out, problem
		}
		fresh = out.fields[len(a.fields):]
		values, _ := take(fresh, args.more) // what is wrong with them is said once all fields are known
		maps.Copy(out.values, values)
	}
	if _, problems := take(fresh, args.more); args.more == nil && len(fresh) > 0 || len(problems) > 0 {
		return out, a.needs(fresh, problems, args.more != nil)
	}
	return out, nil
}

// brings tells whether a field with a value, not asked about yet, may bring more.
func brings(l loaded, asked map[string]bool) bool {
	found := false
	for _, f := range l.fields {
		v, set := l.values[f.Name]
		if bool(f.ReloadProps) && set && !emptyList(v) && !asked[f.Name] {
			asked[f.Name], found = true, true
		}
	}
	return found
}

// reload asks for the set of fields that goes with the values. It changes nothing.
func (c *Connector) reload(ctx context.Context, call gateway.Call, a *action, account string, l loaded) (loaded, *trouble) {
	r, err := c.client.read(ctx, ask{method: http.MethodPost, path: c.client.inProject("actions", "props"), body: reloadAsk{
		ID: a.key, Version: a.Version, ExternalUser: call.Caller.ExternalUser, Blocking: true,
		Props: a.configured(account, l.fields, l.values, c.labelOf(call, account, a.offer)), Dynamic: l.dynamic,
	}})
	var in struct {
		Errors       []json.RawMessage `json:"errors"`
		Observations []observation     `json:"observations"`
		Dynamic      *struct {
			ID    string `json:"id"`
			Props []prop `json:"configurableProps"`
		} `json:"dynamicProps"`
	}
	if err := expect(r, err, "reloading fields", &in); err != nil {
		return l, c.troubleOf(a.Class, err)
	}
	if len(in.Errors) > 0 || hasError(in.Observations) || in.Dynamic == nil || in.Dynamic.ID == "" {
		return l, &trouble{code: codeBadArguments, class: a.Class, appText: errorText(in.Errors, in.Observations)}
	}
	// The names of the first definition stay what they were; only new ones are made safe beside them.
	added := slices.DeleteFunc(in.Dynamic.Props, func(p prop) bool {
		return slices.ContainsFunc(a.fields, func(f field) bool { return f.Name == p.Name })
	})
	var taken []string
	for _, f := range a.fields {
		taken = append(taken, f.safe)
	}
	fresh, err := a.fieldsOf(added, taken...)
	if err != nil {
		return l, &trouble{code: codeGatewayProblem, class: a.Class, operator: "fields of a reload cannot be offered"}
	}
	for i := range fresh {
		fresh[i].background = "" // retrieve_options knows the first definition only
	}
	return loaded{fields: slices.Concat(a.fields, fresh), values: l.values, dynamic: in.Dynamic.ID}, nil
}

// needs is the answer that names the new fields, as a schema.
func (a *action) needs(fresh []field, problems []string, answered bool) *trouble {
	t := &trouble{code: codeNeedsFields, class: a.Class}
	if answered {
		for _, p := range problems {
			t.problems = append(t.problems, moreFields+"."+p)
		}
	}
	for n := min(len(fresh), maxMoreFields); ; n /= 2 {
		schema := a.schema(fresh[:n], false)
		raw, err := encode(schema)
		if err == nil && len(raw) <= maxMoreFieldsKB || n == 0 {
			t.fields = &schema
			break
		}
	}
	return t
}

// bad is a trouble a model can mend.
func (a *action) bad(problems ...string) *trouble {
	return &trouble{code: codeBadArguments, class: a.Class, problems: problems}
}

// labelOf gives the labels that a caller's agent saw in lists of choices.
func (c *Connector) labelOf(call gateway.Call, account string, o *offer) func(field, any) string {
	return func(f field, v any) string {
		return c.choices.labelFor(labelKey{call.Caller.ExternalUser, account, o.key, f.Name}, fmt.Sprintf("%T %v", v, v))
	}
}
