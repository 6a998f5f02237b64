package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// envelope is one JSON-RPC message, taken apart and not decoded: what a call is for stays the bytes that came.
type envelope struct {
	id     json.RawMessage // a text or a number as it was spelt; nil of a notification
	method string          // empty of an answer
	params json.RawMessage
}

// maxNames bounds the members of the parts that are read one by one, and maxID a request's id, in bytes.
const (
	maxNames = 64
	maxID    = 256
)

// Errors of readEnvelope.
var (
	errNoJSON   = errors.New("the body is not one JSON value in UTF-8")
	errBatch    = errors.New("batches of messages are not served")
	errEnvelope = errors.New("the body is not a JSON-RPC 2.0 message that names each part once")
)

// readEnvelope takes a request's body apart. It is stricter than most readers: names count as they are spelt, and one that
// comes twice is refused, since one reader might take the first and another the second.
func readEnvelope(body []byte) (e envelope, err error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return e, errNoJSON
	}
	switch body = bytes.TrimSpace(body); body[0] {
	case '{':
	case '[':
		return e, errBatch
	default:
		return e, errEnvelope
	}
	version := ""
	err = members(body, func(name string, value json.RawMessage) error {
		switch name {
		case "jsonrpc":
			return readText(value, &version)
		case "method":
			return readText(value, &e.method)
		case "params":
			e.params = value
		case "id":
			e.id = value
		}
		return nil
	})
	if err != nil || version != "2.0" || e.id != nil && !names(e.id) {
		return envelope{}, errEnvelope
	}
	return e, nil
}

// names tells whether a value may be an id or a progress token: a text or a whole number.
func names(value json.RawMessage) bool {
	return len(value) <= maxID && (value[0] == '"' || (value[0] == '-' || value[0] >= '0' && value[0] <= '9') && !bytes.ContainsAny(value, ".eE"))
}

// toolCall is what tools/call asks for.
type toolCall struct {
	name string
	args json.RawMessage
	meta callMeta
}

// callMeta is what a call's _meta says.
type callMeta struct {
	token        json.RawMessage // the caller's progress token, exactly as it came; nil: it wants no progress
	version      string          // what follows is of the modern era only
	capabilities bool
	badClient    bool // there is a clientInfo, and it is no object
}

// readCall takes the params of tools/call apart.
func readCall(params json.RawMessage) (c toolCall, err error) {
	if !isObject(params) {
		return c, errors.New("params must be an object")
	}
	named := false
	err = members(params, func(name string, value json.RawMessage) error {
		switch name {
		case "name":
			named = true
			return readText(value, &c.name)
		case "arguments":
			c.args = value
		case "_meta":
			return readMeta(value, &c.meta)
		}
		return nil
	})
	if err == nil && !named {
		err = errors.New("params.name is missing")
	}
	return c, err
}

func readMeta(meta json.RawMessage, m *callMeta) error {
	if !isObject(meta) {
		return errors.New("params._meta must be an object")
	}
	return members(meta, func(name string, value json.RawMessage) error {
		switch name {
		case "progressToken":
			if names(value) {
				m.token = value
			}
		case mcp.MetaKeyProtocolVersion:
			return readText(value, &m.version)
		case mcp.MetaKeyClientCapabilities:
			m.capabilities = isObject(value)
		case mcp.MetaKeyClientInfo:
			m.badClient = !isObject(value)
		}
		return nil
	})
}

func isObject(value json.RawMessage) bool { return len(value) > 0 && value[0] == '{' }

func readText(value json.RawMessage, into *string) error {
	if value[0] != '"' {
		return errors.New("not a text")
	}
	if bytes.IndexByte(value, '\\') < 0 {
		*into = string(value[1 : len(value)-1])
		return nil
	}
	return json.Unmarshal(value, into)
}

// members gives each member of an object, which is known to be valid JSON without space around it, in its order.
func members(object json.RawMessage, each func(name string, value json.RawMessage) error) error {
	var seen [8]string // on the stack: few objects have more
	known := seen[:0]
	i := skipSpace(object, 1)
	for object[i] != '}' {
		end := valueEnd(object, i)
		name := ""
		if err := readText(object[i:end], &name); err != nil {
			return err
		}
		if slices.Contains(known, name) || len(known) >= maxNames {
			return fmt.Errorf("%w: %.40q", errDoubled, name)
		}
		known = append(known, name)
		i = skipSpace(object, skipSpace(object, end)+1) // over the colon
		end = valueEnd(object, i)
		if err := each(name, object[i:end:end]); err != nil {
			return err
		}
		if i = skipSpace(object, end); object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	return nil
}

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// valueEnd is where the value that begins at i ends, in valid JSON.
func valueEnd(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // a number or word ended before it
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}
