// Package pipedream offers people's connected apps as tools, through the Pipedream Connect API: it makes tools of pinned
// action definitions, checks every call against them and against who owns the account, runs it at most once, and says in a
// small and predictable form what came of it.
//
// It refuses what the house table does not name, accounts that are not the caller's own, and definitions other than the
// pinned ones. It never asks for credentials, never lists accounts without saying whose, never follows a redirect, and
// never repeats anything but a read.
package pipedream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/store"
)

// connectorName is what Tool.Connector says.
const connectorName = "pipedream"

// longName is where hosts that put their own name in front of a tool's begin to drop it.
const longName = 50

// Config says which project of the provider is used, and how patiently.
type Config struct {
	// BaseURL is the address of the API, without path. Default https://api.pipedream.com.
	BaseURL string
	// ClientID and ClientSecret are the project's OAuth client. Required.
	ClientID     string
	ClientSecret store.Secret
	// ProjectID is the project, "proj_…". Required.
	ProjectID string
	// Environment is development or production. Required and never guessed: they share nothing, and the wrong one looks
	// like a project without accounts.
	Environment string
	// Apps holds one YAML file per app: the house table of offered actions. Required.
	Apps fs.FS

	// Account names the account in use of a caller for an app when a call names none: its provider id, or "" for none;
	// gateway.ErrChooseAccount and gateway.ErrReconnect where there is one only in name.
	// Nil: the caller's only usable account at the provider.
	Account func(ctx context.Context, c gateway.Caller, app string) (string, error)

	// Store keeps the definitions as they were accepted, and what the registry says otherwise. Nil: they are fetched anew by
	// each process, and a change shows only within one.
	Store *store.Store
	// RefreshEvery is how often the registry is looked at for changes, give or take a fifth. Default 6 h.
	RefreshEvery time.Duration

	// AccountTTL is how long a looked-up account is believed. Default and most 60 s.
	AccountTTL time.Duration
	// ReadTimeout bounds one request that changes nothing. Default 30 s.
	ReadTimeout time.Duration
	// RunTimeout bounds one run of an action. Default 60 s, within the time the gateway gives a call.
	RunTimeout time.Duration
	// MaxWait is the longest a read waits for a provider that is busy. Default 10 s.
	MaxWait time.Duration

	// Transport carries the requests. Default: connections within 5 s, no redirects.
	Transport http.RoundTripper
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log gets one content-free line per thing an operator acts on. Default: none.
	Log zerolog.Logger
}

// Connector is the connected apps of everybody. It is safe for concurrent use.
type Connector struct {
	cfg      Config
	table    map[string]*offer // by action key
	apps     []App             // in their order
	client   *client
	defs     *definitions
	accounts *accounts
	choices  *choices
}

// New makes a connector and contacts nobody. An incomplete configuration and a house table that does not read are errors.
func New(cfg Config) (*Connector, error) {
	cfg = withDefaults(cfg)
	base, err := url.Parse(cfg.BaseURL)
	switch {
	case err != nil || base.Host == "" || (base.Scheme != "https" && base.Scheme != "http"):
		return nil, fmt.Errorf("pipedream config: url %q is not scheme://host", cfg.BaseURL)
	case cfg.ClientID == "" || cfg.ClientSecret.IsZero() || cfg.ProjectID == "":
		return nil, errors.New("pipedream config: client_id, client_secret and project_id are required")
	case cfg.Environment != "development" && cfg.Environment != "production":
		return nil, fmt.Errorf("pipedream config: environment %q is neither development nor production", cfg.Environment)
	case cfg.Apps == nil:
		return nil, errors.New("pipedream config: no table of apps")
	}
	apps, err := ReadApps(cfg.Apps)
	if err != nil {
		return nil, err
	}
	c := &Connector{cfg: cfg, apps: apps, table: map[string]*offer{}}
	for _, a := range apps {
		for key, o := range a.Actions {
			if c.table[key] != nil {
				return nil, fmt.Errorf("app table %s: action %s is in two apps", a.Slug, key)
			}
			row := &offer{app: a, key: key, tool: toolName(key), Action: o}
			if len(row.tool) > longName {
				cfg.Log.Warn().Str("event", "pipedream.long_name").Str("tool", row.tool).Send()
			}
			c.table[key] = row
		}
	}
	c.client = newClient(cfg, base)
	c.defs = newDefinitions(c.client, cfg)
	c.accounts = newAccounts(c.client, cfg)
	c.choices = newChoices(cfg.Now)
	return c, nil
}

func withDefaults(cfg Config) Config {
	def := func(d *time.Duration, value, most time.Duration) {
		if *d <= 0 || (most > 0 && *d > most) {
			*d = value
		}
	}
	def(&cfg.AccountTTL, time.Minute, time.Minute)
	def(&cfg.RefreshEvery, 6*time.Hour, 0)
	def(&cfg.ReadTimeout, 30*time.Second, 0)
	def(&cfg.RunTimeout, 60*time.Second, 0)
	def(&cfg.MaxWait, 10*time.Second, 0)
	if cfg.BaseURL == "" {
		cfg.BaseURL = "https://api.pipedream.com"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return cfg
}

// Apps gives the apps of the house table in the order in which they are offered.
func (c *Connector) Apps() []App { return slices.Clone(c.apps) }

// Warm loads every pinned definition that is kept and fetches what is not there yet, so that no listing has to. What cannot
// be had is logged, left out of the lists and tried again later; the error is the first of them.
func (c *Connector) Warm(ctx context.Context) error {
	if err := c.defs.load(ctx, c.table); err != nil {
		return err
	}
	var all []*offer
	for _, a := range c.apps {
		all = append(all, c.offersOf(a.Slug)...)
	}
	return c.defs.fetch(ctx, all)
}

// Hashes gives, by action key, the hash of what was reviewed of each definition in use (description, props, annotations and
// stash), for operators to compare over time.
func (c *Connector) Hashes() map[string]string { return c.defs.hashes() }

// Tools lists what the caller's connected apps offer. It asks the provider only for definitions it has not seen.
func (c *Connector) Tools(ctx context.Context, caller gateway.Caller) ([]gateway.Tool, error) {
	var offered []*offer
	for _, a := range c.apps {
		if slices.Contains(caller.Apps, a.Slug) {
			offered = append(offered, c.offersOf(a.Slug)...)
		}
	}
	if err := c.defs.fetch(ctx, offered); err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("fetching action definitions: %w", err)
	}
	var tools []gateway.Tool
	askable := false
	for _, o := range offered {
		if a := c.defs.known(o); a != nil {
			tools = append(tools, a.toolIn(caller.Lang))
			askable = askable || a.hasChoices()
		}
	}
	if askable {
		tools = append(tools, optionsTool(caller.Lang))
	}
	return tools, nil
}

// Call performs one call. Whatever goes wrong outside is a Result; the error is always nil, and is there for the
// interface.
func (c *Connector) Call(ctx context.Context, call gateway.Call) (gateway.Result, error) {
	if call.Tool == optionsName {
		return c.retrieveOptions(ctx, call), nil
	}
	ready, problem := c.prepare(ctx, call)
	if problem != nil {
		return c.say(call, problem), nil
	}
	return c.perform(ctx, call, ready), nil
}

// Check tells what Call would refuse before running anything: wrong arguments, missing fields, no usable account. Nil
// means that nothing is known to stand in the way. For a gateway that would rather not ask a human about such a call.
func (c *Connector) Check(ctx context.Context, call gateway.Call) *gateway.Result {
	if call.Tool == optionsName {
		return nil
	}
	if _, problem := c.prepare(ctx, call); problem != nil {
		r := c.say(call, problem)
		return &r
	}
	return nil
}

// offersOf gives an app's rows of the house table, by key.
func (c *Connector) offersOf(app string) []*offer {
	var out []*offer
	for _, o := range c.table {
		if o.app.Slug == app {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *offer) int { return strings.Compare(a.key, b.key) })
	return out
}

// offerOf finds the row of a tool that is listed for a caller's apps.
func (c *Connector) offerOf(tool string, apps []string) *offer {
	for _, o := range c.table {
		if o.tool == tool && slices.Contains(apps, o.app.Slug) {
			return o
		}
	}
	return nil
}
