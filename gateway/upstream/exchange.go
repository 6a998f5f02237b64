package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"pilder/store"
)

// newHTTPClient follows no redirect and asks no proxy: a secret goes where the operator said and nowhere else.
func newHTTPClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		t.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
		t.TLSHandshakeTimeout = 5 * time.Second
		t.MaxIdleConnsPerHost = 32
		transport = t
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// exchanged is what an exchange came to.
type exchanged struct {
	result  json.RawMessage
	session string // Mcp-Session-Id of the answer
}

// once is one request in one session, not repeated.
func (l *httpLink) once(ctx context.Context, s *session, q question) (json.RawMessage, error) {
	x, err := l.exchange(ctx, s, q)
	return x.result, err
}

// exchange sends a question and reads until its answer has come. The caller's going away, its deadline and its taking the
// call back are told to the upstream, in the way of its era.
func (l *httpLink) exchange(ctx context.Context, s *session, q question) (exchanged, error) {
	id := l.u.ids.Add(1)
	var about map[string]any
	if s.era == modern {
		about = l.u.modernMeta()
	}
	body, err := q.envelope(id, about)
	if err != nil {
		return exchanged{}, errors.Join(errNotSent, err)
	}
	line, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { l.watch(ctx, s, q, id, ended, cut) })
	defer func() {
		close(ended)
		watching.Wait()
		cut(nil)
	}()
	x, err := l.send(line, s, q, id, body)
	if cause := context.Cause(line); err != nil && cause != nil {
		err = errors.Join(err, cause)
	}
	return x, err
}

// watch cuts an exchange when its caller is gone or takes the call back. An older upstream is told, and has a moment to say
// what a write came to; to a modern one the cut itself says it.
func (l *httpLink) watch(ctx context.Context, s *session, q question, id int64, ended <-chan struct{}, cut context.CancelCauseFunc) {
	cause := errCancelled
	select {
	case <-ended:
		return
	case <-ctx.Done():
		cause = ctx.Err()
	case <-q.cancelled:
	}
	if s.era == modern || q.method == "initialize" {
		cut(cause)
		return
	}
	if cause != errCancelled {
		cut(cause)
	}
	to, done := context.WithTimeout(context.WithoutCancel(ctx), short)
	_ = l.tell(to, s, notice("notifications/cancelled", map[string]any{"requestId": id})) // it may well be gone
	done()
	grace := time.NewTimer(l.u.c.cfg.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-ctx.Done():
	case <-grace.C:
	}
	cut(cause)
}

// tell sends a message that has no answer.
func (l *httpLink) tell(ctx context.Context, s *session, body []byte) error {
	req, _, err := l.request(ctx, http.MethodPost, s, body)
	if err != nil {
		return err
	}
	resp, err := l.u.http.Do(req)
	if err != nil {
		return errLost
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return &statusError{status: resp.StatusCode}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, margin)) // so that the connection can be used again
	return nil
}

// request makes an HTTP request of a session. No header ever declares it repeatable: net/http would send it again by itself.
func (l *httpLink) request(ctx context.Context, method string, s *session, body []byte) (*http.Request, store.Secret, error) {
	secret, err := l.u.secret(ctx, l.who, l.account)
	if err != nil {
		return nil, secret, err
	}
	req, err := http.NewRequestWithContext(ctx, method, l.u.URL, bytes.NewReader(body))
	if err != nil {
		return nil, secret, errors.Join(errNotSent, err)
	}
	if body == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	for name, value := range l.u.Headers {
		req.Header.Set(name, value)
	}
	switch {
	case secret.IsZero():
	case l.u.Auth == AuthHeader && l.u.Header != "" && l.u.Header != "Authorization":
		req.Header.Set(l.u.Header, secret.Reveal())
	default:
		req.Header.Set("Authorization", "Bearer "+secret.Reveal())
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.version != "" {
		req.Header.Set("Mcp-Protocol-Version", s.version)
	}
	if s.id != "" {
		req.Header.Set("Mcp-Session-Id", s.id)
	}
	return req, secret, nil
}

// send is the HTTP exchange of a question.
func (l *httpLink) send(ctx context.Context, s *session, q question, id int64, body []byte) (exchanged, error) {
	var reached atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }})
	req, secret, err := l.request(traced, http.MethodPost, s, body)
	if err != nil {
		return exchanged{}, err
	}
	if s.era == modern {
		req.Header.Set("Mcp-Method", q.method)
		if q.name != "" {
			req.Header.Set("Mcp-Name", headerValue(q.name))
		}
	}
	resp, err := l.u.http.Do(req)
	if err != nil {
		// A request that net/http began anew has written nothing before: it repeats no POST otherwise.
		var dial *net.OpError
		if !reached.Load() || errors.As(err, &dial) && dial.Op == "dial" {
			return exchanged{}, errNotSent
		}
		return exchanged{}, errLost
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		l.u.refused(ctx, l.who, l.account, secret)
		return exchanged{}, errRefused
	}
	m, err := l.read(ctx, s, q, id, resp)
	if err != nil {
		return exchanged{}, err
	}
	if m.Error != nil {
		m.Error.Message = string(hide([]byte(m.Error.Message), secret))
	}
	raw, err := m.outcome()
	return exchanged{result: hide(raw, secret), session: resp.Header.Get("Mcp-Session-Id")}, err
}

// read finds a question's answer in an HTTP answer.
func (l *httpLink) read(ctx context.Context, s *session, q question, id int64, resp *http.Response) (message, error) {
	most := l.u.c.cfg.MaxAnswer + margin
	kind := resp.Header.Get("Content-Type")
	switch {
	case resp.StatusCode != http.StatusOK:
		return l.readRefusal(s, id, resp)
	case isEvents(kind):
		return l.readEvents(ctx, s, q, id, io.LimitReader(resp.Body, int64(floodTimes*most)))
	case !isJSON(kind):
		return message{}, errLie
	}
	raw, err := readAll(resp.Body, most)
	switch {
	case errors.Is(err, errTooBig):
		return message{}, err
	case err != nil:
		return message{}, errLost
	}
	m, err := decodeMessage(raw)
	if err == nil && !m.isAnswer(id) {
		err = errLie
	}
	return m, err
}

// readRefusal says what an HTTP answer that is no success means. A 404 in a session is the end of the session; some servers
// say 400 for it. Neither has performed anything.
func (l *httpLink) readRefusal(s *session, id int64, resp *http.Response) (message, error) {
	status := &statusError{status: resp.StatusCode}
	raw, _ := readAll(resp.Body, margin) // what is said beside the status is a bonus
	m, notJSON := decodeMessage(raw)
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusBadRequest:
		if s.era == legacy && s.id != "" {
			return message{}, errGone
		}
		if s.era == modern && (notJSON != nil || m.Error == nil || m.Error.Code <= -32020 && m.Error.Code >= -32022) {
			l.u.era.set("", false)
			return message{}, errEra
		}
		if notJSON == nil && m.Error != nil && (m.isAnswer(id) || string(m.ID) == "null" || len(m.ID) == 0) {
			return m, nil
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n >= 0 {
			status.after = time.Duration(n) * time.Second
		}
	}
	return message{}, status
}

// readEvents reads an event stream until the answer to request id is in it. Whatever else is in it is a notice, a request of
// the upstream's own, or somebody else's.
func (l *httpLink) readEvents(ctx context.Context, s *session, q question, id int64, body io.Reader) (message, error) {
	stream := events{r: bufio.NewReader(body), limit: l.u.c.cfg.MaxAnswer + margin}
	served := 0
	for range maxMessages {
		data, err := stream.next()
		switch {
		case errors.Is(err, errTooBig):
			return message{}, err
		case err != nil:
			return message{}, errLost // the stream ended: nobody knows what for
		}
		m, err := decodeMessage(data)
		switch {
		case err != nil:
			return message{}, err
		case m.isAnswer(id):
			return m, nil
		case m.Method != "" && len(m.ID) > 0 && s.era == legacy && served < maxServed:
			served++
			to, done := context.WithTimeout(ctx, short)
			_ = l.tell(to, s, answerTo(m)) // it waits or it does not
			done()
		default:
			l.u.hear(m, q, id)
		}
	}
	return message{}, errLost
}

// hear takes a notification that came during a request.
func (u *server) hear(m message, q question, id int64) {
	if p, is := m.progressOf(id); is && q.progress != nil {
		q.progress(p)
	}
	if m.Method == "notifications/tools/list_changed" {
		u.listChanged()
	}
}

// headerValue is a tool's name as the modern revision wants it in a header.
func headerValue(name string) string {
	for _, r := range name {
		if r < 0x20 || r > 0x7e {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?="
		}
	}
	return name
}

// hide takes a secret out of an answer that holds it: servers echo what they were sent.
func hide(raw json.RawMessage, secret store.Secret) json.RawMessage {
	if secret.IsZero() || len(secret.Reveal()) < 8 {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte(secret.Reveal()), []byte("[redacted]"))
}
