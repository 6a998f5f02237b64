package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"pilder/bot"
	"pilder/configs"
	"pilder/gateway"
	"pilder/gateway/authorize"
	"pilder/gateway/egress"
	"pilder/gateway/model"
	"pilder/gateway/native"
	"pilder/gateway/pipedream"
	"pilder/gateway/upstream"
	"pilder/runner"
	"pilder/store"
)

// houseOptions is what a command says beside the configuration.
type houseOptions struct {
	role              string       // all (also ""), bot, worker or gateway
	public            net.Listener // of the public HTTP server; nil: none
	acceptUnsandboxed bool
	loopbackUpstreams bool                 // upstreams with OAuth may be on this machine, without TLS: for tests
	web               egress.Config        // of the web door: all but its list and its log. The zero value is right
	runner            func(*runner.Config) // has the last word on it; nil: none
}

// house is one running pilder: every part, joined.
type house struct {
	cfg     Config
	log     zerolog.Logger
	options houseOptions
	store   *store.Store
	bot     *bot.Bot
	gateway *gateway.Gateway
	apps    *pipedream.Connector // nil without a project
	doors   *model.Doors
	runner  *runner.Runner

	upstreams *upstream.Connector // nil when none is configured
	grants    *authorize.Keeper   // nil when no upstream asks for OAuth
}

// buildHouse opens the store and joins the parts; nothing runs until Run.
func buildHouse(ctx context.Context, cfg Config, log zerolog.Logger, o houseOptions) (_ *house, err error) {
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	h := &house{cfg: cfg, log: log, options: o}
	h.store, err = store.Open(ctx, store.Config{URL: cfg.StoreURL, Key: cfg.StoreKey, Log: log})
	if err != nil {
		return nil, machineError("opening the store: %w", err)
	}
	for _, build := range []func(context.Context) error{h.buildGateway, h.buildBot, h.buildRunner} {
		if err := build(ctx); err != nil {
			return nil, errors.Join(err, h.store.Close())
		}
	}
	return h, nil
}

// buildGateway joins the connectors: house tools first, so that no app can take one of their names.
func (h *house) buildGateway(ctx context.Context) error {
	apps, err := pipedream.ReadApps(configs.Apps())
	if err != nil {
		return err
	}
	if err := errors.Join(h.buildGrants(ctx), h.buildUpstreams()); err != nil {
		return err
	}
	offered := offeredApps(apps)
	cfg := gateway.Config{
		Version: version, Apps: offered, PublicURL: h.cfg.GatewayPublicURL, WebhookSecret: store.RandomSecret(""),
		Card: bot.Card, Outcome: bot.Outcome, Lost: bot.Lost, Remind: bot.Remind,
		LinkCard:    func(l gateway.LinkCard) store.Draft { return bot.LinkDraft(l.Member, l.App.Slug, l.Chat, l.URL) },
		AccountCard: func(a store.Account, l store.Link) store.Draft { return bot.AccountCard(a, l.Membership) },
		Accounts: gateway.AccountWords{
			Broken: bot.BrokenCard, Mended: bot.MendedNotice, Choose: bot.ChooseCard, Resume: bot.Resumed(h.appName),
		},
		Instructions: instructions(apps, h.cfg.Upstreams),
		Open:         h.openApps,
		Ready:        h.ready,
		Taint:        webTaint(h.cfg),
		Log:          h.log,
	}
	if cfg.TokenKeys, err = tokenKeys(h.cfg.TokenKeys); err != nil {
		return err
	}
	var connectors []gateway.Connector
	nativeConfig := native.Config{
		Apps:    offered,
		Pending: h.store.PendingApprovals,
		Link:    func(ctx context.Context, c gateway.Caller, app string) error { return h.link(ctx, c, app) },
		Send: func(context.Context, gateway.Call, native.Mail) (gateway.Result, error) {
			return gateway.Result{}, errors.New("no connected apps are configured")
		},
	}
	if h.cfg.PipedreamProject != "" {
		pd := pipedreamConfig(h.cfg)
		pd.Log, pd.Account, pd.Store = h.log, h.account, h.store
		if h.apps, err = pipedream.New(pd); err != nil {
			return err
		}
		connectors = append(connectors, h.apps)
		cfg.Connect = h.apps.Connect()
		nativeConfig.Send = sendMail(h.apps)
	} else {
		cfg.Apps = nil
	}
	h.offerGrants(&cfg)
	nativeConfig.Apps = cfg.Apps
	if h.upstreams != nil {
		connectors = append(connectors, h.upstreams)
		cfg.Changes = h.upstreams.Changes
	}
	house, err := native.New(nativeConfig)
	if err != nil {
		return err
	}
	h.gateway, err = gateway.New(cfg, h.store, slices.Insert(connectors, 0, gateway.Connector(house))...)
	return err
}

func (h *house) buildBot(context.Context) error {
	if h.cfg.TelegramToken.IsZero() {
		return nil
	}
	cfg := bot.Config{
		Token: h.cfg.TelegramToken, APIURL: h.cfg.TelegramAPIURL, Log: h.log,
		RemoveAccount: func(ctx context.Context, a store.Account) error {
			m, err := h.store.Membership(ctx, a.Company, a.Membership)
			if err != nil {
				return err
			}
			return h.gateway.ForgetAccount(ctx, m, a)
		},
	}
	if h.apps != nil {
		for _, a := range offeredApps(h.apps.Apps()) {
			cfg.Apps = append(cfg.Apps, bot.App(a))
		}
	}
	for _, a := range h.grantedApps() {
		cfg.Apps = append(cfg.Apps, bot.App(a))
	}
	for _, u := range h.cfg.Upstreams {
		if u.Auth != upstream.AuthOAuth {
			cfg.Open = append(cfg.Open, bot.App{Slug: u.Slug, Name: u.Name})
		}
	}
	if len(cfg.Apps) > 0 {
		cfg.Connect = func(ctx context.Context, m store.Membership, app string, from store.UpdateRef, chat store.Chat) error {
			return h.gateway.RequestLink(ctx, from, m, app, chat)
		}
	}
	var err error
	h.bot, err = bot.New(cfg, h.store)
	return err
}

func (h *house) buildRunner(ctx context.Context) error {
	if h.cfg.ModelKey.IsZero() || !h.role("worker") {
		return nil
	}
	var err error
	if h.doors, err = model.New(model.Config{
		URL: strings.TrimSuffix(h.cfg.ModelURL, "/"), Key: h.cfg.ModelKey, Models: h.cfg.ModelAllowed, MaxTokens: h.cfg.ModelMaxTokens,
		URLSources: h.cfg.ModelURLSources, Prices: prices(), Log: h.log,
	}); err != nil {
		return err
	}
	if err := verifyBinary(claudePath(h.cfg), configs.CLI().BinarySHA256); err != nil {
		return machineError("%w; run: pilder cli fetch", err)
	}
	box, err := newSandbox(h.cfg, h.options.acceptUnsandboxed)
	if err != nil {
		return machineError("%w", err)
	}
	agentHome, err := h.cfg.agentHome()
	if err != nil {
		return err
	}
	serveWeb, err := h.webDoor()
	if err != nil {
		return err
	}
	run := runner.Config{
		Data: h.cfg.Data, CLI: claudePath(h.cfg), CLIVersion: configs.CLI().Version, AgentHome: agentHome,
		ManagedSettings: configs.ManagedSettings(), Model: h.cfg.ModelName,
		MaxRuns: h.cfg.RunnerMaxRuns, RunTimeout: h.cfg.RunnerRunTimeout, Memory: h.cfg.RunnerMemory,
		WarmMax: h.cfg.RunnerWarmMax, WarmIdle: h.cfg.RunnerWarmIdle,
		Quota:     runner.Quota{Bytes: h.cfg.RunnerQuotaBytes, Files: h.cfg.RunnerQuotaFiles},
		Budget:    runner.Budget{Tokens: h.cfg.RunnerBudgetTokens, CostUSD: h.cfg.RunnerBudgetUSD},
		MintToken: h.gateway.MintToken, ServeTools: h.gateway.ServeRun, ServeModel: h.serveModel,
		ServeWeb: serveWeb, WebNames: h.cfg.WebAllow, Search: h.cfg.WebSearch,
		Answer: bot.Answer, Notice: bot.RunNotice, Waiting: waitingNotice, AppName: h.appName, Preference: h.preference,
		Log: h.log,
	}
	if h.options.runner != nil {
		h.options.runner(&run)
	}
	h.runner, err = runner.New(run, h.store, box)
	if err != nil {
		return machineError("%w", err)
	}
	return nil
}

// serveModel is a run's model door: it opens for the run's process, as long as the store says that the run is running.
func (h *house) serveModel(ctx context.Context, d runner.ModelDoor, l net.Listener) error {
	return h.doors.Serve(ctx, model.Process{
		Run: d.Run.ID, Key: d.Key, Search: d.Search, Budget: model.Budget(d.Budget), Spent: model.Budget(d.Spent),
		Alive: func(ctx context.Context) error {
			_, err := h.store.LiveRun(ctx, d.Run.ID)
			return err
		},
		Meter: func(u model.Usage) {
			d.Meter(runner.Usage{
				Tokens: u.Tokens, CostUSD: u.CostUSD, Counted: runner.Budget(u.Counted), Refused: u.Refused, RetryAfter: u.RetryAfter,
			})
		},
	}, l)
}

// webDoor gives what serves a run's web door, or nil when no name is allowed: then there is no door at all.
func (h *house) webDoor() (func(context.Context, store.Run, net.Listener) error, error) {
	if len(h.cfg.WebAllow) == 0 {
		return nil, nil
	}
	cfg := h.options.web
	cfg.Allow, cfg.Log = h.cfg.WebAllow, h.log
	doors, err := egress.New(cfg)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, run store.Run, l net.Listener) error {
		return doors.Serve(ctx, egress.Process{Run: run.ID, Company: run.Principal.Company, Alive: func(ctx context.Context) error {
			_, err := h.store.LiveRun(ctx, run.ID)
			return err
		}}, l)
	}, nil
}

// webTaint is what reading pages brings into every conversation.
func webTaint(cfg Config) []string {
	if len(cfg.WebAllow) > 0 || cfg.WebSearch {
		return []string{"web"}
	}
	return nil
}

// waitingNotice tells a person how many are before them.
func waitingNotice(w store.WaitingTurn, c store.ConversationID, ahead int) store.Draft {
	return bot.WaitingNotice(w.Member, w.Chat, c, ahead)
}

// runAgents runs the runner. A sandbox that is too weak is the machine's fault.
func (h *house) runAgents(ctx context.Context) error {
	err := h.runner.Run(ctx)
	if errors.Is(err, runner.ErrTooWeak) {
		return machineError("%w", err)
	}
	return err
}

// ready tells whether the store answers, without which nothing else does.
func (h *house) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := h.store.Companies(ctx)
	return err
}

// Close ends what Run does not: the store. Run must have returned.
func (h *house) Close() error { return h.store.Close() }

func (h *house) role(name string) bool {
	return h.options.role == "" || h.options.role == "all" || h.options.role == name
}

func (h *house) botID() store.BotID { return h.bot.ID() }

// warm fetches the definitions of all offered actions once, so that no list has to wait for them. What cannot be had now
// is fetched when it is needed.
func (h *house) warm(ctx context.Context) error {
	if err := h.apps.Warm(ctx); err != nil && ctx.Err() == nil {
		h.log.Warn().Str("event", "catalogue.cold").Err(err).Send()
	}
	<-ctx.Done()
	return nil
}

func newSandbox(cfg Config, accept bool) (*runner.Sandbox, error) {
	tier, err := runner.ParseTier(cfg.SandboxRequire)
	if err != nil {
		return nil, err
	}
	home, err := cfg.agentHome()
	if err != nil {
		return nil, err
	}
	box := runner.SandboxConfig{Require: tier, User: cfg.SandboxUser, Memory: cfg.SandboxMemory, AgentHome: home,
		Unsandboxed: cfg.SandboxMode == "none", AcceptUnsandboxed: accept, Inside: insideProgram()}
	if cli, err := filepath.Abs(claudePath(cfg)); err != nil {
		return nil, err
	} else if _, err := os.Stat(cli); err == nil { // else whoever needs it says so
		box.CLI = filepath.Dir(cli)
	}
	return runner.NewSandbox(box)
}

func pipedreamConfig(cfg Config) pipedream.Config {
	return pipedream.Config{
		BaseURL: strings.TrimSuffix(cfg.PipedreamURL, "/"), ClientID: cfg.PipedreamClientID, ClientSecret: cfg.PipedreamSecret,
		ProjectID: cfg.PipedreamProject, Environment: cfg.PipedreamEnvironment, Apps: configs.Apps(),
	}
}

func prices() []model.Price {
	var all []model.Price
	for _, p := range configs.Prices() {
		all = append(all, model.Price(p))
	}
	return all
}

// tokenKeys reads "id:64 hex digits" lines. With none, run tokens are signed with a key of this process: their doors are
// served by it too, so nobody else has to know.
func tokenKeys(lines []store.Secret) ([]gateway.TokenKey, error) {
	if len(lines) == 0 {
		return []gateway.TokenKey{{ID: "process-" + time.Now().UTC().Format("20060102"), Secret: store.NewSecret(randomHex())}}, nil
	}
	var keys []gateway.TokenKey
	for i, line := range lines {
		id, secret, ok := strings.Cut(line.Reveal(), ":")
		raw, err := hex.DecodeString(secret)
		if !ok || id == "" || err != nil || len(raw) < 32 {
			return nil, fmt.Errorf("token.keys[%d] must be ID:64 hex digits", i)
		}
		keys = append(keys, gateway.TokenKey{ID: id, Secret: store.NewSecret(secret)})
	}
	return keys, nil
}
