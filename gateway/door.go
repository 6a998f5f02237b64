package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/store"
)

const (
	// maxInstructions is what Claude Code surely shows, in bytes.
	maxInstructions = 2048
	watchEvery      = 5 * time.Second
)

// door serves one run its tools, on the listener inside its sandbox.
type door struct {
	g      *Gateway
	run    store.Run
	server *mcp.Server // one for the door's life, so that list_changed reaches both eras
	access atomic.Pointer[access]
	ledger *ledger
	halt   halt
	modern string // what results of the modern era end with

	good     atomic.Pointer[goodToken]
	sessions sessions
	flights  flights
	requests Gate // HTTP requests
	calls    Gate // tool calls
}

// ServeRun serves the MCP door of one run until ctx ends, and returns when nothing of it is left: the listener closed,
// MCP sessions ended, calls recorded. Reads under way are given up then; writes have Config.Grace.
//
// The listener is the run's identity and the token a second proof: only this run's own token opens the door, and only while
// the run lives. The door serves /mcp and nothing else, no OAuth metadata above all: a CLI that sees some beside a fixed
// bearer begins a login.
func (g *Gateway) ServeRun(ctx context.Context, run store.Run, l net.Listener) error {
	base, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	d := &door{
		g: g, run: run, ledger: newLedger(),
		sessions: sessions{max: g.cfg.MaxSessions, idle: g.cfg.SessionIdle, now: g.cfg.Now, all: map[string]*session{}},
		flights:  flights{all: map[flightKey][]*flight{}},
	}
	d.access.Store(g.accessFor(ctx, run, run.Accounts, d.ledger, &d.halt))
	d.server = d.newServer()
	if err := d.offer(nil); err != nil {
		return fmt.Errorf("serving door of run %s: %w", run.ID, err)
	}

	srv := &http.Server{
		Handler:           d.handler(),
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          stdlog.New(g.cfg.Log.With().Str("event", "http.failed").Logger(), "", 0),
		// No write timeout: it would cut the event streams.
	}
	look, unwatch := context.WithCancel(base)
	var watching sync.WaitGroup
	watching.Go(func() { d.watch(look) })
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	unwatch()
	watching.Wait()
	d.close(srv, drop)
	if err == nil {
		err = <-failed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving door of run %s: %w", run.ID, err)
}

// lastWords is how long an answer may take to be read once its call has no more time: a program that does not read holds nobody.
const lastWords = 2 * time.Second

// close takes the door down from the inside out: first the calls, since they are what must be recorded, then the MCP
// sessions that carried them, then the connections. Shutdown would wait seconds for connections that were never used.
func (d *door) close(srv *http.Server, drop context.CancelFunc) {
	d.requests.Close()
	d.calls.Close()
	grace := time.AfterFunc(d.g.cfg.Grace, d.halt.now)
	drop() // ends the streams, and with d.flights the reads
	d.flights.close()
	cut := time.AfterFunc(d.g.cfg.Grace+lastWords, func() { _ = srv.Close() })
	d.calls.Wait()
	cut.Stop()
	grace.Stop()
	for s := range d.server.Sessions() {
		_ = s.Close() // its stream is gone already
	}
	_ = srv.Close() // the listener's error is Serve's to tell
	d.requests.Wait()
}

func (d *door) newServer() *mcp.Server {
	text := cut(d.g.cfg.Instructions(d.instructions()), maxInstructions)
	self := &mcp.Implementation{Name: "pilder", Title: "Pilder", Version: d.g.cfg.Version}
	about, _ := json.Marshal(map[string]any{mcp.MetaKeyServerInfo: self}) // texts only: cannot fail
	d.modern = `,"resultType":"complete","_meta":` + string(about)
	server := mcp.NewServer(self, &mcp.ServerOptions{
		GetSessionID: d.sessions.begin,
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
	in.Preferences, in.Empty = d.run.Preferences, a.empty()
	if in.Empty != "" {
		d.g.cfg.Log.Warn().Str("event", "tools.none").Str("run", string(d.run.ID)).Str("company", string(d.run.Principal.Company)).
			Str("person", string(d.run.Principal.Person)).Int("apps", len(a.caller.Apps)).Int("barred", len(a.barred)).Bool("partial", a.partial).Send()
	}
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

// unreached stands where the SDK wants a handler: serveCall answers every call, listed tool or not.
func unreached(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return nil, errors.New("call went past the gateway")
}

// watch lets an app that is connected or disconnected in mid-run, or whose tools change, come or go at once, and ends idle
// MCP sessions.
func (d *door) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		wake := d.g.store.Wake()
		d.refresh(ctx)
		d.sessions.sweep(d.server)
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
	d.access.Store(d.g.accessFor(ctx, d.run, accounts, d.ledger, &d.halt))
	if err := d.offer(old.tools); err != nil {
		d.g.cfg.Log.Error().Str("event", "tools.failed").Str("run", string(d.run.ID)).Err(err).Send()
	}
}
