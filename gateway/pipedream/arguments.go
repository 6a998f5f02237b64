package pipedream

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"pilder/gateway"
)

// maxArguments bounds the arguments of one call, in bytes.
const maxArguments = 64 << 10

// arguments are checked values of a call by the real names of their props, and what more_fields said.
type arguments struct {
	values map[string]any
	more   map[string]any // by safe name; nil when the argument was left out
}

// read checks the arguments of a call against the fields and the house's rules. problems are what a model can mend; none
// means that the arguments are good.
func (a *action) read(raw json.RawMessage) (arguments, []string) {
	if len(raw) > maxArguments {
		return arguments{}, []string{fmt.Sprintf("at most %d bytes of arguments", maxArguments)}
	}
	given, problems := map[string]any{}, []string(nil)
	if len(raw) > 0 {
		object, isObject := decodeNumbers(raw).(map[string]any)
		if !isObject {
			return arguments{}, []string{"one JSON object expected"}
		}
		given = object
	}
	out := arguments{}
	if a.reloads {
		if more, there := given[moreFields]; there && more != nil {
			object, isObject := more.(map[string]any)
			if !isObject {
				problems = append(problems, moreFields+": an object expected")
			}
			out.more = object
		}
		delete(given, moreFields)
	}
	var wrong []string
	out.values, wrong = take(a.fields, given)
	problems = append(problems, wrong...)
	if len(problems) == 0 {
		problems = a.breaks(out.values)
	}
	return out, problems
}

// take picks the values of fields out of given, by their safe names, and says what is wrong.
func take(fields []field, given map[string]any) (values map[string]any, problems []string) {
	values = map[string]any{}
	known := map[string]bool{}
	for _, f := range fields {
		known[f.safe] = true
		v, there := given[f.safe]
		if !there || f.absent(v) {
			if f.required {
				problems = append(problems, f.safe+": is required")
			}
			continue
		}
		accepted, problem := f.accept(v)
		if problem != "" {
			problems = append(problems, f.safe+": "+problem)
			continue
		}
		values[f.Name] = accepted
	}
	var unknown []string
	for name := range given {
		if !known[name] {
			unknown = append(unknown, gateway.CutRunes(name, 60)+": no such field")
		}
	}
	slices.Sort(unknown)
	return values, append(problems, unknown...)
}

// absent tells which values of an optional field stand for none: null, and "" where a closed list has no such value.
func (f field) absent(v any) bool {
	if v == nil {
		return true
	}
	return bool(f.Optional) && v == "" && f.closed != nil && !slices.Contains(f.closed, v)
}

// accept checks one value and gives it as it is sent, or says what is expected. 10.0 becomes 10; nothing else is changed.
func (f field) accept(v any) (any, string) {
	if !f.array {
		return f.acceptOne(v)
	}
	list, isList := v.([]any)
	if !isList {
		return nil, "a list expected"
	}
	out := make([]any, len(list))
	for i, e := range list {
		accepted, problem := f.acceptOne(e)
		if problem != "" {
			return nil, fmt.Sprintf("item %d: %s", i+1, problem)
		}
		out[i] = accepted
	}
	return out, ""
}

func (f field) acceptOne(v any) (any, string) {
	if f.kind != "" && !isKind(v, f.kind) {
		return nil, f.kind + " expected"
	}
	if f.kind == "integer" {
		n, _ := wholeNumber(v.(json.Number))
		if f.minimum != nil && less(n, *f.minimum) {
			return nil, "at least " + f.minimum.String()
		}
		if f.maximum != nil && less(*f.maximum, n) {
			return nil, "at most " + f.maximum.String()
		}
		v = n
	}
	if f.closed != nil && !slices.ContainsFunc(f.closed, func(c any) bool { return same(c, v) }) {
		var names []string
		for _, c := range f.closed {
			names = append(names, fmt.Sprint(c))
		}
		return nil, "one of " + strings.Join(names, ", ")
	}
	return v, ""
}

// less compares two JSON numbers.
func less(a, b json.Number) bool {
	x, okX := new(big.Float).SetString(a.String())
	y, okY := new(big.Float).SetString(b.String())
	return okX && okY && x.Cmp(y) < 0
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// breaks names the house's rules that values break.
func (a *action) breaks(values map[string]any) []string {
	var problems []string
	for _, r := range a.Rules {
		count := func(names []string) (n int) {
			for _, name := range names {
				if v, there := values[name]; there && !emptyList(v) {
					n++
				}
			}
			return n
		}
		switch {
		case count(r.AtMostOne) > 1:
			problems = append(problems, "give at most one of "+strings.Join(r.AtMostOne, ", "))
		case r.AtLeastOne != nil && count(r.AtLeastOne) == 0:
			problems = append(problems, "give at least one of "+strings.Join(r.AtLeastOne, ", "))
		case r.ExactlyOne != nil && count(r.ExactlyOne) != 1:
			problems = append(problems, "give exactly one of "+strings.Join(r.ExactlyOne, ", "))
		case r.SameLength != nil && !sameLength(values, r.SameLength):
			problems = append(problems, "these need the same number of entries: "+strings.Join(r.SameLength, ", "))
		case r.If != nil && holds(values, r.If) && !holds(values, r.Then):
			problems = append(problems, fmt.Sprintf("%s needs %s", spell(r.If), spell(r.Then)))
		}
	}
	return problems
}

func emptyList(v any) bool {
	list, isList := v.([]any)
	return isList && len(list) == 0
}

func sameLength(values map[string]any, names []string) bool {
	length := func(name string) int {
		list, _ := values[name].([]any)
		return len(list)
	}
	return !slices.ContainsFunc(names, func(n string) bool { return length(n) != length(names[0]) })
}

func holds(values, want map[string]any) bool {
	for name, v := range want {
		if fmt.Sprint(values[name]) != fmt.Sprint(v) {
			return false
		}
	}
	return true
}

func spell(want map[string]any) string {
	var parts []string
	for name, v := range want {
		parts = append(parts, fmt.Sprintf("%s=%v", name, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, " and ")
}

// configured is what is sent: the account, the values in force, defaults of what was not given, fixed values, and the
// form with label where the action reads the label.
func (a *action) configured(account string, fields []field, values map[string]any, label func(field, any) string) map[string]any {
	out := map[string]any{}
	for name, v := range a.fixed {
		out[name] = v
	}
	for _, f := range fields {
		v, given := values[f.Name]
		if !given {
			v = f.fallback
		}
		if v == nil {
			continue
		}
		if f.WithLabel {
			v = labelled(f, v, label)
		}
		out[f.Name] = v
	}
	if a.appProp != "" {
		out[a.appProp] = map[string]string{"authProvisionId": account}
	}
	return out
}

// labelled wraps a value, or each item, with the label the person saw; without one the value stands for itself.
func labelled(f field, v any, label func(field, any) string) any {
	one := func(v any) any {
		text := label(f, v)
		if text == "" {
			text = fmt.Sprint(v)
		}
		return map[string]any{"__lv": map[string]any{"label": text, "value": v}}
	}
	list, isList := v.([]any)
	if !isList || !f.array {
		return one(v)
	}
	out := make([]any, len(list))
	for i := range list {
		out[i] = one(list[i])
	}
	return out
}
