package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"pilder/gateway"
	"pilder/store"
)

// link is one person's line to one upstream: an HTTP endpoint with at most one MCP session, or a process.
type link interface {
	// ask sends one request and gives its result. It repeats a request only with proof that it was not performed, and one that
	// changes nothing also once when no answer came.
	ask(ctx context.Context, q question) (json.RawMessage, error)
	// close ends what the upstream keeps for the link; ctx bounds the goodbye.
	close(ctx context.Context)
}

// eraMemory is which revision an upstream speaks: learned by whoever asks first, for all.
type eraMemory struct {
	mu   sync.Mutex
	is   string // modern, legacy or "": not known
	news bool   // it promises to tell when its list changes
}

func (e *eraMemory) get() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.is
}

func (e *eraMemory) set(era string, news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.is, e.news = era, news
}

func (e *eraMemory) tellsNews() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.news
}

// session is what a link knows of its upstream at one moment. It never changes; a link gets a new one.
type session struct {
	era     string
	version string
	id      string // Mcp-Session-Id; empty where there is none
}

// httpLink is one person's line over streamable HTTP.
type httpLink struct {
	u        *server
	who      gateway.Caller
	account  string
	renewing chan struct{} // holds one: a session is begun by one caller at a time

	mu  sync.Mutex
	now *session // nil: none
}

func newHTTPLink(u *server, who gateway.Caller, account string) *httpLink {
	return &httpLink{u: u, who: who, account: account, renewing: make(chan struct{}, 1)}
}

// ask sends a request in the session there is, or a new one. What proves that it was not performed (a session the upstream
// has forgotten, a refused connection, a refused secret, another revision) is mended and the request repeated, each proof
// once.
func (l *httpLink) ask(ctx context.Context, q question) (json.RawMessage, error) {
	mended := map[error]bool{}
	for {
		s, err := l.session(ctx)
		if err == nil {
			var raw json.RawMessage
			if raw, err = l.once(ctx, s, q); err == nil {
				return raw, nil
			}
		}
		proof := l.mend(s, q, err)
		if proof == nil || mended[proof] || ctx.Err() != nil {
			return nil, err
		}
		mended[proof] = true
	}
}

// mend forgets what an error has shown to be stale, and gives the reason for which the request may be sent again; nil when it
// may not.
func (l *httpLink) mend(s *session, q question, err error) error {
	if errors.Is(err, errNoSecret) {
		return nil
	}
	for _, proof := range []error{errGone, errEra, errRefused, errNotSent} {
		if errors.Is(err, proof) {
			if proof != errRefused {
				l.forget(s)
			}
			return proof
		}
	}
	var status *statusError
	if q.read && (errors.Is(err, errLost) || errors.As(err, &status) && status.status >= 500) {
		return errLost
	}
	return nil
}

// session gives the one in use, or begins one. Of several callers one does, the others wait for it.
func (l *httpLink) session(ctx context.Context) (*session, error) {
	if s := l.current(); s != nil {
		return s, nil
	}
	select {
	case l.renewing <- struct{}{}:
		defer func() { <-l.renewing }()
	case <-ctx.Done():
		return nil, errors.Join(errNotSent, ctx.Err())
	}
	if s := l.current(); s != nil {
		return s, nil
	}
	s, err := l.begin(ctx)
	if err != nil {
		return nil, unperformed(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = s
	return s, nil
}

// unperformed says of a failed handshake that the request behind it was never sent, whatever became of the handshake.
func unperformed(err error) error {
	for _, proof := range []error{errGone, errEra, errRefused, errNotSent, gateway.ErrReconnect, gateway.ErrChooseAccount} {
		if errors.Is(err, proof) {
			return err
		}
	}
	return &handshakeError{err}
}

// handshakeError is why no session could be begun.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "beginning an MCP session: " + e.err.Error() }

// Unwrap gives busy answers and app errors their meaning, and says that nothing was performed. It does not give errLost.
func (e *handshakeError) Unwrap() error {
	var status *statusError
	if errors.As(e.err, &status) {
		return errors.Join(errUnready, status)
	}
	return errUnready
}

// errUnready is an upstream that answers and begins no session: nothing was performed, and repeating does not help now.
var errUnready = errors.New("the upstream begins no MCP session")

func (l *httpLink) current() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// forget drops a session, unless another caller has begun a newer one already.
func (l *httpLink) forget(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == s {
		l.now = nil
	}
}

// begin finds out what the upstream speaks and begins a session in it. The modern revision has none: where it is known to be
// spoken nothing is asked.
func (l *httpLink) begin(ctx context.Context) (*session, error) {
	now := &session{era: modern, version: modern}
	switch l.u.era.get() {
	case modern:
		return now, nil
	case legacy:
		return l.initialize(ctx)
	}
	raw, err := l.once(ctx, now, question{method: "server/discover", params: map[string]any{}, read: true})
	var found struct {
		Versions     []string     `json:"supportedVersions"`
		Capabilities capabilities `json:"capabilities"`
	}
	if err == nil && json.Unmarshal(raw, &found) == nil && slices.Contains(found.Versions, modern) {
		l.u.era.set(modern, found.Capabilities.Tools.ListChanged)
		return now, nil
	}
	if isPersons(err) || errors.Is(err, errNotSent) || errors.Is(err, errRefused) || errors.Is(err, errLost) {
		return nil, err
	}
	return l.initialize(ctx)
}

// capabilities is what an upstream says it can do, as far as anybody asks.
type capabilities struct {
	Tools struct {
		ListChanged bool `json:"listChanged"`
	} `json:"tools"`
}

// initialize is the older revisions' handshake.
func (l *httpLink) initialize(ctx context.Context) (*session, error) {
	s := &session{era: legacy}
	x, err := l.exchange(ctx, s, question{method: "initialize", read: true, params: l.u.introduction()})
	if err != nil {
		return nil, err
	}
	if s.version, err = l.u.introduced(x.result); err != nil {
		return nil, err
	}
	s.id = x.session
	if err := l.tell(ctx, s, notice("notifications/initialized", map[string]any{})); err != nil {
		return nil, err
	}
	return s, nil
}

// introduction is what initialize says of us: no capabilities, so that the upstream asks nothing of us.
func (u *server) introduction() map[string]any {
	return map[string]any{"protocolVersion": legacy, "capabilities": map[string]any{}, "clientInfo": u.clientInfo()}
}

// introduced reads the answer to it and gives the revision the upstream has chosen.
func (u *server) introduced(raw json.RawMessage) (string, error) {
	var in struct {
		Version      string       `json:"protocolVersion"`
		Capabilities capabilities `json:"capabilities"`
	}
	if json.Unmarshal(raw, &in) != nil || !slices.Contains(legacyRevisions(), in.Version) {
		return "", errLie
	}
	u.era.set(legacy, in.Capabilities.Tools.ListChanged)
	return in.Version, nil
}

func (u *server) clientInfo() map[string]any {
	return map[string]any{"name": "pilder", "version": u.c.cfg.Version}
}

// modernMeta is what each request of the modern revision says of its sender.
func (u *server) modernMeta() map[string]any {
	return map[string]any{"io.modelcontextprotocol/protocolVersion": modern,
		"io.modelcontextprotocol/clientInfo": u.clientInfo(), "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
}

// close says goodbye to a session that the upstream keeps.
func (l *httpLink) close(ctx context.Context) {
	s := l.current()
	l.forget(s)
	if s == nil || s.id == "" {
		return
	}
	req, _, err := l.request(ctx, http.MethodDelete, s, nil)
	if err != nil {
		return // it will forget the session by itself
	}
	if resp, err := l.u.http.Do(req); err == nil {
		_ = resp.Body.Close() // whatever it said: 405 means that sessions cannot be ended
	}
}

// secret gives what the upstream knows a caller by.
func (u *server) secret(ctx context.Context, who gateway.Caller, account string) (store.Secret, error) {
	if u.Auth == AuthNone {
		return store.Secret{}, nil
	}
	secret, err := u.c.cfg.Bearer(ctx, who, u.Slug, account)
	switch {
	case isPersons(err):
		return store.Secret{}, err
	case err != nil:
		return store.Secret{}, errors.Join(errNotSent, errNoSecret)
	}
	return secret, nil
}

// isPersons tells whether a secret could not be had for a reason that only the person can mend.
func isPersons(err error) bool {
	return errors.Is(err, gateway.ErrReconnect) || errors.Is(err, gateway.ErrChooseAccount)
}

// errNoSecret says that the secret could not be had now; why, its source has logged.
var errNoSecret = errors.New("no secret to be had now")

// refused tells the source of secrets, so that the next one is a fresh one.
func (u *server) refused(ctx context.Context, who gateway.Caller, account string, secret store.Secret) {
	if u.c.cfg.Refused != nil && !secret.IsZero() {
		u.c.cfg.Refused(ctx, who, u.Slug, account, secret)
	}
}

// short bounds what is sent beside a request that has ended: a cancellation, a goodbye.
const short = 2 * time.Second
