package upstream

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"pilder/gateway"
)

// How long to wait before a broken stream of notices is opened again, at first and at most.
const (
	streamPause    = time.Second
	maxStreamPause = 5 * time.Minute
)

// Run keeps the lists that all people share up to date and lets go of what is not used, until ctx ends; then every MCP
// session and process is ended. It runs as long as anybody calls.
func (c *Connector) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for _, u := range c.upstreams {
		if u.Auth == AuthOAuth {
			continue
		}
		parts.Go(func() { u.keepListed(ctx) })
		if u.URL != "" {
			parts.Go(func() { u.keepListening(ctx) })
		}
	}
	c.pool.serve(ctx)
	parts.Wait()
	c.Close(ctx)
	return nil
}

// keepListed looks at the list at once, then as often as configured, and soon when the upstream says that it changed: at most
// once a second, however often it says so.
func (u *server) keepListed(ctx context.Context) {
	cat, key := u.catalogueFor(gateway.Caller{})
	u.recall(ctx, cat, key)
	tick := time.NewTicker(u.c.cfg.ListEvery)
	defer tick.Stop()
	for {
		if !u.resting(u.c.cfg.Now()) {
			u.look(ctx, cat, key, gateway.Caller{})
		}
		breath := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			breath.Stop()
			return
		case <-breath.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-u.changed:
		}
	}
}

// keepListening hears of changes on the stream that an upstream offers for it. One that says that it has none, with 405 or
// 501, is not asked again; whatever else it says may pass.
func (u *server) keepListening(ctx context.Context) {
	pause := streamPause
	for {
		if u.era.tellsNews() {
			heard, err := u.listen(ctx)
			var status *statusError
			if errors.As(err, &status) && (status.status == http.StatusMethodNotAllowed || status.status == http.StatusNotImplemented) {
				return
			}
			if heard {
				pause = streamPause
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, maxStreamPause)
	}
}

// listen opens the stream of notices of the house's own session and reads it until it breaks. heard: something came.
func (u *server) listen(ctx context.Context) (heard bool, err error) {
	kept, give, err := u.c.pool.take(linkKey{upstream: u.Slug}, func() link { return u.newLink(gateway.Caller{}, linkKey{upstream: u.Slug}) })
	if err != nil {
		return false, err
	}
	defer give()
	l, isHTTP := kept.(*httpLink)
	if !isHTTP {
		return false, errNotSent
	}
	s, err := l.session(ctx)
	if err != nil {
		return false, err
	}
	resp, err := l.openStream(ctx, s)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound && s.id != "" {
		l.forget(s)
		return false, errGone
	}
	if resp.StatusCode != http.StatusOK || !isEvents(resp.Header.Get("Content-Type")) {
		return false, &statusError{status: resp.StatusCode}
	}
	u.listChanged() // what was said before the stream was open, nobody has heard
	stream := events{r: bufio.NewReader(resp.Body), limit: margin}
	for {
		data, err := stream.next()
		if err != nil {
			return heard, err
		}
		if m, err := decodeMessage(data); err == nil && m.Method == "notifications/tools/list_changed" {
			heard = true
			u.listChanged()
		}
	}
}

// openStream asks for the stream of notices in the way of the upstream's era.
func (l *httpLink) openStream(ctx context.Context, s *session) (*http.Response, error) {
	method, body := http.MethodGet, []byte(nil)
	if s.era == modern {
		var err error
		method = http.MethodPost
		q := question{method: "subscriptions/listen", params: map[string]any{"notifications": map[string]any{"toolsListChanged": true}}}
		if body, err = q.envelope(l.u.ids.Add(1), l.u.modernMeta()); err != nil {
			return nil, err
		}
	}
	req, _, err := l.request(ctx, method, s, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if s.era == modern {
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Mcp-Method", "subscriptions/listen")
	}
	resp, err := l.u.http.Do(req)
	if err != nil {
		return nil, errLost
	}
	return resp, nil
}
