package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"pilder/gateway"
)

// Revisions of MCP. The modern one has no MCP session: each request says everything itself.
const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

// legacyRevisions are the older ones an upstream may choose.
func legacyRevisions() []string { return []string{legacy, "2025-06-18", "2025-03-26", "2024-11-05"} }

// Limits of one answer beside Config.MaxAnswer.
const (
	margin      = 64 << 10 // bytes around the longest answer: its envelope
	floodTimes  = 4        // so many times the longest answer may come as notifications
	maxMessages = 10_000   // messages of one answer
	maxServed   = 8        // requests of the upstream that are answered during one of ours
)

// What can become of a request. errNotSent, errGone, errRefused and errEra are proof that nothing was performed.
var (
	errNotSent   = errors.New("the request never reached the upstream")
	errGone      = errors.New("the upstream does not know the MCP session")
	errRefused   = errors.New("the upstream refuses the credentials")
	errEra       = errors.New("the upstream does not speak this revision")
	errLost      = errors.New("the request went out and no answer came")
	errCancelled = errors.New("the caller took the call back")
	errTooBig    = errors.New("the answer is over its limit")
	errLie       = errors.New("the answer is none of MCP")
	errFull      = errors.New("all MCP sessions are in use")
)

// statusError is an HTTP answer that is no success and has no meaning of its own here.
type statusError struct {
	status int
	after  time.Duration // of 429 and 503: when to come again; 0: not said
}

func (e *statusError) Error() string { return fmt.Sprintf("the upstream answered %d", e.status) }

// message is any JSON-RPC message.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

// rpcError is the upstream's refusal of a request. Its text is untrusted.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("the upstream answered with error %d", e.Code) }

// question is one request to an upstream.
type question struct {
	method string
	name   string         // of a tool; empty where there is none
	params map[string]any // without _meta
	read   bool           // changes nothing: may be repeated

	progress  func(gateway.Progress) // nil: nobody wants to know
	cancelled <-chan struct{}        // nil: it cannot be taken back
}

// envelope makes a question's message. modernClient is what a modern request says of its sender; nil in the older era.
func (q question) envelope(id int64, modernClient map[string]any) ([]byte, error) {
	params := map[string]any{}
	for k, v := range q.params {
		params[k] = v
	}
	meta := map[string]any{}
	for k, v := range modernClient {
		meta[k] = v
	}
	if q.progress != nil {
		meta["progressToken"] = id
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	return json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": q.method, "params": params})
}

// notice makes a notification's message.
func notice(method string, params map[string]any) []byte {
	raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": params}) // texts and numbers: cannot fail
	return raw
}

// answerTo makes the answer to a request of the upstream's own. It is told that we are alive, and nothing else.
func answerTo(m message) []byte {
	answer := map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": map[string]any{}}
	if m.Method != "ping" {
		delete(answer, "result")
		answer["error"] = map[string]any{"code": -32601, "message": "not offered"}
	}
	raw, _ := json.Marshal(answer) // the id was JSON before
	return raw
}

// isAnswer tells whether a message answers the request of that number.
func (m message) isAnswer(id int64) bool {
	return m.Method == "" && (m.Error != nil || len(m.Result) > 0) && string(m.ID) == fmt.Sprint(id)
}

// outcome is what an answer says.
func (m message) outcome() (json.RawMessage, error) {
	if m.Error != nil {
		return nil, m.Error
	}
	return m.Result, nil
}

// progressOf reads a progress notification for the request of that number.
func (m message) progressOf(id int64) (gateway.Progress, bool) {
	var p struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress float64         `json:"progress"`
		Total    float64         `json:"total"`
		Message  string          `json:"message"`
	}
	if m.Method != "notifications/progress" || json.Unmarshal(m.Params, &p) != nil || string(p.Token) != fmt.Sprint(id) {
		return gateway.Progress{}, false
	}
	return gateway.Progress{Done: p.Progress, Total: p.Total, Message: gateway.OneLine(p.Message, 200)}, true
}

// decodeMessage reads one message. A batch is none: only one revision knew it, and nobody was asked for one.
func decodeMessage(raw []byte) (message, error) {
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		return message{}, errLie
	}
	return m, nil
}

// readAll reads at most limit bytes.
func readAll(r io.Reader, limit int) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(raw) > limit {
		err = errTooBig
	}
	return raw, err
}

// events reads server-sent events and gives the data of each.
type events struct {
	r     *bufio.Reader
	limit int // of one event, bytes
}

// next gives the data of the next event that has some.
func (e *events) next() ([]byte, error) {
	var data []byte
	size := 0
	for {
		line, err := e.line(e.limit - size)
		if err != nil {
			return nil, err
		}
		size += len(line)
		text := bytes.TrimRight(line, "\r\n")
		switch {
		case len(text) == 0 && len(data) > 0:
			return data, nil
		case len(text) == 0:
			size = 0
		case bytes.HasPrefix(text, []byte("data:")):
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(text[len("data:"):], []byte(" "))...)
		}
	}
}

// line reads one line of at most limit bytes.
func (e *events) line(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := e.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, errTooBig
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		default:
			return line, nil
		}
	}
}

// isJSON and isEvents tell what a content type is.
func isJSON(contentType string) bool   { return mediaType(contentType) == "application/json" }
func isEvents(contentType string) bool { return mediaType(contentType) == "text/event-stream" }

func mediaType(contentType string) string {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}
