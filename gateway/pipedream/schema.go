package pipedream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pilder/gateway"
	"pilder/policy"
)

// Limits of what a definition may put into a tool.
const (
	maxDescription     = 1000 // characters of the registry's description of an action
	maxDescriptionSize = 2048 // bytes of hint and description together: what clients surely show
	maxPropDescription = 500  // characters
	maxEnum            = 50   // values
)

// action is a compiled definition: what is listed, what is checked, what is sent.
type action struct {
	*offer
	title   string
	about   string // the registry's description
	hash    string
	appProp string // name of the prop that takes the account; empty: needs none
	fields  []field
	fixed   map[string]any // props with a value of the author's: sent as they are
	reloads bool           // some field, once set, brings more
	input   json.RawMessage
}

// field is one prop that an agent may set.
type field struct {
	prop
	safe       string // as the tool names it
	array      bool
	kind       string // JSON type of the value or of each item; empty: anything
	closed     []any  // the only values there are, in order; nil: open
	listed     []choice
	fallback   any // sent when nothing is given; nil: nothing
	required   bool
	minimum    *json.Number
	maximum    *json.Number
	background string // more description, of the house
}

// member is one property of a JSON object whose order matters.
type member struct {
	name  string
	value any
}

// ordered is a JSON object in its order.
type ordered []member

// MarshalJSON keeps the order.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := encode(m.name)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode is JSON without the HTML escapes, which a model would have to read around.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// compile makes an action of a definition, or says why it is not offered.
func compile(o *offer, def definition, hash string) (*action, error) {
	if def.stashRequired() {
		return nil, fmt.Errorf("%s only gives a file: %w", def.Key, errNotOfferable)
	}
	a := &action{offer: o, title: clean(def.Name, 100), about: clean(def.Description, maxDescription), hash: hash, fixed: map[string]any{}}
	if a.title == "" {
		a.title = o.key
	}
	for _, p := range def.Props {
		if p.Type != "app" {
			continue
		}
		if a.appProp != "" || p.App != o.app.Slug {
			return nil, fmt.Errorf("%s needs more than one account of this app: %w", def.Key, errNotOfferable)
		}
		a.appProp = p.Name
	}
	var err error
	if a.fields, err = a.fieldsOf(def.Props); err != nil {
		return nil, fmt.Errorf("%s: %w", def.Key, err)
	}
	a.reloads = slices.ContainsFunc(a.fields, func(f field) bool { return bool(f.ReloadProps) })
	a.input, err = json.Marshal(a.schema(a.fields, a.reloads))
	return a, err
}

// fieldsOf gives the fields of props, in their order, and notes the fixed values. taken are safe names in use already.
func (a *action) fieldsOf(props []prop, taken ...string) ([]field, error) {
	names := make([]string, len(props))
	for i, p := range props {
		names[i] = p.Name
	}
	safe := safeNames(names, taken...)
	var out []field
	for i, p := range props {
		if bool(p.ReadOnly) && len(p.Default) > 0 && string(p.Default) != "null" {
			a.fixed[p.Name] = decodeNumbers(p.Default)
		}
		switch p.Type {
		case "app", "alert", "dir":
			continue
		}
		hidden := bool(p.Hidden || p.Disabled || p.ReadOnly)
		kind, array, offerable := a.kindOf(p)
		if hidden || (bool(p.Optional) && (!offerable || slices.Contains(a.Omit, p.Name))) {
			continue
		}
		if !offerable {
			return nil, fmt.Errorf("required prop %s of type %s: %w", p.Name, p.Type, errNotOfferable)
		}
		if own, there := a.Defaults[p.Name]; there {
			p.Default, _ = json.Marshal(own) // of YAML scalars and lists: cannot fail
		}
		f := field{prop: p, safe: safe[i], kind: kind, array: array}
		f.minimum, f.maximum = bound(p.Min), bound(p.Max)
		f.setChoices()
		f.setDefault()
		f.required = !bool(p.Optional) && f.fallback == nil
		f.background = a.askable(f)
		out = append(out, f)
	}
	return out, nil
}

// kindOf gives the JSON type of a prop's value, whether it is a list of them, and whether it can be offered at all.
// Files by address are not: the provider's cloud would fetch whatever address it is given.
func (a *action) kindOf(p prop) (kind string, array, offerable bool) {
	if bool(p.Secret) || p.Format == "file-ref" {
		return "", false, false
	}
	switch p.Type {
	case "string", "integer", "boolean", "object":
		return p.Type, false, true
	case "string[]", "integer[]":
		return strings.TrimSuffix(p.Type, "[]"), true, true
	case "any":
		return a.Types[p.Name], false, true
	case "$.discord.channel", "$.airtable.baseId", "$.airtable.tableId", "$.airtable.viewId", "$.airtable.fieldId":
		return "string", false, true
	case "$.discord.channel[]":
		return "string", true, true
	}
	return "", false, false
}

// setChoices reads inline options. Few of the field's own kind close it; more are answered by retrieve_options.
func (f *field) setChoices() {
	f.listed = readChoices(f.Options)
	if len(f.listed) == 0 || bool(f.RemoteOptions) || len(f.listed) > maxEnum {
		return
	}
	for _, c := range f.listed {
		if f.kind != "" && !isKind(c.Value, f.kind) {
			f.closed = nil
			return
		}
		f.closed = append(f.closed, c.Value)
	}
}

// setDefault takes the registry's default when the field itself would accept it.
func (f *field) setDefault() {
	if len(f.Default) == 0 || string(f.Default) == "null" {
		return
	}
	if v, problem := f.accept(decodeNumbers(f.Default)); problem == "" {
		f.fallback = v
	}
}

// askable tells the model where valid values come from, when they are not in the schema.
func (a *action) askable(f field) string {
	if !f.hasChoices() {
		return ""
	}
	s := fmt.Sprintf("For valid values call %s with action %q and prop %q.", optionsName, a.tool, f.safe)
	if f.UseQuery {
		s += " It accepts a search text."
	}
	return s
}

// hasChoices tells whether retrieve_options has something to say about a field.
func (f field) hasChoices() bool {
	return bool(f.RemoteOptions) || (len(f.listed) > 0 && f.closed == nil)
}

func (a *action) hasChoices() bool { return slices.ContainsFunc(a.fields, field.hasChoices) }

// schema is the JSON Schema of the fields.
func (a *action) schema(fields []field, more bool) ordered {
	props, required := ordered{}, []string{}
	for _, f := range fields {
		props = append(props, member{f.safe, f.schema()})
		if f.required {
			required = append(required, f.safe)
		}
	}
	if more {
		props = append(props, member{moreFields, ordered{{"type", "object"}, {"title", "More fields"},
			{"description", "Fields that exist only after certain choices. Leave it out at first: if there are any, the answer names them. {} says that none is wanted."}}})
	}
	out := ordered{{"type", "object"}, {"additionalProperties", false}}
	if len(required) > 0 {
		out = append(out, member{"required", required})
	}
	return append(out, member{"properties", props})
}

// schema is the JSON Schema of one field.
func (f field) schema() ordered {
	var value ordered
	if f.kind != "" {
		value = append(value, member{"type", f.kind})
	}
	if f.minimum != nil {
		value = append(value, member{"minimum", *f.minimum})
	}
	if f.maximum != nil {
		value = append(value, member{"maximum", *f.maximum})
	}
	if f.closed != nil {
		value = append(value, member{"enum", f.closed})
	}
	if f.array {
		value = ordered{{"type", "array"}, {"items", value}}
	}
	if title := clean(f.Label, 100); title != "" {
		value = append(value, member{"title", title})
	}
	if f.fallback != nil {
		value = append(value, member{"default", f.fallback})
	}
	if d := f.describe(); d != "" {
		value = append(value, member{"description", d})
	}
	return value
}

// describe is the registry's text, the labels of closed values that do not speak for themselves, and the house's line.
func (f field) describe() string {
	parts := []string{clean(f.Description, maxPropDescription)}
	var labels []string
	for _, c := range f.listed {
		if f.closed != nil && c.Label != fmt.Sprint(c.Value) {
			labels = append(labels, fmt.Sprintf("%v = %s", c.Value, clean(c.Label, 80)))
		}
	}
	if len(labels) > 0 {
		parts = append(parts, strings.Join(labels, ", ")+".")
	}
	parts = append(parts, f.background)
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// outputSchema is the house envelope: the same for every action, and wide enough for the gateway's own "pending".
const outputSchema = `{"type":"object","required":["status"],"properties":{` +
	`"status":{"enum":["ok","error","pending"]},"action":{"type":"string"},"message":{"type":"string"},` +
	`"data":{"description":"what the app answered, cut down"},"truncated":{"type":"boolean"},"omitted":{"type":"array"},"warning":{"type":"string"},` +
	`"code":{"type":"string"},"performed":{"enum":["no","unknown"]},"retry":{"enum":["fix","wait","person","never"]},` +
	`"retry_after_s":{"type":"integer"},"fields":{"type":"object"}}}`

// toolIn is the action as a caller of that language sees it.
func (a *action) toolIn(lang string) gateway.Tool {
	description := a.about
	if hint := a.Hint.In(lang); hint != "" {
		description = strings.TrimSuffix(hint+" | "+a.about, " | ")
	}
	if description == "" {
		description = a.title
	}
	return gateway.Tool{
		Name: a.tool, Title: a.title, Description: cutBytes(description, maxDescriptionSize), App: a.app.Slug, Connector: connectorName,
		Class: a.Class, Scope: a.scope(), InputSchema: a.input, OutputSchema: json.RawMessage(outputSchema),
		Annotations: annotations(a.Class), AlwaysLoad: a.AlwaysLoad,
	}
}

// annotations of a class; the registry's own are set by hand and uneven, and never loosen it.
func annotations(c policy.Class) gateway.Annotations {
	switch c {
	case policy.ClassRead:
		return gateway.Annotations{ReadOnly: true, Idempotent: true, OpenWorld: true}
	case policy.ClassWrite:
		return gateway.Annotations{OpenWorld: true}
	}
	return gateway.Annotations{Destructive: true, OpenWorld: true}
}

// bound reads min or max.
func bound(raw json.RawMessage) *json.Number {
	n, isNumber := decodeNumbers(raw).(json.Number)
	if !isNumber {
		return nil
	}
	return &n
}

// decodeNumbers decodes JSON with numbers as they are written; nil for what is none.
func decodeNumbers(raw json.RawMessage) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

// isKind tells whether a decoded value is of a JSON type. A whole number with a fraction of zeros is an integer.
func isKind(v any, kind string) bool {
	switch kind {
	case "string":
		_, is := v.(string)
		return is
	case "boolean":
		_, is := v.(bool)
		return is
	case "object":
		_, is := v.(map[string]any)
		return is
	case "integer":
		n, is := v.(json.Number)
		if !is {
			return false
		}
		_, whole := wholeNumber(n)
		return whole
	}
	return true
}

// wholeNumber reads an integer, also when written 10.0.
func wholeNumber(n json.Number) (json.Number, bool) {
	text := n.String()
	if whole, fraction, has := strings.Cut(text, "."); has && strings.Trim(fraction, "0") == "" {
		text = whole
	}
	if _, err := strconv.ParseInt(text, 10, 64); err != nil {
		return "", false
	}
	return json.Number(text), true
}

// cutBytes shortens to limit bytes of whole characters.
func cutBytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
