// Package authorize keeps people's own credentials for upstream MCP servers: it is an OAuth 2.1 client, with one grant for
// each person and server. It leads a person to the server's authorization page and back, gives the bearer for their calls,
// gets a new one before the old one ends, and revokes what is disconnected.
//
// It refuses whatever could hand a person's credential to somebody else: a server that does not do PKCE with S256, metadata
// that is not about the server asked for, an answer from another issuer than the one that was asked (RFC 9207), a browser
// that comes back without having set off, addresses that are not public, and redirects of its own requests. A token is in no
// log, error, result or audit row.
package authorize

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/store"
)

// Errors of Bearer and Refused, beside gateway.ErrReconnect (the grant is over, and only its person can give a new one) and
// what Config.Account gives. Whoever sees another one is looking at a fault of pilder's own.
var (
	// ErrUnreachable: the authorization server could not be asked, or is at fault. It passes.
	ErrUnreachable = errors.New("the authorization server could not be reached")
	// ErrOperator: the authorization server refuses pilder, not the person: its registration is lost, say.
	ErrOperator = errors.New("the authorization server refuses this client")
)

// Config says for which upstream servers there are credentials, and who pilder is to their authorization servers.
type Config struct {
	// Apps are the upstream servers with OAuth.
	Apps []App
	// PublicURL is where browsers and authorization servers reach the public handler, without a slash at the end. Required.
	PublicURL string
	// Name is what authorization pages call pilder. Default "Pilder".
	Name string

	// Loopback also allows plain http, and addresses of this machine's loopback: for development. Default: https and public
	// addresses only.
	Loopback bool
	// Patience bounds one request to a server, connecting included. Default 10 s.
	Patience time.Duration
	// Early is how long before its end a bearer is renewed, but never more than a fifth of its life. Default 2 min.
	Early time.Duration
	// PutOff is how long after a failed renewal the next one waits. Default 10 s.
	PutOff time.Duration

	// Account names the account that a caller uses for an app, by the provider's id; empty: none. Default: the one connected
	// last.
	Account func(ctx context.Context, c gateway.Caller, app string) (string, error)

	// Resolve gives a name's addresses. Default: the machine's resolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an address that was checked. Default: TCP, directly.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Roots are the certificates that servers are checked by. Default: the machine's.
	Roots *x509.CertPool
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log gets one content-free line per grant, its end, and whatever an operator has to look at. Default: none.
	Log zerolog.Logger
}

// App is an upstream server with OAuth.
type App struct {
	Slug string // as accounts and policy name it
	Name string // as people know it
	URL  string // of the MCP endpoint: what tokens are asked for (RFC 8707)

	// ClientID is what the operator registered pilder as; ClientSecret goes with it, if there is one. Default: pilder's
	// client id metadata document where the server takes one, else dynamic registration (RFC 7591).
	ClientID     string
	ClientSecret store.Secret
	// Scopes are asked for. Default: those of the server's challenge, else of its metadata (RFC 9728), else none.
	Scopes []string
	// Audience is sent as "audience", for servers that know their resources by that (Auth0). Default: none.
	Audience string
	// NoResource leaves "resource" out, for servers that refuse it (Entra). Default: it is sent.
	NoResource bool
}

// Keeper keeps the credentials. It is safe for concurrent use.
type Keeper struct {
	cfg   Config
	store *store.Store
	http  *http.Client

	mu       sync.Mutex
	renewals map[store.CredentialID]*renewal // under way

	registering chan struct{} // who registers at a server holds its one place
}

// leasePatiences is how many times Config.Patience one process may be at a renewal: much longer than its requests may take, so
// that no second one begins while the first may still be answered.
const leasePatiences = 6

// New checks the configuration; it starts nothing.
func New(cfg Config, s *store.Store) (*Keeper, error) {
	cfg.setDefaults()
	k := &Keeper{cfg: cfg, store: s, renewals: map[store.CredentialID]*renewal{}, registering: make(chan struct{}, 1)}
	if u, err := url.Parse(cfg.PublicURL); err != nil || k.checkURL(cfg.PublicURL) != nil || u.Path != "" {
		return nil, fmt.Errorf("authorize config: public url %q is not https://host", cfg.PublicURL)
	}
	for _, a := range cfg.Apps {
		if a.Slug == "" || a.Name == "" {
			return nil, errors.New("authorize config: an app needs a slug and a name")
		}
		if err := k.checkURL(a.URL); err != nil {
			return nil, fmt.Errorf("authorize config: url of %s: %w", a.Slug, err)
		}
		if a.ClientID == "" && !a.ClientSecret.IsZero() {
			return nil, fmt.Errorf("authorize config: %s has a client secret and no client id", a.Slug)
		}
	}
	k.http = k.newHTTP()
	return k, nil
}

func (cfg *Config) setDefaults() {
	if cfg.Name == "" {
		cfg.Name = "Pilder"
	}
	for d, def := range map[*time.Duration]time.Duration{
		&cfg.Patience: 10 * time.Second, &cfg.Early: 2 * time.Minute, &cfg.PutOff: 10 * time.Second,
	} {
		if *d <= 0 {
			*d = def
		}
	}
	if cfg.Resolve == nil {
		cfg.Resolve = gateway.Resolve
	}
	if cfg.Dial == nil {
		cfg.Dial = gateway.DialAddress
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
}

// tidyEvery is how often grants of nobody are looked for.
const tidyEvery = time.Hour

// Run tidies until ctx ends, and returns when no renewal is under way: one that is cut off may have ended the old pair of
// tokens without the new one being known.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := k.Tidy(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Error().Str("event", "oauth.untidy").Err(err).Send()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	for {
		k.mu.Lock()
		under := slices.Collect(maps.Values(k.renewals))
		k.mu.Unlock()
		if len(under) == 0 {
			return nil
		}
		<-under[0].done
	}
}

func (k *Keeper) app(slug string) (App, bool) {
	i := slices.IndexFunc(k.cfg.Apps, func(a App) bool { return a.Slug == slug })
	if i < 0 {
		return App{}, false
	}
	return k.cfg.Apps[i], true
}
