package authorize_test

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/gateway/authorize"
	"pilder/sim/oauth"
	"pilder/store"
)

func TestMetadataThatIsNotAboutTheServerAskedForIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		faults oauth.Faults
		why    string
	}{
		"another issuer":                {oauth.Faults{Metadata: map[string]any{"issuer": "https://evil.example"}}, "another issuer"},
		"the issuer with a slash":       {oauth.Faults{Metadata: map[string]any{"issuer": "VENDOR/"}}, "another issuer"},
		"no issuer":                     {oauth.Faults{Metadata: map[string]any{"issuer": nil}}, "another issuer"},
		"no PKCE":                       {oauth.Faults{Metadata: map[string]any{"code_challenge_methods_supported": nil}}, "S256"},
		"plain PKCE only":               {oauth.Faults{Metadata: map[string]any{"code_challenge_methods_supported": []string{"plain"}}}, "S256"},
		"an endpoint without TLS":       {oauth.Faults{Metadata: map[string]any{"token_endpoint": "http://as.example/token"}}, "not an https"},
		"no token endpoint":             {oauth.Faults{Metadata: map[string]any{"token_endpoint": nil}}, "not an https"},
		"a page that is a script":       {oauth.Faults{Metadata: map[string]any{"authorization_endpoint": "javascript:alert(1)"}}, "not an https"},
		"a page with a password":        {oauth.Faults{Metadata: map[string]any{"authorization_endpoint": "https://a:b@as.example/"}}, "not an https"},
		"members of the wrong type":     {oauth.Faults{Metadata: map[string]any{"issuer": 7}}, "not what was asked for"},
		"another resource":              {oauth.Faults{Resource: map[string]any{"resource": "https://other.example/mcp"}}, "another resource"},
		"a neighbour":                   {oauth.Faults{Resource: map[string]any{"resource": "VENDOR/mc"}}, "another resource"},
		"a part of it":                  {oauth.Faults{Resource: map[string]any{"resource": "VENDOR/mcp/x"}}, "another resource"},
		"no resource":                   {oauth.Faults{Resource: map[string]any{"resource": nil}}, "another resource"},
		"no server":                     {oauth.Faults{Resource: map[string]any{"authorization_servers": []string{}}}, "no metadata"},
		"a private server":              {oauth.Faults{Resource: map[string]any{"authorization_servers": []string{"https://10.0.0.1"}}}, "not a public address"},
		"a link-local server":           {oauth.Faults{Resource: map[string]any{"authorization_servers": []string{"https://169.254.169.254"}}}, "not a public address"},
		"a mapped address":              {oauth.Faults{Resource: map[string]any{"authorization_servers": []string{"https://[::ffff:10.0.0.1]"}}}, "not a public address"},
		"a NAT64 address":               {oauth.Faults{Resource: map[string]any{"authorization_servers": []string{"https://[64:ff9b::a00:1]"}}}, "not a public address"},
		"a unique local address":        {oauth.Faults{Resource: map[string]any{"authorization_servers": []string{"https://[fd00::1]"}}}, "not a public address"},
		"a carrier's address":           {oauth.Faults{Resource: map[string]any{"authorization_servers": []string{"https://100.64.0.1"}}}, "not a public address"},
		"a challenge that leads inside": {oauth.Faults{Challenge: `Bearer resource_metadata="https://192.168.0.1/x"`}, "not a public address"},
		"a challenge without TLS":       {oauth.Faults{Challenge: `Bearer resource_metadata="http://as.example/x"`}, "not an https"},
	} {
		t.Run(name, func(t *testing.T) {
			w := onSQLite(t, oauth.Config{Registers: true})
			for _, members := range []map[string]any{tt.faults.Metadata, tt.faults.Resource} {
				for name, value := range members {
					if text, ok := value.(string); ok {
						members[name] = strings.Replace(text, "VENDOR", w.vendorURL, 1)
					}
				}
			}
			w.vendor.Set(tt.faults)
			status, to := w.press(t, browser(t), w.sent(t, w.mia))
			if status != http.StatusServiceUnavailable || to != "" || !strings.Contains(w.log.text(), tt.why) {
				t.Errorf("%d %q %s", status, to, w.log.text())
			}
			same(t, 0, w.vendor.Asked("/oauth/register"))
		})
	}
}

func TestMetadataIsFoundWhereItMayBe(t *testing.T) {
	for name, tt := range map[string]struct {
		vendor    oauth.Config
		faults    oauth.Faults
		resource  string // behind the vendor's origin
		scope     string
		pathOfApp string
	}{
		"by the challenge":                      {resource: "/mcp", scope: "notes.read offline_access"},
		"an issuer with a path":                 {vendor: oauth.Config{Path: "/tenant"}, resource: "/mcp", scope: "notes.read offline_access"},
		"without a challenge":                   {faults: oauth.Faults{Challenge: "none"}, resource: "/mcp", scope: "notes.read notes.write offline_access"},
		"behind another challenge":              {faults: oauth.Faults{Challenge: `Basic realm="a, b", Bearer error="x", scope="notes.read"`}, resource: "/mcp", scope: "notes.read offline_access"},
		"a resource that is the whole origin":   {faults: oauth.Faults{Resource: map[string]any{"resource": "VENDOR"}}, resource: "", scope: "notes.read offline_access"},
		"a challenge that names a dead address": {faults: oauth.Faults{Challenge: `Bearer resource_metadata="VENDOR/nowhere"`}, resource: "/mcp", scope: "notes.read notes.write offline_access"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.vendor.Registers = true
			w := onSQLite(t, tt.vendor)
			tt.faults.Challenge = strings.Replace(tt.faults.Challenge, "VENDOR", w.vendorURL, 1)
			if id, ok := tt.faults.Resource["resource"].(string); ok {
				tt.faults.Resource["resource"] = strings.Replace(id, "VENDOR", w.vendorURL, 1)
			}
			w.vendor.Set(tt.faults)
			_, page := w.press(t, browser(t), w.sent(t, w.mia))
			q := query(t, page)
			same(t, []string{w.vendorURL + tt.resource, tt.scope}, []string{q.Get("resource"), q.Get("scope")})
			if t.Failed() {
				t.Log(w.log.text())
			}
		})
	}
}

// TestAServerThatCannotBeAskedIsAskedLater: the person may press again, with the same link.
func TestAServerThatCannotBeAskedIsAskedLater(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true})
	w.cfg.Apps[0].URL = "http://127.0.0.1:1/mcp"
	w.build(t)
	link := w.sent(t, w.mia)
	status, _ := w.press(t, browser(t), link)
	same(t, http.StatusServiceUnavailable, status)
	w.cfg.Apps[0].URL = w.vendorURL + "/mcp"
	w.build(t)
	status, _ = w.press(t, browser(t), link)
	same(t, http.StatusSeeOther, status)
}

// outside is an upstream server on what passes for the public Internet: example.com, by TLS, at one public address.
type outside struct {
	w      *world
	vendor *oauth.Server
	server *httptest.Server

	mu      sync.Mutex
	answers [][]netip.Addr // of the resolver, one after the other; the last again and again
	dialled []string
}

func goOutside(t *testing.T, answers ...string) *outside {
	t.Helper()
	w := onSQLite(t, oauth.Config{})
	o := &outside{w: w, vendor: oauth.New(oauth.Config{Registers: true, Now: w.clock.Now})}
	o.server = httptest.NewTLSServer(o.vendor.Handler())
	t.Cleanup(o.server.Close)
	for _, a := range answers {
		o.answers = append(o.answers, []netip.Addr{netip.MustParseAddr(a)})
	}
	roots := x509.NewCertPool()
	roots.AddCert(o.server.Certificate())
	w.cfg = authorize.Config{
		Apps:      []authorize.App{{Slug: "linear", Name: "Linear", URL: "https://example.com/mcp"}},
		PublicURL: "https://pilder.example", Now: w.clock.Now, Log: zerolog.New(w.log), Patience: patience, Roots: roots,
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			answer := o.answers[0]
			if len(o.answers) > 1 {
				o.answers = o.answers[1:]
			}
			return answer, nil
		},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			o.mu.Lock()
			o.dialled = append(o.dialled, to.String())
			o.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, "tcp", o.server.Listener.Addr().String())
		},
	}
	w.k = need(authorize.New(w.cfg, w.Store))(t)
	return o
}

func (o *outside) start(t *testing.T) (gateway.StartedConnect, error) {
	t.Helper()
	return o.w.k.Connect()["linear"].StartConnect(t.Context(), gateway.StartConnect{ExternalUser: o.w.mia.ExternalUser, App: "linear",
		Success: "https://pilder.example/connect/done/x", Failure: "https://pilder.example/connect/failed/x", TTL: time.Hour})
}

// TestG38_OnlyPublicAddressesAreAsked: each connection looks the name up anew, checks all of the answer and dials what it
// checked. A name that turns to the inside after the first look is refused.
func TestG38_OnlyPublicAddressesAreAsked(t *testing.T) {
	const public = "93.184.215.14"
	o := goOutside(t, public)
	started, err := o.start(t)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(started.URL.Reveal(), "https://example.com/oauth/authorize?") || started.Cookie == nil ||
		!strings.HasPrefix(started.Cookie.Name, "__Host-") || !started.Cookie.Secure || !started.Cookie.HttpOnly {
		t.Errorf("%+v", started)
	}
	same(t, []string{public + ":443", public + ":443", public + ":443", public + ":443"}, o.dialled)

	for _, inside := range []string{"10.0.0.7", "127.0.0.1", "169.254.169.254", "100.64.0.1", "::1", "fd00::7", "fe80::1", "::ffff:10.0.0.7", "64:ff9b::a00:7"} {
		for looks := range 3 { // it turns at the first, the second and the third connection
			answers := []string{}
			for range looks {
				answers = append(answers, public)
			}
			o := goOutside(t, append(answers, inside)...)
			if _, err := o.start(t); err == nil || !strings.Contains(err.Error(), gateway.ErrNotPublic.Error()) {
				t.Errorf("%s at %d: %v", inside, looks, err)
			}
			if len(o.dialled) != looks {
				t.Errorf("%s at %d: dialled %v", inside, looks, o.dialled)
			}
		}
	}
}

// TestG38_NoRedirectIsFollowed on token, refresh and registration requests, nor anywhere else: the other end sees nothing.
func TestG38_NoRedirectIsFollowed(t *testing.T) {
	for _, from := range []string{"registration", "token", "refresh", "metadata"} {
		t.Run(from, func(t *testing.T) {
			w := onSQLite(t, oauth.Config{Registers: true})
			var mu sync.Mutex
			seen := []string{}
			trap := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, r.URL.Path)
			}))
			defer trap.Close()
			away := httptest.NewServer(http.RedirectHandler(trap.URL+"/trap", http.StatusTemporaryRedirect))
			defer away.Close()
			b := browser(t)
			switch from {
			case "registration":
				w.vendor.Set(oauth.Faults{Metadata: map[string]any{"registration_endpoint": away.URL}})
				status, _ := w.press(t, b, w.sent(t, w.mia))
				same(t, http.StatusServiceUnavailable, status)
			case "metadata":
				w.vendor.Set(oauth.Faults{Resource: map[string]any{"authorization_servers": []string{away.URL}}})
				status, _ := w.press(t, b, w.sent(t, w.mia))
				same(t, http.StatusServiceUnavailable, status)
			case "token":
				_, page := w.press(t, b, w.sent(t, w.mia))
				w.vendor.Set(oauth.Faults{TokenRedirect: trap.URL + "/trap"})
				same(t, "failed", w.consent(t, b, page, "mia"))
			case "refresh":
				w.connect(t, w.mia, "mia")
				w.clock.Advance(authorizeLife)
				w.vendor.Set(oauth.Faults{TokenRedirect: trap.URL + "/trap"})
				if _, err := w.bearer(t, w.mia); err == nil {
					t.Error("a bearer from nowhere")
				}
			}
			mu.Lock()
			defer mu.Unlock()
			same(t, []string{}, seen)
		})
	}
}

// TestG38_ABigOrSlowAnswerIsGivenUp, so that a server can neither fill the memory nor hold a person's page.
func TestG38_ABigOrSlowAnswerIsGivenUp(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"big": func(rw http.ResponseWriter, r *http.Request) {
			for range 1000 {
				if _, err := rw.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		},
		"slow": func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a server hears of a client's leaving only then
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := onSQLite(t, oauth.Config{})
			server := httptest.NewServer(serve)
			defer server.Close()
			w.cfg.Apps[0].URL = server.URL + "/mcp"
			if name == "slow" {
				w.cfg.Patience = 50 * time.Millisecond
			}
			w.build(t)
			status, _ := w.press(t, browser(t), w.sent(t, w.mia))
			same(t, http.StatusServiceUnavailable, status)
		})
	}
}

func TestAConfigurationThatCannotBeMeantIsRefused(t *testing.T) {
	s := onSQLite(t, oauth.Config{}).Store
	good := func() authorize.Config {
		return authorize.Config{PublicURL: "https://pilder.example", Apps: []authorize.App{{Slug: "linear", Name: "Linear", URL: "https://mcp.linear.example/mcp"}}}
	}
	need(authorize.New(good(), s))(t)
	for name, spoil := range map[string]func(*authorize.Config){
		"no public url":            func(c *authorize.Config) { c.PublicURL = "" },
		"a public url with a path": func(c *authorize.Config) { c.PublicURL = "https://pilder.example/" },
		"a public url without TLS": func(c *authorize.Config) { c.PublicURL = "http://pilder.example" },
		"loopback unasked for":     func(c *authorize.Config) { c.Apps[0].URL = "http://127.0.0.1/mcp" },
		"plain http for a name":    func(c *authorize.Config) { c.Loopback = true; c.Apps[0].URL = "http://mcp.linear.example/mcp" },
		"no slug":                  func(c *authorize.Config) { c.Apps[0].Slug = "" },
		"a secret of nobody":       func(c *authorize.Config) { c.Apps[0].ClientSecret = store.NewSecret("x") },
	} {
		cfg := good()
		spoil(&cfg)
		if _, err := authorize.New(cfg, s); err == nil {
			t.Error(name)
		}
	}
}
