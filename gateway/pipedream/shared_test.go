package pipedream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/gateway/pipedream"
	"pilder/policy"
	sim "pilder/sim/pipedream"
	"pilder/store"
)

var update = flag.Bool("update", false, "write golden files instead of comparing")

// now is the time of every test, and of the fixtures.
var now = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

// house is a connector in front of a seeded stand-in, and what passed between them.
type house struct {
	t    *testing.T
	sim  *sim.Server
	conn *pipedream.Connector
	log  *lines

	mu       sync.Mutex
	requests []string // "METHOD path"
	now      time.Time
	replace  func(w http.ResponseWriter, r *http.Request) bool // answers instead of the stand-in
}

// lines collects log lines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// open makes a house; change may adjust both configurations. At the end nothing may have been sent or shown that must not.
func open(t *testing.T, change ...func(*sim.Config, *pipedream.Config)) *house {
	t.Helper()
	h := &house{t: t, log: &lines{}, now: now}
	clock := func() time.Time {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.now
	}
	simCfg := sim.Config{Now: clock, Seed: true}
	cfg := pipedream.Config{ClientID: "sim-client", ClientSecret: store.NewSecret("sim-secret"), ProjectID: "proj_test1",
		Environment: "development", Apps: os.DirFS("../../configs/apps"), Now: clock, Log: zerolog.New(h.log)}
	for _, c := range change {
		c(&simCfg, &cfg)
	}
	h.sim = sim.New(simCfg)
	handler := h.sim.Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.requests = append(h.requests, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1/connect/proj_test1/"))
		replace := h.replace
		h.mu.Unlock()
		if replace == nil || !replace(w, r) {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	if cfg.BaseURL == "" {
		cfg.BaseURL = srv.URL
	}
	conn, err := pipedream.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.conn = conn
	t.Cleanup(func() {
		if v := h.sim.Violations(); len(v) > 0 {
			t.Errorf("violations: %v", v)
		}
		for _, m := range h.sim.Markers() {
			if strings.Contains(h.log.String(), m) {
				t.Errorf("a secret is in the log: %.12s…", m)
			}
		}
	})
	return h
}

// caller is person-1 with all apps connected, in Spanish.
func caller() gateway.Caller {
	return gateway.Caller{ExternalUser: "person-1", Lang: "es", Apps: []string{"google_calendar", "gmail", "notion", "calendly_v2"},
		Principal: policy.Principal{Company: "com_1", Membership: "mem_1", Person: "per_1", Role: policy.RoleMember}}
}

// call performs a call of person-1 and looks for secrets in what an agent would see.
func (h *house) call(tool, args string) gateway.Result {
	h.t.Helper()
	return h.send(gateway.Call{ID: "cal_1", Caller: caller(), Tool: tool, Args: json.RawMessage(args)})
}

func (h *house) send(c gateway.Call) gateway.Result {
	h.t.Helper()
	r, err := h.conn.Call(context.Background(), c)
	if err != nil {
		h.t.Fatalf("%s: %v", c.Tool, err)
	}
	h.sim.Inspect(r.Text + "\n" + string(r.Structured))
	if !json.Valid(r.Structured) || len(r.Structured) > 16<<10 || len(r.Structured)+len(r.Text) > 32<<10 {
		h.t.Errorf("%s: structured part of %d bytes, text of %d", c.Tool, len(r.Structured), len(r.Text))
	}
	return r
}

// asked forgets and gives the requests made so far.
func (h *house) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.requests
	h.requests = nil
	return out
}

// pass moves the clock.
func (h *house) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// performed lists the keys in the ledger.
func (h *house) performed() []string {
	var out []string
	for _, p := range h.sim.Ledger() {
		out = append(out, p.Key)
	}
	return out
}

// verdict is what a test compares of a result.
type verdict struct {
	Outcome   store.Outcome
	Code      string
	Performed string
	Retry     string
}

func verdictOf(r gateway.Result) verdict {
	var in struct{ Performed, Retry string }
	_ = json.Unmarshal(r.Structured, &in)
	return verdict{r.Outcome, r.Code, in.Performed, in.Retry}
}

func wantVerdict(t *testing.T, r gateway.Result, want verdict) {
	t.Helper()
	if diff := cmp.Diff(want, verdictOf(r)); diff != "" {
		t.Errorf("verdict (-want +got):\n%s%s", diff, r.Text)
	}
}

// data is the data of a good result.
func data(t *testing.T, r gateway.Result) any {
	t.Helper()
	var in struct {
		Status string
		Data   any
	}
	if err := json.Unmarshal(r.Structured, &in); err != nil || in.Status != "ok" {
		t.Fatalf("no good result: %s", r.Text)
	}
	return in.Data
}

// golden compares a value with a file of testdata.
func golden(t *testing.T, name string, value any) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		t.Fatal(err)
	}
	file := "testdata/" + name
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-file +got), run with -update if intended:\n%s", name, diff)
	}
}

const (
	createEvent = "google_calendar-create-event"
	lunch       = `{"summary":"Comida","eventStartDate":"2026-12-02T12:00:00+01:00","eventEndDate":"2026-12-02T13:00:00+01:00"}`
)
