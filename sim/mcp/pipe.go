package mcp

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Serve speaks the older era over a pipe, one message a line, until it is closed: what a stdio server's process does. A
// fault that breaks the connection ends it, as the process would.
func (s *Server) Serve(pipe io.ReadWriteCloser) {
	defer pipe.Close()
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	p := &lines{pipe: pipe, header: http.Header{}}
	handler := s.Handler()
	in := bufio.NewReader(pipe)
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			gone() // before the calls are waited for
			return
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://stdio/", bytes.NewReader(line))
		if err != nil {
			return
		}
		if id := p.session(); id != "" {
			r.Header.Set("Mcp-Session-Id", id)
		}
		serve := func() {
			defer func() {
				if recover() != nil { // a fault has broken the connection
					_ = pipe.Close()
				}
			}()
			handler.ServeHTTP(&lineWriter{lines: p, header: http.Header{}}, r)
		}
		if bytes.Contains(line, []byte(`"tools/call"`)) {
			calls.Go(serve)
		} else {
			serve()
		}
	}
}

// lines is the pipe of one process.
type lines struct {
	pipe   io.WriteCloser
	mu     sync.Mutex
	header http.Header
}

func (p *lines) session() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.header.Get("Mcp-Session-Id")
}

// lineWriter writes an HTTP answer's messages as lines.
type lineWriter struct {
	*lines
	header http.Header
	status int
}

func (w *lineWriter) Header() http.Header { return w.header }

func (w *lineWriter) WriteHeader(status int) { w.status = status }

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := w.header.Get("Mcp-Session-Id"); id != "" {
		w.lines.header.Set("Mcp-Session-Id", id)
	}
	for line := range strings.Lines(string(b)) {
		text := strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if text == "" || strings.HasPrefix(text, "event:") || strings.HasPrefix(text, ":") {
			continue
		}
		if _, err := io.WriteString(w.pipe, text+"\n"); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Flush has nothing to do.
func (w *lineWriter) Flush() {}
