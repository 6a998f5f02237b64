package pipedream

import (
	"crypto/subtle"
	"net/http"
	"strings"
)

// issueBearer answers POST /v1/oauth/token.
func (s *Server) issueBearer(r request) answer {
	s.tokenCalls++
	right := subtle.ConstantTimeCompare([]byte(r.text("client_secret")), []byte(s.cfg.ClientSecret)) == 1
	if r.text("grant_type") != "client_credentials" || r.text("client_id") != s.cfg.ClientID || !right {
		return answer{status: http.StatusUnauthorized, body: object{
			"error": "invalid_client", "error_description": "Client authentication failed."}}
	}
	token := s.marker(s.id("sim-access-", 40))
	now := s.cfg.Now()
	s.bearers[token] = now.Add(s.cfg.TokenLife)
	return ok(object{"access_token": token, "token_type": "Bearer",
		"expires_in": int(s.cfg.TokenLife.Seconds()), "created_at": now.Unix()})
}

// bearerHolds tells whether an Authorization header carries a token that lives.
func (s *Server) bearerHolds(header string) bool {
	token, isBearer := strings.CutPrefix(header, "Bearer ")
	end, known := s.bearers[token]
	return isBearer && known && s.cfg.Now().Before(end)
}

// ExpireTokens ends every access token issued so far, as if its life were over.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.bearers)
}

// TokenCalls counts requests for an access token, good or not.
func (s *Server) TokenCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokenCalls
}
