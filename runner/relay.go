package runner

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// relay is one door of a process that serves several runs, one after the other. It owns the listener inside the sandbox;
// each run gets a listener of its own from it, which ends with the run while the door stays. A connection that comes when
// no run is served is closed at once.
type relay struct {
	l      net.Listener
	places chan struct{} // one is taken for each open connection

	mu  sync.Mutex
	now *turnListener // nil: no run is served
}

// doorConns bounds the connections of a door that are open at the same time; more wait in the kernel, inside the sandbox. Each
// costs a descriptor and buffers of pilder's own, which are everybody's.
const doorConns = 64

// newRelay begins to take connections. It ends when the listener is closed.
func newRelay(l net.Listener) *relay {
	r := &relay{l: l, places: make(chan struct{}, doorConns)}
	go r.accept() // ends with the listener, which belongs to the process
	return r
}

func (r *relay) accept() {
	for {
		conn, err := r.l.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) { // passes
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.now != nil {
				r.now.end()
			}
			return
		}
		r.mu.Lock()
		now := r.now
		r.mu.Unlock()
		if now == nil {
			_ = conn.Close() // nobody is there to whom it could matter
			continue
		}
		r.pass(conn, now)
	}
}

// pass gives a connection to the run that is served, once there is a place for it.
func (r *relay) pass(conn net.Conn, now *turnListener) {
	select {
	case r.places <- struct{}{}:
	case <-now.closed:
		_ = conn.Close()
		return
	}
	placed := &placed{Conn: conn, leave: sync.OnceFunc(func() { <-r.places })}
	select {
	case now.conns <- placed:
	case <-now.closed:
		_ = placed.Close()
	}
}

// placed is a connection that has a place until it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite ends one way of it, as on a TCP connection.
func (c *placed) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// open gives the listener of the next run; that of the run before must have been closed.
func (r *relay) open() net.Listener {
	l := &turnListener{relay: r, conns: make(chan net.Conn), closed: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = l
	return l
}

// turnListener is a door as one run's server sees it.
type turnListener struct {
	relay  *relay
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *turnListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: it ends this run's part and leaves the door.
func (l *turnListener) Close() error {
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()
	if l.relay.now == l {
		l.relay.now = nil
	}
	l.end()
	return nil
}

func (l *turnListener) end() { l.once.Do(func() { close(l.closed) }) }

// Addr implements net.Listener.
func (l *turnListener) Addr() net.Addr { return l.relay.l.Addr() }
