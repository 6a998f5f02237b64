package gateway

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// receive takes every MCP request of a door but calls, which the SDK never sees. What pilder does not offer is not there: the
// SDK would answer it with empty lists.
func (d *door) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if topic, _, _ := strings.Cut(method, "/"); slices.Contains([]string{"prompts", "resources", "completion", "logging"}, topic) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found"}
		}
		if _, listens := req.(*mcp.SubscriptionsListenRequest); !listens {
			return next(ctx, method, req)
		}
		// A stream that is open outlives its token unless it is ended.
		ctx, cancel := context.WithTimeout(ctx, d.run.Expires.Sub(d.g.cfg.Now()))
		defer cancel()
		if comments, ok := ctx.Value(commentKey{}).(*commentWriter); ok {
			defer d.comment(ctx, comments)()
		}
		return next(ctx, method, req)
	}
}

// comment keeps an event stream of the SDK's from being silent: what stands between cuts silent ones. The returned function
// stops it and waits.
func (d *door) comment(ctx context.Context, w *commentWriter) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(d.g.cfg.Heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.comment()
			}
		}
	})
	return func() {
		cancel()
		beating.Wait()
	}
}

// commentKey is where the stateless handler's writer travels, within its one request only.
type commentKey struct{}

// commentWriter lets comments be written between the SDK's own events.
type commentWriter struct {
	http.ResponseWriter
	late     bool // nothing is known of the answer before it begins
	mu       sync.Mutex
	begun    bool
	finished bool // the request is over; its writer may belong to another one by now
}

func (w *commentWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *commentWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController asks for.
func (w *commentWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush serves callers that look for http.Flusher.
func (w *commentWriter) Flush() { _ = w.FlushError() }

// comment writes one. It fixes the status at 200, so it only goes into an answer that is already an event stream.
func (w *commentWriter) comment() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished || w.late && !w.begun || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		return
	}
	if _, err := io.WriteString(w.ResponseWriter, ": \n\n"); err == nil {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

func (w *commentWriter) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
}
