package gateway

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions are a door's living MCP sessions of the old era. The SDK keeps some of its own and does not tell: a call that
// it never sees would neither be known by its id nor keep its session from ending.
//
// Clients seldom say goodbye, so a session ends when it was idle long enough, and there is a cap.
type sessions struct {
	max  int
	idle time.Duration
	now  func() time.Time

	mu       sync.Mutex
	all      map[string]*session
	reserved int
}

type session struct {
	used time.Time
	busy int // requests under way, an open stream among them
}

// reserve takes a place for one more session; false when there is none. Whoever has one calls release when the session is
// made, or is not going to be.
func (s *sessions) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all)+s.reserved >= s.max {
		return false
	}
	s.reserved++
	return true
}

func (s *sessions) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
}

// begin is the SDK's question for a new session's id.
func (s *sessions) begin() string {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[id] = &session{used: s.now()}
	return id
}

// enter marks a session as in use until leave; false when there is no such session.
func (s *sessions) enter(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[id]
	if ok {
		one.busy++
	}
	return ok
}

func (s *sessions) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok := s.all[id]; ok { // it may have said goodbye
		one.busy--
		one.used = s.now()
	}
}

func (s *sessions) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

// sweep ends the sessions that were idle too long, and tells how many there are left.
func (s *sessions) sweep(server *mcp.Server) (left int) {
	s.mu.Lock()
	old := map[string]bool{}
	for id, one := range s.all {
		if one.busy == 0 && s.now().Sub(one.used) >= s.idle {
			old[id] = true
			delete(s.all, id)
		}
	}
	left = len(s.all)
	s.mu.Unlock()
	if len(old) == 0 {
		return left
	}
	for one := range server.Sessions() {
		if old[one.ID()] {
			_ = one.Close() // nobody is at its other end
		}
	}
	return left
}
