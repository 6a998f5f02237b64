package gateway

import "sync"

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
