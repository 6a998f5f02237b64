package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a body's form. Real requests stay far below (CLI 2.1.332: depth 14, some thousand values).
const (
	maxDepth  = 100
	maxKeys   = 10_000  // of one object
	maxValues = 200_000 // of one body
)

// defaultMaxTokens admits what the CLI asks for: 128000, and 64000 when it does not stream (2.1.332, seen).
const defaultMaxTokens = 128_000

// refusal is why a body does not go to the model. kind is an error type of the Messages API: the CLI repeats what is an
// invalid_request_error with fewer features, and gives up at a permission_error (2.1.332, seen).
type refusal struct {
	code    string // for the log
	kind    string
	message string
}

func (r *refusal) Error() string { return r.code }

func invalid(code, message string) error {
	return &refusal{code: code, kind: "invalid_request_error", message: message}
}

func forbidden(code string) error {
	return &refusal{code: code, kind: "permission_error", message: "not allowed here: " + code}
}

// policy is what a request may ask of the model. The zero value allows no model at all.
type policy struct {
	models    []string
	maxTokens int64
	sources   bool // by URL and by file id
	search    bool
}

// asked is what a body that was let through says of its cost.
type asked struct {
	model     string
	maxTokens int64
}

// place is what a value of the body is. A list is as its elements are: whether it may be a list is the API's to tell.
type place int

const (
	data    place = iota // free form: arguments, schemas, texts
	root                 // the request
	message              // one of messages
	block                // one content block of a message, a tool's result or the system prompt
	source               // where an image or a document is
	change               // what a tool_addition or a tool_removal names
	tool                 // the definition of a tool
)

// inside names the values that are not free form.
func (p place) inside(key string) place {
	switch {
	case p == root && key == "messages":
		return message
	case p == root && key == "system", p == message && key == "content", p == block && key == "content", p == source && key == "content":
		return block
	case p == root && key == "tools", p == change && key == "definition":
		return tool
	case p == block && key == "source":
		return source
	case p == block && key == "tool":
		return change
	}
	return data
}

// known tells whether a request may have a field. A list of what passes: others name further models (fallbacks), servers
// (mcp_servers), places that run code (container), what was said in another request (thread), or cost more than the price
// list says (speed, inference_geo).
func known(key string) bool {
	switch key {
	case "model", "messages", "system", "tools", "tool_choice", "max_tokens", "stream", "metadata", "thinking", "temperature",
		"top_p", "top_k", "stop_sequences", "cache_control", "context_management", "output_config", "output_format", "diagnostics":
		return true
	}
	return false
}

// allowed tells whether a value in this place may be of a type.
func (p policy) allowed(at place, kind string) bool {
	switch at {
	case block:
		switch kind {
		case "text", "image", "document", "search_result", "tool_use", "tool_result", "tool_reference", "tool_addition", "tool_removal",
			"thinking", "redacted_thinking", "compaction", "connector_text", "mid_conv_system":
			return true
		case "server_tool_use", "web_search_tool_result", "web_search_result", "web_search_tool_result_error":
			return p.search
		}
	case source:
		switch kind {
		case "base64", "text", "content":
			return true
		case "url", "file":
			return p.sources
		}
	case change:
		return kind == "tool_reference" || kind == "tool_definition"
	case tool: // one without a type is the CLI's own, too
		return kind == "custom" || p.search && strings.HasPrefix(kind, "web_search_")
	}
	return false
}

// model tells whether a model is on the list, by its name or by a beginning of it that ends before a hyphen.
func (p policy) model(name string) bool {
	return slices.ContainsFunc(p.models, func(m string) bool { return m != "" && (name == m || strings.HasPrefix(name, m+"-")) })
}

// check reads a whole body, once. What it cannot read to the end and without doubt is refused: the API might read it
// differently.
func (p policy) check(body []byte) (asked, error) {
	if !utf8.Valid(body) {
		return asked{}, invalid("utf8", "the body is not UTF-8")
	}
	c := checker{policy: p, dec: json.NewDecoder(bytes.NewReader(body))}
	c.dec.UseNumber()
	err := c.value(root, 0)
	if err == nil && !c.object {
		err = invalid("no_object", "the body is not an object")
	}
	if err == nil {
		if _, end := c.dec.Token(); !errors.Is(end, io.EOF) {
			err = invalid("trailing", "the body does not end with its object")
		}
	}
	if err == nil && c.asked.model == "" {
		err = invalid("no_model", "model is missing")
	}
	var r *refusal
	if err != nil && !errors.As(err, &r) {
		err = invalid("json", "the body is not JSON")
	}
	return c.asked, err
}

type checker struct {
	policy policy
	dec    *json.Decoder
	asked  asked
	object bool // the body is one
	values int
}

// value reads the next value, which is at a place and so many levels deep.
func (c *checker) value(at place, depth int) error {
	token, err := c.dec.Token()
	if err != nil {
		return err
	}
	c.values++
	if depth > maxDepth || c.values > maxValues {
		return invalid("too_deep", "the body is too deep or has too many values")
	}
	switch token {
	case json.Delim('{'):
		if at == root {
			c.object = true
		}
		return c.fields(at, depth)
	case json.Delim('['):
		if at == root {
			return invalid("no_object", "the body is not an object")
		}
		for c.dec.More() {
			if err := c.value(at, depth+1); err != nil {
				return err
			}
		}
		_, err = c.dec.Token()
	}
	return err
}

// fields reads an object from its first key to its end.
func (c *checker) fields(at place, depth int) error {
	seen := map[string]bool{}
	for c.dec.More() {
		token, err := c.dec.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string) // without its escapes, which therefore hide no double
		switch {
		case !ok:
			return invalid("json", "the body is not JSON")
		case seen[key]:
			return invalid("duplicate_key", "an object has a key twice")
		case len(seen) == maxKeys:
			return invalid("too_deep", "an object has too many keys")
		}
		seen[key] = true
		if err := c.field(at, key, depth); err != nil {
			return err
		}
	}
	if _, err := c.dec.Token(); err != nil {
		return err
	}
	switch {
	case at == message && !seen["role"]:
		return invalid("no_role", "a message has no role")
	case (at == block || at == source || at == change) && !seen["type"]:
		return invalid("no_type", "a block has no type")
	}
	return nil
}

// field reads one field's value; those that decide are read as what they must be.
func (c *checker) field(at place, key string, depth int) error {
	switch {
	case at == root && !known(key):
		return forbidden("field")
	case !c.policy.sources && (at == source && key == "url" || (at == source || at == block) && key == "file_id"):
		return forbidden("source")
	case at == root && key == "max_tokens":
		n, err := c.number()
		if err == nil && n > c.policy.maxTokens {
			err = forbidden("max_tokens")
		}
		c.asked.maxTokens = n
		return err
	case at == root && key == "model":
		name, err := c.text()
		if err == nil && !c.policy.model(name) {
			err = forbidden("model")
		}
		c.asked.model = name
		return err
	case at == message && key == "role":
		role, err := c.text()
		if err == nil && role != "user" && role != "assistant" && role != "system" {
			err = forbidden("role")
		}
		return err
	case key == "type" && (at == block || at == source || at == change || at == tool):
		kind, err := c.text()
		if err == nil && !c.policy.allowed(at, kind) {
			err = forbidden(map[place]string{block: "block", source: "source", change: "tool", tool: "tool"}[at])
		}
		return err
	}
	return c.value(at.inside(key), depth+1)
}

func (c *checker) text() (string, error) {
	token, err := c.dec.Token()
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", invalid("shape", "a field has another kind of value")
	}
	return s, nil
}

func (c *checker) number() (int64, error) {
	token, err := c.dec.Token()
	if err != nil {
		return 0, err
	}
	s, _ := token.(json.Number)
	n, err := strconv.ParseInt(s.String(), 10, 64) // no fraction and no exponent, which readers round differently
	if err != nil || n < 1 {
		return 0, invalid("shape", "max_tokens is not a whole number above zero")
	}
	return n, nil
}
