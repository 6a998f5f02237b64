package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
)

// Ids of our control requests, by which their answers are known.
const (
	requestInit = "init"
	requestStop = "stop"
)

// lineReader reads the lines of a process. One over max bytes is read past and counted: a reader that stopped would stop the
// process, and lose all that follows. One that goes on for endless times as much ends the reading.
type lineReader struct {
	r       *bufio.Reader
	max     int
	buf     []byte
	skipped *atomic.Int64
}

// next gives the next line without its end, valid until the call after. What stands before the end of the stream is a line
// too.
func (l *lineReader) next() ([]byte, error) {
	for {
		over, err := l.read()
		switch {
		case over:
			l.skipped.Add(1)
		case len(l.buf) > 0:
			return bytes.TrimRight(l.buf, "\r\n"), nil // an error comes again
		}
		if err != nil {
			return nil, err
		}
	}
}

// errEndless is a line that is no line any more: whoever writes it has nothing to say.
var errEndless = errors.New("a line without an end")

// endless is how many times max a line may be before its process is given up.
const endless = 16

// read fills buf with one line; over tells that the line is too long and was dropped.
func (l *lineReader) read() (over bool, err error) {
	if cap(l.buf) > 1<<20 {
		l.buf = nil // one long line must not be held for the rest of a run
	}
	l.buf = l.buf[:0]
	for length := 0; ; {
		part, err := l.r.ReadSlice('\n')
		if length += len(part); length/endless > l.max {
			return true, errEndless
		}
		if over = over || len(l.buf)+len(part) > l.max; over {
			l.buf = l.buf[:0]
		} else {
			l.buf = append(l.buf, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return over, err
		}
	}
}

// event is a line of the CLI's output, as far as it matters here. Unknown types and fields are expected: they change with
// every release.
type event struct {
	Type     string      `json:"type"`
	Subtype  string      `json:"subtype"`
	Parent   *string     `json:"parent_tool_use_id"` // null on the main thread
	Session  string      `json:"session_id"`
	Version  string      `json:"claude_code_version"`
	Servers  []mcpServer `json:"mcp_servers"`
	Tools    []string    `json:"tools"` // names of all the tools there are, deferred ones too
	Event    streamEvent `json:"event"`
	Message  message     `json:"message"`
	Response response    `json:"response"`

	// Of a result.
	IsError   bool            `json:"is_error"`
	Result    json.RawMessage `json:"result"`
	Errors    json.RawMessage `json:"errors"`
	Terminal  string          `json:"terminal_reason"`
	Stop      string          `json:"stop_reason"`
	APIStatus json.RawMessage `json:"api_error_status"`
	Turns     int             `json:"num_turns"`
}

type mcpServer struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

type streamEvent struct {
	Type string `json:"type"`
}

type message struct {
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"` // a text or a list of blocks
}

type response struct {
	Subtype string          `json:"subtype"`
	Request string          `json:"request_id"`
	Body    json.RawMessage `json:"response"`
}

// block is one content block of a message.
type block struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	ID     string `json:"id"`
	Name   string `json:"name"`
	Answer string `json:"tool_use_id"`

	Input json.RawMessage `json:"input"` // of a tool's use
}

// parse reads a line; ok is false for one that is not an object of the CLI.
func parse(line []byte) (event, bool) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Type == "" {
		return event{}, false
	}
	return e, true
}

// synthetic names the model of what the CLI itself says in the agent's place, API errors above all (2.1.332).
const synthetic = "<synthetic>"

// blocks gives the blocks of a message. A plain text has none that matter, nor has what is not the agent's.
func (m message) blocks() []block {
	if m.Model == synthetic {
		return nil
	}
	var all []block
	_ = json.Unmarshal(m.Content, &all) // a text is no error
	return all
}

// connected tells whether the CLI has its server. Without it the model would be asked all the same, and act as if.
func (e event) connected() bool {
	for _, s := range e.Servers {
		if s.Name == serverName {
			return s.Status == "connected"
		}
	}
	return false
}

// resultText is the result's text, if it has one.
func (e event) resultText() string {
	var text string
	_ = json.Unmarshal(e.Result, &text) // absent in errors
	return text
}

// sessionGone tells whether a result says that the session to resume is not there.
func (e event) sessionGone() bool {
	return strings.Contains(string(e.Errors), "No conversation found") || strings.Contains(string(e.Result), "No conversation found")
}

// status is the HTTP status of a failed model request, 0 for none.
func (e event) status() int {
	n, err := strconv.Atoi(strings.Trim(string(e.APIStatus), `"`))
	if err != nil {
		return 0 // null or absent
	}
	return n
}

// reason is the code of how a turn ended, from its result. "ok" alone is an answer.
func (e event) reason() string {
	switch {
	case e.answers():
		return "ok"
	case e.sessionGone():
		return reasonSessionGone
	case e.Subtype == "error_max_turns":
		return "max_turns"
	case e.Stop == "refusal":
		return "refused"
	case strings.Contains(e.resultText(), "output token maximum"): // only the text tells (CLI 2.1.332, measured)
		return "too_long"
	case e.Stop == "max_tokens", e.Terminal == "blocking_limit", e.Terminal == "image_error", e.Terminal == "prompt_too_long", e.status() == 413:
		return "too_long"
	case e.status() == 400:
		return reasonRejected
	case e.status() == 401, e.status() == 403:
		return "model_auth"
	case e.status() == 404:
		return "model_unknown"
	case e.status() == 429, e.status() >= 500, limitReached.MatchString(e.resultText()):
		return reasonBusy
	case e.Subtype == "success" && !e.IsError:
		return "incomplete"
	}
	return "failed"
}

// answers tells whether a result is the agent's answer. API errors come as successes too, with is_error or a status alone;
// a turn that paused, or was about to use a tool, is not at its end.
func (e event) answers() bool {
	return e.Subtype == "success" && !e.IsError && e.Terminal == "completed" && e.status() < 400 &&
		(e.Stop == "end_turn" || e.Stop == "stop_sequence" || e.Stop == "") && !limitReached.MatchString(e.resultText())
}

// limitReached is what the CLI has given as an agent's answer when a plan was used up (claude-code issues 6119 and 55876).
var limitReached = regexp.MustCompile(`^(Claude AI usage limit reached\|\d+|You've hit your limit · resets .{1,60})$`)

// reasonRejected is a conversation that the model's provider does not take: its history is broken, or what was added.
const reasonRejected = "rejected"

const reasonSessionGone = "session_gone"
