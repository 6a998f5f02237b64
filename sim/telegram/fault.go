package telegram

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind string

// The faults. Before means that nothing was performed; after, that everything
// was and only the answer is lost.
const (
	TooManyRequests FaultKind = "429"        // nothing performed; a penalty of RetryAfter seconds begins
	ServerError     FaultKind = "500"        // JSON envelope, nothing performed
	BadGateway      FaultKind = "502"        // HTML page, nothing performed
	GatewayTimeout  FaultKind = "504"        // HTML page, nothing performed
	LateGateway     FaultKind = "504 after"  // HTML page although performed
	Hang            FaultKind = "hang"       // nothing performed, no answer until the client gives up
	HangAfter       FaultKind = "hang after" // performed, no answer until the client gives up
	CutBefore       FaultKind = "cut before" // connection closed, nothing performed
	CutAfter        FaultKind = "cut after"  // performed, connection closed without an answer
	CutBody         FaultKind = "cut body"   // performed, connection closed in the middle of the answer
	Unauthorized    FaultKind = "401"        // the token was revoked; nothing performed
	Refuse          FaultKind = "refuse"     // Code and Description as given; nothing performed
	Slow            FaultKind = "slow"       // performed and answered, after Delay
)

// longestPenalty in seconds: one that is longer would overflow the clock.
const longestPenalty = math.MaxInt32 / 2

// Fault is something that will go wrong with calls to come. Every field that
// selects must agree; those left zero select everything.
type Fault struct {
	Kind   FaultKind
	Method string             // "sendMessage"; case does not matter
	Chat   int64              // only calls with this chat_id
	Match  func(Request) bool // only calls for which it is true
	Nth    int                // the first of the selected calls to hit, counted from 1; 0 is 1
	Count  int                // how many calls in a row; 0 is 1; negative is all of them

	Delay       time.Duration // wait this long (real time) first; with every kind
	RetryAfter  int           // seconds, for TooManyRequests; 0 is 1
	BotWide     bool          // the penalty is on every call of the bot, not only on the chat
	Code        int           // for Refuse
	Description string        // for Refuse, whole: "Forbidden: bot was blocked by the user"
}

type fault struct {
	Fault
	seen, hit int
}

// Fault arranges for something to go wrong. Where several faults fit a call,
// the oldest that still has hits left is taken. The returned function takes
// the fault back.
func (s *Server) Fault(f Fault) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Nth = max(f.Nth, 1)
	if f.Count == 0 {
		f.Count = 1
	}
	f.RetryAfter = min(max(f.RetryAfter, 1), longestPenalty)
	set := &fault{Fault: f}
	s.faults = append(s.faults, set)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(g *fault) bool { return g == set })
	}
}

// takeFault finds the fault that hits the call. The caller holds mu.
func (s *Server) takeFault(c *call) *fault {
	var found *fault
	for _, f := range s.faults {
		if f.Method != "" && !strings.EqualFold(f.Method, c.method) ||
			f.Chat != 0 && f.Chat != c.record.Chat() ||
			f.Match != nil && !f.Match(*c.record) {
			continue
		}
		f.seen++
		if found == nil && f.seen >= f.Nth && (f.Count < 0 || f.hit < f.Count) {
			f.hit++
			found = f
		}
	}
	return found
}

// penalty is a 429 that has been given and not yet waited out.
type penalty struct {
	chat    int64  // 0: not bound to a chat
	method  string // for calls without a chat: only this method
	botWide bool
	until   time.Time
	told    bool // the answer that announced it has been written
}

func (p *penalty) covers(c *call) bool {
	switch {
	case p.botWide:
		return true
	case p.chat != 0:
		return c.record.Chat() == p.chat
	}
	return c.method == p.method
}

// inPenalty answers a call that should have waited. The caller holds mu.
func (s *Server) inPenalty(c *call) (answer, bool) {
	now := s.now()
	s.penalties = slices.DeleteFunc(s.penalties, func(p *penalty) bool { return !now.Before(p.until) })
	for _, p := range s.penalties {
		if !p.covers(c) {
			continue
		}
		left := int(math.Ceil(p.until.Sub(now).Seconds()))
		if p.told {
			s.violate("%s to chat %d came %d s before its penalty was over", c.record.Method, c.record.Chat(), left)
		}
		return refused(tooMany(left)), true
	}
	return answer{}, false
}

func tooMany(seconds int) *apiError {
	return &apiError{
		code: http.StatusTooManyRequests, retryAfter: seconds,
		description: fmt.Sprintf("Too Many Requests: retry after %d", seconds),
	}
}

// perform does what the call asks, unless a penalty or a fault is in the way.
func (s *Server) perform(c *call) answer {
	s.mu.Lock()
	if a, waiting := s.inPenalty(c); waiting {
		s.mu.Unlock()
		return a
	}
	f := s.takeFault(c)
	s.mu.Unlock()
	if f == nil {
		return s.execute(c)
	}
	if f.Delay > 0 && !s.sleep(c, f.Delay) {
		return answer{cut: true, verdict: "fault: client left during delay"}
	}
	a := s.fail(c, f)
	if f.Kind != Slow {
		a.verdict = "fault: " + string(f.Kind)
	}
	return a
}

func (s *Server) fail(c *call, f *fault) answer {
	switch f.Kind {
	case TooManyRequests:
		p := &penalty{chat: c.record.Chat(), method: c.method, botWide: f.BotWide}
		s.mu.Lock()
		p.until = s.now().Add(time.Duration(f.RetryAfter) * time.Second)
		s.penalties = append(s.penalties, p)
		s.mu.Unlock()
		a := refused(tooMany(f.RetryAfter))
		a.told = p
		return a
	case ServerError:
		return refused(&apiError{code: 500, description: "Internal Server Error: restart"})
	case BadGateway:
		return htmlAnswer(http.StatusBadGateway, "Bad Gateway")
	case GatewayTimeout:
		return htmlAnswer(http.StatusGatewayTimeout, "Gateway Time-out")
	case LateGateway:
		s.execute(c)
		return htmlAnswer(http.StatusGatewayTimeout, "Gateway Time-out")
	case Hang:
		return answer{hang: true}
	case HangAfter:
		s.execute(c)
		return answer{hang: true}
	case CutBefore:
		return answer{cut: true}
	case CutAfter:
		s.execute(c)
		return answer{cut: true}
	case CutBody:
		a := s.execute(c)
		a.half = true
		return a
	case Unauthorized:
		return refused(&apiError{code: 401, description: "Unauthorized"})
	case Refuse:
		return refused(&apiError{code: f.Code, description: f.Description})
	case Slow:
		return s.execute(c)
	}
	panic("telegram: no such fault: " + string(f.Kind))
}

// execute runs the method.
func (s *Server) execute(c *call) answer {
	_, do := methods(c.method)
	if do == nil {
		return refused(&apiError{code: 404, description: "Not Found: method not found"})
	}
	if c.method != "getupdates" {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	result, note, refusal := do(s, c)
	if refusal != nil {
		return refused(refusal)
	}
	return succeeded(result, note)
}

// sleep waits in real time and reports whether the client is still there.
func (s *Server) sleep(c *call, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.http.Context().Done():
	case <-s.done:
	}
	return false
}

// violate records that the bot did what no bot should. The caller holds mu.
func (s *Server) violate(format string, args ...any) {
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// Violations returns what the bot should not have done: calls during a
// penalty, a tap answered twice, the token in a parameter.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// Duplicates returns the sends that repeated a text still visible in the same
// chat. Not wrong in itself; never wanted after a fault.
func (s *Server) Duplicates() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.duplicates)
}
