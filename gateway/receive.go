package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/store"
)

// receive takes every MCP request of a door. Calls are answered here and never by the SDK, which would let a hidden tool be
// called and answer an unknown one with a protocol error, unseen by the audit.
func (d *door) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.CallToolRequest:
			if !d.calls.Enter() {
				return answer(failure("run_over", "never", d.access.Load().lang(), store.OutcomeRefused)), nil
			}
			defer d.calls.Leave()
			defer d.beat(ctx, r)()
			return answer(d.g.call(ctx, d.access.Load(), r.Params.Name, r.Params.Arguments)), nil
		case *mcp.SubscriptionsListenRequest:
			// A stream that is open outlives its token unless it is ended.
			ctx, cancel := context.WithTimeout(ctx, d.run.Expires.Sub(d.g.cfg.Now()))
			defer cancel()
			defer d.beat(ctx, nil)()
			return next(ctx, method, req)
		}
		return next(ctx, method, req)
	}
}

// answer is a result in MCP's form. A client that gets structured content may show the model nothing else (Claude Code
// 2.1.332, measured), so both parts carry everything.
func answer(r Result) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: r.Text}},
		StructuredContent: r.Structured,
		IsError:           r.IsError,
	}
}

// beat keeps an answer from being silent: Claude Code 2.1.332 gives a call up after 60 s without a byte, and the SDK writes
// none before its first message. A caller with a progress token gets progress; one without gets comments in the event
// stream, where the era allows it. The returned function stops the beating and waits for it.
func (d *door) beat(ctx context.Context, call *mcp.CallToolRequest) (stop func()) {
	comments, _ := ctx.Value(commentKey{}).(*commentWriter)
	var token any
	if call != nil {
		token = call.Params.GetProgressToken()
	}
	if token == nil && comments == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(d.g.cfg.Heartbeat)
		defer tick.Stop()
		for beats := 1.0; ; beats++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if token == nil {
				comments.comment()
			} else if call.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: beats}) != nil {
				return // the caller is gone
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
	mu       sync.Mutex
	finished bool // the request is over; its writer may belong to another one by now
}

func (w *commentWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
}

func (w *commentWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
	if w.finished || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
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
