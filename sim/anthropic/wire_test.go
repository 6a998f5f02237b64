package anthropic_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/sim/anthropic"
)

// ask is the smallest good request.
func ask(text string) object {
	return object{"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": []object{{"role": "user", "content": text}}}
}

type sse struct {
	name string
	data object
}

// events reads a stream strictly: event, data, empty line.
func events(t *testing.T, body []byte) []sse {
	t.Helper()
	var out []sse
	lines := bufio.NewReader(bytes.NewReader(body))
	for {
		first, err := lines.ReadString('\n')
		if first == "" && err != nil {
			return out
		}
		second, _ := lines.ReadString('\n')
		third, _ := lines.ReadString('\n')
		name, isEvent := strings.CutPrefix(strings.TrimSuffix(first, "\n"), "event: ")
		data, isData := strings.CutPrefix(second, "data: ")
		e := sse{name: name}
		if !isEvent || !isData || third != "\n" || json.Unmarshal([]byte(data), &e.data) != nil {
			t.Fatalf("no server-sent event: %q %q %q", first, second, third)
		}
		out = append(out, e)
	}
}

func TestAStreamHasTheApisShape(t *testing.T) {
	script := anthropic.Script{
		Name:  "both",
		Match: func(anthropic.Turn) bool { return true },
		Play: func(anthropic.Turn) []anthropic.Block {
			return []anthropic.Block{anthropic.Text("¡Voy ya mismo!"), anthropic.Use("Bash", object{"command": "echo <ñ> & \"x\""})}
		},
	}
	_, url := serve(t, anthropic.Config{Scripts: []anthropic.Script{script}})
	body := ask("hola")
	body["stream"] = true
	resp, answer := post(t, url+"/v1/messages", "sim-key", body)
	if got := resp.Header.Get("content-type"); got != "text/event-stream; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
	all := events(t, answer)
	var order []string
	text, input := "", ""
	for _, e := range all {
		if e.data["type"] != e.name {
			t.Errorf("event %s carries type %v", e.name, e.data["type"])
		}
		if n := len(order); n == 0 || order[n-1] != e.name {
			order = append(order, e.name)
		}
		if delta, ok := e.data["delta"].(object); ok && e.name == "content_block_delta" {
			if piece, ok := delta["text"].(string); ok {
				text += piece
			}
			if piece, ok := delta["partial_json"].(string); ok {
				input += piece
			}
		}
	}
	want := []string{
		"message_start", "content_block_start", "ping", "content_block_delta", "content_block_stop",
		"content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
	if text != "¡Voy ya mismo!" || input != `{"command":"echo <ñ> & \"x\""}` {
		t.Errorf("text %q, input %q", text, input)
	}
	start := all[0].data["message"].(object)
	if start["stop_reason"] != nil || !cmp.Equal(start["content"], []any{}) || start["role"] != "assistant" || start["model"] != "claude-sonnet-5-5" ||
		!strings.HasPrefix(start["id"].(string), "msg_") {
		t.Errorf("message_start %v", start)
	}
	last := all[len(all)-2].data
	if diff := cmp.Diff(object{"stop_reason": "tool_use", "stop_sequence": nil}, last["delta"]); diff != "" {
		t.Error(diff)
	}
	if usage := last["usage"].(object); usage["output_tokens"].(float64) < 5 || usage["input_tokens"].(float64) < 5 {
		t.Errorf("usage %v", usage)
	}
}

func TestWithoutStreamTheSameMessageComesWhole(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	_, body := post(t, url+"/v1/messages", "sim-key", ask("hola"))
	var got object
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	id, _ := got["id"].(string)
	usage := got["usage"]
	delete(got, "id")
	delete(got, "usage")
	want := object{
		"type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "stop_reason": "end_turn", "stop_sequence": nil,
		"content": []any{object{"type": "text", "text": "¡Hola! ¿En qué te ayudo?"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(id, "msg_") || usage == nil {
		t.Errorf("id %q, usage %v, %s", id, usage, diff)
	}
	_, again := post(t, url+"/v1/messages", "sim-key", ask("hola"))
	if bytes.Contains(again, []byte(id)) {
		t.Error("a repeated request has the first one's id")
	}
}

func TestWhatTheApiRefusesIsRefused(t *testing.T) {
	use := object{"role": "assistant", "content": []object{{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": object{}}}}
	result := object{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}}}
	user := object{"role": "user", "content": "hola"}
	with := func(field string, value any) object {
		body := ask("hola")
		body[field] = value
		return body
	}
	tests := []struct {
		name, key string
		body      any
		status    int
		kind, say string
	}{
		{"no key", "", ask("hola"), 401, "authentication_error", "x-api-key header is required"},
		{"a wrong key", "sk-other", ask("hola"), 401, "authentication_error", "invalid x-api-key"},
		{"no JSON", "sim-key", "{", 400, "invalid_request_error", "The request body is not valid JSON"},
		{"no model", "sim-key", with("model", ""), 400, "invalid_request_error", "model: Field required"},
		{"no max_tokens", "sim-key", with("max_tokens", 0), 400, "invalid_request_error", "max_tokens"},
		{"no messages", "sim-key", with("messages", []object{}), 400, "invalid_request_error", "messages: at least one"},
		{"an assistant first", "sim-key", with("messages", []object{use, result}), 400, "invalid_request_error", "first message"},
		{"an unknown role", "sim-key", with("messages", []object{user, {"role": "tool", "content": "x"}}), 400, "invalid_request_error", "messages.1.role"},
		{"an empty text", "sim-key", with("messages", []object{{"role": "user", "content": ""}}), 400, "invalid_request_error", "text content blocks must be non-empty"},
		{"a tool use without result", "sim-key", with("messages", []object{user, use}), 400, "invalid_request_error", "without `tool_result`"},
		{"a result without tool use", "sim-key", with("messages", []object{user, result}), 400, "invalid_request_error", "unexpected `tool_use_id`"},
		{"a tool twice", "sim-key", with("tools", []object{tool("a"), tool("a")}), 400, "invalid_request_error", "must be unique"},
		{"a tool name with a dot", "sim-key", with("tools", []object{tool("a.b")}), 400, "invalid_request_error", "tools.0.name"},
		{"a schema that is no object", "sim-key", with("tools", []object{{"name": "a", "input_schema": object{"type": "string"}}}), 400, "invalid_request_error", "input_schema"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, url := serve(t, anthropic.Config{})
			resp, body := post(t, url+"/v1/messages", tt.key, tt.body)
			var got struct {
				Type  string
				Error struct{ Type, Message string }
			}
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || got.Type != "error" || got.Error.Type != tt.kind || !strings.Contains(got.Error.Message, tt.say) {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
			if r := s.Requests(); len(r) != 1 || r[0].Status != tt.status {
				t.Errorf("recorded %d requests", len(r))
			}
		})
	}
}

func TestUnknownFieldsAndBlocksAreNobodysProblem(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	body := ask("hola")
	body["thinking"] = object{"type": "adaptive", "display": "updates"}
	body["new_thing"] = object{"a": 1}
	body["tools"] = []object{{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}}
	body["messages"] = []object{
		{"role": "user", "content": []object{{"type": "document", "source": object{"type": "text", "data": "x"}}, {"type": "text", "text": "hola"}}},
		{"role": "assistant", "content": []object{
			{"type": "thinking", "thinking": "…", "signature": "x"},
			{"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": object{"type": "web_search_tool_result_error"}},
		}},
		{"role": "user", "content": "gracias"},
		{"role": "system", "content": []object{{"type": "tool_addition", "tool": object{"type": "tool_reference", "name": "x"}}}},
	}
	resp, answer := post(t, url+"/v1/messages?beta=true", "sim-key", body)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(answer), "¡De nada!") {
		t.Errorf("got %d %s", resp.StatusCode, answer)
	}
}

func TestACompactedConversationGoesOn(t *testing.T) {
	s, url := serve(t, anthropic.Config{})
	body := ask("hola")
	use := object{"role": "assistant", "content": []object{{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": object{}}}}
	result := object{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
	body["messages"] = []object{{"role": "user", "content": "borrá la reunión"}, use, {"role": "user", "content": []object{
		result, {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY.\n\nYour task is to create a detailed summary of the conversation so far, …"},
	}}}
	if _, answer := post(t, url+"/v1/messages", "sim-key", body); !strings.Contains(string(answer), `borrá la reunión`) {
		t.Errorf("summary %s", answer)
	}
	body["messages"] = []object{ // what the CLI makes of it, an empty system message included
		{"role": "user", "content": "This session is being continued from a previous conversation that ran out of context. borrá la reunión"},
		{"role": "system", "content": []object{}},
		{"role": "assistant", "content": "ok"},
		{"role": "user", "content": []object{
			{"type": "text", "text": "<local-command-caveat>borrá la reunión</local-command-caveat>\n"},
			{"type": "text", "text": "<command-name>/compact</command-name>\n  <command-message>compact</command-message>\n"},
			{"type": "text", "text": "hola"},
		}},
	}
	if resp, answer := post(t, url+"/v1/messages", "sim-key", body); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	got := s.Requests()
	if got[0].Script != "compact" || got[1].Text != "hola" {
		t.Errorf("script %q, text %q", got[0].Script, got[1].Text)
	}
}

func TestTheSmallEndpoints(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	resp, body := post(t, url+"/v1/messages/count_tokens?beta=true", "sim-key", object{"model": "m", "messages": []object{{"role": "user", "content": strings.Repeat("x", 4000)}}})
	var counted struct {
		InputTokens int `json:"input_tokens"`
	}
	if err := json.Unmarshal(body, &counted); err != nil || resp.StatusCode != 200 || counted.InputTokens < 1000 || counted.InputTokens > 1100 {
		t.Errorf("count_tokens: %d %s", resp.StatusCode, body)
	}
	for _, tt := range []struct {
		method, path string
		status       int
	}{{"HEAD", "/api/hello", 200}, {"GET", "/api/hello", 200}, {"GET", "/v1/models", 200}, {"GET", "/v1/messages", 404}, {"POST", "/v1/complete", 404}} {
		req, _ := http.NewRequest(tt.method, url+tt.path, nil)
		req.Header.Set("authorization", "Bearer sim-key")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, resp.StatusCode, tt.status)
		}
	}
}

func TestTheRecordHasTheRequestButNotTheKey(t *testing.T) {
	at := clock(t, "2026-11-30T12:00:00Z")
	s, url := serve(t, anthropic.Config{Now: at, Key: "sk-secret-1"})
	a := newAgent(t, url).calendarTools()
	a.key = "sk-secret-1"
	a.tools = []object{tool("correo_enviar", "para:array", "asunto", "cuerpo")}
	a.say("hola")
	got := s.Requests()
	if len(got) != 1 {
		t.Fatalf("%d requests", len(got))
	}
	r := got[0]
	if !r.At.Equal(at()) || r.Path != "/v1/messages?beta=true" || r.Text != "hola" || r.Script != "hello" || r.Status != 200 || r.Model != "claude-sonnet-5-5" {
		t.Errorf("recorded %+v", r)
	}
	if !strings.Contains(r.System, founding) || len(r.Body) == 0 || len(r.Deferred) != 5 {
		t.Errorf("system %q, body %d bytes, deferred %v", r.System, len(r.Body), r.Deferred)
	}
	if diff := cmp.Diff([]string{prefix + "correo_enviar", "ToolSearch"}, r.Tools); diff != "" {
		t.Error(diff)
	}
	if key := r.Header.Get("x-api-key"); !strings.HasPrefix(key, "sha256:") || strings.Contains(key, "secret") {
		t.Errorf("recorded key %q", key)
	}
	var shown []object
	_, body := getJSON(t, url+"/sim/requests", &shown)
	if strings.Contains(string(body), "secret") || shown[0]["text"] != "hola" {
		t.Errorf("shown %s", body)
	}
}

func getJSON(t *testing.T, url string, into any) (int, []byte) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), into); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.Bytes()
}

// said waits for Run to tell where it listens.
type said chan string

func (s said) Write(p []byte) (int, error) { s <- string(p); return len(p), nil }

func TestRunServesUntilItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	log, done := make(said, 1), make(chan error, 1)
	go func() { done <- anthropic.Run(ctx, "127.0.0.1:0", anthropic.Config{}, log) }()
	url := strings.TrimSpace(strings.TrimPrefix(<-log, "model stand-in on "))
	if status, _ := getJSON(t, url+"/api/hello", &object{}); status != 200 {
		t.Errorf("hello: %d", status)
	}
	// a silent stream must not keep it from ending
	if resp, body := post(t, url+"/sim/fault", "", object{"silent": true}); resp.StatusCode != 204 {
		t.Fatalf("fault: %d %s", resp.StatusCode, body)
	}
	body, _ := json.Marshal(object{"model": "m", "max_tokens": 1, "stream": true, "messages": []object{{"role": "user", "content": "hola"}}})
	req, _ := http.NewRequest("POST", url+"/v1/messages", bytes.NewReader(body))
	req.Header = http.Header{"X-Api-Key": {"sim-key"}, "Content-Type": {"application/json"}, "Anthropic-Version": {"2023-06-01"}}
	resp, err := http.DefaultClient.Do(req) // returns with the first bytes
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run does not end")
	}
}
