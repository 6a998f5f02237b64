package gateway

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/store"
)

const (
	maxDoorBody = 4 << 20
	// modernRevision is the first MCP revision without MCP sessions. A request whose header names it or a later one goes to
	// the stateless handler, every other to the stateful one (tried with conformance 0.2.0-alpha.12: both pass whole).
	modernRevision = "2026-07-28"
	// doorSessions is how long an abandoned MCP session of the old era stays; the SDK's default is for ever.
	doorSessions = 10 * time.Minute
	// maxInstructions is what Claude Code surely shows, in bytes.
	maxInstructions = 2048
	accountsEvery   = 5 * time.Second
)

// door serves one run its tools, on the listener inside its sandbox.
type door struct {
	g      *Gateway
	run    store.Run
	server *mcp.Server // one for the door's life, so that list_changed reaches both eras
	access atomic.Pointer[access]
	ledger *ledger
	halt   chan struct{}

	requests Gate // HTTP requests
	calls    Gate // tool calls: in the old era they outlive their request
}

// ServeRun serves the MCP door of one run until ctx ends, and returns when nothing of it is left: the listener closed,
// MCP sessions ended, calls recorded. Reads under way are given up then; writes have Config.Grace.
//
// The listener is the run's identity and the token a second proof: only this run's own token opens the door, and only while
// the run lives. The door serves /mcp and nothing else, no OAuth metadata above all: a CLI that sees some beside a fixed
// bearer begins a login.
func (g *Gateway) ServeRun(ctx context.Context, run store.Run, l net.Listener) error {
	d := &door{g: g, run: run, ledger: newLedger(), halt: make(chan struct{})}
	d.access.Store(g.accessFor(ctx, run, run.Accounts, d.ledger, d.halt))
	d.server = d.newServer()
	if err := d.offer(nil); err != nil {
		return fmt.Errorf("serving door of run %s: %w", run.ID, err)
	}

	base, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	srv := &http.Server{
		Handler:           d.handler(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          stdlog.New(g.cfg.Log.With().Str("event", "http.failed").Logger(), "", 0),
		// No write timeout: it would cut the event streams.
	}
	watching, unwatch := context.WithCancel(base)
	var watch sync.WaitGroup
	watch.Go(func() { d.watchAccounts(watching) })
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	unwatch()
	watch.Wait()
	d.close(srv, drop)
	if err == nil {
		err = <-failed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving door of run %s: %w", run.ID, err)
}

// close takes the door down from the inside out: first the calls, since they are what must be recorded, then the MCP
// sessions that carried them, then the connections. Shutdown would wait seconds for connections that were never used.
func (d *door) close(srv *http.Server, drop context.CancelFunc) {
	d.requests.Close()
	d.calls.Close()
	grace := time.AfterFunc(d.g.cfg.Grace, func() { close(d.halt) })
	drop() // ends the streams, and with them the reads of the new era
	d.calls.Wait()
	if grace.Stop() {
		close(d.halt)
	}
	for s := range d.server.Sessions() {
		_ = s.Close() // its stream is gone already
	}
	_ = srv.Close() // the listener's error is Serve's to tell
	d.requests.Wait()
}

func (d *door) newServer() *mcp.Server {
	text := cut(d.g.cfg.Instructions(d.instructions()), maxInstructions)
	server := mcp.NewServer(&mcp.Implementation{Name: "pilder", Title: "Pilder", Version: d.g.cfg.Version}, &mcp.ServerOptions{
		Instructions: text,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
		// The SDK's own default is "public". This runs under its lock, so it only fills in.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope, c.TTLMs = "private", 0 },
	})
	server.AddReceivingMiddleware(d.receive)
	return server
}

func (d *door) instructions() Instructions {
	a := d.access.Load()
	in := Instructions{Lang: a.lang(), Company: d.run.Member.Company.Name, Person: d.run.Member.Person.Name, Rules: a.grant.Sentences(a.lang())}
	for _, app := range d.g.cfg.Apps {
		if slices.Contains(a.caller.Apps, app.Slug) {
			in.Apps = append(in.Apps, app)
		} else {
			in.Offered = append(in.Offered, app)
		}
	}
	in.Apps = append(in.Apps, d.g.cfg.Open(d.run.Principal.Company)...)
	return in
}

// offer makes the server list what access has now; before is what it listed until now. Both eras hear of a difference.
func (d *door) offer(before map[string]offer) error {
	now := d.access.Load().tools
	for name, o := range now {
		if old, ok := before[name]; ok && sameTool(old.Tool, o.Tool) {
			continue
		}
		tool, err := d.g.schemas.publish(o.Tool)
		if err != nil {
			return err
		}
		d.server.AddTool(tool, unreached)
	}
	for name := range before {
		if _, ok := now[name]; !ok {
			d.server.RemoveTools(name)
		}
	}
	return nil
}

// unreached stands where the SDK wants a handler: receive answers every call, listed tool or not.
func unreached(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return nil, errors.New("call went past the gateway")
}

// watchAccounts lets an app that is connected or disconnected in mid-run, or whose tools change, come or go at once.
func (d *door) watchAccounts(ctx context.Context) {
	tick := time.NewTicker(accountsEvery)
	defer tick.Stop()
	for {
		wake := d.g.store.Wake()
		d.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
	}
}

func (d *door) refresh(ctx context.Context) {
	p := d.run.Principal
	accounts, err := d.g.store.Accounts(ctx, p.Company, p.Membership)
	old := d.access.Load()
	if err != nil || (slices.Equal(accounts, old.accounts) && !old.partial && old.changes == d.g.cfg.Changes()) {
		return // an account that cannot be looked up now is found again in a moment
	}
	d.access.Store(d.g.accessFor(ctx, d.run, accounts, d.ledger, d.halt))
	if err := d.offer(old.tools); err != nil {
		d.g.cfg.Log.Error().Str("event", "tools.failed").Str("run", string(d.run.ID)).Err(err).Send()
	}
}

// handler is the door from the outside in: path, Host, Origin, token, and then the handler of the caller's era.
func (d *door) handler() http.Handler {
	get := func(*http.Request) *mcp.Server { return d.server } // runs once or twice a request: it only ever looks up
	modern := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxDoorBody,
	})
	legacy := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		SessionTimeout: doorSessions, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxDoorBody,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.requests.Enter() {
			refuseHTTP(w, http.StatusServiceUnavailable, "closing")
			return
		}
		defer d.requests.Leave()
		switch {
		case r.URL.Path != "/mcp":
			refuseHTTP(w, http.StatusNotFound, "not found")
		case !slices.Contains([]string{"127.0.0.1:7000", "localhost:7000", "localhost"}, r.Host):
			refuseHTTP(w, http.StatusForbidden, "forbidden")
		case len(r.Header.Values("Origin")) > 0: // no browser belongs here
			refuseHTTP(w, http.StatusForbidden, "forbidden")
		case !d.admits(w, r):
		case r.Header.Get("Mcp-Protocol-Version") >= modernRevision:
			cw := &commentWriter{ResponseWriter: w}
			defer cw.finish()
			modern.ServeHTTP(cw, r.WithContext(context.WithValue(r.Context(), commentKey{}, cw)))
		default:
			// Here a handler's context is that of its session's first request, so nothing may be put into it.
			legacy.ServeHTTP(w, r)
		}
	})
}

// admits checks the token and the run's life, in that order, and answers 401 itself: a bare one, for there is nothing a
// run could do to get another token.
func (d *door) admits(w http.ResponseWriter, r *http.Request) bool {
	breach := ""
	header := r.Header.Values("Authorization")
	token, bearer := "", false
	if len(header) == 1 {
		token, bearer = strings.CutPrefix(header[0], "Bearer ")
	}
	err := d.g.checkToken(token, d.run)
	switch {
	case !bearer:
		breach = "security.token_missing"
	case errors.Is(err, errTokenExpired):
		breach = "security.token_expired"
	case errors.Is(err, errTokenBefore):
		// The process's own, of the run before: its client lets go of that a moment later than the door has changed. It opens
		// nothing, and is no breach.
		refuseHTTP(w, http.StatusUnauthorized, "unauthorized")
		return false
	case errors.Is(err, errTokenForeign):
		breach = "security.token_foreign"
	case err != nil:
		breach = "security.token_invalid"
	default:
		alive, err := d.alive(r.Context())
		if err != nil {
			d.g.cfg.Log.Error().Str("event", "door.failed").Str("run", string(d.run.ID)).Err(err).Send()
			refuseHTTP(w, http.StatusServiceUnavailable, "unavailable")
			return false
		}
		if alive {
			return true
		}
		breach = "security.run_over"
	}
	d.g.cfg.Log.Warn().Str("event", breach).Str("run", string(d.run.ID)).Str("company", string(d.run.Principal.Company)).
		Str("person", string(d.run.Principal.Person)).Send()
	refuseHTTP(w, http.StatusUnauthorized, "unauthorized")
	return false
}

// alive tells whether this run, and not a later attempt at its turn, is running; one that was handed in as prepared may also
// still be that. BeginCall has the last word on calls.
func (d *door) alive(ctx context.Context) (bool, error) {
	run, err := d.g.store.LiveRun(ctx, d.run.ID)
	switch {
	case err == nil:
		return run.Fence == d.run.Fence, nil
	case !errors.Is(err, store.ErrNotFound):
		return false, err
	case d.run.State != store.RunPrepared:
		return false, nil
	}
	view, err := d.g.store.RunByID(ctx, d.run.ID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && view.State == store.RunPrepared, err
}

func refuseHTTP(w http.ResponseWriter, status int, word string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":%q}`, word)
}
