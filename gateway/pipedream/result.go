package pipedream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// Limits of a result, so that text and structured part together stay under 32 KiB.
const (
	maxResult  = 16 << 10 // bytes of the structured part
	maxData    = 12 << 10 // bytes of data within it
	maxSummary = 500      // characters
	maxDepth   = 6
)

// size is how much of a return is passed on.
type size struct{ text, items int }

// sizes are tried in order until data fits.
func sizes() []size { return []size{{2000, 25}, {800, 25}, {500, 10}, {200, 5}, {100, 2}} }

// omission says that a list was cut: where, how long it is, and how much of it is there.
type omission struct {
	Path  string `json:"path"`
	Total int    `json:"total"`
	Shown int    `json:"shown"`
}

// report makes the result of a run that worked: the summary for people, and the return cut down to what the house lists
// and what fits. Nothing else of the answer is passed on.
func (a *action) report(lang string, p performed) gateway.Result {
	text := clean(p.summary, maxSummary)
	if text == "" {
		text = policy.Text{ES: "Hecho en %s.", EN: "Done in %s."}.In(lang)
		if a.Class == policy.ClassRead {
			text = policy.Text{ES: "Esto es lo que hay en %s.", EN: "This is what is in %s."}.In(lang)
		}
		text = fmt.Sprintf(text, a.app.Name.In(lang))
	}
	data, omitted, truncated := a.shrink(p.ret)
	for _, o := range omitted {
		text += " " + fmt.Sprintf(policy.Text{ES: "(Se muestran %d de %d.)", EN: "(%d of %d are shown.)"}.In(lang), o.Shown, o.Total)
		break // the first is the outermost; the rest is in the structured part
	}
	body := ordered{{"status", "ok"}, {"action", a.key}, {"message", text}, {"data", data}, {"truncated", truncated}}
	if len(omitted) > 0 {
		body = append(body, member{"omitted", omitted})
	}
	if p.warning {
		body = append(body, member{"warning", policy.Text{
			ES: "Se hizo, pero la app avisó de un problema en un paso secundario.",
			EN: "It was done, but the app reported a problem in a side step."}.In(lang)})
	}
	structured, _ := encode(body) // decoded JSON and texts: cannot fail
	full := text
	if data != nil {
		raw, _ := encode(data)
		full += "\n" + string(raw)
	}
	return gateway.Result{Outcome: store.OutcomeDone, Text: full, Structured: structured, Code: "ok"}
}

// shrink cuts a return down until it fits.
func (a *action) shrink(ret json.RawMessage) (data any, omitted []omission, truncated bool) {
	whole := decodeNumbers(ret)
	if whole == nil {
		return nil, nil, false
	}
	whole = a.keep(withoutHTTP(whole))
	for _, s := range sizes() {
		c := cutter{size: s}
		data = c.cut(whole, "/data", 0)
		raw, err := encode(data)
		if err == nil && len(raw) <= maxData {
			return data, c.omitted, c.truncated
		}
	}
	return nil, nil, true
}

// withoutHTTP unwraps a whole HTTP answer that some actions return: only status and data are the app's word.
func withoutHTTP(v any) any {
	object, isObject := v.(map[string]any)
	if !isObject {
		return v
	}
	_, status := object["status"].(json.Number)
	_, headers := object["headers"]
	_, config := object["config"]
	if !status || !headers && !config {
		return v
	}
	return map[string]any{"status": object["status"], "data": object["data"]}
}

// keep picks the fields the house lists, of the value or of each item of a list.
func (a *action) keep(v any) any {
	if len(a.Keep) == 0 {
		return v
	}
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = a.keep(v[i])
		}
		return out
	case map[string]any:
		if list, isList := v["messages"].([]any); isList {
			// Long mail lists come as an object around the list.
			out := maps.Clone(v)
			out["messages"] = a.keep(list)
			return out
		}
		out := map[string]any{}
		for _, path := range a.Keep {
			path, names, _ := strings.Cut(path, ":")
			pick(v, out, strings.Split(path, "."), names)
		}
		return out
	}
	return v
}

// pick copies what is at path, if anything. names, "From,To", keep of a list of {name, value} only those.
func pick(from, into map[string]any, path []string, names string) {
	v, there := from[path[0]]
	if !there || v == nil {
		return
	}
	if len(path) > 1 {
		inner, isObject := v.(map[string]any)
		if !isObject {
			return
		}
		kept, _ := into[path[0]].(map[string]any)
		if kept == nil {
			kept = map[string]any{}
		}
		pick(inner, kept, path[1:], names)
		if len(kept) > 0 {
			into[path[0]] = kept
		}
		return
	}
	if list, isList := v.([]any); isList && names != "" {
		v = slices.DeleteFunc(slices.Clone(list), func(e any) bool {
			object, _ := e.(map[string]any)
			name, _ := object["name"].(string)
			return !slices.ContainsFunc(strings.Split(names, ","), func(n string) bool { return strings.EqualFold(n, name) })
		})
	}
	into[path[0]] = v
}

// cutter shortens one value and remembers what it left out.
type cutter struct {
	size
	omitted   []omission
	truncated bool
}

func (c *cutter) cut(v any, path string, depth int) any {
	switch v := v.(type) {
	case string:
		return c.cutText(v)
	case []any:
		if depth >= maxDepth {
			c.truncated = true
			return nil
		}
		shown := v[:min(len(v), c.items)]
		if len(shown) < len(v) {
			c.truncated = true
			if len(c.omitted) < 10 {
				c.omitted = append(c.omitted, omission{gateway.CutRunes(path, 80), len(v), len(shown)})
			}
		}
		out := make([]any, len(shown))
		for i := range shown {
			out[i] = c.cut(shown[i], fmt.Sprintf("%s/%d", path, i), depth+1)
		}
		return out
	case map[string]any:
		if depth >= maxDepth {
			c.truncated = true
			return nil
		}
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if !secretName(k) {
				out[clean(k, 100)] = c.cut(v[k], path+"/"+gateway.CutRunes(k, 60), depth+1)
			}
		}
		return out
	}
	return v
}

// secretName tells the provider's own fields that may stray into a return.
func secretName(k string) bool {
	switch k {
	case "$auth", "authProvisionId", "$filestash_uploads", "get_url", "stash_id", "stashId", "debug_config":
		return true
	}
	return false
}

// cutText cleans a text of the app but keeps its lines: a mail reads badly without.
func (c *cutter) cutText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && r != '\u200d' && !unicode.IsSpace(r) && gateway.Unseen(r) || r == '\r' {
			return -1
		}
		return r
	}, scrub(text))
	short := gateway.CutRunes(text, c.text)
	if short != text {
		c.truncated = true
	}
	return short
}

// sortedAtMost sorts lines and keeps n of them.
func sortedAtMost(lines []string, n int) []string {
	slices.Sort(lines)
	return lines[:min(len(lines), n)]
}
