package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
)

// sharedReads lets identical reads of one run that are under way at the same time be one request to the app: models like to
// ask twice. Each of them keeps its own row and outcome.
type sharedReads struct {
	mu    sync.Mutex
	under map[string]*sharedRead
}

type sharedRead struct {
	cancel  context.CancelFunc
	waiting int // guarded by sharedReads.mu
	done    chan struct{}
	result  Result // valid once done is closed
}

func newSharedReads() *sharedReads { return &sharedReads{under: map[string]*sharedRead{}} }

// do performs a read, or waits for the identical one under way. Whoever came first may leave: the read goes on as long as
// anybody waits, and whoever leaves last ends it and waits for its end. gone is what one who left is answered.
func (s *sharedReads) do(ctx context.Context, key string, perform func(context.Context) Result, gone func() Result) Result {
	s.mu.Lock()
	read, joined := s.under[key]
	if !joined {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		read = &sharedRead{cancel: cancel, done: make(chan struct{})}
		s.under[key] = read
		go func() {
			defer cancel()
			read.result = perform(own)
			s.end(key, read)
		}()
	}
	read.waiting++
	s.mu.Unlock()
	select {
	case <-read.done:
		return read.result
	case <-ctx.Done():
	}
	if s.leaveLast(key, read) {
		read.cancel()
		<-read.done
		return read.result
	}
	return gone()
}

func (s *sharedReads) end(key string, read *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under[key] == read {
		delete(s.under, key)
	}
	close(read.done)
}

// leaveLast tells whether nobody waits for the read any more; then nobody joins it either.
func (s *sharedReads) leaveLast(key string, read *sharedRead) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read.waiting--; read.waiting > 0 {
		return false
	}
	if s.under[key] == read {
		delete(s.under, key)
	}
	return true
}

// readKey names a read by what it asks for, spaces aside.
func readKey(tool, account string, args json.RawMessage) string {
	var plain bytes.Buffer
	if json.Compact(&plain, args) != nil {
		plain.Reset()
		plain.Write(args)
	}
	return tool + "\x00" + account + "\x00" + plain.String()
}
