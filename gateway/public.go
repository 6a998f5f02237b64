package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"pilder/store"
)

// Public serves what browsers, the provider and load balancers reach: connect pages, the webhook, health. Everything but
// health answers only under the configured public host.
func (g *Gateway) Public() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", g.health)
	mux.HandleFunc("GET /ready", g.ready)
	mux.HandleFunc("GET /connect/{secret}", g.connectPage)
	mux.HandleFunc("POST /connect/{secret}", g.connectStart)
	mux.HandleFunc("GET /connect/done/{state}", g.connectEnd("done"))
	mux.HandleFunc("GET /connect/failed/{state}", g.connectEnd("failed"))
	mux.HandleFunc("POST /webhooks/pipedream/{secret}", g.webhook)
	for pattern, page := range g.cfg.Pages {
		mux.Handle(pattern, page)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		if g.public != nil && g.public.Scheme == "https" {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		private := r.URL.Path != "/health" && r.URL.Path != "/ready"
		if private && (g.public == nil || !strings.EqualFold(r.Host, g.public.Host)) {
			refuseHTTP(w, http.StatusMisdirectedRequest, "misdirected request")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		mux.ServeHTTP(w, r)
	})
}

// ServePublic serves Public on a listener until ctx ends and its requests are answered.
func (g *Gateway) ServePublic(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           g.Public(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute, // pages only: a page may wait for the provider
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          stdlog.New(g.cfg.Log.With().Str("event", "http.failed").Logger(), "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving public http: %w", err)
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := srv.Shutdown(late)
	if err != nil {
		err = errors.Join(err, srv.Close())
	}
	<-failed
	if err != nil {
		return fmt.Errorf("ending public http: %w", err)
	}
	return nil
}

// health says that the process answers, and nothing a stranger could use.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) { g.status(w, http.StatusOK, "ok") }

func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) {
	if err := g.cfg.Ready(r.Context()); err != nil {
		g.cfg.Log.Warn().Str("event", "gateway.unready").Err(err).Send()
		g.status(w, http.StatusServiceUnavailable, "unready")
		return
	}
	g.status(w, http.StatusOK, "ok")
}

func (g *Gateway) status(w http.ResponseWriter, code int, word string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct { // the caller is gone: nobody to tell
		Service string `json:"service"`
		Version string `json:"version"`
		Status  string `json:"status"`
	}{"pilder", g.cfg.Version, word})
}

// webhook is the provider's hint that something was connected. No signature on it was ever seen (Pipedream Connect, 2026),
// so nothing in it is read; the address is the secret.
func (g *Gateway) webhook(w http.ResponseWriter, r *http.Request) {
	if !store.NewSecret(r.PathValue("secret")).Equal(g.cfg.WebhookSecret) {
		g.cfg.Log.Warn().Str("event", "security.webhook_foreign").Send()
		refuseHTTP(w, http.StatusNotFound, "not found")
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // so that the connection can be used again
	g.lookSoon()
	w.WriteHeader(http.StatusNoContent)
}
