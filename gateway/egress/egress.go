// Package egress is the web door of a run: a CONNECT proxy that leads to port 443 of the names an operator has listed, and
// nowhere else. It refuses every other method, name, port and address, an address that is not public, a TLS greeting that
// names another host or hides the name, and to say in a log a name that is not on the list.
//
// A name on the list is a capability: whoever steers the agent can send there all that the agent can read, within the
// bounds of Config. What is said inside TLS is not looked at.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/store"
)

// Config says what the door opens for. The zero value opens for nothing.
type Config struct {
	// Allow lists names: "example.com" is that name alone, "*.example.com" every name with exactly one label before it, as
	// in a certificate: neither example.com nor a.b.example.com. Empty: nothing.
	Allow []string

	// AtOnce bounds the connections of one run at the same time, default 16; more wait. Tries bounds all of its requests,
	// refused ones included, default 2000.
	AtOnce, Tries int
	// Up and Down bound the bytes of one connection to the web and from it, defaults 16 MiB and 256 MiB; RunUp and RunDown
	// those of a run's connections together, defaults 64 MiB and 1 GiB.
	Up, Down, RunUp, RunDown int64
	// Setup bounds a connection until its TLS greeting has been checked, default 30 s; Idle its silence afterwards, default
	// 1 min; Life all of it, default 10 min.
	Setup, Idle, Life time.Duration
	// Recheck is how often an open connection asks whether its run is still running. Default 5 s.
	Recheck time.Duration

	// Resolve gives a name's addresses. Default: the machine's resolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an address that was checked. Default: TCP, directly.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Now is the clock of what is logged. Default time.Now.
	Now func() time.Time
	// Log gets one line per connection: the name only if it is on the list, and never what was said.
	Log zerolog.Logger
}

// Process is whom a door is for.
type Process struct {
	Run     store.RunID     // for the log
	Company store.CompanyID // for the log
	// Alive tells whether the run is running now; an error refuses the request at hand, and cuts an open connection.
	Alive func(context.Context) error
}

// Doors serves the web doors of this machine's runs.
type Doors struct {
	cfg   Config
	allow list
}

// New checks the list; it starts nothing.
func New(cfg Config) (*Doors, error) {
	allow, err := newList(cfg.Allow)
	if err != nil {
		return nil, fmt.Errorf("egress config: %w", err)
	}
	cfg.setDefaults()
	return &Doors{cfg: cfg, allow: allow}, nil
}

func (cfg *Config) setDefaults() {
	for _, d := range []struct {
		field *int64
		value int64
	}{{&cfg.Up, 16 << 20}, {&cfg.Down, 256 << 20}, {&cfg.RunUp, 64 << 20}, {&cfg.RunDown, 1 << 30}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&cfg.Setup, 30 * time.Second}, {&cfg.Idle, time.Minute}, {&cfg.Life, 10 * time.Minute}, {&cfg.Recheck, 5 * time.Second}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if cfg.AtOnce <= 0 {
		cfg.AtOnce = 16
	}
	if cfg.Tries <= 0 {
		cfg.Tries = 2000
	}
	if cfg.Resolve == nil {
		cfg.Resolve = gateway.Resolve
	}
	if cfg.Dial == nil {
		cfg.Dial = gateway.DialAddress
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
}

// door is one run's, being served.
type door struct {
	*Doors
	p              Process
	tries          atomic.Int64 // left
	runUp, runDown atomic.Int64 // bytes left
}

// Serve serves one run's door on its listener until ctx ends; connections are cut then, and it returns when nothing of them
// is left.
func (d *Doors) Serve(ctx context.Context, p Process, l net.Listener) error {
	s := &door{Doors: d, p: p}
	s.tries.Store(int64(d.cfg.Tries))
	s.runUp.Store(d.cfg.RunUp)
	s.runDown.Store(d.cfg.RunDown)
	open, cut := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cut()
	defer l.Close() // its error is Accept's to tell
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	places := make(chan struct{}, d.cfg.AtOnce)
	for {
		select {
		case places <- struct{}{}: // who finds none waits in the listener's queue
		case <-ctx.Done():
			return nil
		}
		conn, err := accept(ctx, l)
		if ctx.Err() != nil {
			if conn != nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("serving web door of run %s: %w", p.Run, err)
		}
		conns.Go(func() {
			defer func() { <-places }()
			s.serve(open, conn)
		})
	}
}

// accept waits out what passes by itself: a caller who left, or a process that is short of descriptors.
func accept(ctx context.Context, l net.Listener) (net.Conn, error) {
	for {
		conn, err := l.Accept()
		if !errors.Is(err, syscall.ECONNABORTED) && !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return conn, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// serve is one connection from its request to its end.
func (s *door) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Life, errLife)
	defer cancel()
	t := &tunnel{door: s, inner: conn, began: s.cfg.Now()}
	defer t.close()
	if left := s.tries.Add(-1); left < 0 {
		if left == -1 {
			s.cfg.Log.Warn().Str("event", "security.web_tries").Str("run", string(s.p.Run)).Str("company", string(s.p.Company)).Send()
		}
		return // without a word: a run that goes on and on is not worth one
	}
	refused := t.open(ctx)
	switch {
	case refused == nil:
		t.ended(t.pass(ctx))
	case ctx.Err() == nil:
		t.refuse(refused)
	}
}
