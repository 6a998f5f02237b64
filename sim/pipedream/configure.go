package pipedream

import (
	"fmt"
	"net/http"
	"strings"
)

// choices is one page of choices as a component gives it.
type choices struct {
	options []any // plain values, {label,value} or {__lv}
	strings []any // stringOptions
	context any   // nil, or an object; how an app ends its list differs per app
	err     error // becomes errors of a 200
}

// configure answers POST actions/configure: the choices of one prop.
func (s *Server) configure(r request) answer {
	def, given := s.effective(r)
	if def == nil {
		return fail(http.StatusNotFound, "record not found")
	}
	a, refused := s.accountFor(r, def, given)
	if refused != nil {
		return *refused
	}
	var c choices
	switch {
	case a == nil:
		c.err = failure{name: "Error", message: "this prop has no choices"}
	case !a.Healthy:
		c.err = failure{name: "Error", message: "invalid_grant"}
	default:
		args, _ := arguments(def, given)
		c = a.world.choices(ask{key: r.text("id"), prop: r.text("prop_name"), args: args, query: strings.ToLower(r.text("query")),
			page: number(r.body["page"]), previous: r.body["prev_context"], broken: r.trap})
	}
	return ok(c.answer())
}

// answer is the documented form: both lists may be null, failures are a 200 with errors.
func (c choices) answer() object {
	out := object{"observations": []any{}, "context": c.context, "options": nil, "errors": []any{}, "stringOptions": nil,
		"timings": object{"example": 1790000000000.1}}
	if c.options != nil {
		out["options"] = c.options
	}
	if c.strings != nil {
		out["stringOptions"] = c.strings
	}
	var f failure
	if c.err != nil {
		f, _ = c.err.(failure)
		out["context"], out["observations"] = nil, []any{observation(f)}
		out["errors"] = []any{fmt.Sprintf(`{"name":%q,"message":%q,"stack":"(stack left out)"}`, f.name, f.message)}
	}
	return out
}

// Option traps are shapes of a configure answer that is good in form. They are set as faults on actions/configure.
const (
	OptionErrors   Shape = "option_errors"   // errors as plain text
	OptionObserved Shape = "option_observed" // only an error observation
	OptionToken    Shape = "option_token"    // a token that never changes, the same values
	OptionSame     Shape = "option_same"     // a new token every time, the same values
	OptionEndless  Shape = "option_endless"  // new values without end
	OptionKinds    Shape = "option_kinds"    // numbers, null, __lv, strings, an overlong value and a label with control characters
)

// trapped gives the choices of a trap.
func trapped(trap Shape, page int) choices {
	fixed := []any{object{"label": "One", "value": "one"}, object{"label": "Two", "value": "two"}}
	switch trap {
	case OptionErrors:
		return choices{err: failure{message: "the app said no"}}
	case OptionToken:
		return choices{options: fixed, context: object{"nextPageToken": "same"}}
	case OptionSame:
		return choices{options: fixed, context: object{"nextPageToken": fmt.Sprint("token", page)}}
	case OptionEndless:
		return choices{options: []any{object{"label": fmt.Sprint("Value ", page), "value": fmt.Sprint("value-", page)}},
			context: object{"nextPageToken": fmt.Sprint("token", page)}}
	}
	return choices{options: []any{
		1, nil, object{"label": "Two", "value": 2}, object{"__lv": object{"label": "Three", "value": "three"}},
		object{"label": "bad\u202elabel\u0007", "value": "four"}, object{"label": "Long", "value": strings.Repeat("v", 1500)},
	}, strings: []any{"five"}}
}

// ask is one question for choices.
type ask struct {
	key, prop string
	args      object // of the props before this one, as the caller sent them
	query     string
	page      int
	previous  any // prev_context
	broken    Shape
}

// choices gives the choices a world has. Each app ends its lists in its own way, and starts over in its own way.
func (w *world) choices(q ask) choices {
	if q.broken != "" {
		return trapped(q.broken, q.page)
	}
	switch {
	case w.calendar != nil:
		return w.calendar.choices(q)
	case w.mail != nil:
		return w.mail.choices(q)
	case w.notes != nil:
		return w.notes.choices(q)
	case w.booking != nil:
		return w.booking.choices(q)
	}
	return choices{err: failure{name: "Error", message: "this prop has no choices"}}
}

// token reads one string of a prev_context; false, null and absent are the empty one.
func token(previous any, name string) string {
	obj, _ := previous.(object)
	t, _ := obj[name].(string)
	return t
}

// option is the usual {label,value}.
func option(label string, value any) object { return object{"label": label, "value": value} }

// number reads a JSON number.
func number(v any) int {
	n, _ := v.(float64)
	return int(n)
}
