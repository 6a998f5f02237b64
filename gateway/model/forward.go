package model

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// forward passes one request to the model and its answer back, both byte for byte; the answer as it comes.
func (d *Doors) forward(w http.ResponseWriter, r *http.Request, target string, p Process) {
	began := d.cfg.Now()
	body := http.MaxBytesReader(w, r.Body, maxBody)
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, d.cfg.URL+target, body)
	if err != nil { // the URL was checked in New and the targets are constants
		refuse(w, http.StatusInternalServerError, "api_error", "internal error")
		return
	}
	req.ContentLength = r.ContentLength
	req.Header = passed(r.Header, requestHeader)
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("X-Api-Key", d.cfg.Key.Reveal())

	m := newMeter(began, d.cfg.Now)
	if p.Meter != nil {
		defer func() { p.Meter(m.usage(d.cfg.Prices)) }()
	}
	resp, err := d.client.Do(req)
	if err != nil {
		d.unreachable(w, r, p, err)
		return
	}
	defer resp.Body.Close()
	m.begin(resp.StatusCode, resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		d.cfg.Log.Error().Str("event", "model.key_refused").Str("run", string(p.Run)).Int("status", resp.StatusCode).Send()
	}
	for name, values := range passed(resp.Header, responseHeader) {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if err := stream(w, resp.Body, m); err != nil && r.Context().Err() == nil {
		d.cfg.Log.Warn().Str("event", "model.cut").Str("run", string(p.Run)).Err(err).Send()
		panic(http.ErrAbortHandler) // an answer that broke off must not look like one that ended
	}
}

// stream copies an answer, flushing each piece, so that the first word is seen when it is said. The meter reads along.
func stream(w http.ResponseWriter, from io.Reader, m *meter) error {
	flush := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if ferr := flush.Flush(); ferr != nil {
				return ferr
			}
			m.read(buf[:n])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// unreachable answers for a model that could not be asked. What went wrong, with its addresses, is for the operator only.
func (d *Doors) unreachable(w http.ResponseWriter, r *http.Request, p Process, err error) {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", "request too large")
	case r.Context().Err() != nil && !errors.Is(err, context.DeadlineExceeded):
		// The caller is gone: nobody reads an answer.
	default:
		d.cfg.Log.Error().Str("event", "model.unreachable").Str("run", string(p.Run)).Err(err).Send()
		refuse(w, http.StatusBadGateway, "api_error", "the model cannot be reached")
	}
}

// passed copies the headers that may cross the door. A list of what passes, not of what does not: credentials, cookies and
// hop-by-hop headers have too many names.
func passed(h http.Header, may func(string) bool) http.Header {
	out := http.Header{}
	for name, values := range h {
		if may(strings.ToLower(name)) {
			out[name] = slices.Clone(values)
		}
	}
	return out
}

func requestHeader(name string) bool {
	switch name {
	case "content-type", "accept", "user-agent", "x-app":
		return true
	}
	return strings.HasPrefix(name, "anthropic-") || strings.HasPrefix(name, "x-stainless-") || strings.HasPrefix(name, "x-claude-code-")
}

// responseHeader leaves out what tells of the operator's account, such as organization ids and rate limits.
func responseHeader(name string) bool {
	switch name {
	case "content-type", "request-id", "retry-after", "retry-after-ms", "x-should-retry":
		return true
	}
	return false
}

// orZero keeps a duration that a stepped-back clock made negative from being counted.
func orZero(d time.Duration) time.Duration { return max(0, d) }
