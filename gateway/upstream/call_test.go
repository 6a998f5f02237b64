package upstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/sim/mcp"
	"pilder/store"
)

func TestG12_OneUpstreamRequestPerCall(t *testing.T) {
	eachEra(t, func(t *testing.T, cfg mcp.Config) {
		w := newWorld(t, mcp.New(cfg, mcp.Simple("read")), nil)
		w.names(t, "ana")
		w.call(t, "ana", "read", `{"warm":"up"}`)
		before := len(w.sim.Requests())
		for i := range 20 {
			if got := saidBy(t, w.call(t, "ana", "read", fmt.Sprintf(`{"n":%d}`, i))); got != wentWell {
				t.Fatalf("call %d: %+v", i, got)
			}
		}
		if made := len(w.sim.Requests()) - before; made != 20 {
			t.Errorf("20 calls made %d upstream requests", made)
		}
	})
}

func TestG01_AnUpstreamThatForgotTheSessionIsAskedAgainInANewOne(t *testing.T) {
	for _, gone := range []int{404, 400} {
		for _, tool := range []string{"read", "write"} {
			t.Run(fmt.Sprint(gone, tool), func(t *testing.T) {
				w := newWorld(t, mcp.New(mcp.Config{OnlyLegacy: true, GoneStatus: gone}, mcp.Simple(tool)), nil)
				w.call(t, "ana", tool, `{"n":1}`)
				w.sim.Restart()
				var callers sync.WaitGroup
				for i := range 8 { // one of them begins the new session, for all
					callers.Go(func() {
						if got := saidBy(t, w.call(t, "ana", tool, fmt.Sprintf(`{"n":%d}`, i+2))); got != wentWell {
							t.Errorf("call %d: %+v", i, got)
						}
					})
				}
				callers.Wait()
				if n := len(w.sim.Performed()); n != 9 {
					t.Errorf("9 calls were performed %d times", n)
				}
				// The house's for the list, hers, and the new one.
				if n := asked(w.sim)["POST initialize"]; n != 3 {
					t.Errorf("initialized %d times", n)
				}
			})
		}
	}
}

func TestG03_ARestartedUpstreamIsUsedAsSoonAsItListens(t *testing.T) {
	w := newWorld(t, mcp.New(mcp.Config{OnlyLegacy: true}, mcp.Simple("read"), mcp.Simple("write")), nil)
	w.call(t, "ana", "read", `{}`)
	w.sim.Fail(mcp.CutBefore)
	w.sim.Restart() // the connection breaks, and the new process knows no session
	same(t, "after the restart", wentWell, saidBy(t, w.call(t, "ana", "read", `{}`)))

	address := w.http.Listener.Addr().String()
	w.http.CloseClientConnections()
	w.http.Close()
	down := said{Outcome: store.OutcomeFailed, Code: "unavailable", Performed: "no", Retry: "wait"}
	same(t, "a read while it is down", down, saidBy(t, w.call(t, "ana", "read", `{}`))) // and the broken connections are known to be
	same(t, "a write while it is down", down, saidBy(t, w.call(t, "ana", "write", `{}`)))
	w.serveAt(t, address)
	same(t, "a write once it listens", wentWell, saidBy(t, w.call(t, "ana", "write", `{}`)))
}

func TestFaultsOfAnUpstream(t *testing.T) {
	ok := wentWell
	unknown := said{Outcome: store.OutcomeUnknown, Code: "outcome_unknown", Performed: "unknown", Retry: "never"}
	failed := func(code, retry string) said {
		return said{Outcome: store.OutcomeFailed, Code: code, Performed: "no", Retry: retry}
	}
	for _, tt := range []struct {
		fault       mcp.Fault
		read, write said
		reads       int // how often a read, and a write, was performed
		writes      int
	}{
		{mcp.CutBefore, ok, unknown, 1, 0}, // failed and not done: nobody can know
		{mcp.CutAfter, ok, unknown, 2, 1},  // failed, but done
		{mcp.EmptyStream, ok, unknown, 2, 1},
		{mcp.WrongID, failed("unavailable", "wait"), unknown, 1, 1},
		{mcp.StringID, failed("unavailable", "wait"), unknown, 1, 1},
		{mcp.WrongType, failed("unavailable", "wait"), unknown, 1, 1},
		{mcp.Batch, failed("unavailable", "wait"), unknown, 1, 1},
		{mcp.NoJSON, failed("unavailable", "wait"), unknown, 1, 1},
		{mcp.Endless, failed("too_big", "fix"), unknown, 1, 1},
		{mcp.Flood, ok, unknown, 2, 1},
		{mcp.Chatter, ok, ok, 1, 1},
		{mcp.Refuse, ok, ok, 1, 1}, // asked again, with the secret of that moment
		{mcp.Forbid, failed("app_refused", "fix"), failed("app_refused", "fix"), 0, 0},
		{mcp.Busy, failed("busy", "wait"), failed("busy", "wait"), 0, 0},
		{mcp.Broken, ok, unknown, 1, 0},
		{mcp.Redirect, failed("gateway_problem", "never"), unknown, 0, 0},
	} {
		for _, legacy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s legacy=%t", tt.fault, legacy), func(t *testing.T) {
				sim := mcp.New(mcp.Config{OnlyLegacy: legacy}, mcp.Simple("read"), mcp.Simple("write"))
				w := newWorld(t, sim, func(_ *upstream.Spec, cfg *upstream.Config) { cfg.MaxAnswer = 64 << 10 })
				w.names(t, "ana")
				sim.Fail(tt.fault)
				same(t, "a read", tt.read, saidBy(t, w.call(t, "ana", "read", `{}`)))
				if n := len(sim.Performed()); n != tt.reads {
					t.Errorf("the read was performed %d times", n)
				}
				sim.Fail(tt.fault)
				r := w.call(t, "ana", "write", `{}`)
				same(t, "a write", tt.write, saidBy(t, r))
				if n := len(sim.Performed()) - tt.reads; n != tt.writes {
					t.Errorf("the write was performed %d times", n)
				}
				for _, leak := range []string{"/srv/app.js", "169.254", "127.0.0.1", "somebody else's"} {
					if strings.Contains(r.Text+string(r.Structured), leak) {
						t.Errorf("told the model %q", leak)
					}
				}
				same(t, "the next call", wentWell, saidBy(t, w.call(t, "ana", "write", `{"next":1}`)))
			})
		}
	}
}

func TestABrokenUpstreamIsLeftAloneForAWhileAndKeepsItsTools(t *testing.T) {
	w := newWorld(t, mcp.New(mcp.Config{}, mcp.Simple("read")), nil)
	w.names(t, "ana")
	w.sim.Fail(mcp.Broken, mcp.Broken, mcp.Broken, mcp.Broken, mcp.Broken, mcp.Broken) // a read is tried twice
	for range 3 {
		w.call(t, "ana", "read", `{}`)
	}
	before := len(w.sim.Requests())
	down := said{Outcome: store.OutcomeFailed, Code: "unavailable", Performed: "no", Retry: "wait"}
	same(t, "while it rests", down, saidBy(t, w.call(t, "ana", "read", `{}`)))
	same(t, "its tools", []string{"notes-read"}, w.names(t, "ana"))
	if n := len(w.sim.Requests()); n != before {
		t.Errorf("it was asked %d times while it rested", n-before)
	}
	w.clock.Advance(31 * time.Second)
	same(t, "afterwards", wentWell, saidBy(t, w.call(t, "ana", "read", `{}`)))
}

func TestG11_WhatCallsBeginIsReusedBoundedAndEnded(t *testing.T) {
	w := newWorld(t, mcp.New(mcp.Config{OnlyLegacy: true}, mcp.Simple("read")), func(_ *upstream.Spec, cfg *upstream.Config) { cfg.MaxSessions = 3 })
	stop := w.run(t)
	for i := range 10 {
		member := fmt.Sprintf("m%d", i)
		w.call(t, member, "read", `{}`)
		w.call(t, member, "read", `{}`)
	}
	if !w.sim.Until(func() bool { return w.sim.Sessions() <= 3 }) {
		t.Errorf("%d MCP sessions are left for a bound of 3", w.sim.Sessions())
	}
	stop()
	if n := w.sim.Sessions(); n != 0 {
		t.Errorf("%d MCP sessions outlived pilder", n)
	}
}

func TestG08_ASessionThatNobodyUsesIsEnded(t *testing.T) {
	w := newWorld(t, mcp.New(mcp.Config{OnlyLegacy: true, NoStream: true}, mcp.Simple("read")),
		func(_ *upstream.Spec, cfg *upstream.Config) { cfg.Idle = 20 * time.Millisecond })
	w.run(t)
	for _, member := range []string{"ana", "bo", "cleo"} {
		w.call(t, member, "read", `{}`)
	}
	w.clock.Advance(time.Hour)
	if !w.sim.Until(func() bool { return w.sim.Sessions() == 0 }) {
		t.Errorf("%d MCP sessions are left", w.sim.Sessions())
	}
	same(t, "the next call", wentWell, saidBy(t, w.call(t, "ana", "read", `{}`)))
}

func TestG10_BeyondItsBoundThePoolIsBusyAndDoesNotGrow(t *testing.T) {
	sim := mcp.New(mcp.Config{OnlyLegacy: true, NoStream: true}, mcp.Simple("read"))
	w := newWorld(t, sim, func(_ *upstream.Spec, cfg *upstream.Config) { cfg.MaxSessions = 1 })
	w.names(t, "ana")
	sim.Fail(mcp.Hang)
	ctx, cancel := context.WithCancel(t.Context())
	came := make(chan gateway.Result, 1)
	go func() {
		came <- w.do(t, ctx, gateway.Call{Caller: caller("ana"), Tool: "notes-read", Args: []byte(`{}`)})
	}()
	w.performing(t)
	same(t, "another person", said{Outcome: store.OutcomeFailed, Code: "busy", Performed: "no", Retry: "wait"}, saidBy(t, w.call(t, "bo", "read", `{}`)))
	cancel()
	<-came
	same(t, "afterwards", wentWell, saidBy(t, w.call(t, "bo", "read", `{}`)))
}
