package pipedream

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Markers no agent may see, beside those made as the server runs (access tokens, connect tokens, account ids).
const (
	debugMarker     = "sim-debug-marker-5f1c7e"     // in exports.debug of upstream errors
	presignedMarker = "sim-presigned-marker-a90b42" // in get_url of stashed files
)

// violation names what pilder must never send; "" when the request is decent.
func violation(r request) string {
	_, inBody := r.body["include_credentials"]
	isProject := len(r.parts) > 2 && r.parts[0] == "connect" && r.parts[1] != "apps"
	accountList := isProject && r.method == http.MethodGet && len(r.parts) == 3 && r.parts[2] == "accounts"
	switch {
	case inBody || r.query.Has("include_credentials"):
		return "include_credentials"
	case accountList && r.query.Get("external_user_id") == "":
		return "accounts listed without external_user_id"
	case strings.HasSuffix(r.path, "/actions/run") && r.text("version") == "":
		return "run without version"
	case isProject && r.method == http.MethodDelete && len(r.parts) == 5 && r.parts[2] == "apps" && r.parts[4] == "accounts":
		return "bulk deletion of accounts"
	case r.method == http.MethodPost && (r.header.Get("Idempotency-Key") != "" || r.header.Get("X-Idempotency-Key") != ""):
		return "idempotency header on a POST"
	}
	return ""
}

// violate remembers a violation.
func (s *Server) violate(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, what)
}

// Violations lists everything sent, or shown to an agent, that must never be; a test that ends with any of them fails.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// Inspect looks for marker secrets in text that an agent would see and makes each find a violation. It gives the finds.
func (s *Server) Inspect(shown string) []string {
	var found []string
	for _, m := range s.Markers() {
		if strings.Contains(shown, m) {
			found = append(found, m)
			s.violate(fmt.Sprintf("an agent was shown %.12s…", m))
		}
	}
	return found
}

// Markers lists the texts Inspect looks for: client secret, bearers, connect tokens, account ids, dyp_ ids, debug and
// presigned markers.
func (s *Server) Markers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.markers)
}
