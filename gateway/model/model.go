// Package model is the model door of an agent process: it recognises the process by its key, reads what it asks for, puts
// the real key in its place, passes body and answer on byte for byte and counts what they cost, within a budget. It refuses
// every other path and every feature that its lists do not name, and to let the real key, the provider's headers or the
// reasons of its own failures inside a sandbox.
package model

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/store"
)

// DoorURL is the model door as seen from inside a sandbox.
const DoorURL = "http://127.0.0.1:7001"

const (
	// maxBody is the Messages API's own bound for a request, in bytes.
	maxBody = 32 << 20
	// maxAtOnce bounds the requests at one door that are held or upstream at the same time; others wait.
	maxAtOnce = 4
	// largeBody is above which only one body of a door is held in memory, in bytes.
	largeBody = 4 << 20
)

// Config says where the model is.
type Config struct {
	// URL is the Messages API's base, without a slash at the end. Default "https://api.anthropic.com".
	URL string
	// Key is the real API key. Required.
	Key store.Secret
	// Models are the models that may be asked for: full names, or beginnings of them that end before a hyphen. Default: none.
	Models []string
	// MaxTokens is the longest answer that may be asked for. Default 128000, what the CLI asks for.
	MaxTokens int64
	// URLSources allows images and documents that the provider fetches from an address or takes from its file store. Default:
	// no, since an address carries data away and a file may be of anybody with the house's key.
	URLSources bool
	// Prices are what models cost; of several that fit a model's name the longest prefix counts.
	Prices []Price
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log gets one content-free line per failure and breach. Default: none.
	Log zerolog.Logger
}

// Price is what a million tokens of the models with a name prefix cost, in US dollars.
type Price struct {
	Prefix       string
	Input        float64
	Output       float64
	CacheWrite   float64 // living 5 minutes
	CacheWrite1h float64 // living one hour
	CacheRead    float64
	// Above LongAbove tokens of prompt, read from the cache or not, all of these are multiplied by LongTimes. 0: never.
	LongAbove int64
	LongTimes float64
}

// Process is whom a door is for.
type Process struct {
	Run store.RunID // for the log
	// Key is the process key: a random secret in the process's environment, worth something at this door only.
	Key store.Secret
	// Alive tells whether a run of the process is running now; an error closes the door for the request at hand.
	Alive func(context.Context) error
	// Search allows the provider's web search.
	Search bool
	// Budget bounds what the run may spend, in this process or another; Spent is what it has spent before. The zero value of
	// Budget sets no bound.
	Budget, Spent Budget
	// Meter is told of every request that reached the model or was refused for the budget, from several goroutines. May be
	// nil.
	Meter func(Usage)
}

// Usage is what one request to the model came to.
type Usage struct {
	Model      string // as the answer names it
	Status     int    // HTTP status of the answer; 0 when there was none
	Tokens     store.Tokens
	CostUSD    float64
	Counted    Budget        // what the run's budget counts it as: a high guess where the answer did not tell
	Priced     bool          // a price fitted the model; otherwise what it cost is not known
	Refused    string        // RefusedBudget when it did not reach the model for that reason, and nothing else is said
	RetryAfter time.Duration // how long a busy provider (429, 529) asks to be left alone; 0 when it did not say
	FirstToken time.Duration // from the request to the answer's first content; 0 when none came
	Total      time.Duration
}

// RefusedBudget is a request that the budget had no room for.
const RefusedBudget = "budget"

// Doors serves the model doors of this machine's agent processes over one pool of connections to the model.
type Doors struct {
	cfg    Config
	client *http.Client
}

// New makes the doors; it starts nothing.
func New(cfg Config) (*Doors, error) {
	if cfg.URL == "" {
		cfg.URL = "https://api.anthropic.com"
	}
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.RawQuery != "" || u.User != nil || strings.HasSuffix(u.Path, "/") {
		return nil, errors.New("model config: url is not scheme://host[/path]")
	}
	if cfg.Key.IsZero() {
		return nil, errors.New("model config: no key")
	}
	if cfg.MaxTokens == 0 {
		cfg.MaxTokens = defaultMaxTokens
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Doors{cfg: cfg, client: &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 10 * time.Minute, // the CLI itself gives up after about 6 (2.1.332, measured)
			IdleConnTimeout:       90 * time.Second,
			MaxIdleConnsPerHost:   32,
			DisableCompression:    true, // bytes as they come
			ForceAttemptHTTP2:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Serve serves one run's door on its listener until ctx ends; requests under way are cut then, and it returns when
// nothing of them is left.
func (d *Doors) Serve(ctx context.Context, p Process, l net.Listener) error {
	if p.Budget.CostUSD > 0 && len(d.cfg.Prices) == 0 {
		return errors.New("model door: a budget in money needs prices")
	}
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var requests gateway.Gate
	serve := d.handler(p)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !requests.Enter() {
				refuse(w, http.StatusServiceUnavailable, "api_error", "closing")
				return
			}
			defer requests.Leave()
			serve(w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return base },
		// Its own answer to "OPTIONS *" is none of the door's.
		DisableGeneralOptionsHandler: true,

		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          stdlog.New(d.cfg.Log.With().Str("event", "http.failed").Logger(), "", 0),
		// No write timeout: an answer streams for as long as the model speaks.
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving model door of run %s: %w", p.Run, err)
	case <-ctx.Done():
	}
	requests.Close()
	cut()
	_ = srv.Close() // the listener's error is Serve's to tell
	<-failed
	requests.Wait()
	return nil
}

// handler is the door from the outside in: target, Host, key, life of the run, body, budget, and then the model.
func (d *Doors) handler(p Process) http.HandlerFunc {
	s := &door{
		Doors: d, process: p, slots: make(chan struct{}, maxAtOnce), large: make(chan struct{}, 1), purse: newPurse(p.Budget, p.Spent),
		policy: policy{models: d.cfg.Models, maxTokens: d.cfg.MaxTokens, sources: d.cfg.URLSources, search: p.Search},
	}
	return func(w http.ResponseWriter, r *http.Request) {
		path, known := target(r)
		switch {
		case !known:
			d.breach("security.model_path", p)
			refuse(w, http.StatusNotFound, "not_found_error", "not found")
		case r.Header.Get("Upgrade") != "" || r.Header.Get("Content-Encoding") != "" || len(r.TransferEncoding) > 0:
			// The CLI always says how long its body is. Of a length beside a chunked body only the latter is left here.
			refuse(w, http.StatusBadRequest, "invalid_request_error", "bad request")
		case path == hello:
			w.WriteHeader(http.StatusOK)
		case !holds(r, p.Key):
			d.breach("security.process_key_invalid", p)
			refuse(w, http.StatusUnauthorized, "authentication_error", "invalid x-api-key")
		case p.Alive(r.Context()) != nil:
			d.breach("security.run_over", p)
			refuse(w, http.StatusForbidden, "permission_error", "no turn is running") // 403 is not retried, 429 and 5xx are
		case r.ContentLength > maxBody:
			refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", "request too large")
		default:
			s.serve(w, r, path)
		}
	}
}

const hello = "/api/hello"

// target tells which of the door's few targets a request names. The line is compared as it was sent: escapes, dots, doubled
// slashes, absolute forms and other queries are simply not on the list.
func target(r *http.Request) (string, bool) {
	switch r.Host {
	case "127.0.0.1:7001", "localhost:7001", "localhost":
	default:
		return "", false
	}
	switch r.RequestURI {
	case "/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens", "/v1/messages/count_tokens?beta=true":
		return r.RequestURI, r.Method == http.MethodPost
	case hello:
		return hello, r.Method == http.MethodGet || r.Method == http.MethodHead
	default:
		return "", false
	}
}

// holds tells whether every credential of a request is the process key, and that there is one.
func holds(r *http.Request, key store.Secret) bool {
	given := r.Header.Values("X-Api-Key")
	for _, v := range r.Header.Values("Authorization") {
		token, ok := strings.CutPrefix(v, "Bearer ")
		if !ok {
			return false
		}
		given = append(given, token)
	}
	for _, v := range given {
		if !store.NewSecret(v).Equal(key) {
			return false
		}
	}
	return len(given) > 0
}

func (d *Doors) breach(event string, p Process) {
	d.cfg.Log.Warn().Str("event", event).Str("run", string(p.Run)).Send()
}

// refuse answers in the Messages API's own form, since a CLI reads it.
func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
}
