package anthropic

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// Request is one HTTP request as it came in, and what became of it.
type Request struct {
	At     time.Time   `json:"at"`
	Method string      `json:"method"`
	Path   string      `json:"path"` // with its query
	Header http.Header `json:"header"`
	Body   []byte      `json:"-"`
	// The rest is read from the body, as far as it can be.
	Model    string    `json:"model,omitempty"`
	Stream   bool      `json:"stream,omitempty"`
	System   string    `json:"-"`
	Tools    []string  `json:"tools,omitempty"`    // names the model may call at once
	Deferred []string  `json:"deferred,omitempty"` // names it must load first
	Messages []Message `json:"-"`
	Text     string    `json:"text,omitempty"` // what the person wrote in this turn
	// Status and Script are what was answered; Status is 0 while the answer is not begun.
	Status int    `json:"status"`
	Script string `json:"script,omitempty"`
}

// keyHeaders hold the key. The record has a hash in their place: enough to compare, useless to steal.
func keyHeaders() []string { return []string{"X-Api-Key", "Authorization"} }

// receive reads, records and authorizes a request. When it returns false the answer is given.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) (body []byte, asked Request, number int, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	asked = s.read(body)
	number = s.record(r, body, asked)
	var tooLarge *http.MaxBytesError
	var p *problem
	switch {
	case errors.As(err, &tooLarge):
		p = &problem{http.StatusRequestEntityTooLarge, "request_too_large", "Request exceeds the maximum size"}
	case err != nil:
		return nil, asked, number, false // the client went away
	default:
		p = s.authorize(r)
	}
	if p != nil {
		s.refuse(w, number, *p)
		return nil, asked, number, false
	}
	return body, asked, number, true
}

// record keeps the request and returns its number, from 1.
func (s *Server) record(r *http.Request, body []byte, rec Request) int {
	rec.At, rec.Method, rec.Path, rec.Body = s.cfg.Now(), r.Method, r.URL.RequestURI(), body
	rec.Header = r.Header.Clone()
	for _, h := range keyHeaders() {
		if v := rec.Header.Get(h); v != "" {
			sum := sha256.Sum256([]byte(strings.TrimPrefix(v, "Bearer ")))
			rec.Header.Set(h, "sha256:"+hex.EncodeToString(sum[:]))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, rec)
	s.kept += len(body)
	for len(s.requests) > maxRequests || s.kept > maxKept && len(s.requests) > 1 {
		s.kept -= len(s.requests[0].Body)
		s.requests = s.requests[1:]
		s.forgotten++
	}
	if r.URL.Path == "/v1/messages" {
		s.arrived++
		close(s.news)
		s.news = make(chan struct{})
	}
	return s.forgotten + len(s.requests)
}

// read fills the convenience fields from a body. A body that is no request gives none.
func (s *Server) read(body []byte) Request {
	var req request
	if len(body) == 0 || json.Unmarshal(body, &req) != nil {
		return Request{}
	}
	t := s.turn(req)
	rec := Request{
		Model: req.Model, Stream: req.Stream, System: t.System, Deferred: t.Deferred, Messages: t.Messages, Text: t.Text,
	}
	for _, tool := range t.Tools {
		rec.Tools = append(rec.Tools, tool.Name)
	}
	return rec
}

func (s *Server) finish(number, status int, script string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := number - 1 - s.forgotten; i >= 0 {
		s.requests[i].Status, s.requests[i].Script = status, script
	}
}

// refuse answers with an error.
func (s *Server) refuse(w http.ResponseWriter, number int, p problem) {
	s.finish(number, p.status, "")
	w.Header().Set("request-id", requestID(number))
	writeJSON(w, p.status, map[string]any{
		"type":       "error",
		"error":      map[string]string{"type": p.kind, "message": p.message},
		"request_id": requestID(number),
	})
}

func (s *Server) authorize(r *http.Request) *problem {
	key := r.Header.Get("x-api-key")
	if key == "" {
		key, _ = strings.CutPrefix(r.Header.Get("authorization"), "Bearer ")
	}
	switch {
	case key == "":
		return &problem{http.StatusUnauthorized, "authentication_error", "x-api-key header is required"}
	case subtle.ConstantTimeCompare([]byte(key), []byte(s.cfg.Key)) != 1:
		return &problem{http.StatusUnauthorized, "authentication_error", "invalid x-api-key"}
	}
	return nil
}
