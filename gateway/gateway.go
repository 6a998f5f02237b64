// Package gateway is the choke point that every tool call passes: it lists to a run what its person may use, validates,
// decides, records and performs each call, and carries out what people approved; it also leads people through connecting
// an app. It refuses whatever has no row in the store, believes nothing an agent says about who is asking, and never
// performs an effect twice.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"pilder/policy"
	"pilder/store"
)

// Config says how the gateway behaves. What it says to people is made by functions that cmd hands over, since drafts are
// worded elsewhere.
type Config struct {
	// TokenKeys sign and verify run tokens: the first signs, all verify. At least one.
	TokenKeys []TokenKey
	// Version is told to MCP clients and by /health. Default "0".
	Version string
	// Apps are the apps that can be connected, in the order in which they are offered.
	Apps []App
	// Open gives the apps that a company's members have without connecting them. Default: none.
	Open func(policy.CompanyID) []App
	// Changes counts how often a connector's list has changed by itself: a door that listed at another count lists again.
	// Default: lists change with their person's accounts only.
	Changes func() uint64

	// PublicURL is where people's browsers reach the public handler, without a slash at the end: "https://pilder.example".
	// Empty: no connect links are made.
	PublicURL string
	// Connect asks the provider of connected apps. Zero: no connect links are made.
	Connect Connect
	// ConnectOwn is for the apps that people connect elsewhere, by slug: at an upstream server's own authorization, say.
	ConnectOwn map[string]Connect
	// Pages are further pages of the public handler, by http.ServeMux's pattern: where those providers send browsers back.
	Pages map[string]http.Handler
	// WebhookSecret is the last part of the provider's webhook address. Zero: no webhook is asked for or answered.
	WebhookSecret store.Secret
	// LinkTTL is how long a connect link is good, the way to the provider and back included. Default 30 min.
	LinkTTL time.Duration
	// WatchEvery is how often the provider is asked for accounts on their way. Default 5 s.
	WatchEvery time.Duration

	// Card makes the card that asks an approver (or the person) about a held call. Required.
	Card func(store.Approval, store.Approver) store.Draft
	// Outcome says in the chat what came of an approved or expired call; the text is the result's. Required.
	Outcome func(store.Approval, store.Outcome, string) []store.Draft
	// Remind recalls to somebody what waits for their decision. Nil: nobody is reminded.
	Remind func(store.Approver, []store.Approval) store.Draft
	// Reminding is when. Default: 6 h after it was asked and 1 h before it expires, from 8 to 20 o'clock of each person's day.
	Reminding store.Reminding
	// Lost says that a call was under way when its process died, so that nobody knows whether it happened. Required.
	Lost func(store.CallView, store.Run) []store.Draft
	// LinkCard brings a person their connect link. Required with Connect and ConnectOwn.
	LinkCard func(LinkCard) store.Draft
	// AccountCard asks a person whether an account that was just bound is theirs. Required with both too.
	AccountCard func(store.Account, store.Link) store.Draft
	// Accounts words what people are told about their accounts. Its zero value tells nothing.
	Accounts AccountWords
	// Instructions tells an agent about its person's apps and rules; cut at 2,048 bytes. Default: none.
	Instructions func(Instructions) string
	// Taint is where the words of others come from in every conversation, whatever was called: "web" where agents read pages.
	Taint []string
	// Ready tells whether the process can serve; /ready answers 503 with an error. Default: always.
	Ready func(context.Context) error

	// Heartbeat is the longest silence of a call's answer. Default 15 s; Claude Code gives up after 60 s without a byte.
	Heartbeat time.Duration
	// CallTimeout bounds one call to a connector. Default 75 s, less than the 90 s a run's MCP client waits.
	CallTimeout time.Duration
	// Grace is how long writes under way may still take once their run's door closes. Default 5 s.
	Grace time.Duration
	// SessionIdle is how long an abandoned MCP session of the old era stays. Default 10 min.
	SessionIdle time.Duration
	// MaxSessions bounds the MCP sessions of the old era at one run's door; beyond it a client is told to come back. Default 64.
	MaxSessions int
	// Bounds keep one person, company or app from taking everything. The zero value has defaults.
	Bounds Bounds
	// MaxApproved bounds how many approved calls run at once. Default 4.
	MaxApproved int

	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log gets one content-free line per decision, outcome and breach. Default: none.
	Log zerolog.Logger
}

// App is an app that people can connect.
type App struct {
	Slug string      // as the provider names it, "google_calendar"
	Name policy.Text // as people know it, "Google Calendar"
	// Category is what a preference between two apps is about, "calendar"; empty: none is asked for.
	Category string
}

// Instructions is what Config.Instructions may tell.
type Instructions struct {
	Lang    string
	Company string
	Person  string
	Apps    []App    // connected, in the order of Config.Apps
	Offered []App    // not connected
	Rules   []string // the grant's sentences, without full stops
	// Preferences are the person's, by category; one without an app has not been said.
	Preferences []store.Preference
	// Empty says why there is no tool at all, in the person's language; empty when there are some.
	Empty string
}

// Gateway decides about and performs tool calls. It is safe for concurrent use.
type Gateway struct {
	cfg        Config
	store      *store.Store
	connectors []Connector
	schemas    *schemas
	public     *url.URL // nil without Config.PublicURL
	look       chan struct{}
	counters   *counters
}

// New makes a gateway over the store and the connectors; of two connectors with a tool of the same name the earlier wins.
// It starts nothing.
func New(cfg Config, s *store.Store, connectors ...Connector) (*Gateway, error) {
	if err := checkKeys(cfg.TokenKeys); err != nil {
		return nil, err
	}
	if cfg.Card == nil || cfg.Outcome == nil || cfg.Lost == nil {
		return nil, errors.New("gateway config: Card, Outcome and Lost are required")
	}
	g := &Gateway{store: s, connectors: connectors, schemas: newSchemas(), look: make(chan struct{}, 1)}
	if cfg.PublicURL != "" {
		u, err := url.Parse(cfg.PublicURL)
		if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil || (u.Scheme != "https" && u.Scheme != "http") {
			return nil, fmt.Errorf("gateway config: public url %q is not scheme://host", cfg.PublicURL)
		}
		g.public = u
	}
	g.cfg = withDefaults(cfg)
	g.counters = newCounters(g.cfg.Bounds, g.cfg.Now)
	if err := g.checkConnect(); err != nil {
		return nil, err
	}
	return g, nil
}

// checkConnect tells whether what is there for connecting is enough to do it.
func (g *Gateway) checkConnect() error {
	providers := slices.Collect(maps.Values(g.cfg.ConnectOwn))
	if g.cfg.Connect.StartConnect != nil {
		providers = append(providers, g.cfg.Connect)
	}
	for _, p := range providers {
		if p.StartConnect == nil || p.Accounts == nil || g.cfg.LinkCard == nil || g.cfg.AccountCard == nil {
			return errors.New("gateway config: connecting needs StartConnect, Accounts, LinkCard and AccountCard")
		}
	}
	return nil
}

func withDefaults(cfg Config) Config {
	if cfg.Version == "" {
		cfg.Version = "0"
	}
	orDefault(&cfg.LinkTTL, 30*time.Minute)
	orDefault(&cfg.WatchEvery, 5*time.Second)
	orDefault(&cfg.Heartbeat, 15*time.Second)
	orDefault(&cfg.CallTimeout, 75*time.Second)
	orDefault(&cfg.Grace, 5*time.Second)
	orDefault(&cfg.SessionIdle, 10*time.Minute)
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = 64
	}
	if cfg.MaxApproved <= 0 {
		cfg.MaxApproved = 4
	}
	orDefault(&cfg.Reminding.After, 6*time.Hour)
	orDefault(&cfg.Reminding.Last, time.Hour)
	if cfg.Reminding.To == 0 {
		cfg.Reminding.From, cfg.Reminding.To = 8, 20
	}
	if cfg.Instructions == nil {
		cfg.Instructions = func(Instructions) string { return "" }
	}
	if cfg.Open == nil {
		cfg.Open = func(policy.CompanyID) []App { return nil }
	}
	if cfg.Changes == nil {
		cfg.Changes = func() uint64 { return 0 }
	}
	if cfg.Ready == nil {
		cfg.Ready = func(context.Context) error { return nil }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return cfg
}

func orDefault(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// Catalogue gives every tool the connectors have for a caller, whatever policy says of it; a tool that lacks something is
// an error here, while a door merely leaves it out.
func (g *Gateway) Catalogue(ctx context.Context, c Caller) ([]Tool, error) {
	var all []Tool
	for _, conn := range g.connectors {
		tools, err := conn.Tools(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("listing tools: %w", err)
		}
		for _, t := range tools {
			if err := g.schemas.checkTool(t); err != nil {
				return nil, err
			}
		}
		all = append(all, tools...)
	}
	return all, nil
}

// appOf is a tool's app as policy names it.
func appOf(t Tool) string {
	if t.App == HouseApp {
		return ""
	}
	return t.App
}

// answers is the app whose words a call brings in: its own, or the one that a house tool asks on its behalf.
func answers(t Tool, args []byte) string {
	if t.AppFrom == "" {
		return appOf(t)
	}
	var named map[string]json.RawMessage
	var value string
	if json.Unmarshal(args, &named) != nil || json.Unmarshal(named[t.AppFrom], &value) != nil {
		return "unknown" // whose words they are is not known: so they are somebody else's
	}
	slug, _, _ := strings.Cut(value, "-")
	return cut(slug, 64)
}

// action is a call as policy sees it.
func (g *Gateway) action(t Tool, args []byte, b store.Background) policy.Action {
	return policy.Action{Tool: t.Name, App: appOf(t), Class: t.Class, Scope: t.Scope, Args: args, At: g.cfg.Now(),
		Hints: policy.Hints(t.Annotations), Taint: append(slices.Clone(g.cfg.Taint), b.Taint...), Said: strings.Join(b.Said, "\n"), Elsewhere: t.Elsewhere, Open: t.Open}
}
