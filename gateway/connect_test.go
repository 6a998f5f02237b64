package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/store"
)

// provider is a scripted provider of connected apps.
type provider struct {
	mu       sync.Mutex
	accounts []gateway.ProviderAccount
	started  []gateway.StartConnect
	looked   chan struct{}
	fails    error
	asked    int // for accounts to check
}

func (p *provider) connect() gateway.Connect {
	return gateway.Connect{
		StartConnect: func(_ context.Context, in gateway.StartConnect) (gateway.StartedConnect, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.started = append(p.started, in)
			return gateway.StartedConnect{Token: store.RandomSecret("ctok_"), URL: store.NewSecret("https://provider.example/connect?token=ctok_x&app=" + in.App)}, p.fails
		},
		Accounts: func(context.Context, string, string) ([]gateway.ProviderAccount, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			select {
			case p.looked <- struct{}{}:
			default:
			}
			return append([]gateway.ProviderAccount(nil), p.accounts...), p.fails
		},
		DeleteAccount: func(context.Context, string, string) error { return nil },
	}
}

// connecting is a world that can connect apps, with a link for its member.
func connecting(t *testing.T, w *world) (p *provider, secret string) {
	t.Helper()
	p = &provider{looked: make(chan struct{}, 1), accounts: []gateway.ProviderAccount{{ID: "apn_before", Name: "old", Usable: true}}}
	var link store.Secret
	w.cfg.PublicURL = "https://pilder.example"
	w.cfg.WebhookSecret = store.NewSecret("hook-secret")
	w.cfg.Connect = p.connect()
	w.cfg.LinkCard = func(c gateway.LinkCard) store.Draft {
		link = c.URL
		return store.Draft{Company: c.Member.Company.ID, Chat: c.Chat, Kind: store.DraftNotice, Notice: "link " + c.App.Name.EN}
	}
	w.cfg.AccountCard = func(a store.Account, l store.Link) store.Draft {
		return store.Draft{Company: a.Company, Chat: l.Chat, Kind: store.DraftNotice, Notice: "yours? " + a.Name}
	}
	w.build(t)
	chat := store.Chat{ID: 103, Private: true}
	if err := w.g.RequestLink(t.Context(), store.UpdateRef{}, w.member, "asana", chat); err != nil {
		t.Fatal(err)
	}
	same(t, map[int64][]string{103: {"link Asana"}}, w.said(t))
	secret, ok := strings.CutPrefix(link.Reveal(), "https://pilder.example/connect/")
	if !ok {
		t.Fatalf("link %s", link.Reveal())
	}
	return p, secret
}

func (w *world) browse(t *testing.T, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "https://pilder.example"+path, strings.NewReader(`{"event":"CONNECTION_SUCCESS"}`))
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.g.Public().ServeHTTP(rec, r)
	return rec
}

func TestAnAccountIsConnectedAndItsPersonIsAskedWhetherItIsTheirs(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		p, secret := connecting(t, w)
		page := w.browse(t, "GET", "/connect/"+secret)
		body := page.Body.String()
		for _, want := range []string{`lang="es"`, "Conectar Asana", "Mía &amp; Co", "Empresa &lt;b&gt;", `<form method="post">`} {
			if !strings.Contains(body, want) {
				t.Errorf("page lacks %q:\n%s", want, body)
			}
		}
		gone := w.browse(t, "POST", "/connect/"+secret, "Origin", "https://pilder.example")
		if gone.Code != http.StatusSeeOther || gone.Header().Get("Location") != "https://provider.example/connect?token=ctok_x&app=asana" {
			t.Fatalf("%d %v %s", gone.Code, gone.Header(), gone.Body)
		}
		in := p.started[0]
		if in.ExternalUser != w.member.ExternalUser || in.App != "asana" || in.TTL <= 0 || in.TTL > time.Hour ||
			in.Webhook.Reveal() != "https://pilder.example/webhooks/pipedream/hook-secret" ||
			!strings.HasPrefix(in.Success, "https://pilder.example/connect/done/es-") || strings.Contains(in.Success, secret) {
			t.Errorf("%+v", in)
		}

		ctx, cancel := context.WithCancel(context.Background())
		watched := make(chan error, 1)
		w.cfg.WatchEvery = time.Hour // only a hint makes it look again
		p.mu.Lock()
		p.accounts = append(p.accounts, gateway.ProviderAccount{ID: "apn_dead", Name: "dead"})
		<-p.looked // of the departure
		p.mu.Unlock()
		w.build(t)
		go func() { watched <- w.g.WatchConnections(ctx) }()
		next(t, p.looked)
		same(t, map[int64][]string{}, w.said(t)) // only the old one and a dead one
		p.mu.Lock()
		p.accounts = append(p.accounts, gateway.ProviderAccount{ID: "apn_new", Name: "mia@asana", Usable: true})
		p.mu.Unlock()
		wake := w.Wake()
		same(t, http.StatusNoContent, w.browse(t, "POST", "/webhooks/pipedream/hook-secret").Code)
		next(t, wake)
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
		same(t, map[int64][]string{103: {"yours? mia@asana"}}, w.said(t))
		same(t, 2, len(need(w.Accounts(t.Context(), w.member.Company.ID, w.member.ID))(t))) // offered is not active
		same(t, http.StatusNotFound, w.browse(t, "GET", "/connect/"+secret).Code)           // used up
	})
}

func TestPagesGiveNothingAway(t *testing.T) {
	w := onSQLite(t)
	_, secret := connecting(t, w)
	for _, path := range []string{"/connect/" + secret, "/connect/done/es-00", "/connect/failed/en-00", "/connect/unknown"} {
		h := w.browse(t, "GET", path).Header()
		csp := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || !strings.Contains(csp, "frame-ancestors 'none'") ||
			h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("X-Robots-Tag"), "noindex") {
			t.Errorf("%s: %v", path, h)
		}
	}
	if body := w.browse(t, "GET", "/connect/unknown", "Accept-Language", "en-US").Body.String(); !strings.Contains(body, "no longer good") {
		t.Error(body)
	}
	// Somebody of whom no language is known reads Spanish, and the page says that it is.
	if body := w.browse(t, "GET", "/connect/done/-00").Body.String(); !strings.Contains(body, `lang="es"`) || !strings.Contains(body, "Listo") {
		t.Error(body)
	}
	if strings.Contains(w.log.text(), secret) {
		t.Error("the link is in the log")
	}
}

func TestOnlyOurOwnPageStartsAConnection(t *testing.T) {
	w := onSQLite(t)
	p, secret := connecting(t, w)
	for name, tt := range map[string]struct {
		headers []string
		status  int
	}{
		"no origin":             {nil, http.StatusForbidden},
		"foreign origin":        {[]string{"Origin", "https://evil.example"}, http.StatusForbidden},
		"same site only":        {[]string{"Origin", "null", "Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		"sandboxed frame":       {[]string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"null alone":            {[]string{"Origin", "null"}, http.StatusForbidden},
		"forged origin":         {[]string{"Origin", "https://pilder.example", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"another host":          {[]string{"Origin", "https://pilder.example", "Host", "evil.example"}, http.StatusMisdirectedRequest},
		"our page, no referrer": {[]string{"Origin", "null", "Sec-Fetch-Site", "same-origin"}, http.StatusSeeOther},
		"our page":              {[]string{"Origin", "https://pilder.example"}, http.StatusSeeOther},
	} {
		before := len(p.started)
		got := w.browse(t, "POST", "/connect/"+secret, tt.headers...)
		if got.Code != tt.status || (got.Code == http.StatusSeeOther) != (len(p.started) > before) {
			t.Errorf("%s: %d", name, got.Code)
		}
	}
	same(t, http.StatusNotFound, w.browse(t, "POST", "/connect/unknown", "Origin", "https://pilder.example").Code)
	w.clock.Advance(time.Hour)
	same(t, http.StatusNotFound, w.browse(t, "POST", "/connect/"+secret, "Origin", "https://pilder.example").Code)
}

func TestAProviderThatFailsIsToldKindlyAndNothingIsLost(t *testing.T) {
	w := onSQLite(t)
	p, secret := connecting(t, w)
	p.fails = errors.New("https://api.provider.example: 500")
	got := w.browse(t, "POST", "/connect/"+secret, "Origin", "https://pilder.example")
	if got.Code != http.StatusServiceUnavailable || strings.Contains(got.Body.String(), "provider.example") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	p.fails = nil
	same(t, http.StatusSeeOther, w.browse(t, "POST", "/connect/"+secret, "Origin", "https://pilder.example").Code)
}

func TestAnAppThatIsNotOfferedGetsNoLink(t *testing.T) {
	w := onSQLite(t)
	connecting(t, w)
	err := w.g.RequestLink(t.Context(), store.UpdateRef{}, w.member, "bank", store.Chat{ID: 103, Private: true})
	if !errors.Is(err, gateway.ErrUnknownApp) {
		t.Error(err)
	}
	same(t, map[int64][]string{}, w.said(t))
}

func TestTheWebhookIsASecretAddressAndHealthIsNone(t *testing.T) {
	w := onSQLite(t)
	connecting(t, w)
	same(t, http.StatusNotFound, w.browse(t, "POST", "/webhooks/pipedream/guess").Code)
	same(t, http.StatusNotFound, w.browse(t, "GET", "/mcp").Code)
	health := w.browse(t, "GET", "/health", "Host", "10.0.0.7:8080")
	same(t, `{"service":"pilder","version":"1.2.3","status":"ok"}`+"\n", health.Body.String())
	w.cfg.Ready = func(context.Context) error { return errors.New("database at 10.0.0.9 is down") }
	w.build(t)
	ready := w.browse(t, "GET", "/ready")
	same(t, http.StatusServiceUnavailable, ready.Code)
	same(t, `{"service":"pilder","version":"1.2.3","status":"unready"}`+"\n", ready.Body.String())
}
