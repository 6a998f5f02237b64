package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Block is one piece of an answer: text, or one tool call.
type Block struct {
	Text  string
	Tool  string // full name, "mcp__pilder__correo_enviar"; empty for text
	Input any    // marshals to a JSON object; nil is {}
	// Direct sends the call as it is even if the tool is known by name only. Otherwise it is loaded first.
	Direct bool

	loading bool // a call of ToolSearch that the stand-in put before the script's own
}

// Text is a text block.
func Text(text string) Block { return Block{Text: text} }

// Use is a tool call.
func Use(tool string, input any) Block { return Block{Tool: tool, Input: input} }

// message is an answer in the API's shape.
type message struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        string  `json:"model"`
	Content      []any   `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        usage   `json:"usage"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type toolUseBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type usage struct {
	Input      int `json:"input_tokens"`
	CacheWrite int `json:"cache_creation_input_tokens"`
	CacheRead  int `json:"cache_read_input_tokens"`
	Output     int `json:"output_tokens"`
}

// tokens is how many tokens n bytes may be: about four bytes each.
func tokens(n int) int { return n/4 + 1 }

// loadingPrefix marks the ids of tool calls that only load a tool, so that the next request tells them from a script's own.
const loadingPrefix = "toolu_load_"

func requestID(number int) string { return fmt.Sprintf("req_sim_%08d", number) }

// newMessage makes the answer. Its ids depend on the request's number: a repeated request gets the same words under new ids.
func newMessage(req request, size, number int, blocks []Block) *message {
	last, _ := json.Marshal(req.Messages[len(req.Messages)-1]) // came from JSON
	m := &message{
		ID: id("msg_", number, 0), Type: "message", Role: "assistant", Model: req.Model, Content: []any{},
		Usage: usage{Input: tokens(len(last))},
	}
	if rest := tokens(max(size-len(last), 0)); len(req.Messages) > 2 {
		m.Usage.CacheRead = rest
	} else {
		m.Usage.CacheWrite = rest
	}
	reason := "end_turn"
	for i, b := range blocks {
		if b.Tool == "" {
			m.Content = append(m.Content, textBlock{"text", b.Text})
			continue
		}
		reason = "tool_use"
		prefix := "toolu_"
		if b.loading {
			prefix = loadingPrefix
		}
		m.Content = append(m.Content, toolUseBlock{"tool_use", id(prefix, number, i), b.Tool, inputJSON(b.Input)})
	}
	m.finish(reason)
	return m
}

func inputJSON(input any) json.RawMessage {
	if input == nil {
		return json.RawMessage("{}")
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(input); err != nil {
		panic(fmt.Sprintf("script gives an input that is no JSON: %v", err)) // a programming error of the script
	}
	return json.RawMessage(strings.TrimSpace(b.String()))
}

func id(prefix string, number, part int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", number, part))
	return prefix + "01" + hex.EncodeToString(sum[:11])
}

func (m *message) finish(reason string) {
	m.StopReason = &reason
	size := 0
	for _, c := range m.Content {
		switch c := c.(type) {
		case textBlock:
			size += len(c.Text)
		case toolUseBlock:
			size += len(c.Name) + len(c.Input)
		}
	}
	m.Usage.Output = tokens(size)
}

// stop ends the message early, as the API does for the given reason.
func (m *message) stop(reason string) {
	switch reason {
	case "refusal":
		m.Content = []any{}
	case "max_tokens":
		var kept []any
		for _, c := range m.Content {
			if t, ok := c.(textBlock); ok {
				runes := []rune(t.Text)
				kept = append(kept, textBlock{"text", string(runes[:(len(runes)+1)/2])})
			}
		}
		if kept == nil {
			kept = []any{textBlock{"text", "…"}}
		}
		m.Content = kept
	}
	m.finish(reason)
}

// event is one server-sent event.
type event struct {
	name string
	data any
}

type object = map[string]any

// events lays the message out as the API streams it: every text and every tool input in several pieces.
func (m *message) events() []event {
	start := *m
	start.Content, start.StopReason, start.Usage.Output = []any{}, nil, 1
	out := []event{{"message_start", object{"type": "message_start", "message": start}}}
	delta := func(i int, d object) {
		out = append(out, event{"content_block_delta", object{"type": "content_block_delta", "index": i, "delta": d}})
	}
	for i, c := range m.Content {
		var begin any
		switch c := c.(type) {
		case textBlock:
			begin = textBlock{"text", ""}
		case toolUseBlock:
			begin = toolUseBlock{"tool_use", c.ID, c.Name, json.RawMessage("{}")}
		}
		out = append(out, event{"content_block_start", object{"type": "content_block_start", "index": i, "content_block": begin}})
		if i == 0 {
			out = append(out, event{"ping", object{"type": "ping"}})
		}
		switch c := c.(type) {
		case textBlock:
			for _, piece := range pieces(c.Text, 48) {
				delta(i, object{"type": "text_delta", "text": piece})
			}
		case toolUseBlock:
			delta(i, object{"type": "input_json_delta", "partial_json": ""})
			for _, piece := range pieces(string(c.Input), 24) {
				delta(i, object{"type": "input_json_delta", "partial_json": piece})
			}
		}
		out = append(out, event{"content_block_stop", object{"type": "content_block_stop", "index": i}})
	}
	return append(out,
		event{"message_delta", object{
			"type": "message_delta", "delta": object{"stop_reason": m.StopReason, "stop_sequence": nil}, "usage": m.Usage,
		}},
		event{"message_stop", object{"type": "message_stop"}})
}

// pieces cuts text into at least two parts of at most size runes, if it has two runes.
func pieces(text string, size int) []string {
	runes := []rune(text)
	if half := (len(runes) + 1) / 2; half > 0 && half < size {
		size = half
	}
	var out []string
	for len(runes) > size {
		out = append(out, string(runes[:size]))
		runes = runes[size:]
	}
	return append(out, string(runes))
}

// stream sends the message, or as much of it as the fault lets through.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, m *message, fault *Fault) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("request-id", "req_"+strings.TrimPrefix(m.ID, "msg_"))
	flush := http.NewResponseController(w)
	send := func(e event) {
		data, err := json.Marshal(e.data)
		if err != nil {
			panic(err) // made of strings and numbers
		}
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.name, data)
		_ = flush.Flush() // the client went away: the loop is short
	}
	events := m.events()
	broken := fault != nil && (fault.Cut || fault.Silent || fault.StreamError)
	if broken {
		events = events[:min(len(events)-2, max(3, len(events)/2))] // at least begun, never finished
		if fault.Silent {
			events = events[:1]
		}
	}
	for _, e := range events {
		send(e)
	}
	switch {
	case !broken:
	case fault.Silent:
		select {
		case <-r.Context().Done():
		case <-s.quit:
		}
	case fault.StreamError:
		send(event{"error", object{"type": "error", "error": object{"type": "overloaded_error", "message": "Overloaded"}}})
	default:
		panic(http.ErrAbortHandler) // closes the connection without the end of the body
	}
}
