package anthropic

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// Fault is what goes wrong with the next requests to /v1/messages. Several fields may be set: a slow 529 is Delay and
// Status. As JSON its durations are nanoseconds.
type Fault struct {
	// Times is how many requests it hits. 0 means one.
	Times int `json:"times,omitempty"`
	// Only hits requests whose person's text contains it. Empty: every request.
	Only string `json:"only,omitempty"`
	// Status answers with this error instead of a message: 400, 401, 403, 404, 413, 429, 500, 529.
	Status int `json:"status,omitempty"`
	// RetryAfter goes into the retry-after header of Status, in whole seconds. 0: no header.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Delay passes before the first byte; Hold keeps the first byte back until it is closed.
	Delay time.Duration   `json:"delay,omitempty"`
	Hold  <-chan struct{} `json:"-"`
	// Cut closes the connection in the middle of the stream.
	Cut bool `json:"cut,omitempty"`
	// Silent begins the stream and then says nothing more until the client goes away.
	Silent bool `json:"silent,omitempty"`
	// StreamError sends an overloaded_error event in the middle of the stream.
	StreamError bool `json:"stream_error,omitempty"`
	// StopReason ends the message with another stop reason: max_tokens (text cut in half, no tool use), refusal (no
	// content), pause_turn.
	StopReason string `json:"stop_reason,omitempty"`
}

// Fault queues a fault. Faults come to pass in the order given.
func (s *Server) Fault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults = append(s.faults, f)
}

func (s *Server) nextFault(text string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.faults {
		f := s.faults[i]
		if !strings.Contains(text, f.Only) {
			continue
		}
		if s.faults[i].Times--; s.faults[i].Times == 0 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		return &f
	}
	return nil
}

// hold waits as the fault says. It returns false when the client is gone.
func (s *Server) hold(ctx context.Context, f Fault) bool {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.quit:
		case <-ctx.Done():
			return false
		}
	}
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-s.quit:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// problem is the fault's status in the API's words.
func (f Fault) problem() problem {
	p := problem{f.Status, "api_error", "Internal server error"}
	switch f.Status {
	case http.StatusBadRequest:
		p.kind, p.message = "invalid_request_error", "The request is invalid"
	case http.StatusUnauthorized:
		p.kind, p.message = "authentication_error", "invalid x-api-key"
	case http.StatusForbidden:
		p.kind, p.message = "permission_error", "Your API key does not have permission to use the specified resource"
	case http.StatusNotFound:
		p.kind, p.message = "not_found_error", "model: not found"
	case http.StatusRequestEntityTooLarge:
		p.kind, p.message = "request_too_large", "Request exceeds the maximum size"
	case http.StatusTooManyRequests:
		p.kind, p.message = "rate_limit_error", "This request would exceed your organization's rate limit"
	case 529: // the API's own code for "everybody is busy"
		p.kind, p.message = "overloaded_error", "Overloaded"
	}
	return p
}
