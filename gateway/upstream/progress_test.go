package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/policy"
	"pilder/sim/mcp"
	"pilder/store"
)

func TestProgressOfTheUpstreamReachesTheCallerUnderItsOwnToken(t *testing.T) {
	eachEra(t, func(t *testing.T, cfg mcp.Config) {
		slow := mcp.Simple("read")
		slow.Do = func(_ mcp.Call, progress func(done, total float64, message string)) string {
			progress(1, 3, "one\u202e of\nthree")
			progress(2, 3, "")
			return mcp.Text("done")
		}
		w := newWorld(t, mcp.New(cfg, slow), nil)
		var mu sync.Mutex
		var heard []gateway.Progress
		r := w.do(t, t.Context(), gateway.Call{Caller: caller("ana"), Tool: "notes-read", Args: json.RawMessage(`{}`), Progress: func(p gateway.Progress) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, p)
		}})
		same(t, "result", wentWell, saidBy(t, r))
		mu.Lock()
		defer mu.Unlock()
		same(t, "heard", []gateway.Progress{{Done: 1, Total: 3, Message: "one of three"}, {Done: 2, Total: 3}}, heard)
	})
}

func TestG23_ACancellationReachesTheUpstreamAndItsOutcomeIsRecorded(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		t.Run(fmt.Sprint("a read whose caller goes away, legacy=", legacy), func(t *testing.T) {
			w, id, result := hanging(t, legacy, "read", nil)
			ctx, cancel := context.WithCancel(t.Context())
			came := make(chan gateway.Result, 1)
			go func() { came <- result(ctx, nil) }()
			id()
			cancel()
			w.sawCancelled(t)
			same(t, "outcome", said{Outcome: store.OutcomeFailed, Code: "cancelled", Performed: "no", Retry: "wait"}, saidBy(t, <-came))
		})
		t.Run(fmt.Sprint("a write that is taken back, legacy=", legacy), func(t *testing.T) {
			w, id, result := hanging(t, legacy, "write", func(cfg *upstream.Config) { cfg.Grace = time.Millisecond })
			cancelled := make(chan struct{})
			came := make(chan gateway.Result, 1)
			go func() { came <- result(t.Context(), cancelled) }()
			id()
			close(cancelled)
			w.sawCancelled(t)
			unknown := said{Outcome: store.OutcomeUnknown, Code: "outcome_unknown", Performed: "unknown", Retry: "never"}
			same(t, "outcome", unknown, saidBy(t, <-came))
		})
	}
	t.Run("a write that was done all the same, legacy", func(t *testing.T) {
		late := mcp.Simple("write")
		late.Do = func(c mcp.Call, _ func(float64, float64, string)) string {
			<-c.Cancelled
			return mcp.Text("too late")
		}
		w := newWorld(t, mcp.New(mcp.Config{OnlyLegacy: true}, late), nil)
		cancelled := make(chan struct{})
		came := make(chan gateway.Result, 1)
		go func() {
			came <- w.do(t, t.Context(), gateway.Call{Caller: caller("ana"), Tool: "notes-write", Args: json.RawMessage(`{}`), Cancelled: cancelled})
		}()
		w.performing(t)
		close(cancelled)
		same(t, "outcome", wentWell, saidBy(t, <-came))
	})
}

// hanging is an upstream whose next call has no end; performing waits until it has begun.
func hanging(t *testing.T, legacy bool, tool string, change func(*upstream.Config)) (w *world, performing func(), call func(context.Context, chan struct{}) gateway.Result) {
	t.Helper()
	sim := mcp.New(mcp.Config{OnlyLegacy: legacy}, mcp.Simple(tool))
	w = newWorld(t, sim, func(_ *upstream.Spec, cfg *upstream.Config) {
		if change != nil {
			change(cfg)
		}
	})
	w.names(t, "ana")
	sim.Fail(mcp.Hang)
	return w, func() { w.performing(t) }, func(ctx context.Context, cancelled chan struct{}) gateway.Result {
		return w.do(t, ctx, gateway.Call{Caller: caller("ana"), Tool: "notes-" + tool, Args: json.RawMessage(`{}`), Cancelled: cancelled})
	}
}

func (w *world) performing(t *testing.T) {
	t.Helper()
	if !w.sim.Until(func() bool { return len(w.sim.Performed()) == 1 }) {
		t.Fatal("the call never began")
	}
}

// sawCancelled waits until the upstream has heard that the call was cancelled.
func (w *world) sawCancelled(t *testing.T) {
	t.Helper()
	var id string
	for _, r := range w.sim.Requests() {
		if r.RPC == "tools/call" {
			id = r.ID
		}
	}
	if !w.sim.Until(func() bool { return len(w.sim.Cancelled()) > 0 }) {
		t.Fatal("the cancellation ended at the gateway")
	}
	same(t, "cancelled", id, w.sim.Cancelled()[0])
}

func TestASlowUpstreamEndsAtItsOwnDeadline(t *testing.T) {
	for tool, want := range map[string]said{
		"read":  {Outcome: store.OutcomeFailed, Code: "unavailable", Performed: "no", Retry: "wait"},
		"write": {Outcome: store.OutcomeUnknown, Code: "outcome_unknown", Performed: "unknown", Retry: "never"},
	} {
		sim := mcp.New(mcp.Config{}, mcp.Simple(tool))
		w := newWorld(t, sim, func(s *upstream.Spec, _ *upstream.Config) { s.Timeout = 200 * time.Millisecond })
		w.names(t, "ana")
		sim.Fail(mcp.Hang)
		same(t, "a "+tool, want, saidBy(t, w.call(t, "ana", tool, `{}`)))
		w.sawCancelled(t)
	}
}

func TestAnUpstreamThatIsSilentHoldsUpNobodysListAndIsLeftAlone(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"it hangs":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"it resets": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			l := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that its client is gone
				requests.Add(1)
				answer(rw, r)
			}))
			t.Cleanup(l.Close)
			w := newWorld(t, mcp.New(mcp.Config{}, mcp.Simple("read")), nil)
			w.names(t, "ana")
			w.cfg.Upstreams = []upstream.Spec{{Slug: "silent", Name: policy.Text{ES: "Mudo", EN: "Silent"}, URL: l.URL}, w.spec}
			w.cfg.ListTimeout = 200 * time.Millisecond
			w.Connector = need(upstream.New(w.cfg, w.store))(t)
			both := caller("ana")
			both.Apps = append(both.Apps, "silent")
			for range 8 {
				if tools := need(w.Tools(t.Context(), both))(t); len(tools) != 1 || tools[0].Name != "notes-read" {
					t.Fatalf("listed %+v", tools)
				}
				w.clock.Advance(2 * time.Second) // a list that could not be had is asked for again after one
			}
			same(t, "requests before it was left alone", 3, int(requests.Load()))
		})
	}
}
