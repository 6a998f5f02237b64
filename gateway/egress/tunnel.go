package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"pilder/gateway"
)

// Ends of an open connection, named as the log names them.
var (
	errLife     = errors.New("time")
	errIdle     = errors.New("idle")
	errBytes    = errors.New("bytes")
	errRunBytes = errors.New("run_bytes")
	errRunOver  = errors.New("run_over")
	errLeft     = errors.New("left")
)

// tunnel is one connection through a door.
type tunnel struct {
	*door
	inner    net.Conn // to the sandbox
	reader   *bufio.Reader
	host     string // set once it is known to be on the list
	began    time.Time
	up, down atomic.Int64 // bytes that passed

	mu     sync.Mutex
	outer  net.Conn // to the web, once there is one
	closed bool
}

// open reads the request, connects, and sees that the TLS greeting is for the host that was asked for. When it returns nil
// the greeting has been passed on, and is the first that the other side hears.
func (t *tunnel) open(ctx context.Context) *refusal {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Setup)
	defer cancel()
	defer context.AfterFunc(ctx, t.close)() // ends a read or write under way
	refused := t.prepare(ctx)
	if refused == nil {
		refused = t.greet(ctx)
	}
	if refused != nil && ctx.Err() != nil {
		return &refusal{0, "time"}
	}
	return refused
}

// prepare comes as far as a connection to the host, over which nothing has been said.
func (t *tunnel) prepare(ctx context.Context) *refusal {
	t.reader = bufio.NewReaderSize(t.inner, maxHead)
	host, refused := readRequest(t.reader)
	switch {
	case refused != nil:
		return refused
	case !t.allow.has(host):
		return &refusal{http.StatusForbidden, "not_listed"}
	}
	t.host = host
	if t.p.Alive(ctx) != nil {
		return &refusal{http.StatusForbidden, "run_over"}
	}
	if t.runUp.Load() <= 0 || t.runDown.Load() <= 0 {
		return &refusal{http.StatusForbidden, "run_bytes"}
	}
	found, err := gateway.PublicAddresses(ctx, t.cfg.Resolve, host)
	switch {
	case errors.Is(err, gateway.ErrNotPublic):
		return &refusal{http.StatusForbidden, "address"}
	case err != nil:
		return &refusal{http.StatusBadGateway, "no_address"}
	}
	if t.connect(ctx, found) != nil {
		return &refusal{http.StatusBadGateway, "unreachable"}
	}
	return nil
}

// greet hears the TLS greeting and, if it is for the host, passes it on.
func (t *tunnel) greet(ctx context.Context) *refusal {
	if _, err := io.WriteString(t.inner, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return &refusal{0, "left"}
	}
	hello, err := checkHello(t.reader, t.host)
	switch {
	case errors.Is(err, errSNI):
		return &refusal{0, "sni"}
	case errors.Is(err, errHidden):
		return &refusal{0, "hidden"}
	case err != nil:
		return &refusal{0, "greeting"}
	case t.p.Alive(ctx) != nil: // it may have ended meanwhile
		return &refusal{0, "run_over"}
	}
	switch err := t.forward(t.outer, hello, &t.up, t.cfg.Up, &t.runUp); {
	case errors.Is(err, errRunBytes):
		return &refusal{0, "run_bytes"}
	case err != nil:
		return &refusal{0, "unreachable"}
	}
	return nil
}

// connect connects to the first of the addresses that answers. Each was checked, and none is looked up again.
func (t *tunnel) connect(ctx context.Context, to []netip.Addr) error {
	var errs []error
	for _, a := range to {
		conn, err := t.cfg.Dial(ctx, netip.AddrPortFrom(a, 443))
		if err == nil {
			return t.hold(conn)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// pass passes bytes both ways until both sides have ended, one of them breaks, or a bound is met; it tells which.
func (t *tunnel) pass(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(ctx, t.close)()
	silence := time.AfterFunc(t.cfg.Idle, func() { stop(errIdle) })
	defer silence.Stop()
	heard := func() { silence.Reset(t.cfg.Idle) }

	var ways sync.WaitGroup
	way := func(to net.Conn, from io.Reader, passed *atomic.Int64, most int64, run *atomic.Int64) {
		if err := t.copy(to, from, passed, most, run, heard); err != nil {
			stop(err)
		}
	}
	done := make(chan struct{})
	ways.Go(func() { way(t.outer, t.reader, &t.up, t.cfg.Up, &t.runUp) })
	ways.Go(func() { way(t.inner, t.outer, &t.down, t.cfg.Down, &t.runDown) })
	go func() { ways.Wait(); close(done) }()

	again := time.NewTicker(t.cfg.Recheck)
	defer again.Stop()
	for {
		select {
		case <-done:
			return context.Cause(ctx)
		case <-again.C:
			if t.p.Alive(ctx) != nil {
				stop(errRunOver)
			}
		}
	}
}

// copy passes one way until it ends, and then says so to the other side.
func (t *tunnel) copy(to net.Conn, from io.Reader, passed *atomic.Int64, most int64, run *atomic.Int64, heard func()) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			heard()
			if err := t.forward(to, buf[:n], passed, most, run); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // if nobody is there any more, the other way tells
				return nil
			}
			return errLeft
		}
		if err != nil {
			return errLeft
		}
	}
}

// forward passes a piece on, if it is within bounds.
func (t *tunnel) forward(to net.Conn, piece []byte, passed *atomic.Int64, most int64, run *atomic.Int64) error {
	n := int64(len(piece))
	switch {
	case passed.Add(n) > most:
		return errBytes
	case run.Add(-n) < 0:
		return errRunBytes
	}
	if _, err := to.Write(piece); err != nil {
		return errLeft
	}
	return nil
}

// refuse says no, as far as it can still be said, and logs it.
func (t *tunnel) refuse(r *refusal) {
	line := t.cfg.Log.Info().Str("event", "web.failed")
	if r.breach() {
		line = t.cfg.Log.Warn().Str("event", "security.web_refused")
	}
	if t.host != "" {
		line = line.Str("host", t.host)
	}
	line.Str("reason", r.reason).Str("run", string(t.p.Run)).Str("company", string(t.p.Company)).Send()
	if r.status == 0 {
		return
	}
	more := ""
	if r.status == http.StatusMethodNotAllowed {
		more = "Allow: CONNECT\r\n"
	}
	body := "web door: " + r.words() + "\n"
	_ = t.inner.SetDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(t.inner, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%sConnection: close\r\n\r\n%s",
		r.status, http.StatusText(r.status), len(body), more, body)
	if half, ok := t.inner.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		_, _ = io.CopyN(io.Discard, t.inner, 64<<10) // closing on unread bytes would take the answer along
	}
}

// ended logs an open connection's end. Neither side's wish is a fault.
func (t *tunnel) ended(why error) {
	reason := "done"
	switch {
	case errors.Is(why, context.Canceled):
		reason = errRunOver.Error()
	case why != nil:
		reason = why.Error()
	}
	t.cfg.Log.Info().Str("event", "web.passed").Str("reason", reason).Str("host", t.host).Int64("up", t.up.Load()).Int64("down", t.down.Load()).
		Int64("ms", t.cfg.Now().Sub(t.began).Milliseconds()).Str("run", string(t.p.Run)).Str("company", string(t.p.Company)).Send()
}

// hold takes the connection to the web, unless all is over.
func (t *tunnel) hold(conn net.Conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = conn.Close()
		return net.ErrClosed
	}
	t.outer = conn
	return nil
}

func (t *tunnel) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	_ = t.inner.Close()
	if t.outer != nil {
		_ = t.outer.Close()
	}
}
