package gateway

import (
	"context"
	"sync"
)

// Gate lets work in until it is closed, and then waits for what is inside. A WaitGroup alone cannot: it may not grow while
// somebody waits for it to be empty. The zero value is open.
type Gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

// Enter lets one in, unless the gate is closed. Whoever was let in calls Leave.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside.Add(1)
	}
	return !g.closed
}

// Leave says that one who was let in is done.
func (g *Gate) Leave() { g.inside.Done() }

// Close lets nobody in from now on.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Wait returns when nobody is inside. Close comes before it.
func (g *Gate) Wait() { g.inside.Wait() }

// halt ends calls that get no more time, all at once. A nil one never does.
type halt struct {
	mu   sync.Mutex
	over bool
	ends map[*context.CancelFunc]bool
}

// watch has end called when the time is over, until forget is called.
func (h *halt) watch(end context.CancelFunc) (forget func()) {
	if h == nil {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		end()
		return func() {}
	}
	if h.ends == nil {
		h.ends = map[*context.CancelFunc]bool{}
	}
	h.ends[&end] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.ends, &end)
	}
}

// now says that the time is over; again, it does nothing.
func (h *halt) now() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for end := range h.ends {
		(*end)()
	}
	h.ends = nil
}
