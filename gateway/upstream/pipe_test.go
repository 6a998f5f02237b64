package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/sim/mcp"
	"pilder/store"
)

// processes starts the simulated upstream as a stdio server, and remembers for whom.
type processes struct {
	sim     *mcp.Server
	mu      sync.Mutex
	started []upstream.Command
	alive   sync.WaitGroup
	fail    error
}

func (p *processes) start(_ context.Context, c upstream.Command) (io.ReadWriteCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, c)
	if p.fail != nil {
		return nil, p.fail
	}
	ours, theirs := net.Pipe()
	p.alive.Go(func() { p.sim.Serve(theirs) })
	return ours, nil
}

// owners are whose processes were started, in order.
func (p *processes) owners() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, c := range p.started {
		all = append(all, c.Owner)
	}
	return all
}

// stdio is a world whose upstream is a program.
func stdio(t *testing.T, change func(*upstream.Spec, *upstream.Config), tools ...mcp.Tool) (*world, *processes) {
	t.Helper()
	p := &processes{sim: mcp.New(mcp.Config{OnlyLegacy: true}, tools...)}
	w := newWorld(t, p.sim, func(s *upstream.Spec, cfg *upstream.Config) {
		s.URL, s.Command, s.Env, cfg.Start = "", []string{"server", "--stdio"}, map[string]string{"B": "2", "A": "1"}, p.start
		if change != nil {
			change(s, cfg)
		}
	})
	stop := w.run(t)
	t.Cleanup(func() {
		stop()
		p.alive.Wait() // every process has ended
	})
	return w, p
}

func TestAProgramIsStartedForEachPersonAndReused(t *testing.T) {
	w, p := stdio(t, nil, mcp.Simple("read"))
	same(t, "listed", []string{"notes-read"}, w.names(t, "ana"))
	for range 3 {
		for _, member := range []string{"ana", "bo"} {
			same(t, "a call", wentWell, saidBy(t, w.call(t, member, "read", `{}`)))
		}
	}
	same(t, "processes", []string{"house", "mem_ana", "mem_bo"}, p.owners())
	want := upstream.Command{Upstream: "notes", Owner: "house", Argv: []string{"server", "--stdio"}, Env: []string{"A=1", "B=2"}}
	same(t, "the command", want, p.started[0])
}

func TestAProgramIsSharedWhereTheOperatorSaysSo(t *testing.T) {
	w, p := stdio(t, func(s *upstream.Spec, _ *upstream.Config) { s.Shared = true }, mcp.Simple("read"))
	w.names(t, "ana")
	w.call(t, "ana", "read", `{}`)
	w.call(t, "bo", "read", `{}`)
	same(t, "processes", []string{"shared"}, p.owners())
}

func TestEveryProgramEndsHoweverManyThereAre(t *testing.T) {
	p := &processes{sim: mcp.New(mcp.Config{OnlyLegacy: true}, mcp.Simple("read"))}
	var ended atomic.Int64
	w := newWorld(t, p.sim, func(s *upstream.Spec, cfg *upstream.Config) {
		s.URL, s.Command = "", []string{"server", "--stdio"}
		cfg.Start = func(ctx context.Context, c upstream.Command) (io.ReadWriteCloser, error) {
			pipe, err := p.start(ctx, c)
			return &counted{ReadWriteCloser: pipe, closed: sync.OnceFunc(func() { ended.Add(1) })}, err
		}
	})
	for i := range 300 {
		same(t, "a call", wentWell, saidBy(t, w.call(t, fmt.Sprint(i), "read", `{}`)))
	}
	w.Close(t.Context())
	same(t, "processes that ended", 301, int(ended.Load())) // one looks at the list
}

// counted is a pipe that tells that it was closed.
type counted struct {
	io.ReadWriteCloser
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.ReadWriteCloser.Close()
}

func TestAProgramThatDiesIsStartedAgain(t *testing.T) {
	unknown := said{Outcome: store.OutcomeUnknown, Code: "outcome_unknown", Performed: "unknown", Retry: "never"}
	for _, tt := range []struct {
		fault       mcp.Fault
		read, write said
		performed   int
	}{
		{mcp.CutBefore, wentWell, unknown, 1},
		{mcp.CutAfter, wentWell, unknown, 3},
	} {
		w, p := stdio(t, nil, mcp.Simple("read"), mcp.Simple("write"))
		w.names(t, "ana")
		w.call(t, "ana", "read", `{"warm":"up"}`)
		before := len(p.sim.Performed())
		p.sim.Fail(tt.fault)
		same(t, "a read", tt.read, saidBy(t, w.call(t, "ana", "read", `{}`)))
		p.sim.Fail(tt.fault)
		same(t, "a write", tt.write, saidBy(t, w.call(t, "ana", "write", `{}`)))
		if n := len(p.sim.Performed()) - before; n != tt.performed {
			t.Errorf("%s: performed %d", tt.fault, n)
		}
		same(t, "the next write", wentWell, saidBy(t, w.call(t, "ana", "write", `{"next":1}`)))
	}
}

func TestAProgramThatReadHalfALineIsNotAskedAgain(t *testing.T) {
	var torn atomic.Pointer[context.CancelFunc] // of the caller that goes away in the middle of the next line
	w, p := stdio(t, func(_ *upstream.Spec, cfg *upstream.Config) {
		start := cfg.Start
		cfg.Start = func(ctx context.Context, c upstream.Command) (io.ReadWriteCloser, error) {
			pipe, err := start(ctx, c)
			return &tearing{ReadWriteCloser: pipe, torn: &torn}, err
		}
	}, mcp.Simple("read"), mcp.Simple("write"))
	same(t, "a read", wentWell, saidBy(t, w.call(t, "ana", "read", `{}`)))
	ctx, cancel := context.WithCancel(t.Context())
	torn.Store(&cancel)
	w.do(t, ctx, gateway.Call{Caller: caller("ana"), Tool: "notes-write", Args: json.RawMessage(`{"n":1}`)})
	same(t, "the next write", wentWell, saidBy(t, w.call(t, "ana", "write", `{"n":2}`)))
	same(t, "processes", []string{"house", "mem_ana", "mem_ana"}, p.owners())
}

// tearing is a pipe of which one line is written by half: its reader took no more in time, and its caller went away.
type tearing struct {
	io.ReadWriteCloser
	torn *atomic.Pointer[context.CancelFunc]
}

func (p *tearing) Write(b []byte) (int, error) {
	cancel := p.torn.Swap(nil)
	if cancel == nil {
		return p.ReadWriteCloser.Write(b)
	}
	n, _ := p.ReadWriteCloser.Write(b[:len(b)/2])
	(*cancel)()
	return n, os.ErrDeadlineExceeded
}

func TestAProgramThatHangsIsStartedAgain(t *testing.T) {
	w, p := stdio(t, nil, mcp.Simple("write"))
	w.names(t, "ana")
	p.sim.Fail(mcp.Hang, mcp.Hang)
	for n := range 2 {
		glass := hourglass{t.Context(), make(chan struct{})}
		came := make(chan gateway.Result, 1)
		go func() {
			came <- w.do(t, glass, gateway.Call{Caller: caller("ana"), Tool: "notes-write", Args: json.RawMessage(`{}`)})
		}()
		if !p.sim.Until(func() bool { return len(p.sim.Performed()) == n+1 }) {
			t.Fatal("the call never began")
		}
		close(glass.sand)
		same(t, "outcome", "outcome_unknown", (<-came).Code)
	}
	same(t, "the next", wentWell, saidBy(t, w.call(t, "ana", "write", `{}`)))
	same(t, "processes", []string{"house", "mem_ana", "mem_ana"}, p.owners())
}

// hourglass is a context whose deadline comes when the test says so.
type hourglass struct {
	context.Context
	sand chan struct{}
}

func (h hourglass) Done() <-chan struct{} { return h.sand }

func (h hourglass) Err() error {
	select {
	case <-h.sand:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestAProgramThatCannotStartIsNotStartedAllTheTime(t *testing.T) {
	w, p := stdio(t, nil, mcp.Simple("read"))
	w.names(t, "ana")
	p.mu.Lock()
	p.fail = io.ErrUnexpectedEOF
	before := len(p.started)
	p.mu.Unlock()
	down := said{Outcome: store.OutcomeFailed, Code: "unavailable", Performed: "no", Retry: "wait"}
	for range 20 {
		same(t, "a call", down, saidBy(t, w.call(t, "ana", "read", `{}`)))
	}
	if n := len(p.owners()) - before; n > 3 {
		t.Errorf("started %d times", n)
	}
	same(t, "its tools", []string{"notes-read"}, w.names(t, "ana"))
	p.mu.Lock()
	p.fail = nil
	p.mu.Unlock()
	w.clock.Advance(time.Hour)
	same(t, "once it can", wentWell, saidBy(t, w.call(t, "ana", "read", `{}`)))
}

func TestProgressAndCancellationOfAProgram(t *testing.T) {
	slow := mcp.Simple("read")
	slow.Do = func(_ mcp.Call, progress func(done, total float64, message string)) string {
		progress(1, 2, "half")
		return mcp.Text("done")
	}
	w, p := stdio(t, func(_ *upstream.Spec, cfg *upstream.Config) { cfg.Grace = time.Millisecond }, slow, mcp.Simple("write"))
	heard := make(chan gateway.Progress, 9)
	r := w.do(t, t.Context(), gateway.Call{Caller: caller("ana"), Tool: "notes-read", Args: json.RawMessage(`{}`), Progress: func(p gateway.Progress) { heard <- p }})
	same(t, "result", wentWell, saidBy(t, r))
	same(t, "heard", gateway.Progress{Done: 1, Total: 2, Message: "half"}, <-heard)

	p.sim.Fail(mcp.Hang)
	cancelled, came := make(chan struct{}), make(chan gateway.Result, 1)
	go func() {
		came <- w.do(t, t.Context(), gateway.Call{Caller: caller("ana"), Tool: "notes-write", Args: json.RawMessage(`{}`), Cancelled: cancelled})
	}()
	if !p.sim.Until(func() bool { return len(p.sim.Performed()) == 2 }) {
		t.Fatal("the call never began")
	}
	close(cancelled)
	same(t, "outcome", "outcome_unknown", (<-came).Code)
	if !p.sim.Until(func() bool { return len(p.sim.Cancelled()) == 1 }) {
		t.Error("the cancellation ended at the gateway")
	}
}

func TestAProgramsSecretIsAVariable(t *testing.T) {
	w, p := stdio(t, func(s *upstream.Spec, cfg *upstream.Config) {
		s.Auth, s.Header = upstream.AuthHeader, "NOTES_KEY"
		cfg.Bearer = func(context.Context, gateway.Caller, string, string) (store.Secret, error) {
			return store.NewSecret("sesame"), nil
		}
	}, mcp.Simple("read"))
	w.names(t, "ana")
	same(t, "environment", "A=1 B=2 NOTES_KEY=sesame", strings.Join(p.started[0].Env, " "))
}
