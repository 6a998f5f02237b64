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
	status  int
	events  bool // an event stream; otherwise one JSON object
	line    []byte
	skip    bool // the line at hand is too long
	model   string
	counted counts
}

func newMeter(began time.Time, now func() time.Time) *meter { return &meter{began: began, now: now} }

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
}

func (c *counts) take(n counts) {
	for _, f := range []struct{ to, from **int64 }{
		{&c.Input, &n.Input}, {&c.Output, &n.Output}, {&c.CacheRead, &n.CacheRead}, {&c.CacheWrite, &n.CacheWrite},
		{&c.Creation.Hour, &n.Creation.Hour},
	} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
}

func (m *meter) begin(status int, contentType string) {
	m.status = status
	kind, _, _ := mime.ParseMediaType(contentType)
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
		}
	}
}

// usage sums up when the answer is over, whole or not.
func (m *meter) usage(prices []Price) Usage {
	total := orZero(m.now().Sub(m.began))
	if !m.events && m.status == http.StatusOK && !m.skip {
		var whole struct {
			Model string
			Usage counts
		}
		if json.Unmarshal(m.line, &whole) == nil && whole.Model != "" {
			m.model, m.first = whole.Model, total
			m.counted.take(whole.Usage)
		}
	}
	u := Usage{Model: m.model, Status: m.status, FirstToken: m.first, Total: total, Tokens: store.Tokens{
		Input: value(m.counted.Input), Output: value(m.counted.Output),
		CacheRead: value(m.counted.CacheRead), CacheWrite: value(m.counted.CacheWrite),
	}}
	u.CostUSD, u.Priced = cost(u.Model, u.Tokens, value(m.counted.Creation.Hour), prices)
	return u
}

// value keeps a count that the other side made negative from lowering a sum.
func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return max(0, *n)
}

// cost prices tokens; hour are those of the cache writes that live an hour. ok is false when no price fits the model.
func cost(model string, t store.Tokens, hour int64, prices []Price) (usd float64, ok bool) {
	var best Price
	for _, p := range prices {
		if strings.HasPrefix(model, p.Prefix) && len(p.Prefix) > len(best.Prefix) {
			best = p
		}
	}
	hour = min(hour, t.CacheWrite)
	sum := float64(t.Input)*best.Input + float64(t.Output)*best.Output + float64(t.CacheRead)*best.CacheRead +
		float64(t.CacheWrite-hour)*best.CacheWrite + float64(hour)*best.CacheWrite1h
	return sum / 1e6, best.Prefix != ""
}
