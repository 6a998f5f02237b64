package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Config is how a stand-in behaves. The zero value is a working one.
type Config struct {
	// Now is the clock. It dates the requests, and the answers when the prompt has no date line. Default: time.Now.
	Now func() time.Time
	// Key is the accepted API key, as x-api-key or as bearer. Any other gets 401. Default: "sim-key".
	Key string
	// Zone is where "mañana" is when the prompt has no date line. Default: UTC.
	Zone *time.Location
	// Scripts are tried, in order, before the demo's own.
	Scripts []Script
}

// Server answers as the Messages API does. It is safe for use by many requests at once.
type Server struct {
	cfg  Config
	quit chan struct{}
	once sync.Once

	mu        sync.Mutex
	requests  []Request
	kept      int           // bytes of the bodies in requests
	forgotten int           // requests dropped from the front
	arrived   int           // /v1/messages requests so far
	news      chan struct{} // closed and replaced whenever arrived grows
	faults    []Fault
}

// Bounds of the record: a demo may run for weeks.
const (
	maxRequests = 2000
	maxKept     = 64 << 20
	maxBody     = 32 << 20 // the real API's limit, beyond it 413
)

// New returns a stand-in with the given behaviour.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Key == "" {
		cfg.Key = "sim-key"
	}
	if cfg.Zone == nil {
		cfg.Zone = time.UTC
	}
	return &Server{cfg: cfg, quit: make(chan struct{}), news: make(chan struct{})}
}

// Run serves on listen ("127.0.0.1:0") until ctx ends, and says on log where it listens.
func Run(ctx context.Context, listen string, cfg Config, log io.Writer) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening for the model stand-in: %w", err)
	}
	s := New(cfg)
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(log, "model stand-in on http://%s\n", ln.Addr())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err = <-done:
		return fmt.Errorf("serving the model stand-in: %w", err)
	case <-ctx.Done():
	}
	s.Close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err = srv.Shutdown(grace); err != nil {
		err = errors.Join(err, srv.Close())
	}
	<-done
	return err
}

// Close lets go of requests that a fault holds. The handler keeps answering.
func (s *Server) Close() {
	s.once.Do(func() { close(s.quit) })
}

// Handler serves the API, and beside it /sim/requests (the record, without bodies) and /sim/fault (a Fault as JSON) for
// those who run the stand-in as a process of its own.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /api/hello", s.hello) // also HEAD
	mux.HandleFunc("GET /sim/requests", s.showRequests)
	mux.HandleFunc("POST /sim/fault", s.takeFault)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, s.record(r, nil, Request{}), problem{http.StatusNotFound, "not_found_error", "Not found"})
	})
	return mux
}

// Requests returns every request so far, oldest first (the latest 2,000 or 64 MiB of them).
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Wait returns once n requests to /v1/messages have arrived since the start, or when ctx ends.
func (s *Server) Wait(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		arrived, news := s.arrived, s.news
		s.mu.Unlock()
		if arrived >= n {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("waiting for model request %d, have %d: %w", n, arrived, ctx.Err())
		}
	}
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	body, asked, number, ok := s.receive(w, r)
	if !ok {
		return
	}
	fault := s.nextFault(asked.Text)
	if fault != nil && !s.hold(r.Context(), *fault) {
		return
	}
	if fault != nil && fault.Status != 0 {
		if fault.RetryAfter > 0 {
			w.Header().Set("retry-after", strconv.Itoa(int(fault.RetryAfter.Seconds())))
		}
		s.refuse(w, number, fault.problem())
		return
	}
	var req request
	if p := decode(r, body, &req); p != nil {
		s.refuse(w, number, *p)
		return
	}
	script, blocks := s.play(req)
	m := newMessage(req, len(body), number, blocks)
	if fault != nil && fault.StopReason != "" {
		m.stop(fault.StopReason)
	}
	s.finish(number, http.StatusOK, script)
	if req.Stream {
		s.stream(w, r, m, fault)
		return
	}
	w.Header().Set("request-id", requestID(number))
	writeJSON(w, http.StatusOK, m)
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	body, _, number, ok := s.receive(w, r)
	if !ok {
		return
	}
	var req request
	req.MaxTokens = 1 // not part of this request
	if p := decode(r, body, &req); p != nil {
		s.refuse(w, number, *p)
		return
	}
	s.finish(number, http.StatusOK, "")
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": tokens(len(body))})
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	number := s.record(r, nil, Request{})
	if p := s.authorize(r); p != nil {
		s.refuse(w, number, *p)
		return
	}
	type model struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Name    string `json:"display_name"`
		Created string `json:"created_at"`
	}
	list := []model{
		{"model", "claude-sonnet-5-5", "Claude Sonnet 5.5", "2026-06-01T00:00:00Z"},
		{"model", "claude-haiku-4-5", "Claude Haiku 4.5", "2025-10-01T00:00:00Z"},
	}
	s.finish(number, http.StatusOK, "")
	writeJSON(w, http.StatusOK, map[string]any{
		"data": list, "first_id": list[0].ID, "last_id": list[len(list)-1].ID, "has_more": false,
	})
}

func (s *Server) hello(w http.ResponseWriter, r *http.Request) {
	s.finish(s.record(r, nil, Request{}), http.StatusOK, "")
	writeJSON(w, http.StatusOK, map[string]string{"message": "hello"})
}

func (s *Server) showRequests(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, s.Requests())
}

func (s *Server) takeFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.Fault(f)
	w.WriteHeader(http.StatusNoContent)
}
