package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
)

// register takes a client on (RFC 7591).
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var c struct {
		Redirects []string `json:"redirect_uris"`
	}
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || len(c.Redirects) == 0 || !s.cfg.Registers {
		refuse(w, http.StatusBadRequest, "invalid_client_metadata")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fresh("client_")
	s.clients[id] = registered{redirects: c.Redirects}
	say(w, http.StatusCreated, map[string]any{"client_id": id, "redirect_uris": c.Redirects, "token_endpoint_auth_method": "none"})
}

// authorize lets a person in and sends them back with a code. Whoever its client is comes first: what goes wrong before that
// is known is said on a page.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	c, known := s.client(r.Context(), q.Get("client_id"))
	back, err := url.Parse(q.Get("redirect_uri"))
	if !known || err != nil || len(c.redirects) > 0 && !slices.Contains(c.redirects, q.Get("redirect_uri")) {
		http.Error(w, "unknown client or redirect", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := url.Values{"state": {q.Get("state")}, "iss": {s.issuer(r)}}
	switch {
	case s.faults.Iss == "none":
		answer.Del("iss")
	case s.faults.Iss != "":
		answer.Set("iss", s.faults.Iss)
	}
	login := q.Get("login")
	if login == "" {
		login = "mia"
	}
	switch {
	case login == "nobody":
		answer.Set("error", "access_denied")
	case q.Get("response_type") != "code", q.Get("code_challenge_method") != "S256", len(q.Get("code_challenge")) != 43:
		answer.Set("error", "invalid_request")
	case s.cfg.Audience == "" && (len(q["resource"]) != 1 || q.Get("resource") != base(r)+"/mcp"), q.Get("audience") != s.cfg.Audience:
		answer.Set("error", "invalid_target")
	default:
		code := fresh("code_")
		s.codes[code] = &grant{login: login, client: q.Get("client_id"), redirect: q.Get("redirect_uri"), challenge: q.Get("code_challenge"),
			resource: q.Get("resource"), scope: q.Get("scope")}
		answer.Set("code", code)
	}
	back.RawQuery = answer.Encode()
	w.Header().Set("Location", back.String())
	w.WriteHeader(http.StatusFound)
}

// client finds a client, at its own address if its id is one.
func (s *Server) client(ctx context.Context, id string) (registered, bool) {
	s.mu.Lock()
	c, known := s.clients[id]
	s.mu.Unlock()
	if known || !s.cfg.TakesDocuments {
		return c, known
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return registered{}, false
	}
	resp, err := s.cfg.Client.Do(req)
	if err != nil {
		return registered{}, false
	}
	defer resp.Body.Close()
	var d struct {
		ID        string   `json:"client_id"`
		Redirects []string `json:"redirect_uris"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 5<<10)).Decode(&d)
	if err != nil || resp.StatusCode != http.StatusOK || d.ID != id || len(d.Redirects) == 0 {
		return registered{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[id] = registered{redirects: d.Redirects}
	return s.clients[id], true
}

// token exchanges codes and refresh tokens.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || len(r.URL.RawQuery) > 0 {
		refuse(w, http.StatusBadRequest, "invalid_request")
		return
	}
	s.mu.Lock()
	f := s.faults
	s.forms = append(s.forms, r.PostForm)
	s.mu.Unlock()
	if f.Hold != nil {
		if f.Held != nil {
			f.Held <- struct{}{}
		}
		select {
		case <-f.Hold:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case f.TokenRedirect != "":
		http.Redirect(w, r, f.TokenRedirect, http.StatusTemporaryRedirect)
	case f.TokenStatus != 0:
		w.WriteHeader(f.TokenStatus)
	case f.TokenError != "":
		refuse(w, http.StatusBadRequest, f.TokenError)
	default:
		s.exchange(w, r)
	}
}

func (s *Server) exchange(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.PostForm.Get("client_id")
	name, secret, basic := r.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(name) // what is not escaped well is no client's
		secret, _ = url.QueryUnescape(secret)
	}
	c, known := s.clients[id]
	if !known || c.secret != secret {
		refuse(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	switch r.PostForm.Get("grant_type") {
	case "authorization_code":
		s.exchangeCode(w, r, id)
	case "refresh_token":
		s.exchangeRefresh(w, r, id)
	default:
		refuse(w, http.StatusBadRequest, "unsupported_grant_type")
	}
}

func (s *Server) exchangeCode(w http.ResponseWriter, r *http.Request, client string) {
	f := r.PostForm
	g := s.codes[f.Get("code")]
	sum := sha256.Sum256([]byte(f.Get("code_verifier")))
	if g != nil && g.used {
		g.over = true
		s.warnings = append(s.warnings, "a code came twice")
	}
	if g == nil || g.used || g.client != client || g.redirect != f.Get("redirect_uri") || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
		refuse(w, http.StatusBadRequest, "invalid_grant")
		return
	}
	if f.Get("resource") != g.resource {
		refuse(w, http.StatusBadRequest, "invalid_target")
		return
	}
	g.used = true
	say(w, http.StatusOK, s.issue(g, fresh("refresh_")))
}

func (s *Server) exchangeRefresh(w http.ResponseWriter, r *http.Request, client string) {
	old := s.refresh[r.PostForm.Get("refresh_token")]
	if old == nil || old.grant.over || old.grant.client != client {
		refuse(w, http.StatusBadRequest, "invalid_grant")
		return
	}
	if !old.spent.IsZero() && s.cfg.Now().Sub(old.spent) >= s.cfg.Grace {
		old.grant.over = true
		refuse(w, http.StatusBadRequest, "invalid_grant")
		return
	}
	if old.spent.IsZero() {
		next := r.PostForm.Get("refresh_token")
		if s.cfg.Rotates {
			next = fresh("refresh_")
			old.spent = s.cfg.Now()
		}
		old.answer = s.issue(old.grant, next)
	}
	if s.faults.Lose > 0 {
		s.faults.Lose--
		panic(http.ErrAbortHandler)
	}
	say(w, http.StatusOK, old.answer)
}

// issue makes a pair.
func (s *Server) issue(g *grant, refresh string) map[string]any {
	access := fresh("access_")
	s.access[access] = &token{grant: g, ends: s.cfg.Now().Add(s.cfg.Life)}
	if s.refresh[refresh] == nil {
		s.refresh[refresh] = &token{grant: g}
	}
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": int(s.cfg.Life.Seconds()), "refresh_token": refresh}
	if g.scope != "" {
		answer["scope"] = g.scope
	}
	if s.cfg.Names != "" {
		claims, _ := json.Marshal(map[string]string{"email": g.login + "@" + s.cfg.Names}) // strings always marshal
		answer["id_token"] = "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
	}
	return answer
}

// revoke ends a token's family (RFC 7009).
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	if r.ParseForm() != nil {
		refuse(w, http.StatusBadRequest, "invalid_request")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = append(s.revoked, r.PostForm.Get("token"))
	for _, tokens := range []map[string]*token{s.access, s.refresh} {
		if t := tokens[r.PostForm.Get("token")]; t != nil {
			t.grant.over = true
		}
	}
	w.WriteHeader(http.StatusOK)
}
