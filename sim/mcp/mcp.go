// Package mcp stands in for any MCP server over streamable HTTP: both eras, tools on demand, a ledger of what was really
// performed, every request with its headers, and faults on demand. It checks nothing that a careless server would not.
package mcp

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Config says what kind of server it is. The zero value speaks both eras, answers in JSON and lets everybody in.
type Config struct {
	// OnlyLegacy knows nothing of 2026-07-28.
	OnlyLegacy bool
	// Stateless issues no Mcp-Session-Id in the older era.
	Stateless bool
	// Events answers calls as event streams.
	Events bool
	// NoStream answers 405 to who wants the stream of notices.
	NoStream bool
	// Secrets are the values of Header that are let in; none: everybody is.
	Secrets []string
	// Header carries them. Default Authorization, with "Bearer " before the secret.
	Header string
	// GoneStatus is the answer to an unknown Mcp-Session-Id. Default 404.
	GoneStatus int
}

// Fault is what goes wrong with a tools/call. Each is used up by one.
type Fault string

// The faults.
const (
	CutBefore   Fault = "cut before"   // the connection breaks, nothing was performed
	CutAfter    Fault = "cut after"    // the connection breaks once it was performed
	Hang        Fault = "hang"         // performed, and then no word until it is cancelled or the client goes
	Endless     Fault = "endless"      // performed, and an answer without end
	WrongID     Fault = "wrong id"     // performed, and the answer is to another request
	StringID    Fault = "string id"    // performed, and the id is another type
	WrongType   Fault = "wrong type"   // performed, and the answer calls itself text/html
	Batch       Fault = "batch"        // performed, and the answer is in an array
	NoJSON      Fault = "no json"      // performed, and the answer is none
	EmptyStream Fault = "empty stream" // performed, and the event stream ends without an answer
	Flood       Fault = "flood"        // performed, and notifications without end
	Chatter     Fault = "chatter"      // performed, and the answer comes after other notifications, requests and answers
	Refuse      Fault = "401"
	Forbid      Fault = "403"
	Busy        Fault = "429" // with Retry-After: 7
	Broken      Fault = "500"
	Redirect    Fault = "302"
)

// Tool is one tool: its definition as JSON, and what it answers.
type Tool struct {
	Definition string
	// Do gives the result as JSON; nil: a text that names the tool. progress may be called until it returns.
	Do func(c Call, progress func(done, total float64, message string)) string
}

func (t Tool) name() string {
	var head struct{ Name string }
	_ = json.Unmarshal([]byte(t.Definition), &head) // one that is broken on purpose has no name
	return head.Name
}

// Call is a tools/call as it came.
type Call struct {
	Tool      string
	Arguments string
	Session   string        // Mcp-Session-Id
	Secret    string        // as it came in Header
	Cancelled chan struct{} // closed when the client cancels, or is gone
}

// Request is an HTTP request as it came.
type Request struct {
	Method  string // of HTTP
	RPC     string // method of the message; empty where there is none
	ID      string
	Session string
	Header  http.Header
}

// Server is one MCP server. Safe for concurrent use.
type Server struct {
	cfg Config

	mu        sync.Mutex
	tools     []Tool
	sessions  map[string]bool
	requests  []Request
	performed []Call
	cancelled []string
	faults    []Fault
	listening map[chan struct{}]bool
	running   map[string]chan struct{} // by session and id
	news      chan struct{}            // closed at the next request
}

// New makes a server with tools.
func New(cfg Config, tools ...Tool) *Server {
	if cfg.Header == "" {
		cfg.Header = "Authorization"
	}
	if cfg.GoneStatus == 0 {
		cfg.GoneStatus = http.StatusNotFound
	}
	return &Server{cfg: cfg, tools: tools, sessions: map[string]bool{}, listening: map[chan struct{}]bool{},
		running: map[string]chan struct{}{}, news: make(chan struct{})}
}

// SetTools changes the list and says so to whoever listens.
func (s *Server) SetTools(tools ...Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = tools
	for l := range s.listening {
		select {
		case l <- struct{}{}:
		default:
		}
	}
}

// Restart forgets every MCP session, as a new process does.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// Fail makes the next calls fail, one each.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Secrets replaces who is let in.
func (s *Server) Secrets(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Secrets = secrets
}

// Requests gives every request so far; Performed every call that was performed; Cancelled the ids of cancelled requests.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Performed gives every call that was performed, in order.
func (s *Server) Performed() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.performed)
}

// Cancelled gives the ids of the requests that were cancelled, by notice or by going away while it ran.
func (s *Server) Cancelled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cancelled)
}

// Sessions is how many MCP sessions there are.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Listening is how many streams of notices are open.
func (s *Server) Listening() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listening)
}

// Until waits until what holds; false after a minute, which nothing relies on being short.
func (s *Server) Until(what func() bool) bool {
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		if what() {
			return true
		}
		select {
		case <-news:
		case <-limit.C:
			return false
		}
	}
}

// tell wakes whoever waits in Until. The caller holds the lock.
func (s *Server) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

func (s *Server) newSession() string {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[id] = true
	return id
}

// letsIn tells whether a request carries a secret that is let in, and which.
func (s *Server) letsIn(r *http.Request) (string, bool) {
	value := r.Header.Get(s.cfg.Header)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cfg.Secrets) == 0 {
		return value, true
	}
	for _, secret := range s.cfg.Secrets {
		if value == secret || s.cfg.Header == "Authorization" && value == "Bearer "+secret {
			return secret, true
		}
	}
	return "", false
}

// nextFault takes the next one; "" for none.
func (s *Server) nextFault() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) == 0 {
		return ""
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	return f
}

// Text makes a result of one text.
func Text(text string) string {
	raw, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}}) // a text: cannot fail
	return string(raw)
}

// Simple is a tool with an open schema that answers with its name and arguments.
func Simple(name string) Tool {
	return Tool{Definition: fmt.Sprintf(`{"name":%q,"description":"Does %s.","inputSchema":{"type":"object"}}`, name, name)}
}
