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

// do performs a read, or waits for the identical one under way. The read goes on as long as anybody waits for it, also when
// whoever came first does so no more: that one stays until its end, since it performs it. gone is what another one that
// leaves is answered.
func (s *sharedReads) do(ctx context.Context, key string, perform func(context.Context) Result, gone func() Result) Result {
	s.mu.Lock()
	read, joined := s.under[key]
	if joined {
		read.waiting++
		s.mu.Unlock()
		select {
		case <-read.done:
			return read.result
		case <-ctx.Done():
			s.leave(key, read)
			return gone()
		}
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	read = &sharedRead{cancel: cancel, waiting: 1, done: make(chan struct{})}
	s.under[key] = read
	s.mu.Unlock()
	defer context.AfterFunc(ctx, func() { s.leave(key, read) })()
	read.result = perform(own)
	s.forget(key, read)
	close(read.done)
	return read.result
}

// leave ends a read that nobody waits for any more; then nobody joins it either.
func (s *sharedReads) leave(key string, read *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read.waiting--; read.waiting > 0 {
		return
	}
	if s.under[key] == read {
		delete(s.under, key)
	}
	read.cancel()
}

func (s *sharedReads) forget(key string, read *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under[key] == read {
		delete(s.under, key)
	}
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
