package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// request is the part of a Messages request that the stand-in reads. Fields it does not know are nobody's problem.
type request struct {
	Model     string          `json:"model"`
	MaxTokens int             `json:"max_tokens"`
	Stream    bool            `json:"stream"`
	System    contents        `json:"system"`
	Tools     []wireTool      `json:"tools"`
	Messages  []Message       `json:"messages"`
	Thinking  json.RawMessage `json:"thinking"`
}

// Message is one message of a conversation: role user, assistant, or system (CLI 2.1.332 sends those in mid-conversation).
type Message struct {
	Role    string   `json:"role"`
	Content contents `json:"content"`
}

// Content is one content block, in either direction.
type Content struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	// A tool_use block.
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// A tool_result block.
	ToolUseID string   `json:"tool_use_id,omitempty"`
	IsError   bool     `json:"is_error,omitempty"`
	Content   contents `json:"content,omitempty"`
	// A tool_reference block has ToolName inside a result; a tool_addition block has it inside Tool.
	ToolName string         `json:"tool_name,omitempty"`
	Tool     *toolReference `json:"tool,omitempty"`
}

type toolReference struct {
	Name string `json:"name"`
}

// contents is a list of blocks, or a string that stands for one text block.
type contents []Content

func (c *contents) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		*c = contents{{Type: "text", Text: text}}
		return nil
	}
	if len(b) > 0 && b[0] == '{' { // the content of server tools' results: nothing here reads it
		*c = nil
		return nil
	}
	return json.Unmarshal(b, (*[]Content)(c))
}

// text joins the text blocks.
func (c contents) text() string {
	var parts []string
	for _, b := range c {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

type wireTool struct {
	Type   string          `json:"type"` // empty or "custom": ours; otherwise a tool of the API itself
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"input_schema"`
	Defer  bool            `json:"defer_loading"`
}

// problem is an error in the API's own words.
type problem struct {
	status        int
	kind, message string
}

func invalid(message string) problem {
	return problem{http.StatusBadRequest, "invalid_request_error", message}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client went away: nobody is left to tell
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// decode reads a request and refuses what the API refuses.
func decode(r *http.Request, body []byte, req *request) *problem {
	bad := func(format string, args ...any) *problem {
		p := invalid(fmt.Sprintf(format, args...))
		return &p
	}
	if !strings.HasPrefix(r.Header.Get("content-type"), "application/json") {
		return bad("content-type: must be application/json")
	}
	if r.Header.Get("anthropic-version") == "" {
		return bad("anthropic-version: header is required")
	}
	if err := json.Unmarshal(body, req); err != nil {
		return bad("The request body is not valid JSON: %v", err)
	}
	if req.Model == "" {
		return bad("model: Field required")
	}
	if req.MaxTokens < 1 {
		return bad("max_tokens: Field required, at least 1")
	}
	if len(req.Messages) == 0 {
		return bad("messages: at least one message is required")
	}
	names := map[string]bool{}
	for i, t := range req.Tools {
		if !toolName.MatchString(t.Name) {
			return bad("tools.%d.name: String should match pattern '%s'", i, toolName)
		}
		if names[t.Name] {
			return bad("tools: Tool names must be unique.")
		}
		names[t.Name] = true
		if t.Type == "" || t.Type == "custom" {
			var schema struct {
				Type string `json:"type"`
			}
			if json.Unmarshal(t.Schema, &schema) != nil || schema.Type != "object" {
				return bad("tools.%d.custom.input_schema.type: Input should be 'object'", i)
			}
		}
	}
	return checkMessages(req.Messages, bad)
}

// checkMessages holds a conversation to its order: user first, every tool use answered in the next user message, no
// answer without its question. System messages may stand anywhere but first.
func checkMessages(messages []Message, bad func(string, ...any) *problem) *problem {
	if messages[0].Role != "user" {
		return bad("messages: first message must use the \"user\" role")
	}
	open := map[string]bool{} // tool uses of the last assistant message not yet answered
	for i, m := range messages {
		if m.Role != "user" && m.Role != "assistant" && m.Role != "system" {
			return bad("messages.%d.role: Input should be 'user', 'assistant' or 'system'", i)
		}
		if len(m.Content) == 0 && m.Role == "user" { // CLI 2.1.332 sends an empty system message after it has compacted
			return bad("messages.%d: all messages must have non-empty content", i)
		}
		if m.Role == "assistant" && len(open) > 0 {
			return bad("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after", i)
		}
		for j, c := range m.Content {
			switch {
			case c.Type == "":
				return bad("messages.%d.content.%d.type: Field required", i, j)
			case c.Type == "text" && c.Text == "":
				return bad("messages: text content blocks must be non-empty")
			case c.Type == "tool_use" && m.Role == "assistant":
				open[c.ID] = true
			case c.Type == "tool_result" && !open[c.ToolUseID]:
				return bad("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s", i, j, c.ToolUseID)
			case c.Type == "tool_result":
				delete(open, c.ToolUseID)
			}
		}
	}
	if len(open) > 0 {
		return bad("messages: `tool_use` ids were found without `tool_result` blocks immediately after")
	}
	return nil
}
