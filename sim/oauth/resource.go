package oauth

import (
	"encoding/json"
	"net/http"
	"strings"
)

// mcp is the protected resource: an MCP server of one tool that tells who asks, with plain JSON answers and no MCP session.
func (s *Server) mcp(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Version string `json:"protocolVersion"`
		} `json:"params"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&m)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	login, f := "", s.faults
	if t := s.access[bearer]; t != nil && !t.grant.over && s.cfg.Now().Before(t.ends) && !f.Refuse {
		login = t.grant.login
	}
	s.uses = append(s.uses, Use{Login: login, Bearer: bearer, Method: m.Method})
	s.mu.Unlock()
	if login == "" {
		challenge := `Bearer resource_metadata="` + base(r) + `/.well-known/oauth-protected-resource/mcp", scope="notes.read"`
		if f.Challenge != "" {
			challenge = f.Challenge
		}
		if challenge != "none" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		refuse(w, http.StatusUnauthorized, "invalid_token")
		return
	}
	if len(m.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	if result := resultOf(m.Method, m.Params.Version, login); result != nil {
		answer["result"] = result
	} else {
		answer["error"] = map[string]any{"code": -32601, "message": "method not found"}
	}
	say(w, http.StatusOK, answer)
}

// resultOf is what a method gives; nil for one that is not known.
func resultOf(method, version, login string) map[string]any {
	switch method {
	case "initialize":
		return map[string]any{"protocolVersion": version, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "sim-oauth", "version": "1"}}
	case "tools/list":
		return map[string]any{"tools": []any{map[string]any{"name": "whoami", "title": "Who am I", "description": "Tells whose account this is.",
			"inputSchema": map[string]any{"type": "object"}, "annotations": map[string]any{"readOnlyHint": true}}}}
	case "tools/call":
		return map[string]any{"content": []any{map[string]any{"type": "text", "text": login}}}
	}
	return nil
}
