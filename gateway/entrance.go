package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/store"
)

const (
	maxDoorBody = 4 << 20
	// modernRevision is the first MCP revision without MCP sessions. A request whose header names it or a later one is of the
	// modern era, every other of the old one (tried with conformance 0.2.0-alpha.12: both pass whole).
	modernRevision = "2026-07-28"
	versionHeader  = "Mcp-Protocol-Version"
	sessionHeader  = "Mcp-Session-Id"
)

func isModern(r *http.Request) bool { return r.Header.Get(versionHeader) >= modernRevision }

// entrance is a door's HTTP side, from the outside in: path, Host, Origin, size, token, form, MCP session. What is no call
// of a tool goes to the SDK's handlers, behind the check that the run lives; of a call its own transaction checks that.
type entrance struct {
	*door
	modern http.Handler
	old    http.Handler // keeps MCP sessions: a GET stream, notices of changed lists
	loose  http.Handler // the old era without a session, for clients that do not send its id back
}

func (d *door) handler() http.Handler {
	get := func(*http.Request) *mcp.Server { return d.server } // runs once or twice a request: it only ever looks up
	stateless := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxDoorBody,
	})
	return &entrance{
		door: d, modern: stateless, loose: stateless,
		// No SessionTimeout: the door ends idle sessions itself, as it alone sees their calls.
		old: mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true, MaxRequestBodyBytes: maxDoorBody}),
	}
}

func (e *entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !e.requests.Enter() {
		refuseHTTP(w, http.StatusServiceUnavailable, "closing")
		return
	}
	defer e.requests.Leave()
	switch {
	case r.URL.Path != "/mcp":
		refuseHTTP(w, http.StatusNotFound, "not found")
	case !slices.Contains([]string{"127.0.0.1:7000", "localhost:7000", "localhost"}, r.Host):
		refuseHTTP(w, http.StatusForbidden, "forbidden")
	case len(r.Header.Values("Origin")) > 0: // no browser belongs here
		refuseHTTP(w, http.StatusForbidden, "forbidden")
	case r.ContentLength > maxDoorBody:
		refuseHTTP(w, http.StatusRequestEntityTooLarge, "too large")
	case !e.admitsToken(w, r):
	case r.Method == http.MethodPost:
		e.post(w, r)
	case !e.admitsRun(w, r):
	case isModern(r):
		e.modern.ServeHTTP(w, r) // which has none but POST
	default:
		e.inSession(w, r, func() { e.stream(w, r) })
	}
}

// post takes one message.
func (e *entrance) post(w http.ResponseWriter, r *http.Request) {
	if status, word := malformed(r); status != 0 {
		refuseHTTP(w, status, word)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDoorBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		refuseHTTP(w, http.StatusRequestEntityTooLarge, "too large")
		return
	}
	if err != nil {
		refuseHTTP(w, http.StatusBadRequest, "the body ends early")
		return
	}
	message, err := readEnvelope(body)
	if err != nil {
		code := codeRequest
		if errors.Is(err, errNoJSON) {
			code = codeParse
		}
		(&refusal{status: http.StatusBadRequest, code: code, message: err.Error()}).write(w, nil) // one of three fixed sentences
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if isModern(r) {
		e.postModern(w, r, message)
		return
	}
	e.postOld(w, r, message)
}

func (e *entrance) postModern(w http.ResponseWriter, r *http.Request, m envelope) {
	if m.method == callMethod {
		e.serveCall(w, r, m, "")
		return
	}
	if !e.admitsRun(w, r) {
		return
	}
	cw := &commentWriter{ResponseWriter: w}
	defer cw.finish()
	e.modern.ServeHTTP(cw, r.WithContext(context.WithValue(r.Context(), commentKey{}, cw)))
}

func (e *entrance) postOld(w http.ResponseWriter, r *http.Request, m envelope) {
	id := r.Header.Get(sessionHeader)
	switch {
	case m.method == callMethod:
		e.inSession(w, r, func() { e.serveCall(w, r, m, id) })
	case !e.admitsRun(w, r):
	case id == "" && m.method == "initialize":
		e.initialize(w, r)
	case id == "":
		e.heed(m, id)
		e.loose.ServeHTTP(w, r)
	default:
		// Here a handler's context is that of its session's first request, so nothing may be put into it.
		e.inSession(w, r, func() {
			e.heed(m, id)
			e.old.ServeHTTP(w, r)
		})
	}
}

func (e *entrance) heed(m envelope, session string) {
	if m.method == "notifications/cancelled" {
		e.flights.takeBack(session, m.params)
	}
}

// initialize begins an MCP session, if there is room for one.
func (e *entrance) initialize(w http.ResponseWriter, r *http.Request) {
	left := e.sessions.sweep(e.server)
	if !e.sessions.reserve() {
		e.g.cfg.Log.Warn().Str("event", "sessions.full").Str("run", string(e.run.ID)).Int("sessions", left).Int("max", e.g.cfg.MaxSessions).Send()
		w.Header().Set("Retry-After", strconv.Itoa(int(max(time.Second, e.g.cfg.SessionIdle)/time.Second)))
		refuseHTTP(w, http.StatusServiceUnavailable, "too many sessions")
		return
	}
	defer e.sessions.release()
	e.old.ServeHTTP(w, r)
}

// inSession serves a request of the old era: one that names a session needs that to live, or its client begins anew.
func (e *entrance) inSession(w http.ResponseWriter, r *http.Request, serve func()) {
	id := r.Header.Get(sessionHeader)
	if id != "" {
		if !e.sessions.enter(id) {
			refuseHTTP(w, http.StatusNotFound, "session not found")
			return
		}
		defer e.sessions.leave(id)
	}
	serve()
	if r.Method == http.MethodDelete && id != "" {
		e.sessions.forget(id)
	}
}

// stream serves what is no POST of the old era, its event stream above all, which is never silent and does not outlive its
// token.
func (e *entrance) stream(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), e.run.Expires.Sub(e.g.cfg.Now()))
	defer cancel()
	w.Header().Set("X-Accel-Buffering", "no")
	cw := &commentWriter{ResponseWriter: w, late: true}
	defer cw.finish()
	defer e.comment(ctx, cw)()
	e.old.ServeHTTP(cw, r.WithContext(ctx))
}

// malformed tells what is wrong with a POST's headers.
func malformed(r *http.Request) (status int, word string) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // what cannot be read is not it
	version := r.Header.Get(versionHeader)
	json, events := accepts(r.Header.Values("Accept"))
	switch {
	case version != "" && version < modernRevision && !slices.Contains(mcp.SupportedProtocolVersions(), version):
		return http.StatusBadRequest, "unsupported protocol version"
	case media != "application/json":
		return http.StatusUnsupportedMediaType, "the content type must be application/json"
	case !json || !events:
		return http.StatusBadRequest, "application/json and text/event-stream must be accepted"
	case len(r.Header.Values("Last-Event-Id")) > 0:
		return http.StatusBadRequest, "a POST resumes no stream"
	}
	return 0, ""
}

func accepts(values []string) (json, events bool) {
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			media, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(media)) {
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				events = true
			case "*/*":
				return true, true
			}
		}
	}
	return json, events
}

// admitsToken checks the token, and answers 401 itself: a bare one, for there is nothing a run could do to get another
// token.
func (d *door) admitsToken(w http.ResponseWriter, r *http.Request) bool {
	header := r.Header.Values("Authorization")
	token, bearer := "", false
	if len(header) == 1 {
		token, bearer = strings.CutPrefix(header[0], "Bearer ")
	}
	err := d.checkToken(token)
	switch {
	case err == nil && bearer:
		return true
	case !bearer:
		d.breach("security.token_missing")
	case errors.Is(err, errTokenExpired):
		d.breach("security.token_expired")
	case errors.Is(err, errTokenBefore):
		// The process's own, of the run before: its client lets go of that a moment later than the door has changed. It opens
		// nothing, and is no breach.
	case errors.Is(err, errTokenForeign):
		d.breach("security.token_foreign")
	default:
		d.breach("security.token_invalid")
	}
	refuseHTTP(w, http.StatusUnauthorized, "unauthorized")
	return false
}

// goodToken is a token that was found good, and until when it stays so: its signature need not be checked again.
type goodToken struct {
	text    store.Secret
	expires time.Time
}

func (d *door) checkToken(text string) error {
	good := d.good.Load()
	if good != nil && d.g.cfg.Now().Before(good.expires) && good.text.Equal(store.NewSecret(text)) {
		return nil
	}
	expires, err := d.g.checkToken(text, d.run)
	if err == nil {
		d.good.Store(&goodToken{store.NewSecret(text), expires})
	}
	return err
}

// admitsRun checks that the run lives, and answers itself if it does not.
func (d *door) admitsRun(w http.ResponseWriter, r *http.Request) bool {
	alive, err := d.g.alive(r.Context(), d.run)
	switch {
	case err != nil:
		d.g.cfg.Log.Error().Str("event", "door.failed").Str("run", string(d.run.ID)).Err(err).Send()
		refuseHTTP(w, http.StatusServiceUnavailable, "unavailable")
	case !alive:
		d.breach("security.run_over")
		refuseHTTP(w, http.StatusUnauthorized, "unauthorized")
	}
	return err == nil && alive
}

func (d *door) breach(event string) {
	d.g.cfg.Log.Warn().Str("event", event).Str("run", string(d.run.ID)).Str("company", string(d.run.Principal.Company)).
		Str("person", string(d.run.Principal.Person)).Send()
}

func refuseHTTP(w http.ResponseWriter, status int, word string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":%q}`, word)
}
