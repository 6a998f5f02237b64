package anthropic

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Result is a tool result as the model got it. Of a result with structured content the CLI shows the model only the JSON,
// as a string; of a failed one only the texts (measured).
type Result struct {
	Text    string // all texts, joined by newlines
	IsError bool
	JSON    any  // the first text that is a JSON object or array; nil if none is
	Missing bool // the tool is not within reach: nothing was called
}

func newResult(c Content) Result {
	r := Result{IsError: c.IsError, Text: c.Content.text()}
	texts := []string{r.Text}
	for _, b := range c.Content {
		texts = append(texts, b.Text)
	}
	for _, text := range texts {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
			if json.Unmarshal([]byte(text), &r.JSON) == nil {
				break
			}
		}
	}
	return r
}

// field is a string at the top of the JSON, or "".
func (r Result) field(name string) string {
	top, _ := r.JSON.(object)
	text, _ := top[name].(string)
	return text
}

var (
	waits     = regexp.MustCompile(`^(pendiente de|pending|waiting for)\b`)
	technical = regexp.MustCompile(`(?i)https?://|error posting|inputvalidation|<tool_use_error>|no such tool|stack|exception|json|mcp`)
	link      = regexp.MustCompile(`https?://[^\s"<>)\]]+`)
)

// Pending tells whether the call waits for somebody's button.
func (r Result) Pending() bool {
	status := r.field("status")
	return slices.Contains([]string{"pending", "held", "confirm", "hold", "waiting"}, status) || waits.MatchString(fold(r.Sentence()).text)
}

// Failed tells whether the call did not do what was asked.
func (r Result) Failed() bool {
	status := r.field("status")
	return r.IsError || slices.Contains([]string{"error", "failed", "refused", "denied", "unknown", "expired"}, status)
}

// Sentence is what the result says to a person: its first plain text, or the sentence in its JSON; "" if there is none.
func (r Result) Sentence() string {
	for line := range strings.SplitSeq(r.Text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "{") && !strings.HasPrefix(line, "[") {
			return line
		}
	}
	for _, name := range []string{"message", "sentence", "text", "mensaje", "reason", "note", "warning", "summary"} {
		if text := r.field(name); text != "" {
			return text
		}
	}
	found := ""
	r.walk(func(o object) {
		for _, name := range slices.Sorted(maps.Keys(o)) {
			if text, ok := o[name].(string); ok && found == "" && waits.MatchString(fold(text).text) {
				found = text
			}
		}
	})
	return found
}

// presentable is Sentence unless it is nothing for a person to read.
func (r Result) presentable() string {
	if text := r.Sentence(); !technical.MatchString(text) && len(text) <= 500 {
		return text
	}
	return ""
}

// Link is the first web address in the result, or "".
func (r Result) Link() string {
	return strings.TrimRight(link.FindString(r.Text), ".,;")
}

// walk visits every object of the JSON, outer before inner, in a fixed order.
func (r Result) walk(visit func(object)) {
	var down func(any)
	down = func(v any) {
		switch v := v.(type) {
		case object:
			visit(v)
			for _, name := range slices.Sorted(maps.Keys(v)) {
				down(v[name])
			}
		case []any:
			for _, inner := range v {
				down(inner)
			}
		}
	}
	down(r.JSON)
}

// objects gives the objects that have all of the given fields.
func (r Result) objects(fields ...string) []object {
	var out []object
	r.walk(func(o object) {
		for _, f := range fields {
			if _, ok := o[f]; !ok {
				return
			}
		}
		out = append(out, o)
	})
	return out
}

// first is the first of the fields that is a non-empty string.
func first(o object, fields ...string) string {
	for _, f := range fields {
		if text, ok := o[f].(string); ok && text != "" {
			return text
		}
	}
	return ""
}

// lists gives the arrays at the top of the JSON, or one level below.
func (r Result) lists() [][]any {
	if list, ok := r.JSON.([]any); ok {
		return [][]any{list}
	}
	var out [][]any
	top, _ := r.JSON.(object)
	for _, name := range slices.Sorted(maps.Keys(top)) {
		switch v := top[name].(type) {
		case []any:
			out = append(out, v)
		case object:
			for _, inner := range slices.Sorted(maps.Keys(v)) {
				if list, ok := v[inner].([]any); ok {
					out = append(out, list)
				}
			}
		}
	}
	return out
}
