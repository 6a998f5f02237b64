package authorize_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/gateway/authorize"
	"pilder/policy"
	"pilder/sim/oauth"
	"pilder/store"
	"pilder/store/storetest"
)

const (
	worldBot = store.BotID(77)
	patience = time.Minute // how long a test waits for what must come; nothing relies on its being short
)

// world is a company with two people, an upstream server with OAuth, and pilder's public handler between them.
type world struct {
	*store.Store
	open      func(store.Config) *store.Store
	clock     *storetest.Clock
	vendor    *oauth.Server
	vendorURL string
	publicURL string
	cfg       authorize.Config
	k         *authorize.Keeper
	g         *gateway.Gateway
	mia, abel store.Membership
	log       *book
	poller    store.Poller
	updates   int64
	app       string // that links and bearers are for
	unwatch   func() // ends the watcher of w.g

	mu      sync.Mutex
	link    string          // sent last
	offered []store.Account // in the order in which people were asked
}

// each runs f on both databases.
func each(t *testing.T, vendor oauth.Config, f func(t *testing.T, w *world)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) { f(t, newWorld(t, open, vendor)) })
}

// onSQLite is for what does not depend on the database.
func onSQLite(t *testing.T, vendor oauth.Config) *world {
	return newWorld(t, storetest.Opener(t, "sqlite"), vendor)
}

func newWorld(t *testing.T, open func(store.Config) *store.Store, vendor oauth.Config) *world {
	t.Helper()
	w := &world{open: open, app: "linear", clock: storetest.NewClock(), log: &book{}}
	w.Store = open(store.Config{Now: w.clock.Now})
	company := need(w.CreateCompany(t.Context(), store.Company{Name: "Acme", Zone: "UTC", Lang: "en"}))(t)
	add := func(telegram int64, name string) store.Membership {
		return need(w.AddMember(t.Context(), company.ID, store.Person{Telegram: telegram, Name: name, Lang: "en"}, policy.RoleMember))(t)
	}
	w.abel, w.mia = add(102, "Abel"), add(103, "Mia")
	w.poller = need(w.AcquirePoller(t.Context(), worldBot, time.Hour))(t)

	vendor.Now = w.clock.Now
	w.vendor = oauth.New(vendor)
	server := httptest.NewServer(w.vendor.Handler())
	t.Cleanup(server.Close)
	w.vendorURL = server.URL
	public := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.g.Public().ServeHTTP(rw, r) }))
	t.Cleanup(public.Close)
	w.publicURL = public.URL
	w.cfg = authorize.Config{
		Apps:      []authorize.App{{Slug: "linear", Name: "Linear", URL: w.vendorURL + "/mcp"}},
		PublicURL: w.publicURL, Loopback: true, Now: w.clock.Now, Log: zerolog.New(w.log), Patience: patience,
	}
	w.build(t)
	t.Cleanup(func() {
		w.unwatch()
		for _, secret := range w.vendor.Secrets() {
			if strings.Contains(w.log.text(), secret) {
				t.Error("a token or code is in the log")
			}
		}
		if strings.Contains(w.log.text(), "canary") {
			t.Error("the server's words are in the log")
		}
	})
	return w
}

// build makes the keeper anew from w.cfg, and the gateway over it.
func (w *world) build(t *testing.T) {
	t.Helper()
	if w.unwatch != nil {
		w.unwatch()
	}
	w.k = need(authorize.New(w.cfg, w.Store))(t)
	cfg := gateway.Config{
		TokenKeys: []gateway.TokenKey{{ID: "k", Secret: store.NewSecret("a key of at least 32 bytes, for tests")}},
		PublicURL: w.publicURL, ConnectOwn: w.k.Connect(), Pages: w.k.Pages(), WatchEvery: time.Hour, Now: w.clock.Now, Log: zerolog.New(w.log),
		Card:    func(store.Approval, store.Approver) store.Draft { return store.Draft{} },
		Outcome: func(store.Approval, store.Outcome, string) []store.Draft { return nil },
		Lost:    func(store.CallView, store.Run) []store.Draft { return nil },
		LinkCard: func(c gateway.LinkCard) store.Draft {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.link = c.URL.Reveal()
			return store.Draft{Company: c.Member.Company.ID, Chat: c.Chat, Kind: store.DraftNotice, Notice: "link"}
		},
		AccountCard: func(a store.Account, l store.Link) store.Draft {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.offered = append(w.offered, a)
			return store.Draft{Company: a.Company, Chat: l.Chat, Kind: store.DraftNotice, Notice: "yours?"}
		},
	}
	for _, a := range w.cfg.Apps {
		cfg.Apps = append(cfg.Apps, gateway.App{Slug: a.Slug, Name: policy.Text{ES: a.Name, EN: a.Name}})
	}
	w.g = need(gateway.New(cfg, w.Store))(t)
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() { watched <- w.g.WatchConnections(ctx) }()
	w.unwatch = func() {
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
	}
}

// browser keeps cookies and stops at every redirect.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar := need(cookiejar.New(nil))(t)
	return &http.Client{Jar: jar, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// sent asks for a link as a person does in their chat, and gives it.
func (w *world) sent(t *testing.T, m store.Membership) string {
	t.Helper()
	if err := w.g.RequestLink(t.Context(), store.UpdateRef{}, m, w.app, store.Chat{ID: m.Person.Telegram, Private: true}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link
}

// press presses the button of a link's page, and gives where it leads.
func (w *world) press(t *testing.T, b *http.Client, link string) (status int, to string) {
	t.Helper()
	req := need(http.NewRequestWithContext(t.Context(), http.MethodPost, link, nil))(t)
	req.Header.Set("Origin", w.publicURL)
	resp := need(b.Do(req))(t)
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location")
}

// follow gets an address and gives where it leads; empty: nowhere.
func follow(t *testing.T, b *http.Client, address string) string {
	t.Helper()
	req := need(http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil))(t)
	resp := need(b.Do(req))(t)
	resp.Body.Close()
	return resp.Header.Get("Location")
}

// consent consents as login on an authorization page, comes back and gives the last page: "done" or "failed".
func (w *world) consent(t *testing.T, b *http.Client, page, login string) string {
	t.Helper()
	back := follow(t, b, page+"&login="+url.QueryEscape(login))
	if !strings.HasPrefix(back, w.publicURL+"/oauth/callback?") {
		t.Fatalf("sent back to %q", back)
	}
	return w.comeBack(t, b, back)
}

func (w *world) comeBack(t *testing.T, b *http.Client, back string) string {
	t.Helper()
	last := follow(t, b, back)
	follow(t, b, last)
	rest, ours := strings.CutPrefix(last, w.publicURL+"/connect/")
	end, _, found := strings.Cut(rest, "/")
	if !ours || !found {
		t.Fatalf("the last page is %q", last)
	}
	return end
}

// offer connects as login and waits until the person is asked whether the account is theirs.
func (w *world) offer(t *testing.T, m store.Membership, login string) store.Account {
	t.Helper()
	w.mu.Lock()
	before := len(w.offered)
	w.mu.Unlock()
	b := browser(t)
	_, page := w.press(t, b, w.sent(t, m))
	if end := w.consent(t, b, page, login); end != "done" {
		t.Fatalf("connecting ended in %s: %s", end, w.log.text())
	}
	var a store.Account
	w.until(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.offered) > before {
			a = w.offered[len(w.offered)-1]
		}
		return len(w.offered) > before
	})
	return a
}

// connect connects as login, and the person says that it is theirs.
func (w *world) connect(t *testing.T, m store.Membership, login string) store.Account {
	t.Helper()
	a := w.offer(t, m, login)
	w.confirm(t, m, a, true)
	return a
}

func (w *world) confirm(t *testing.T, m store.Membership, a store.Account, mine bool) {
	t.Helper()
	_, forget, err := w.ConfirmAccount(t.Context(), w.update(t, m.Person.Telegram), a.ID, m.Person.Telegram, mine, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range forget {
		if err := w.g.ForgetAccount(t.Context(), m, gone); err != nil {
			t.Error(err)
		}
	}
}

// update files a control update, as a button press is.
func (w *world) update(t *testing.T, telegram int64) store.UpdateRef {
	t.Helper()
	w.updates++
	need(w.Receive(t.Context(), w.poller, []store.Arrival{{UpdateID: w.updates, Raw: []byte(`{}`), Kind: store.ArrivalControl,
		From: store.Person{Telegram: telegram}, Chat: store.Chat{ID: telegram, Private: true}}}))(t)
	return store.UpdateRef{Bot: worldBot, UpdateID: w.updates}
}

// until waits for what a commit of this process brings about.
func (w *world) until(t *testing.T, come func() bool) {
	t.Helper()
	end := time.After(patience)
	for {
		wake := w.Wake()
		if come() {
			return
		}
		select {
		case <-wake:
		case <-end:
			t.Fatal("it did not come")
		}
	}
}

func caller(m store.Membership) gateway.Caller {
	return gateway.Caller{Principal: policy.Principal{Company: m.Company.ID, Membership: m.ID, Person: m.Person.ID}, ExternalUser: m.ExternalUser, Lang: "en"}
}

// bearer gives a member's bearer, or the error that says why there is none.
func (w *world) bearer(t *testing.T, m store.Membership) (store.Secret, error) {
	t.Helper()
	return w.k.Bearer(t.Context(), caller(m), w.app, "")
}

// settle waits until no renewal is under way.
func (w *world) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.k.Run(ctx); err != nil {
		t.Error(err)
	}
}

// whoami calls the upstream server with a bearer, and gives whose it thinks it is.
func (w *world) whoami(t *testing.T, bearer store.Secret) (login string, status int) {
	t.Helper()
	req := need(http.NewRequestWithContext(t.Context(), http.MethodPost, w.vendorURL+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}`)))(t)
	req.Header.Set("Authorization", "Bearer "+bearer.Reveal())
	resp := need(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	var answer struct {
		Result struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	for _, c := range answer.Result.Content {
		login += c.Text
	}
	return login, resp.StatusCode
}

// brokenOnes counts how often it was found that a person has to connect again.
func (w *world) brokenOnes() int { return strings.Count(w.log.text(), `"account.broken"`) }

// query gives the query of an address.
func query(t *testing.T, address string) url.Values {
	t.Helper()
	return need(url.Parse(address))(t).Query()
}

func need[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want, got:\n%s", diff)
	}
}

// book is a log that can be read.
type book struct {
	mu  sync.Mutex
	all strings.Builder
}

func (b *book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(line)
}

func (b *book) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func (b *book) count(event string) int { return strings.Count(b.text(), `"event":"`+event+`"`) }
