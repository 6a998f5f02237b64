package upstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// Limits of a result, so that text and structured part each stay under what the gateway lets through.
const (
	maxData  = 16 << 10 // bytes
	maxDepth = 12
)

// size is how much of a result is passed on.
type size struct{ text, items int }

// sizes are tried in order until the data fits.
func sizes() []size {
	return []size{{12_000, 200}, {4000, 100}, {2000, 50}, {800, 25}, {400, 10}, {200, 5}, {80, 2}}
}

// omission says that something was cut: where, how long it is in items or characters, and how much of it is there.
type omission struct {
	Path  string `json:"path"`
	Total int    `json:"total"`
	Shown int    `json:"shown"`
}

// toolResult is what a call came to at the upstream.
type toolResult struct {
	Kind       string            `json:"resultType"`
	Content    []json.RawMessage `json:"content"`
	Structured json.RawMessage   `json:"structuredContent"`
	IsError    bool              `json:"isError"`
}

// block is one part of a result's content.
type block struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Data        string `json:"data"`
	MIME        string `json:"mimeType"`
	URI         string `json:"uri"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Resource    struct {
		URI  string  `json:"uri"`
		MIME string  `json:"mimeType"`
		Text *string `json:"text"`
		Blob string  `json:"blob"`
	} `json:"resource"`
}

// report makes the result of a call that was answered: the data, cut down by whole items until it fits, and how much of it is
// missing. Nothing else of the answer is passed on.
func (c *Connector) report(call gateway.Call, u *server, t *tool, raw json.RawMessage) gateway.Result {
	var r toolResult
	if json.Unmarshal(raw, &r) != nil {
		return c.say(call, u.troubleOf(t, errLie))
	}
	if r.Kind == "input_required" { // it asks something back; nobody is there to be asked
		return c.say(call, &trouble{code: codeAppRefused, class: t.class, app: u.Name})
	}
	if r.IsError {
		return c.say(call, &trouble{code: codeAppRefused, class: t.class, app: u.Name, unknown: t.class != policy.ClassRead, appText: plainText(r.Content)})
	}
	whole := dataOf(r)
	data, omitted, truncated := shrink(whole)
	lang := call.Caller.Lang
	message := policy.Text{ES: "Hecho en %s.", EN: "Done in %s."}
	if t.class == policy.ClassRead {
		message = policy.Text{ES: "Esto es lo que hay en %s.", EN: "This is what is in %s."}
	}
	text := fmt.Sprintf(message.In(lang), u.Name.In(lang))
	if len(omitted) > 0 { // the first is the outermost; the rest is in the structured part
		text += " " + fmt.Sprintf(policy.Text{ES: "(Se muestran %d de %d; para ver el resto hay que pedir menos de una vez.)",
			EN: "(%d of %d are shown; to see the rest, ask for less at a time.)"}.In(lang), omitted[0].Shown, omitted[0].Total)
	}
	body := map[string]any{"status": "ok", "message": text, "data": data, "truncated": truncated}
	if len(omitted) > 0 {
		body["omitted"] = omitted
	}
	structured, _ := encode(body) // decoded JSON and texts: cannot fail
	return gateway.Result{Outcome: store.OutcomeDone, Text: withData(text, data), Structured: structured, Code: "ok"}
}

// withData is the message with the data under it, for clients that show only text.
func withData(text string, data any) string {
	switch v := data.(type) {
	case nil:
		return text
	case string:
		return text + "\n" + v
	}
	raw, _ := encode(data) // decoded JSON: cannot fail
	return text + "\n" + string(raw)
}

// plainText joins a result's texts.
func plainText(content []json.RawMessage) string {
	var lines []string
	for _, raw := range content {
		var b block
		if json.Unmarshal(raw, &b) == nil && b.Type == "text" {
			lines = append(lines, b.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// dataOf is what a result says: its structured part, else its blocks. A text that is JSON is read as that.
func dataOf(r toolResult) any {
	if v := decode(r.Structured); v != nil {
		return v
	}
	items := []any{}
	for _, raw := range r.Content {
		var b block
		if json.Unmarshal(raw, &b) == nil {
			items = append(items, b.value())
		}
	}
	switch len(items) {
	case 0:
		return nil
	case 1:
		return items[0]
	}
	return items
}

// value is a block as the model may see it: texts whole, everything else only described.
func (b block) value() any {
	described := func(kind, mime, uri string, bytes int) map[string]any {
		out := map[string]any{"type": kind}
		for name, value := range map[string]string{"mime": gateway.OneLine(mime, 80), "uri": gateway.OneLine(uri, 500), "name": gateway.OneLine(b.Name, 100), "description": gateway.OneLine(b.Description, 300)} {
			if value != "" {
				out[name] = value
			}
		}
		if bytes > 0 {
			out["bytes"], out["passed_on"] = bytes, false
		}
		return out
	}
	switch b.Type {
	case "text":
		if v := decode(json.RawMessage(b.Text)); v != nil && json.Valid([]byte(b.Text)) && strings.ContainsAny(b.Text[:1], "{[ \n") {
			return v
		}
		return b.Text
	case "resource":
		if b.Resource.Text != nil {
			out := described("resource", b.Resource.MIME, b.Resource.URI, 0)
			out["text"] = *b.Resource.Text
			return out
		}
		return described("resource", b.Resource.MIME, b.Resource.URI, len(b.Resource.Blob)*3/4)
	case "image", "audio", "resource_link":
		return described(b.Type, b.MIME, b.URI, len(b.Data)*3/4)
	}
	return map[string]any{"type": "other"}
}

// shrink cuts data down until it fits.
func shrink(whole any) (data any, omitted []omission, truncated bool) {
	if whole == nil {
		return nil, nil, false
	}
	for _, s := range sizes() {
		c := cutter{size: s}
		data = c.cut(whole, "/data", 0)
		if raw, err := encode(data); err == nil && len(raw) <= maxData {
			return data, c.omitted, c.truncated
		}
	}
	return nil, []omission{{"/data", 1, 0}}, true
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
		return c.cutText(v, path)
	case []any:
		if depth >= maxDepth {
			c.truncated = true
			return nil
		}
		shown := v[:min(len(v), c.items)]
		c.leave(path, len(v), len(shown))
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
		names := slices.Sorted(maps.Keys(v))
		shown := names[:min(len(names), 4*c.items)]
		c.leave(path, len(names), len(shown))
		out := make(map[string]any, len(shown))
		for _, k := range shown {
			out[gateway.OneLine(k, 100)] = c.cut(v[k], path+"/"+gateway.OneLine(k, 60), depth+1)
		}
		return out
	}
	return v
}

// leave notes that of so many only some are shown.
func (c *cutter) leave(path string, total, shown int) {
	if shown == total {
		return
	}
	c.truncated = true
	if len(c.omitted) < 10 {
		c.omitted = append(c.omitted, omission{gateway.CutRunes(path, 80), total, shown})
	}
}

// cutText cleans a text and keeps as many whole lines of it as there is room for; of a single long line, its beginning.
func (c *cutter) cutText(text, path string) string {
	text = cleanLines(text)
	if len(text) <= c.text {
		return text
	}
	short := strings.ToValidUTF8(text[:c.text], "")
	if end := strings.LastIndexByte(short, '\n'); end > c.text/2 {
		short = short[:end]
	}
	c.leave(path, len([]rune(text)), len([]rune(short)))
	return short + "…"
}
