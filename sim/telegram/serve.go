package telegram

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// ErrNotLoopback is returned when the simulator is asked to listen where
// others than this machine could reach it: the page lets anybody be anybody.
var ErrNotLoopback = errors.New("the simulator listens on loopback only")

// Run serves a new world at the listen address ("127.0.0.1:8081") until ctx
// ends. It writes one line saying where to log.
func Run(ctx context.Context, listen string, cfg Config, log io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listening for the telegram simulator: %w", err)
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		listener.Close()
		return fmt.Errorf("listening on %s: %w", listen, ErrNotLoopback)
	}
	if _, err := fmt.Fprintf(log, "telegram simulator: chat page and Bot API at http://%s/\n", listener.Addr()); err != nil {
		listener.Close()
		return fmt.Errorf("announcing the telegram simulator: %w", err)
	}
	return New(cfg).Serve(ctx, listener)
}

// Serve answers on the listener until ctx ends, then waits for the requests
// under way. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		s.Close()
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer done()
		err := server.Shutdown(grace)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		stopped <- err
	}()
	serveErr := server.Serve(listener)
	cancel()
	stopErr := <-stopped
	if !errors.Is(serveErr, http.ErrServerClosed) {
		return fmt.Errorf("serving the telegram simulator: %w", serveErr)
	}
	if stopErr != nil {
		return fmt.Errorf("stopping the telegram simulator: %w", stopErr)
	}
	return nil
}

func (s *Server) routes() http.Handler {
	page := s.page()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A name that merely resolves to loopback is how a foreign web page
		// reaches a local server (DNS rebinding).
		if !loopbackHost(r.Host) {
			http.Error(w, "this simulator answers to localhost only", http.StatusMisdirectedRequest)
			return
		}
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, "/bot"):
			// Bots do not send an Origin; a page in the developer's browser
			// that tries the well-known demo token does.
			if r.Header.Get("Origin") != "" {
				http.Error(w, "the Bot API is not for web pages", http.StatusForbidden)
				return
			}
			s.serveAPI(w, r)
		case strings.HasPrefix(path, "/file/bot"):
			s.serveFile(w, r)
		default:
			page.ServeHTTP(w, r)
		}
	})
}

func loopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	switch host {
	case "localhost", "127.0.0.1", "::1", "[::1]":
		return true
	}
	return false
}
