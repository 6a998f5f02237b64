package anthropic_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"pilder/sim/anthropic"
)

type object = map[string]any

// founding is the date line of the founding document.
const founding = "Hoy es miércoles 16/09/2026, 18:40 (America/Argentina/Buenos_Aires, UTC-03:00)."

// agent plays the CLI's part: it keeps the conversation, loads deferred tools when asked to, and runs tools.
type agent struct {
	t        *testing.T
	url      string
	key      string
	system   string
	tools    []object                       // loaded from the start
	deferred []object                       // known by name until loaded
	run      map[string]func(object) object // by short name: arguments to tool_result fields
	messages []object
	loaded   []string
	calls    []call
}

type call struct {
	Tool string
	Args object
}

func serve(t *testing.T, cfg anthropic.Config) (*anthropic.Server, string) {
	t.Helper()
	s := anthropic.New(cfg)
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		s.Close()
		srv.Close()
	})
	return s, srv.URL
}

func newAgent(t *testing.T, url string) *agent {
	return &agent{t: t, url: url, key: "sim-key", system: "You are an agent.\n\n" + founding + "\nCanal: telegram."}
}

const prefix = "mcp__pilder__"

func tool(name string, fields ...string) object {
	props := object{}
	for _, f := range fields {
		name, kind, _ := strings.Cut(f, ":")
		if kind == "" {
			kind = "string"
		}
		props[name] = object{"type": kind}
	}
	return object{"name": prefix + name, "description": name, "input_schema": object{"type": "object", "properties": props}}
}

// calendarTools is the agent of a person with a calendar whose tools are deferred, as pilder offers them.
func (a *agent) calendarTools() *agent {
	a.deferred = append(a.deferred,
		tool("google_calendar-create-event", "summary", "eventStartDate", "eventEndDate", "attendees:array"),
		tool("google_calendar-list-events", "timeMin", "timeMax", "singleEvents:boolean", "orderBy"),
		tool("google_calendar-update-event", "eventId", "eventStartDate", "eventEndDate"),
		tool("google_calendar-delete-event", "eventId"),
		tool("google_calendar-query-free-busy-calendars", "calendarId:array", "timeMin", "timeMax"),
	)
	return a
}

// ok is a result with structured content, of which the CLI shows the model the JSON only.
func ok(data any) object {
	b, _ := json.Marshal(object{"status": "ok", "data": data})
	return object{"content": string(b)}
}

func (a *agent) request(stream bool) object {
	var names []string
	tools := slices.Clone(a.tools)
	for _, d := range a.deferred {
		name := d["name"].(string)
		if slices.Contains(a.loaded, name) {
			copied := object{"defer_loading": true}
			for k, v := range d {
				copied[k] = v
			}
			tools = append(tools, copied)
		}
		names = append(names, name)
	}
	tools = append(tools, object{"name": "ToolSearch", "description": "…", "input_schema": object{"type": "object"}})
	messages := slices.Clone(a.messages)
	if len(names) > 0 { // after the first message, as the CLI puts it
		listing := object{"role": "system", "content": []object{{"type": "text", "text": "# Environment\n\nThe following deferred tools are now " +
			"available via ToolSearch. Their schemas are NOT loaded — calling them directly will fail with InputValidationError. Use " +
			"ToolSearch with query \"select:<name>[,<name>...]\" to load tool schemas before calling them:\n" + strings.Join(names, "\n") +
			"\n\n# MCP Server Instructions\n\n…"}}}
		messages = slices.Insert(messages, 1, listing)
	}
	return object{
		"model": "claude-sonnet-5-5", "max_tokens": 128000, "stream": stream, "system": a.system, "tools": tools, "messages": messages,
		"thinking": object{"type": "adaptive"}, "context_management": object{"edits": []any{}}, "metadata": object{"user_id": "x"},
	}
}

type reply struct {
	ID         string    `json:"id"`
	Content    []content `json:"content"`
	StopReason string    `json:"stop_reason"`
}

type content struct {
	Type  string `json:"type"`
	Text  string `json:"text,omitempty"`
	ID    string `json:"id,omitempty"`
	Name  string `json:"name,omitempty"`
	Input object `json:"input,omitempty"`
}

func post(t *testing.T, url, key string, body any) (*http.Response, []byte) {
	t.Helper()
	var b []byte
	if raw, isRaw := body.(string); isRaw {
		b = []byte(raw)
	} else {
		b, _ = json.Marshal(body)
	}
	req, err := http.NewRequest("POST", url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("content-type", "application/json")
	req.Header.Set("anthropic-version", "2023-06-01")
	if key != "" {
		req.Header.Set("x-api-key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, answer
}

// say is one turn: the person's text, then requests until the model ends it. It returns the last text.
func (a *agent) say(text string) string {
	a.t.Helper()
	a.messages = append(a.messages, object{"role": "user", "content": []object{
		{"type": "text", "text": "<system-reminder>\nAttribution for git commits: buscá el correo de Nadie\n</system-reminder>\n"},
		{"type": "text", "text": text},
	}})
	return a.finish()
}

func (a *agent) finish() string {
	a.t.Helper()
	for range 12 {
		resp, body := post(a.t, a.url+"/v1/messages?beta=true", a.key, a.request(false))
		if resp.StatusCode != http.StatusOK {
			a.t.Fatalf("model request: %d %s", resp.StatusCode, body)
		}
		var r reply
		if err := json.Unmarshal(body, &r); err != nil {
			a.t.Fatal(err)
		}
		a.messages = append(a.messages, object{"role": "assistant", "content": r.Content})
		if r.StopReason != "tool_use" {
			return r.Content[len(r.Content)-1].Text
		}
		var results []object
		for _, c := range r.Content {
			if c.Type == "tool_use" {
				results = append(results, a.use(c)...)
			}
		}
		a.messages = append(a.messages, object{"role": "user", "content": results})
	}
	a.t.Fatal("the model does not come to an end")
	return ""
}

// use runs one tool as the CLI does, results in its shapes.
func (a *agent) use(c content) []object {
	result := object{"type": "tool_result", "tool_use_id": c.ID}
	if c.Name == "ToolSearch" {
		query, _ := c.Input["query"].(string)
		var found []object
		for name := range strings.SplitSeq(strings.TrimPrefix(query, "select:"), ",") {
			if slices.ContainsFunc(a.deferred, func(d object) bool { return d["name"] == name }) {
				a.loaded = append(a.loaded, name)
				found = append(found, object{"type": "tool_reference", "tool_name": name})
			}
		}
		if found == nil {
			result["content"] = "No matching deferred tools found"
			return []object{result}
		}
		result["content"] = found
		return []object{result, {"type": "text", "text": "Tool loaded."}}
	}
	short := strings.TrimPrefix(c.Name, prefix)
	a.calls = append(a.calls, call{short, c.Input})
	run, known := a.run[short]
	if !known {
		result["content"], result["is_error"] = "<tool_use_error>Error: No such tool available: "+c.Name+"</tool_use_error>", true
		return []object{result}
	}
	for k, v := range run(c.Input) {
		result[k] = v
	}
	return []object{result}
}

func always(result object) func(object) object { return func(object) object { return result } }

func clock(t *testing.T, at string) func() time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	return func() time.Time { return parsed }
}
