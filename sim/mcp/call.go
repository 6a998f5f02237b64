package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// call performs a tool and answers, as far as its fault lets it.
func (s *Server) call(w http.ResponseWriter, r *http.Request, m rpc, secret string) {
	fault := s.nextFault()
	if refusedBefore(w, fault) {
		return
	}
	c := Call{Tool: m.Params.Name, Arguments: string(m.Params.Arguments), Session: r.Header.Get("Mcp-Session-Id"), Secret: secret, Cancelled: make(chan struct{})}
	tool, ok := s.begin(c, string(m.ID))
	if !ok {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"unknown tool"}}`, m.ID)
		return
	}
	defer s.end(c, string(m.ID))
	stream := s.cfg.Events || len(m.Params.Meta.Token) > 0
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
		flush(w)
	}
	progress := func(done, total float64, message string) {
		params, _ := json.Marshal(map[string]any{"progressToken": m.Params.Meta.Token, "progress": done, "total": total, "message": message})
		event(w, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":%s}`, params))
	}
	result := Text(c.Tool + " " + c.Arguments)
	if tool.Do != nil {
		result = tool.Do(c, progress)
	}
	whole := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	switch {
	case spoilt(w, r, c, m, fault, whole):
	case fault == Hang:
		s.hang(r, c, string(m.ID))
	case stream:
		event(w, whole)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, whole)
	}
}

// begin writes a call into the ledger.
func (s *Server) begin(c Call, id string) (Tool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tools {
		if t.name() == c.Tool {
			s.performed = append(s.performed, c)
			s.running[c.Session+" "+id] = c.Cancelled
			s.tell()
			return t, true
		}
	}
	return Tool{}, false
}

func (s *Server) end(c Call, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, c.Session+" "+id)
}

// hang waits for the client to lose patience.
func (s *Server) hang(r *http.Request, c Call, id string) {
	select {
	case <-c.Cancelled:
	case <-r.Context().Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancelled = append(s.cancelled, id)
		s.tell()
	}
}

// refusedBefore plays the faults that come before a tool is performed.
func refusedBefore(w http.ResponseWriter, f Fault) bool {
	switch f {
	case CutBefore:
		cut(w)
	case Refuse:
		http.Error(w, "unauthorized", http.StatusUnauthorized)
	case Forbid:
		http.Error(w, "forbidden", http.StatusForbidden)
	case Busy:
		w.Header().Set("Retry-After", "7")
		http.Error(w, "busy", http.StatusTooManyRequests)
	case Broken:
		http.Error(w, "Error: boom\n    at /srv/app.js:1:2", http.StatusInternalServerError)
	case Redirect:
		w.Header().Set("Location", "http://169.254.169.254/")
		w.WriteHeader(http.StatusFound)
	default:
		return false
	}
	return true
}

// spoilt plays the faults of an answer.
func spoilt(w http.ResponseWriter, r *http.Request, c Call, m rpc, f Fault, whole string) bool {
	say := func(kind, body string) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body) // a client that is gone has seen enough
	}
	switch f {
	case CutAfter:
		cut(w)
	case WrongID:
		say("application/json", strings.Replace(whole, `"id":`+string(m.ID), `"id":`+string(m.ID)+"99", 1))
	case StringID:
		say("application/json", strings.Replace(whole, `"id":`+string(m.ID), `"id":"`+string(m.ID)+`"`, 1))
	case WrongType:
		say("text/html", whole)
	case Batch:
		say("application/json", "["+whole+"]")
	case NoJSON:
		say("application/json", whole[:len(whole)/2])
	case EmptyStream:
		say("text/event-stream", ": nothing\n\n")
	case Endless:
		say("application/json", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[{"type":"text","text":"`)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				break
			}
		}
	case Flood:
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n"); err != nil {
				break
			}
		}
	case Chatter:
		w.Header().Set("Content-Type", "text/event-stream")
		for _, other := range []string{
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}`,
			`{"jsonrpc":"2.0","id":"srv-1","method":"sampling/createMessage","params":{}}`,
			`{"jsonrpc":"2.0","id":"srv-2","method":"ping"}`,
			`{"jsonrpc":"2.0","id":4242424242,"result":` + Text("somebody else's") + `}`,
			whole,
		} {
			event(w, other)
		}
	default:
		return false
	}
	return true
}

// cut breaks the connection.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = conn.Close()
}
