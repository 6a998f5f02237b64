package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
)

// flights are a run's calls of the old era that are under way, by session and request id: the notification that takes one
// back comes in a request of its own. In the modern era a caller takes its call back by closing the stream.
type flights struct {
	mu     sync.Mutex
	all    map[flightKey][]*flight
	closed bool
}

type flightKey struct {
	session string // empty of a client that keeps none
	id      string
}

type flight struct {
	cancel context.CancelFunc
	back   atomic.Bool // its caller took it back and wants no answer any more
}

// begin enters a call; false when one of its session with this id is under way. Clients without a session cannot be told
// apart, so there ids may be the same.
func (f *flights) begin(key flightKey, one *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if key.session != "" && len(f.all[key]) > 0 {
		return false
	}
	f.all[key] = append(f.all[key], one)
	if f.closed {
		one.cancel()
	}
	return true
}

// close ends the contexts of all calls: their door closes.
func (f *flights) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, same := range f.all {
		for _, one := range same {
			one.cancel()
		}
	}
}

func (f *flights) end(key flightKey, one *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := f.all[key]
	for i := range rest {
		if rest[i] == one {
			rest = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	if len(rest) == 0 {
		delete(f.all, key)
		return
	}
	f.all[key] = rest
}

// takeBack hears notifications/cancelled. One that may mean several calls means none.
func (f *flights) takeBack(session string, params json.RawMessage) {
	var id json.RawMessage
	if !isObject(params) {
		return
	}
	err := members(params, func(name string, value json.RawMessage) error {
		if name == "requestId" {
			id = value
		}
		return nil
	})
	if err != nil || id == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if found := f.all[flightKey{session, string(id)}]; len(found) == 1 {
		found[0].back.Store(true)
		found[0].cancel()
	}
}
