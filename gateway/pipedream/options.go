package pipedream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// optionsName is the tool that lists valid values of a field. The name is the house's own.
const optionsName = "retrieve_options"

// Limits of retrieve_options.
const (
	maxOptions     = 100  // on one page
	maxOptionPages = 10   // of one question
	maxLabel       = 200  // characters
	maxValue       = 1000 // characters; longer values are left out
)

// choice is one valid value of a field and how the app shows it.
type choice struct {
	Value any    `json:"value"`
	Label string `json:"label"`
}

// readChoices reads options in any of their forms: plain values, {label, value}, {"__lv": {label, value}}. Null is none.
func readChoices(raw json.RawMessage) []choice {
	list, _ := decodeNumbers(raw).([]any)
	var out []choice
	for _, v := range list {
		if object, isObject := v.(map[string]any); isObject {
			if lv, isLV := object["__lv"].(map[string]any); isLV {
				object = lv
			}
			value, there := object["value"]
			label, isText := object["label"].(string)
			if !there || value == nil {
				continue
			}
			if !isText || label == "" {
				label = fmt.Sprint(value)
			}
			out = append(out, choice{value, label})
			continue
		}
		if v != nil {
			out = append(out, choice{v, fmt.Sprint(v)})
		}
	}
	return out
}

// optionsTool is retrieve_options as a caller sees it. It is a house tool, since no single app is behind it; which app it
// asks is checked in the call.
func optionsTool(lang string) gateway.Tool {
	return gateway.Tool{
		Name: optionsName, Title: "Retrieve options", App: gateway.HouseApp, AppFrom: "action", Connector: connectorName,
		Description: policy.Text{
			ES: "Valores válidos de un campo que depende de la cuenta (qué calendario, qué etiqueta, qué página). | Lists valid values of a field of another tool. Give the tool's name as action and the field's name as prop, with the values chosen so far.",
			EN: "Valid values of a field that depends on the account (which calendar, label, page). | Lists valid values of a field of another tool. Give the tool's name as action and the field's name as prop, with the values chosen so far.",
		}.In(lang),
		Class: policy.ClassRead, Scope: policy.ScopeAppsRead, Annotations: annotations(policy.ClassRead),
		InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["action","prop"],"properties":{` +
			`"action":{"type":"string","title":"Action","description":"Name of the tool the field belongs to."},` +
			`"prop":{"type":"string","title":"Field","description":"Name of the field."},` +
			`"values":{"type":"object","additionalProperties":true,"title":"Values so far","description":"Arguments chosen so far, in the tool's own names."},` +
			`"query":{"type":"string","maxLength":200,"title":"Search text","description":"Only for fields that accept one."},` +
			`"cursor":{"type":"string","title":"Cursor","description":"next_cursor of the answer before, with everything else the same."}}}`),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"options":{"type":"array","items":{"type":"object","required":["value","label"],` +
			`"properties":{"value":{},"label":{"type":"string"}}}},"next_cursor":{"type":["string","null"]},"note":{"type":"string"},` +
			`"status":{"type":"string"},"message":{"type":"string"},"code":{"type":"string"}}}`),
	}
}

// question is what an agent asks.
type question struct {
	Action string         `json:"action"`
	Prop   string         `json:"prop"`
	Values map[string]any `json:"values"`
	Query  string         `json:"query"`
	Cursor string         `json:"cursor"`
}

// found is the answer.
type found struct {
	Options []choice `json:"options"`
	Next    *string  `json:"next_cursor"`
	Note    string   `json:"note,omitempty"`
}

// retrieveOptions answers one page of choices. Labels are data of the app, never instructions.
func (c *Connector) retrieveOptions(ctx context.Context, call gateway.Call) gateway.Result {
	q, o, f, problem := c.understand(ctx, call)
	if problem != nil {
		return c.say(call, problem)
	}
	a := c.defs.known(o)
	if !bool(f.RemoteOptions) {
		return c.pageOf(call, q, f.listed)
	}
	say := func(t *trouble) gateway.Result {
		t.app, t.class = o.app.Name.In(call.Caller.Lang), policy.ClassRead
		return c.say(call, t)
	}
	account, problem := c.accountFor(ctx, call, o)
	if problem != nil {
		return say(problem)
	}
	before, unset, problem := a.before(f, q.Values)
	if problem != nil {
		return say(problem)
	}
	key := pageKey(call.Caller.ExternalUser, account, o.key, o.Version, f.Name, q.Query, before)
	page, ok := c.choices.resume(q.Cursor, key)
	if !ok {
		return say(&trouble{code: codeBadArguments, problems: []string{"cursor: unknown or over its time; ask again without it"}})
	}
	got, err := c.client.configure(ctx, configureAsk{
		ID: o.key, Version: o.Version, ExternalUser: call.Caller.ExternalUser, Prop: f.Name, Blocking: true,
		Props: a.configured(account, before.fields, before.values, c.labelOf(call, account, o)), Page: page.number, Context: page.context, Query: q.queryFor(f),
	})
	if err != nil {
		if len(unset) > 0 && got.failed {
			return c.give(call, found{Options: []choice{}, Note: noteUnset(call.Caller.Lang, unset)})
		}
		return say(c.troubleOf(policy.ClassRead, err))
	}
	return c.answerPage(call, key, page, got, unset, labelKey{call.Caller.ExternalUser, account, o.key, f.Name})
}

// understand finds the action and the field a question is about; both must be offered to the caller.
func (c *Connector) understand(ctx context.Context, call gateway.Call) (q question, o *offer, f field, problem *trouble) {
	bad := func(text string) *trouble {
		return &trouble{code: codeBadArguments, class: policy.ClassRead, problems: []string{text}}
	}
	dec := json.NewDecoder(strings.NewReader(string(call.Args)))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if len(call.Args) > maxArguments || dec.Decode(&q) != nil {
		return q, nil, f, bad("action and prop expected")
	}
	if o = c.offerOf(q.Action, call.Caller.Apps); o == nil {
		return q, nil, f, bad("action: no tool of that name")
	}
	if err := c.defs.fetch(ctx, []*offer{o}); err != nil || c.defs.known(o) == nil {
		return q, nil, f, &trouble{code: codeUnavailable, class: policy.ClassRead}
	}
	for _, f := range c.defs.known(o).fields {
		if f.safe == q.Prop || f.Name == q.Prop {
			if !f.hasChoices() {
				return q, nil, f, bad("prop: any value of its type will do, there is no list")
			}
			return q, o, f, nil
		}
	}
	return q, nil, f, bad("prop: the tool has no such field")
}

// queryFor is the search text, for fields that take one.
func (q question) queryFor(f field) string {
	if !f.UseQuery {
		return ""
	}
	return gateway.CutRunes(q.Query, 200)
}

// earlier is what a field's choices may depend on: the fields before it.
type earlier struct {
	fields []field
	values map[string]any
}

// before takes the values of the fields before f, and names those that have neither value nor default.
func (a *action) before(f field, given map[string]any) (earlier, []string, *trouble) {
	var out earlier
	kept, unset := map[string]any{}, []string(nil)
	for _, g := range a.fields {
		if g.Name == f.Name {
			break
		}
		g.required = false
		out.fields = append(out.fields, g)
		v, there := given[g.safe]
		switch {
		case there && !g.absent(v):
			kept[g.safe] = v
		case g.fallback == nil && !bool(g.Optional):
			unset = append(unset, g.safe)
		}
	}
	values, problems := take(out.fields, kept)
	if len(problems) > 0 {
		return out, nil, &trouble{code: codeBadArguments, class: policy.ClassRead, problems: problems}
	}
	out.values = values
	return out, unset, nil
}

// configureAsk is the body of actions/configure.
type configureAsk struct {
	ID           string          `json:"id"`
	Version      string          `json:"version"`
	ExternalUser string          `json:"external_user_id"`
	Prop         string          `json:"prop_name"`
	Blocking     bool            `json:"blocking"`
	Props        map[string]any  `json:"configured_props"`
	Page         int             `json:"page"`
	Context      json.RawMessage `json:"prev_context,omitempty"`
	Query        string          `json:"query,omitempty"`
}

// optionPage is one page of choices. failed says that the app refused, in an answer that is a 200 all the same.
type optionPage struct {
	choices []choice
	context json.RawMessage
	failed  bool
}

// configure asks for one page of choices. It changes nothing.
func (c *client) configure(ctx context.Context, body configureAsk) (optionPage, error) {
	r, err := c.read(ctx, ask{method: http.MethodPost, path: c.inProject("actions", "configure"), body: body})
	var in struct {
		Options       json.RawMessage   `json:"options"`
		StringOptions json.RawMessage   `json:"stringOptions"`
		Context       json.RawMessage   `json:"context"`
		Errors        []json.RawMessage `json:"errors"`
		Observations  []observation     `json:"observations"`
	}
	if err := expect(r, err, "reading choices", &in); err != nil {
		return optionPage{}, err
	}
	failed := len(in.Errors) > 0 || slices.ContainsFunc(in.Observations, observation.isError)
	if failed {
		return optionPage{failed: true}, &appError{text: errorText(in.Errors, in.Observations)}
	}
	return optionPage{choices: append(readChoices(in.Options), readChoices(in.StringOptions)...), context: in.Context}, nil
}

// answerPage cleans one page, remembers its labels and where to go on.
func (c *Connector) answerPage(call gateway.Call, key string, page optionCursor, got optionPage, unset []string, labels labelKey) gateway.Result {
	out := found{Options: []choice{}}
	fresh, long, room := 0, 0, maxData
	for _, ch := range got.choices {
		text := fmt.Sprint(ch.Value)
		if gateway.CutRunes(text, maxValue) != text {
			long++
			continue
		}
		id := fmt.Sprintf("%T %s", ch.Value, text)
		if page.seen[id] {
			continue
		}
		page.seen[id] = true
		fresh++
		ch.Label = clean(ch.Label, maxLabel)
		room -= len(text) + len(ch.Label) + 30
		if len(out.Options) < maxOptions && room > 0 {
			out.Options = append(out.Options, ch)
			c.choices.label(labels, id, ch.Label)
		}
	}
	var notes []string
	if long > 0 {
		notes = append(notes, policy.Text{ES: "Algunos valores eran demasiado largos y faltan.", EN: "Some values were too long and are missing."}.In(call.Caller.Lang))
	}
	if fresh > len(out.Options) {
		notes = append(notes, policy.Text{ES: "Hay más valores de los que caben; busca con un texto si se puede.", EN: "There are more values than fit; search with a text where possible."}.In(call.Caller.Lang))
	}
	if len(out.Options) == 0 && len(unset) > 0 {
		notes = append(notes, noteUnset(call.Caller.Lang, unset))
	}
	if fresh > 0 && goesOn(got.context) && page.number+1 < maxOptionPages {
		next := c.choices.keep(optionCursor{key: key, number: page.number + 1, context: got.context, seen: page.seen})
		out.Next = &next
	}
	out.Note = strings.Join(notes, " ")
	return c.give(call, out)
}

// goesOn tells whether a context promises more. Apps end their lists in three ways: false, null, and nothing at all; two
// of them start over when asked again.
func goesOn(context json.RawMessage) bool {
	object, _ := decodeNumbers(context).(map[string]any)
	for _, v := range object {
		if v != nil && v != false && v != "" {
			return true
		}
	}
	return false
}

// pageOf answers from the definition itself, for long inline lists. The cursor is the place.
func (c *Connector) pageOf(call gateway.Call, q question, all []choice) gateway.Result {
	from := 0
	if q.Cursor != "" {
		if _, err := fmt.Sscanf(q.Cursor, "at%d", &from); err != nil || from < 0 || from > len(all) {
			return c.say(call, &trouble{code: codeBadArguments, class: policy.ClassRead, problems: []string{"cursor: unknown; ask again without it"}})
		}
	}
	out := found{Options: []choice{}}
	for _, ch := range all[from:min(from+maxOptions, len(all))] {
		out.Options = append(out.Options, choice{ch.Value, clean(ch.Label, maxLabel)})
	}
	if from+maxOptions < len(all) {
		next := fmt.Sprintf("at%d", from+maxOptions)
		out.Next = &next
	}
	return c.give(call, out)
}

// give makes the result of a good answer.
func (c *Connector) give(call gateway.Call, out found) gateway.Result {
	structured, err := encode(out)
	if err != nil || len(structured) > maxResult {
		return c.say(call, &trouble{code: codeUnavailable, class: policy.ClassRead})
	}
	return gateway.Result{Outcome: store.OutcomeDone, Text: string(structured), Structured: structured, Code: "ok"}
}

// noteUnset names the fields that choices may depend on.
func noteUnset(lang string, unset []string) string {
	return fmt.Sprintf(policy.Text{
		ES: "Puede que dependa de otros campos; da antes un valor a: %s.",
		EN: "It may depend on other fields; give a value first to: %s.",
	}.In(lang), strings.Join(unset, ", "))
}
