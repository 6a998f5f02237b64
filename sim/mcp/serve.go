package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// rpc is a message as it came.
type rpc struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Version   string          `json:"protocolVersion"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Cursor    string          `json:"cursor"`
		Request   json.RawMessage `json:"requestId"`
		Meta      struct {
			Token   json.RawMessage `json:"progressToken"`
			Version string          `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

const modern = "2026-07-28"

// Handler serves one endpoint, at any path.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m rpc
		body, _ := io.ReadAll(io.LimitReader(r.Body, 4<<20))
		_ = json.Unmarshal(body, &m) // what is no message has no method
		s.note(r, m)
		secret, in := s.letsIn(r)
		switch {
		case !in:
			w.Header().Set("WWW-Authenticate", `Bearer realm="sim"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
		case r.Header.Get("Mcp-Protocol-Version") >= modern && !s.cfg.OnlyLegacy:
			s.modern(w, r, m, secret)
		default:
			s.legacy(w, r, m, secret)
		}
	})
}

// note remembers a request.
func (s *Server) note(r *http.Request, m rpc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, Request{Method: r.Method, RPC: m.Method, ID: string(m.ID), Session: r.Header.Get("Mcp-Session-Id"), Header: r.Header.Clone()})
	s.tell()
}

// modern serves the revision without MCP sessions.
func (s *Server) modern(w http.ResponseWriter, r *http.Request, m rpc, secret string) {
	switch {
	case r.Method != http.MethodPost:
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case m.Params.Meta.Version != modern || r.Header.Get("Mcp-Method") != m.Method || m.Method == "tools/call" && r.Header.Get("Mcp-Name") != m.Params.Name:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"headers and body differ"}}`, m.ID)
	case m.Method == "server/discover":
		answer(w, m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private"}`)
	case m.Method == "subscriptions/listen":
		s.listen(w, r)
	default:
		s.common(w, r, m, secret)
	}
}

// legacy serves the revisions with MCP sessions.
func (s *Server) legacy(w http.ResponseWriter, r *http.Request, m rpc, secret string) {
	id := r.Header.Get("Mcp-Session-Id")
	s.mu.Lock()
	known := s.cfg.Stateless || s.sessions[id]
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.sessions, id)
		s.tell()
		s.mu.Unlock()
		w.WriteHeader(http.StatusOK)
	case m.Method == "initialize":
		if !s.cfg.Stateless {
			w.Header().Set("Mcp-Session-Id", s.newSession())
		}
		version := m.Params.Version
		if version >= modern {
			version = "2025-11-25"
		}
		answer(w, m, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"sim","version":"1"}}`, version))
	case !known:
		w.WriteHeader(s.cfg.GoneStatus)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no valid session"}}`)
	case r.Method == http.MethodGet:
		s.listen(w, r)
	case m.Method == "notifications/cancelled":
		s.cancel(id, string(m.Params.Request))
		w.WriteHeader(http.StatusAccepted)
	case len(m.ID) == 0 || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		s.common(w, r, m, secret)
	}
}

// common serves what both eras have.
func (s *Server) common(w http.ResponseWriter, r *http.Request, m rpc, secret string) {
	switch m.Method {
	case "tools/list":
		s.list(w, m)
	case "tools/call":
		s.call(w, r, m, secret)
	default:
		answer(w, m, "")
	}
}

// answer writes a result; an empty one is the error of an unknown method.
func answer(w http.ResponseWriter, m rpc, result string) {
	w.Header().Set("Content-Type", "application/json")
	if result == "" {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// pageSize makes lists come in pages.
const pageSize = 5

func (s *Server) list(w http.ResponseWriter, m rpc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := 0
	_, _ = fmt.Sscan(m.Params.Cursor, &from) // none: from the start
	var all []string
	for _, t := range s.tools[min(from, len(s.tools)):min(from+pageSize, len(s.tools))] {
		all = append(all, t.Definition)
	}
	next := ""
	if from+pageSize < len(s.tools) {
		next = fmt.Sprintf(`,"nextCursor":"%d"`, from+pageSize)
	}
	answer(w, m, fmt.Sprintf(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[%s]%s}`, strings.Join(all, ","), next))
}

// listen is the stream of notices of either era.
func (s *Server) listen(w http.ResponseWriter, r *http.Request) {
	if s.cfg.NoStream {
		http.Error(w, "no stream", http.StatusMethodNotAllowed)
		return
	}
	news := make(chan struct{}, 1)
	s.mu.Lock()
	s.listening[news] = true
	s.tell()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listening, news)
		s.tell()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	flush(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-news:
			event(w, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
	}
}

func event(w http.ResponseWriter, data string) {
	fmt.Fprintf(w, "event: message\ndata: %s\n\n", data)
	flush(w)
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() } // a client that is gone is seen by the context

// cancel is a client's notice that it no longer wants an answer.
func (s *Server) cancel(session, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled = append(s.cancelled, id)
	if running := s.running[session+" "+id]; running != nil {
		close(running)
		delete(s.running, session+" "+id)
	}
	s.tell()
}
