package store

import "sync"

// bell wakes everybody who waits in this process.
type bell struct {
	mu sync.Mutex
	ch chan struct{}
}

func newBell() *bell { return &bell{ch: make(chan struct{})} }

func (b *bell) broadcast() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}

func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

// Wake is closed and replaced whenever this process committed something the sender, the control lane or a waiting command
// may act on. Get it before looking, wait on it after finding nothing; other processes are found by polling.
func (s *Store) Wake() <-chan struct{} { return s.wake.wait() }
