// Package oauth stands in for a vendor's hosted MCP server with OAuth 2.1: a protected resource (RFC 9728) that tells who is
// asking, and the authorization server (RFC 8414) that lets people in. It remembers what was asked of it, and goes wrong on
// demand.
//
// It refuses what a strict server refuses: a code without its verifier, redirect or resource, a refresh token seen twice, a
// foreign client. It consents by itself, as whoever the browser says it is: the query "login", default mia.
package oauth

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Config says what the stand-in can do. The zero value knows no client and registers none.
type Config struct {
	// Now is the clock of everything that has a life. Default time.Now.
	Now func() time.Time
	// TakesDocuments lets a client id be the address of a metadata document, which Client fetches; Registers offers dynamic
	// registration; Clients are known beforehand, secret by id (empty: a public one).
	TakesDocuments bool
	Registers      bool
	Clients        map[string]string
	Client         *http.Client
	// Path is the issuer's path, "/tenant"; empty: none.
	Path string
	// Life is that of an access token. Default one hour.
	Life time.Duration
	// Rotates gives a new refresh token with each refresh, and ends the family when an old one comes again.
	Rotates bool
	// Grace is how long after a refresh the old refresh token still gives the same pair. Default: not at all.
	Grace time.Duration
	// Audience is demanded instead of the resource. Default: the resource is.
	Audience string
	// Names puts an ID token with this e-mail domain into token answers. Default: none.
	Names string
}

// Faults are what goes wrong. The zero value is nothing.
type Faults struct {
	Metadata  map[string]any // members of the server's metadata to replace; nil removes one
	Resource  map[string]any // of the resource's
	Iss       string         // said in the authorization answer; "none": left out. Default: the issuer
	Challenge string         // whole WWW-Authenticate of the resource. Default: the right one; "none": left out

	TokenStatus   int    // of the token endpoint, instead of an answer
	TokenError    string // error it gives, with status 400
	TokenRedirect string // where it redirects to
	// Lose cuts the connection after so many refreshes were done, instead of answering.
	Lose int
	// Hold makes the token endpoint wait until it is closed, or the client leaves. Held, if set, hears of each that waits.
	Hold <-chan struct{}
	Held chan<- struct{}
	// Refuse makes the resource refuse every token.
	Refuse bool
}

// Use is one request at the resource.
type Use struct {
	Login  string // whose token it was; empty: none that is good
	Bearer string
	Method string
}

// Server is both servers. Safe for concurrent use.
type Server struct {
	cfg Config

	mu       sync.Mutex
	faults   Faults
	clients  map[string]registered
	codes    map[string]*grant
	access   map[string]*token
	refresh  map[string]*token
	asked    map[string]int // requests by path
	forms    []url.Values   // of the token endpoint, secrets included
	uses     []Use
	revoked  []string
	warnings []string
}

// registered is a client.
type registered struct {
	secret    string
	redirects []string
}

// grant is a person's consent, and the family of tokens that came of it.
type grant struct {
	login, client, redirect, challenge, resource, scope string
	used, over                                          bool
}

// token is one access or refresh token.
type token struct {
	grant  *grant
	ends   time.Time // access
	spent  time.Time // refresh: when it was rotated
	answer map[string]any
}

// New makes one; serve it with Handler.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Life <= 0 {
		cfg.Life = time.Hour
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: 10 * time.Second}
	}
	s := &Server{cfg: cfg, clients: map[string]registered{}, codes: map[string]*grant{}, access: map[string]*token{},
		refresh: map[string]*token{}, asked: map[string]int{}}
	for id, secret := range cfg.Clients {
		s.clients[id] = registered{secret: secret}
	}
	return s
}

// Set replaces the faults.
func (s *Server) Set(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Forget loses all clients, as a vendor does that restores a backup.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.clients)
}

// Expire ends all access tokens now, refresh tokens not.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.access)
}

// Withdraw ends a person's grants, as they may on the vendor's page.
func (s *Server) Withdraw(login string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tokens := range []map[string]*token{s.access, s.refresh} {
		for _, t := range tokens {
			if t.grant.login == login {
				t.grant.over = true
			}
		}
	}
}

// Asked tells how often a path was asked for.
func (s *Server) Asked(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// Forms gives the forms of a grant type that the token endpoint got, in order.
func (s *Server) Forms(grantType string) []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []url.Values
	for _, f := range s.forms {
		if f.Get("grant_type") == grantType {
			all = append(all, f)
		}
	}
	return all
}

// Uses gives the requests at the resource, in order.
func (s *Server) Uses() []Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.uses)
}

// Revoked gives the tokens that were revoked.
func (s *Server) Revoked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.revoked)
}

// Secrets gives every token and code there ever was, to look for where they must not be.
func (s *Server) Secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Keys(s.codes))
	all = slices.AppendSeq(all, maps.Keys(s.access))
	return slices.AppendSeq(all, maps.Keys(s.refresh))
}

// Warnings gives what a client must never do and did.
func (s *Server) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.warnings)
}

// Handler serves both.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-protected-resource/mcp", s.resourceMetadata)
	mux.HandleFunc("GET /.well-known/oauth-authorization-server"+s.cfg.Path, s.metadata)
	mux.HandleFunc("GET /oauth/authorize", s.authorize)
	mux.HandleFunc("POST /oauth/register", s.register)
	mux.HandleFunc("POST /oauth/token", s.token)
	mux.HandleFunc("POST /oauth/revoke", s.revoke)
	mux.HandleFunc("POST /mcp", s.mcp)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.URL.Path]++
		s.mu.Unlock()
		mux.ServeHTTP(w, r)
	})
}

// base is the origin under which a request came.
func base(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (s *Server) issuer(r *http.Request) string { return base(r) + s.cfg.Path }

func (s *Server) resourceMetadata(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	say(w, http.StatusOK, replaced(map[string]any{"resource": base(r) + "/mcp", "authorization_servers": []string{s.issuer(r)},
		"scopes_supported": []string{"notes.read", "notes.write"}}, s.faults.Resource))
}

func (s *Server) metadata(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]any{
		"issuer": s.issuer(r), "authorization_endpoint": base(r) + "/oauth/authorize", "token_endpoint": base(r) + "/oauth/token",
		"revocation_endpoint": base(r) + "/oauth/revoke", "response_types_supported": []string{"code"},
		"grant_types_supported": []string{"authorization_code", "refresh_token"}, "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic"}, "scopes_supported": []string{"notes.read", "offline_access"},
		"authorization_response_iss_parameter_supported": true,
	}
	if s.cfg.TakesDocuments {
		m["client_id_metadata_document_supported"] = true
	}
	if s.cfg.Registers {
		m["registration_endpoint"] = base(r) + "/oauth/register"
	}
	say(w, http.StatusOK, replaced(m, s.faults.Metadata))
}

func replaced(m, by map[string]any) map[string]any {
	for name, value := range by {
		if m[name] = value; value == nil {
			delete(m, name)
		}
	}
	return m
}

func say(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client is gone: nobody to tell
}

func refuse(w http.ResponseWriter, status int, code string) {
	say(w, status, map[string]string{"error": code, "error_description": "canary of the server's own words"})
}

// fresh makes a token's text.
func fresh(prefix string) string {
	var b [24]byte
	rand.Read(b[:])
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}
