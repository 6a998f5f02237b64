package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	_ "modernc.org/sqlite"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/policy"
	"pilder/store"
)

// benchPlays makes the test binary be one of the processes that BenchmarkGateway measures; its value is a benchPart.
const benchPlays = "BENCH_PLAYS"

// benchPart says which process to be.
type benchPart struct {
	Role     string // "echo", "proxy", "floor" or "pilder"
	Listen   string // empty: any port
	Upstream string // http://host:port of the echo
	Folder   string
	Profile  string // file for a CPU profile; empty: none
}

// benchSays is what a process tells when it is ready: one line of JSON.
type benchReady struct {
	Addr  string `json:"addr"`
	Token string `json:"token"` // of pilder's run
}

// playBench is such a process, until its standard input ends.
func playBench(text string) int {
	var p benchPart
	err := json.Unmarshal([]byte(text), &p)
	if p.Profile != "" && err == nil {
		var f *os.File
		if f, err = os.Create(p.Profile); err == nil {
			defer f.Close()
			err = pprof.StartCPUProfile(f)
			defer pprof.StopCPUProfile()
		}
	}
	roles := map[string]func(benchPart, net.Listener) error{"echo": playEcho, "proxy": playProxy, "floor": playFloor, "pilder": playPilder}
	var l net.Listener
	if err == nil {
		if p.Listen == "" {
			p.Listen = "127.0.0.1:0"
		}
		l, err = net.Listen("tcp", p.Listen)
	}
	if err == nil {
		err = roles[p.Role](p, l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func ready(l net.Listener, token string) {
	line, _ := json.Marshal(benchReady{l.Addr().String(), token}) // texts only
	fmt.Println(string(line))
}

func serveUntilEnd(l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		srv.Close()
	}()
	ready(l, "")
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// playEcho is the upstream of facts: a server of the SDK that says what it was told. Its paths are the era and the form of
// its answers: /old/sse, /old/json, /new/sse, /new/json; /requests counts what came to the others.
func playEcho(_ benchPart, l net.Listener) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	type said struct {
		Message string `json:"message"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "says it again"}, func(ctx context.Context, r *mcp.CallToolRequest, in said) (*mcp.CallToolResult, said, error) {
		if token := r.Params.GetProgressToken(); token != nil {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 2, Message: "half"})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Message}}}, in, nil
	})
	var requests atomic.Int64
	mux := http.NewServeMux()
	for path, o := range map[string]mcp.StreamableHTTPOptions{
		"/old/sse": {}, "/old/json": {JSONResponse: true}, "/new/sse": {Stateless: true}, "/new/json": {Stateless: true, JSONResponse: true},
	} {
		h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &o)
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			h.ServeHTTP(w, r)
		})
	}
	mux.HandleFunc("/requests", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, requests.Load()) })
	return serveUntilEnd(l, mux)
}

// newProxy is Go's own. Without full duplex the server closes a request's body when the answer begins, while the transport
// may still look for its end, and about one answer in a thousand is cut off (Go 1.26.8, measured).
func newProxy(upstream string) (http.Handler, error) {
	u, err := url.Parse(upstream)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, FlushInterval: -1, Transport: benchTransport()}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1 has it
		proxy.ServeHTTP(w, r)
	}), err
}

func benchTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}

func playProxy(p benchPart, l net.Listener) error {
	proxy, err := newProxy(p.Upstream)
	if err != nil {
		return err
	}
	return serveUntilEnd(l, proxy)
}

// playFloor is the least that a gateway with durable records could cost: the proxy between two commits of one small row.
func playFloor(p benchPart, l net.Listener) error {
	proxy, err := newProxy(p.Upstream)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(p.Folder, "floor.db")+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE note (id INTEGER PRIMARY KEY, at INTEGER, text TEXT)`); err != nil {
		return err
	}
	return serveUntilEnd(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note := func() {
			if _, err := db.Exec(`INSERT INTO note (at, text) VALUES ($1, $2)`, time.Now().UnixMilli(), strings.Repeat("x", 200)); err != nil {
				panic(err)
			}
		}
		note()
		proxy.ServeHTTP(w, r)
		note()
	}))
}

// playPilder is the door of a living run as pilder serves it: token, argument check, policy, sealed rows and audit on, SQLite
// with full durability. Only the sandbox around the listener is missing.
func playPilder(p benchPart, l net.Listener) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := store.Open(ctx, store.Config{URL: "sqlite:" + filepath.Join(p.Folder, "pilder.db")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	log := newLog(Config{LogLevel: "info"}, io.Discard)
	ups, err := benchUpstreams(p.Upstream, s)
	if err != nil {
		return err
	}
	unbounded := gateway.Bound{AtOnce: 1 << 20, PerMinute: 1 << 40}
	g, err := gateway.New(gateway.Config{
		TokenKeys: []gateway.TokenKey{{ID: "bench", Secret: store.RandomSecret("")}},
		Card:      func(store.Approval, store.Approver) store.Draft { return store.Draft{} },
		Outcome:   func(store.Approval, store.Outcome, string) []store.Draft { return nil },
		Lost:      func(store.CallView, store.Run) []store.Draft { return nil },
		Log:       log, MaxSessions: 256, Bounds: gateway.Bounds{Person: unbounded, Company: unbounded, App: unbounded},
		Open: func(policy.CompanyID) []gateway.App { return []gateway.App{{Slug: "bench"}, {Slug: "benchw"}} }, Changes: ups.Changes,
	}, s, ups)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = s.Run(ctx) })
	running.Go(func() { _ = ups.Run(ctx) })
	return withBenchRun(ctx, s, func(run store.Run) error {
		run.Grant.Limits = policy.Limits{Calls: 1 << 40, Writes: 1 << 40, Asked: 1 << 40}
		for i, r := range run.Grant.Rules { // nobody is there to press a button
			if strings.HasPrefix(r.ID, "taint.") {
				run.Grant.Rules[i].Effect = policy.Allow
			}
		}
		token, err := g.MintToken(run)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		go func() {
			io.Copy(io.Discard, os.Stdin)
			stop()
		}()
		ready(l, token.Reveal())
		return g.ServeRun(ctx, run, l)
	})
}

// withBenchRun lets a member write and serves the run that it becomes.
func withBenchRun(ctx context.Context, s *store.Store, serve func(store.Run) error) error {
	company, err := s.CreateCompany(ctx, store.Company{Name: "Empresa", Domains: []string{"empresa.com"}, Zone: demoZone, Lang: "es"})
	if err != nil {
		return err
	}
	_, err = s.AddMember(ctx, company.ID, store.Person{Telegram: 1, Name: "Ana", Lang: "es"}, policy.RoleMember)
	if err != nil {
		return err
	}
	poller, err := s.AcquirePoller(ctx, demoBot, time.Hour)
	if err != nil {
		return err
	}
	_, err = s.Receive(ctx, poller, []store.Arrival{{UpdateID: 1, Raw: []byte(`{}`), Kind: store.ArrivalMessage, From: store.Person{Telegram: 1},
		Chat: store.Chat{ID: 1, Private: true}, Telegram: 1, Text: "hola"}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.ServeTurns(ctx, 1, time.Minute, func(_ context.Context, turn store.Turn) error {
		defer cancel()
		run, ok, err := s.StartRun(context.WithoutCancel(ctx), turn)
		if err != nil || !ok {
			return fmt.Errorf("starting the run: %w (%v)", err, ok)
		}
		if err := serve(run); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		_, err = s.FinishRun(context.WithoutCancel(ctx), turn, run, store.Finish{State: store.RunSucceeded, Reason: "ok"})
		return err
	})
}

const (
	benchRead  = "bench-echo"
	benchWrite = "benchw-echo" // the same, called a write
)

// benchUpstreams is the echo as an operator would configure it, once as a read and once as a write.
func benchUpstreams(address string, s *store.Store) (*upstream.Connector, error) {
	spec := func(slug string, class policy.Class) upstream.Spec {
		return upstream.Spec{Slug: slug, Name: policy.Text{ES: "Eco"}, URL: address + "/old/sse", Tools: map[string]policy.Class{"echo": class}}
	}
	return upstream.New(upstream.Config{Upstreams: []upstream.Spec{spec("bench", policy.ClassRead), spec("benchw", policy.ClassWrite)}}, s)
}
