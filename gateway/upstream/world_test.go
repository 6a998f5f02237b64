package upstream_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/policy"
	"pilder/sim/mcp"
	"pilder/store"
	"pilder/store/storetest"
)

// patience is how long a test waits for what must come; nothing relies on its being short.
const patience = time.Minute

// world is one upstream behind a connector over a real store.
type world struct {
	*upstream.Connector
	sim   *mcp.Server
	http  *httptest.Server
	store *store.Store
	clock *storetest.Clock
	spec  upstream.Spec
	cfg   upstream.Config
	log   *events

	beside []upstream.Spec // other upstreams
}

// newWorld serves a simulated upstream named notes; change may change its spec and the connector's configuration.
func newWorld(t *testing.T, sim *mcp.Server, change func(*upstream.Spec, *upstream.Config)) *world {
	t.Helper()
	w := &world{sim: sim, clock: storetest.NewClock(), log: &events{}}
	w.store = storetest.Opener(t, "sqlite")(store.Config{Now: w.clock.Now})
	w.http = httptest.NewServer(sim.Handler())
	t.Cleanup(w.http.CloseClientConnections)
	t.Cleanup(w.http.Close)
	w.spec = upstream.Spec{Slug: "notes", Name: policy.Text{ES: "Notas", EN: "Notes"}, URL: w.http.URL,
		Tools: map[string]policy.Class{"read": policy.ClassRead, "write": policy.ClassWrite}}
	w.cfg = upstream.Config{Now: w.clock.Now, Log: zerolog.New(w.log), Grace: patience}
	if change != nil {
		change(&w.spec, &w.cfg)
	}
	w.beside = w.cfg.Upstreams
	w.build(t)
	return w
}

// serve serves another simulated upstream and gives its address.
func serve(t *testing.T, sim *mcp.Server) string {
	t.Helper()
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return server.URL
}

// build makes the connector anew, as a restarted pilder does.
func (w *world) build(t *testing.T) {
	t.Helper()
	w.cfg.Upstreams = append([]upstream.Spec{w.spec}, w.beside...)
	w.Connector = need(upstream.New(w.cfg, w.store))(t)
}

// run serves the connector until the test ends, or stop is called.
func (w *world) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// caller is a member who has the app.
func caller(member string) gateway.Caller {
	return gateway.Caller{Lang: "en", Apps: []string{"notes"},
		Principal: policy.Principal{Company: "com_a", Membership: policy.MembershipID("mem_" + member), Person: policy.PersonID("per_" + member)}}
}

// call calls one of the upstream's tools for a member.
func (w *world) call(t *testing.T, member, tool, args string) gateway.Result {
	t.Helper()
	return w.do(t, t.Context(), gateway.Call{ID: "cal_1", Caller: caller(member), Tool: "notes-" + tool, Args: json.RawMessage(args)})
}

func (w *world) do(t *testing.T, ctx context.Context, c gateway.Call) gateway.Result {
	t.Helper()
	return need(w.Call(ctx, c))(t)
}

// names gives the names a member is offered.
func (w *world) names(t *testing.T, member string) []string {
	t.Helper()
	names := []string{}
	for _, tool := range need(w.Tools(t.Context(), caller(member)))(t) {
		names = append(names, tool.Name)
	}
	return names
}

// tool gives one listed tool.
func (w *world) tool(t *testing.T, name string) gateway.Tool {
	t.Helper()
	tools := need(w.Tools(t.Context(), caller("ana")))(t)
	i := slices.IndexFunc(tools, func(tool gateway.Tool) bool { return tool.Name == name })
	if i < 0 {
		t.Fatalf("%s is not listed", name)
	}
	return tools[i]
}

// said is a result without its words.
type said struct {
	Outcome   store.Outcome
	Code      string
	Performed string
	Retry     string
}

func saidBy(t *testing.T, r gateway.Result) said {
	t.Helper()
	var body struct{ Performed, Retry string }
	if err := json.Unmarshal(r.Structured, &body); err != nil {
		t.Fatal(err)
	}
	return said{r.Outcome, r.Code, body.Performed, body.Retry}
}

var wentWell = said{Outcome: store.OutcomeDone, Code: "ok"}

// asked counts the upstream's requests by what they were.
func asked(sim *mcp.Server) map[string]int {
	all := map[string]int{}
	for _, r := range sim.Requests() {
		all[strings.TrimSpace(r.Method+" "+r.RPC)]++
	}
	return all
}

func need[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// eachEra runs f with an upstream of either era, answering in JSON and in event streams.
func eachEra(t *testing.T, f func(t *testing.T, cfg mcp.Config)) {
	t.Helper()
	for name, cfg := range map[string]mcp.Config{
		"modern": {}, "modern events": {Events: true}, "legacy": {OnlyLegacy: true}, "legacy events": {OnlyLegacy: true, Events: true},
	} {
		t.Run(name, func(t *testing.T) { f(t, cfg) })
	}
}

// events collects log lines.
type events struct {
	mu   sync.Mutex
	raw  []byte
	news chan struct{} // closed at the next line
}

func (e *events) Write(line []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.raw = append(e.raw, line...)
	if e.news != nil {
		close(e.news)
		e.news = nil
	}
	return len(line), nil
}

// next is closed at the next line.
func (e *events) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.news == nil {
		e.news = make(chan struct{})
	}
	return e.news
}

func (e *events) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.raw)
}

// serveAt serves the simulated upstream again where it was.
func (w *world) serveAt(t *testing.T, address string) {
	t.Helper()
	l := need(net.Listen("tcp", address))(t)
	w.http = httptest.NewUnstartedServer(w.sim.Handler())
	need(0, w.http.Listener.Close())(t)
	w.http.Listener = l
	w.http.Start()
	t.Cleanup(w.http.Close)
}
