package model

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"time"

	"pilder/store"
)

// maxLine bounds what the meter holds of an answer: one line of an event stream, or one whole JSON answer. What is longer is
// passed on all the same and not counted.
const maxLine = 4 << 20

// meter reads an answer along with its copying. It never slows or changes it, and never fails: what it cannot read it does
// not count.
type meter struct {
	now     func() time.Time
	began   time.Time
	first   time.Duration
	total   time.Duration // once the answer is over
	free    bool          // what was asked for costs nothing
	hungUp  bool          // the caller went away before the answer began
	status  int
	events  bool // an event stream; otherwise one JSON object
	line    []byte
	skip    bool // the line at hand is too long
	whole   bool // the answer told what it came to
	model   string
	counted counts
	retry   time.Duration
}

func newMeter(began time.Time, now func() time.Time) *meter { return &meter{began: began, now: now} }

// billed tells whether a request costs anything, as far as can be known. Errors do not.
func (m *meter) billed() bool { return !m.free && (m.status == http.StatusOK || m.hungUp) }

// counts are the API's usage object. A stream names the counts twice, in message_start and message_delta, and the later
// ones are totals, so each that is given replaces the one before.
type counts struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"` // of both lives
	Creation   struct {
		Hour *int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Server struct {
		Searches *int64 `json:"web_search_requests"`
	} `json:"server_tool_use"`
}

func (c *counts) take(n counts) {
	for _, f := range []struct{ to, from **int64 }{
		{&c.Input, &n.Input}, {&c.Output, &n.Output}, {&c.CacheRead, &n.CacheRead}, {&c.CacheWrite, &n.CacheWrite},
		{&c.Creation.Hour, &n.Creation.Hour}, {&c.Server.Searches, &n.Server.Searches},
	} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
}

func (m *meter) begin(status int, h http.Header) {
	m.status = status
	m.retry = retryAfter(status, h, m.now())
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	m.events = kind == "text/event-stream"
}

// read takes the next piece of the answer.
func (m *meter) read(piece []byte) {
	if !m.events {
		m.hold(piece)
		return
	}
	for len(piece) > 0 {
		line, rest, whole := bytes.Cut(piece, []byte("\n"))
		m.hold(line)
		if !whole {
			return
		}
		if !m.skip {
			m.event(m.line)
		}
		m.line, m.skip = m.line[:0], false
		piece = rest
	}
}

func (m *meter) hold(piece []byte) {
	if m.skip || len(m.line)+len(piece) > maxLine {
		m.line, m.skip = m.line[:0], true
		return
	}
	m.line = append(m.line, piece...)
}

// event reads one line of a stream. Only the few events that count are decoded; the text of the answer is not looked at.
func (m *meter) event(line []byte) {
	data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r"), []byte("data:"))
	if !ok {
		return
	}
	switch {
	case m.first == 0 && bytes.Contains(data, []byte(`"content_block_`)):
		m.first = max(1, orZero(m.now().Sub(m.began)))
	case bytes.Contains(data, []byte(`"message_start"`)), bytes.Contains(data, []byte(`"message_delta"`)):
		var e struct {
			Type    string
			Message struct {
				Model string
				Usage counts
			}
			Usage counts
		}
		if json.Unmarshal(data, &e) != nil {
			return
		}
		switch e.Type {
		case "message_start":
			m.model = e.Message.Model
			m.counted.take(e.Message.Usage)
		case "message_delta":
			m.counted.take(e.Usage)
			m.whole = m.whole || e.Usage.Output != nil
		}
	}
}

// end notes that the answer is over, whole or not.
func (m *meter) end() {
	m.total = orZero(m.now().Sub(m.began))
	if m.events || m.status != http.StatusOK || m.skip {
		return
	}
	var answer struct {
		Model string
		Usage counts
	}
	if json.Unmarshal(m.line, &answer) == nil && answer.Model != "" {
		m.model, m.first = answer.Model, m.total
		m.counted.take(answer.Usage)
		m.whole = answer.Usage.Output != nil
	}
}

// usage sums up what the answer told.
func (m *meter) usage(prices []Price) Usage {
	t := m.tally()
	u := Usage{Model: m.model, Status: m.status, RetryAfter: m.retry, FirstToken: m.first, Total: m.total, Tokens: store.Tokens{
		Input: t.input, Output: t.output, CacheRead: t.cacheRead, CacheWrite: t.cacheWrite,
	}}
	if price, ok := priceOf(m.model, prices); ok {
		u.CostUSD, u.Priced = t.cost(price), true
	}
	return u
}

// tally is what one request came to, in tokens (searches are counted one by one).
type tally struct {
	input, output, cacheRead, cacheWrite int64
	hour                                 int64 // those of cacheWrite that live an hour
	searches                             int64
}

func (m *meter) tally() tally {
	c := m.counted
	t := tally{
		input: value(c.Input), output: value(c.Output), cacheRead: value(c.CacheRead), cacheWrite: value(c.CacheWrite),
		searches: value(c.Server.Searches),
	}
	t.hour = min(value(c.Creation.Hour), t.cacheWrite)
	return t
}

// new are the tokens that were not read from the cache.
func (t tally) new() int64 { return t.input + t.output + t.cacheWrite }

// searchUSD is the price of one web search, whatever the model: 10 dollars a thousand, from the page named in
// configs/prices.yaml.
const searchUSD = 0.01

func (t tally) cost(p Price) float64 {
	sum := float64(t.input)*p.Input + float64(t.output)*p.Output + float64(t.cacheRead)*p.CacheRead +
		float64(t.cacheWrite-t.hour)*p.CacheWrite + float64(t.hour)*p.CacheWrite1h
	return sum*p.times(t.input+t.cacheRead+t.cacheWrite)/1e6 + float64(t.searches)*searchUSD
}

// times is by what the prices are multiplied for a prompt of so many tokens.
func (p Price) times(prompt int64) float64 {
	if p.LongAbove > 0 && prompt > p.LongAbove {
		return p.LongTimes
	}
	return 1
}

// priceOf finds the price of a model; of several that fit, the longest prefix counts.
func priceOf(model string, prices []Price) (best Price, ok bool) {
	for _, p := range prices {
		if strings.HasPrefix(model, p.Prefix) && len(p.Prefix) > len(best.Prefix) {
			best = p
		}
	}
	return best, best.Prefix != ""
}

// value keeps a count that the other side made negative from lowering a sum.
func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return max(0, *n)
}

// orZero keeps a duration that a stepped-back clock made negative from being counted.
func orZero(d time.Duration) time.Duration { return max(0, d) }
