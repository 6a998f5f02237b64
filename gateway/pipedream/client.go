package pipedream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"pilder/store"
)

// maxBody bounds what is read of any answer.
const maxBody = 8 << 20

// Errors of a request. errNotSent goes with any error after which the request certainly never reached the provider.
var (
	errNotSent     = errors.New("request was not sent")
	errCredentials = errors.New("provider refuses our client")
	errTooBig      = errors.New("answer is over its limit")
	errNoOwner     = errors.New("no external user given")
)

// client speaks the Connect API of one project and environment.
type client struct {
	base        *url.URL
	project     string
	environment string
	http        *http.Client
	bearer      *bearer
	now         func() time.Time
	log         zerolog.Logger
	readTimeout time.Duration
	runTimeout  time.Duration
	maxWait     time.Duration
}

func newClient(cfg Config, base *url.URL) *client {
	transport := cfg.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
		t.TLSHandshakeTimeout = 5 * time.Second
		transport = t
	}
	c := &client{base: base, project: cfg.ProjectID, environment: cfg.Environment, now: cfg.Now, log: cfg.Log,
		readTimeout: cfg.ReadTimeout, runTimeout: cfg.RunTimeout, maxWait: cfg.MaxWait,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	c.bearer = &bearer{client: c, id: cfg.ClientID, secret: cfg.ClientSecret, lock: make(chan struct{}, 1)}
	return c
}

// reply is an answer read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// ask is one request below /v1.
type ask struct {
	method string
	path   []string // segments, not yet escaped
	query  url.Values
	body   any // JSON; nil for none
}

// inProject puts a path below the project.
func (c *client) inProject(segments ...string) []string {
	return append([]string{"connect", c.project}, segments...)
}

// once sends a request that must happen at most once. Only a 401, which the provider gives before doing anything, is
// followed by one repetition with a new token.
func (c *client) once(ctx context.Context, a ask, timeout time.Duration) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	token, err := c.bearer.get(ctx)
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNotSent, err)
	}
	r, err := c.send(ctx, a, token)
	if err != nil || r.status != http.StatusUnauthorized {
		return r, err
	}
	c.bearer.drop(token)
	if token, err = c.bearer.get(ctx); err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNotSent, err)
	}
	return c.send(ctx, a, token)
}

// read sends a request that changes nothing: repeated once when the provider was not reached, broke off or is at fault,
// and once after a wait when it is busy.
func (c *client) read(ctx context.Context, a ask) (reply, error) {
	r, err := c.once(ctx, a, c.readTimeout)
	switch {
	case ctx.Err() != nil || errors.Is(err, errCredentials) || errors.Is(err, errTooBig):
		return r, err
	case err != nil || r.status >= 500 || r.status == http.StatusAccepted:
		return c.once(ctx, a, c.readTimeout)
	case r.status == http.StatusTooManyRequests:
		if !c.wait(ctx, c.retryAfter(r)) {
			return r, nil
		}
		return c.once(ctx, a, c.readTimeout)
	}
	return r, nil
}

// wait waits for a busy provider, if it is not asked to wait too long.
func (c *client) wait(ctx context.Context, d time.Duration) bool {
	if d > c.maxWait {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send is one HTTP exchange with the body read. No header ever declares a POST repeatable (net/http would then send it
// again over a broken connection).
func (c *client) send(ctx context.Context, a ask, token store.Secret) (reply, error) {
	var body io.Reader
	if a.body != nil {
		raw, err := json.Marshal(a.body)
		if err != nil {
			return reply{}, fmt.Errorf("%w: encoding %s: %w", errNotSent, a.path[len(a.path)-1], err)
		}
		body = bytes.NewReader(raw)
	}
	var reached atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }})
	u := c.base.JoinPath(append([]string{"v1"}, escaped(a.path)...)...)
	u.RawQuery = a.query.Encode()
	req, err := http.NewRequestWithContext(ctx, a.method, u.String(), body)
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNotSent, err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("X-Pd-Environment", c.environment)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if !token.IsZero() {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	resp, err := c.http.Do(req)
	if err != nil {
		err = withoutURL(err)
		if !reached.Load() {
			err = fmt.Errorf("%w: %w", errNotSent, err)
		}
		return reply{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(raw) > maxBody {
		err = errTooBig
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: raw}, err
}

// withoutURL takes the address out of an error of net/http: it holds people's ids.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func escaped(segments []string) []string {
	out := make([]string, len(segments))
	for i, s := range segments {
		out[i] = url.PathEscape(s)
	}
	return out
}

// retryAfter is how long a 429 asks to wait: Retry-After in seconds or as a date, else X-RateLimit-Reset, else a second.
func (c *client) retryAfter(r reply) time.Duration {
	until := func(t time.Time) time.Duration { return max(t.Sub(c.now()), 0) }
	after := r.header.Get("Retry-After")
	if n, err := strconv.Atoi(after); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(after); err == nil {
		return until(t)
	}
	if n, err := strconv.ParseInt(r.header.Get("X-RateLimit-Reset"), 10, 64); err == nil {
		return until(time.Unix(n, 0))
	}
	return time.Second
}

// statusError is an answer that is no success, of a call where that is all there is to say.
type statusError struct {
	what   string
	status int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: provider answered %d", e.what, e.status)
}

// expect decodes a 200, and makes an error of everything else.
func expect(r reply, err error, what string, into any) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if r.status != http.StatusOK {
		return &statusError{what, r.status}
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		return fmt.Errorf("%s: decoding the answer: %w", what, err)
	}
	return nil
}
