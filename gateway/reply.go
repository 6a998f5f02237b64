package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	maxNews     = 32  // progress that waits for its writer
	maxProgress = 300 // characters of a progress message
)

// reply is the answer to one call, whose form is chosen late: a result that comes first is plain JSON, which costs least;
// progress, or silence as long as the heartbeat, opens an event stream there and then. No answer is silent for longer than
// that: Claude Code 2.1.332 gives a call up after 60 s without a byte.
type reply struct {
	w      http.ResponseWriter
	id     json.RawMessage
	token  json.RawMessage // the caller's own; nil: it gets comments instead of progress
	modern string          // what a result of the modern era ends with; empty in the old one
	beat   time.Duration

	mu    sync.Mutex // guards w and what follows
	open  bool       // the event stream is
	over  bool       // nothing is written any more
	last  float64    // progress must grow
	told  bool       // by the connector: silence is then filled with comments
	beats float64
	timer *time.Timer

	waiting sync.Mutex // guards what follows; never held while writing
	news    []Progress
	telling bool
}

// start begins the heartbeat; end, which finish and drop begin with, stops it.
func (r *reply) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = -1 // the first may be 0
	r.timer = time.AfterFunc(r.beat, r.tick)
}

// tick breaks the silence.
func (r *reply) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.token != nil && !r.told {
		r.beats++
		r.tell(Progress{Done: r.beats / 1000}) // small steps: the connector's own may still come, and must be more
	} else {
		r.stream(": \n\n")
	}
	r.timer.Reset(r.beat)
}

// progress hands on what a connector reports, in order. It never waits for the caller's connection: what does not fit is
// left out.
func (r *reply) progress(p Progress) {
	r.waiting.Lock()
	defer r.waiting.Unlock()
	if len(r.news) >= maxNews {
		return
	}
	r.news = append(r.news, p)
	if !r.telling {
		r.telling = true
		go r.deliver() // ends when nothing waits; after the end of the answer it writes nothing
	}
}

func (r *reply) deliver() {
	for r.deliverOnce() {
	}
}

// deliverOnce writes what waits, and tells whether there may be more.
func (r *reply) deliverOnce() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting.Lock()
	news := r.news
	r.news = nil
	r.telling = len(news) > 0
	r.waiting.Unlock()
	for _, p := range news {
		if !r.over {
			r.told = true
			r.tell(p)
			r.timer.Reset(r.beat)
		}
	}
	return len(news) > 0
}

// tell writes a progress notification, with mu held.
func (r *reply) tell(p Progress) {
	if !(p.Done > r.last) || math.IsInf(p.Done, 0) { // NaN is no more than anything
		return
	}
	r.last = p.Done
	b := append([]byte(`event: message`+"\n"+`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`), r.token...)
	b = strconv.AppendFloat(append(b, `,"progress":`...), p.Done, 'g', -1, 64)
	if p.Total > 0 && !math.IsInf(p.Total, 0) {
		b = strconv.AppendFloat(append(b, `,"total":`...), p.Total, 'g', -1, 64)
	}
	if text := OneLine(p.Message, maxProgress); text != "" {
		b = append(append(b, `,"message":`...), quoted(text)...)
	}
	r.stream(string(append(b, "}}\n\n"...)))
}

// stream writes into the event stream, which it opens first if need be; with mu held. A caller that is gone is nobody to
// tell.
func (r *reply) stream(event string) {
	if !r.open {
		r.open = true
		h := r.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache, no-transform")
		h.Set("X-Accel-Buffering", "no")
		r.w.WriteHeader(http.StatusOK)
	}
	if _, err := io.WriteString(r.w, event); err == nil {
		_ = http.NewResponseController(r.w).Flush()
	}
}

// end stops everything but the last word, and tells whether the stream is open. Progress that came before the result goes
// out before it.
func (r *reply) end() (open bool) {
	r.deliverOnce()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.timer != nil {
		r.timer.Stop() // a tick under way finds that it is over
	}
	return r.open
}

// finish sends the result.
func (r *reply) finish(result Result) {
	body := r.body(result)
	if r.end() {
		body = append(append([]byte("event: message\ndata: "), body...), "\n\n"...)
		_, _ = r.w.Write(body) // a caller that is gone has its outcome in the store
		return
	}
	h := r.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = r.w.Write(body)
}

// drop ends an answer that nobody wants any more.
func (r *reply) drop() {
	if !r.end() {
		r.w.WriteHeader(http.StatusAccepted)
	}
}

// body is the answer's one line. A client that gets structured content may show the model nothing else (Claude Code
// 2.1.332, measured), so both parts carry everything.
func (r *reply) body(result Result) []byte {
	text := quoted(result.Text)
	b := make([]byte, 0, 256+len(r.id)+len(text)+len(result.Structured)+len(r.modern))
	b = append(append(b, `{"jsonrpc":"2.0","id":`...), r.id...)
	b = append(append(b, `,"result":{"content":[{"type":"text","text":`...), text...)
	b = append(append(b, `}],"structuredContent":`...), oneLine(result.Structured)...)
	if result.IsError {
		b = append(b, `,"isError":true`...)
	}
	return append(append(b, r.modern...), "}}"...)
}

func quoted(text string) []byte {
	b, _ := json.Marshal(text) // a text: cannot fail
	return b
}

// oneLine takes the line ends out of valid JSON: an event's data is one line.
func oneLine(raw json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(raw, "\r\n") {
		return raw
	}
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // fit has read it
	return b.Bytes()
}
