package gateway_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// held makes an app's tool wait: entered gives one value for each call that reached it, release lets them all go.
func (w *world) held(tool string) (entered chan struct{}, release func()) {
	entered = make(chan struct{}, 100)
	gate := make(chan struct{})
	w.app.on(tool, func(ctx context.Context, c gateway.Call) (gateway.Result, error) {
		entered <- struct{}{}
		select {
		case <-gate:
			return done(string(c.Args)), nil
		case <-c.Cancelled: // as a connector of another server looks at it
			return gateway.Result{}, context.Canceled
		case <-ctx.Done():
			return gateway.Result{}, ctx.Err()
		}
	})
	return entered, sync.OnceFunc(func() { close(gate) })
}

// started is a call under way.
func started(t *testing.T, s *mcp.ClientSession, tool, args string) <-chan answer {
	t.Helper()
	got := make(chan answer, 1)
	go func() { got <- call(t, s, tool, args) }()
	return got
}

func TestIdenticalReadsUnderWayAreOneRequest(t *testing.T) {
	w := onSQLite(t)
	entered, release := w.held(list)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	first := started(t, agent, list, `{"q":"a"}`)
	next(t, entered)
	others := []<-chan answer{started(t, agent, list, `{ "q": "a" }`), started(t, agent, list, `{"q":"a"}`)}
	another := started(t, agent, list, `{"q":"b"}`)
	next(t, entered)
	w.until(t, func() bool { return len(w.rows(t, run.ID)) == 4 })
	release()
	want := next(t, first)
	for _, o := range others {
		if got := next(t, o); got.Text != want.Text || got.IsError {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if got := next(t, another); got.Text == want.Text {
		t.Errorf("another question got the same answer: %+v", got)
	}
	same(t, 2, len(w.app.performed()))
	one := row{list, policy.Allow, "", store.OutcomeDone, "ok"}
	same(t, []row{one, one, one, one}, w.rows(t, run.ID)) // each its own
}

func TestAReadGoesOnWhileAnybodyWaitsForIt(t *testing.T) {
	w := onSQLite(t)
	entered, release := w.held(list)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := agent.CallTool(leaving, &mcp.CallToolParams{Name: list, Arguments: map[string]any{"q": "a"}})
		left <- err
	}()
	next(t, entered)
	stays := started(t, agent, list, `{"q":"a"}`)
	w.until(t, func() bool { return len(w.rows(t, run.ID)) == 2 })
	leave()
	if err := next(t, left); err == nil {
		t.Error("a call that was taken back gave a result")
	}
	release()
	if got := next(t, stays); got.IsError {
		t.Errorf("the one that stayed: %+v", got)
	}
	same(t, 1, len(w.app.performed()))
}

// until waits until something is so, looked at whenever the store changed.
func (w *world) until(t *testing.T, so func() bool) {
	t.Helper()
	late := time.After(patience)
	look := time.NewTicker(10 * time.Millisecond) // quiet writes wake nobody
	defer look.Stop()
	for wake := w.Wake(); !so(); wake = w.Wake() {
		select {
		case <-wake:
		case <-look.C:
		case <-late:
			t.Fatal("it never came so")
		}
	}
}

// full is an agent whose one allowed call is under way, and what lets that call go.
func (w *world) full(t *testing.T, patience time.Duration) (agent *mcp.ClientSession, run store.Run, first <-chan answer, release func()) {
	t.Helper()
	w.cfg.Bounds = gateway.Bounds{Person: gateway.Bound{AtOnce: 1}, Patience: patience}
	w.build(t)
	entered, release := w.held(create)
	run, _ = w.run(t)
	addr, _ := w.door(t, run)
	agent = w.agent(t, run, addr, "", nil)
	first = started(t, agent, create, `{"summary":"a"}`)
	next(t, entered)
	return agent, run, first, release
}

func TestTooManyCallsAtOnceWaitOrAreToldSo(t *testing.T) {
	w := onSQLite(t)
	agent, run, first, release := w.full(t, 0)
	if got := call(t, agent, create, `{"summary":"b"}`); got.Structured["code"] != "busy" || got.Structured["performed"] != "no" || got.Structured["retry"] != "wait" {
		t.Errorf("a second change: %+v", got)
	}
	reading := started(t, agent, list, `{"q":"a"}`) // waits its turn
	release()
	if got := next(t, first); got.IsError {
		t.Errorf("%+v", got)
	}
	if got := next(t, reading); got.IsError {
		t.Errorf("%+v", got)
	}
	if got := call(t, agent, create, `{"summary":"b"}`); got.IsError { // what was refused so may be tried again
		t.Errorf("%+v", got)
	}
	same(t, []row{
		{create, policy.Deny, "", store.OutcomeRefused, "busy"}, {create, policy.Allow, "", store.OutcomeDone, "ok"}, {create, policy.Allow, "", store.OutcomeDone, "ok"},
		{list, policy.Allow, "", store.OutcomeDone, "ok"},
	}, w.rows(t, run.ID))
}

func TestAReadWaitsNoLongerThanItsPatience(t *testing.T) {
	w := onSQLite(t)
	agent, _, first, release := w.full(t, time.Millisecond)
	if got := call(t, agent, list, `{"q":"a"}`); got.Structured["code"] != "busy" {
		t.Errorf("%+v", got)
	}
	release()
	next(t, first)
	if got := call(t, agent, list, `{"q":"a"}`); got.IsError {
		t.Errorf("%+v", got)
	}
}

func TestWhatWasBusyCountsAgainstNoLimit(t *testing.T) {
	w := onSQLite(t)
	w.setPolicy(t, 0, "limits: {calls: 2}")
	agent, _, first, release := w.full(t, 0)
	for range 3 {
		if got := call(t, agent, create, `{"summary":"b"}`); got.Structured["code"] != "busy" {
			t.Errorf("%+v", got)
		}
	}
	release()
	next(t, first)
	if got := call(t, agent, create, `{"summary":"b"}`); got.IsError {
		t.Errorf("%+v", got)
	}
	if got := call(t, agent, create, `{"summary":"c"}`); got.Structured["code"] != "limit" {
		t.Errorf("%+v", got)
	}
}

func TestAPersonsRateIsTheirOwn(t *testing.T) {
	for name, bounds := range map[string]gateway.Bounds{
		"person": {Person: gateway.Bound{PerMinute: 2}}, "app": {App: gateway.Bound{PerMinute: 2}}, "company": {Company: gateway.Bound{PerMinute: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := onSQLite(t)
			w.cfg.Bounds = bounds
			w.build(t)
			run, _ := w.run(t)
			addr, _ := w.door(t, run)
			agent := w.agent(t, run, addr, "", nil)
			for _, title := range []string{"a", "b"} {
				if got := call(t, agent, create, `{"summary":"`+title+`"}`); got.IsError {
					t.Fatalf("%+v", got)
				}
			}
			got := call(t, agent, create, `{"summary":"c"}`)
			if got.Structured["code"] != "busy" || got.Structured["retry_after_s"] != 30.0 {
				t.Errorf("a third in the same minute: %+v", got)
			}
			w.clock.Advance(30 * time.Second)
			if got := call(t, agent, create, `{"summary":"c"}`); got.IsError {
				t.Errorf("half a minute later: %+v", got)
			}
			same(t, 3, len(w.app.performed()))
		})
	}
}
