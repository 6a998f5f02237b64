package pipedream

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxRequest bounds what is read of a request.
const maxRequest = 1 << 20

// request is one call of the API, read whole.
type request struct {
	method string
	path   string   // below /v1/
	parts  []string // of path, percent-decoded
	query  url.Values
	header http.Header
	body   object // nil when there is none
	host   string
	trap   Shape // set by a fault on configure: choices that are good in form and bad in kind
}

// answer is what goes back. A nil body is no body at all.
type answer struct {
	status int
	header map[string]string
	body   any
}

// ok and fail are the two answers most handlers give.
func ok(body any) answer { return answer{status: http.StatusOK, body: body} }
func fail(status int, text string) answer {
	return answer{status: status, body: object{"error": text}}
}

// serveAPI is the whole life of an API call: read, look for what must never be sent, misbehave if told to, answer.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	req, err := readRequest(r)
	if err != nil {
		s.write(w, fail(http.StatusBadRequest, "unreadable request"))
		return
	}
	if v := violation(req); v != "" {
		s.violate(v)
		s.write(w, fail(http.StatusBadRequest, "the stand-in refuses this for good: "+v))
		return
	}
	f := s.takeFault(req)
	if f == nil {
		s.write(w, s.route(req))
		return
	}
	s.misbehave(w, r, req, f)
}

// readRequest reads all of r.
func readRequest(r *http.Request) (request, error) {
	req := request{method: r.Method, query: r.URL.Query(), header: r.Header, host: r.Host}
	req.path = strings.TrimPrefix(r.URL.EscapedPath(), "/v1/")
	for _, p := range strings.Split(req.path, "/") {
		part, err := url.PathUnescape(p)
		if err != nil {
			return req, err
		}
		req.parts = append(req.parts, part)
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil || len(bytes.TrimSpace(raw)) == 0 {
		return req, err
	}
	return req, json.Unmarshal(raw, &req.body)
}

// text gives a string of the body, or nothing.
func (r request) text(name string) string {
	t, _ := r.body[name].(string)
	return t
}

// environment is the header every project call needs.
func (r request) environment() string { return r.header.Get("X-Pd-Environment") }

// route finds the handler of a request whose bearer is good.
func (s *Server) route(r request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := r.parts
	if r.method == http.MethodPost && r.path == "oauth/token" {
		return s.issueBearer(r)
	}
	if !s.bearerHolds(r.header.Get("Authorization")) {
		return fail(http.StatusUnauthorized, "unauthorized")
	}
	if len(p) < 2 || p[0] != "connect" {
		return fail(http.StatusNotFound, "not found")
	}
	if p[1] == "apps" {
		return s.serveApps(r, p[2:])
	}
	if p[1] != s.cfg.ProjectID || len(p) < 3 {
		return fail(http.StatusNotFound, "record not found")
	}
	if env := r.environment(); env != "development" && env != "production" {
		return fail(http.StatusBadRequest, "x-pd-environment header is required")
	}
	return s.serveProject(r, p[2], p[3:])
}

// serveProject answers calls below /v1/connect/{project}/. Files, proxy, triggers and usage are not played.
func (s *Server) serveProject(r request, what string, rest []string) answer {
	get, post, del := r.method == http.MethodGet, r.method == http.MethodPost, r.method == http.MethodDelete
	switch {
	case what == "accounts" && get && len(rest) == 0:
		return s.listAccounts(r)
	case what == "accounts" && get && len(rest) == 1:
		return s.getAccount(r, rest[0])
	case what == "accounts" && del && len(rest) == 1:
		return s.deleteAccount(r, rest[0])
	case what == "users" && get && len(rest) == 2 && rest[1] == "accounts":
		return s.accountsOfUser(r, rest[0])
	case what == "users" && del && len(rest) == 1:
		return s.deleteUser(r, rest[0])
	case what == "tokens" && post && len(rest) == 0:
		return s.createToken(r)
	case (what == "actions" || what == "components") && get && len(rest) == 0:
		return s.listActions(r)
	case (what == "actions" || what == "components") && get && len(rest) == 1:
		return s.getAction(r, rest[0])
	case what == "actions" && post && len(rest) == 1 && rest[0] == "configure":
		return s.configure(r)
	case what == "actions" && post && len(rest) == 1 && rest[0] == "props":
		return s.reloadProps(r)
	case what == "actions" && post && len(rest) == 1 && rest[0] == "run":
		return s.runAction(r)
	}
	return fail(http.StatusNotFound, "not found")
}

// write sends an answer, with unknown fields in it when that switch is on.
func (s *Server) write(w http.ResponseWriter, a answer) {
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	s.mu.Lock()
	extra := s.switches.ExtraFields
	s.mu.Unlock()
	body := a.body
	if extra {
		body = addUnknown(clone(body))
	}
	raw, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "unencodable answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(a.status)
	_, _ = w.Write(raw) // a client that went away is no concern of the stand-in
}

// addUnknown puts a field and an enum value nobody knows into every object of v, except where keys are the app's own.
func addUnknown(v any) any {
	switch v := v.(type) {
	case object:
		for k, child := range v {
			if k != "configured_props" && k != "ret" && k != "exports" && k != "context" && k != "default" {
				v[k] = addUnknown(child)
			}
		}
		v["zz_future"] = object{"kind": "unheard_of"}
	case []any:
		for i := range v {
			v[i] = addUnknown(v[i])
		}
	}
	return v
}
