package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/policy"
	"pilder/prompt"
	"pilder/runner"
	"pilder/store"
)

// buildUpstreams makes the connector of other MCP servers; nil when none is configured.
func (h *house) buildUpstreams() error {
	if len(h.cfg.Upstreams) == 0 {
		return nil
	}
	cfg := upstream.Config{Upstreams: h.cfg.Upstreams, Bearer: h.bearer, Refused: h.bearerRefused, Version: version,
		Start: startsNothing, Log: h.log}
	programs := slices.ContainsFunc(h.cfg.Upstreams, func(u upstream.Spec) bool { return len(u.Command) > 0 })
	if programs && h.callsUpstreams() {
		box, err := newSandbox(h.cfg, h.options.acceptUnsandboxed)
		if err != nil {
			return machineError("%w", err)
		}
		cfg.Start = startUpstream(box, filepath.Join(h.cfg.Data, "upstreams"))
	}
	var err error
	h.upstreams, err = upstream.New(cfg, h.store)
	return err
}

// callsUpstreams tells whether this process is one that calls them: whoever only talks to people needs no sandbox.
func (h *house) callsUpstreams() bool { return h.role("worker") || h.role("gateway") }

// startsNothing is for a process that only knows which upstreams there are.
func startsNothing(context.Context, upstream.Command) (io.ReadWriteCloser, error) {
	return nil, errors.New("this process starts no programs")
}

// startUpstream starts a program in a sandbox of its own, with a folder of its own that stays between two starts.
func startUpstream(box *runner.Sandbox, folder string) func(context.Context, upstream.Command) (io.ReadWriteCloser, error) {
	return func(ctx context.Context, c upstream.Command) (io.ReadWriteCloser, error) {
		work, err := filepath.Abs(filepath.Join(folder, c.Upstream, c.Owner))
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(work, 0o700); err != nil {
			return nil, fmt.Errorf("making the folder of upstream %s: %w", c.Upstream, err)
		}
		return box.StartProgram(ctx, runner.Program{Argv: c.Argv, Env: c.Env, Folder: c.Folder, Work: work})
	}
}

// upstreamSecret gives what an upstream knows this pilder by. One that was never set is the operator's trouble.
func (h *house) upstreamSecret(ctx context.Context, app string) (store.Secret, error) {
	secret, err := h.store.UpstreamSecret(ctx, app)
	if err != nil {
		h.log.Error().Str("event", "upstream.no_secret").Str("app", app).Bool("unset", errors.Is(err, store.ErrNotFound)).Send()
	}
	return secret, err
}

// openApps are the apps that a company's members have without connecting them.
func (h *house) openApps(company policy.CompanyID) []gateway.App {
	if h.upstreams == nil {
		return nil
	}
	var all []gateway.App
	for _, u := range h.upstreams.Open(company) {
		all = append(all, gateway.App{Slug: u.Slug, Name: u.Name})
	}
	return all
}

// upstreamWords are the lines of an agent's instructions about upstreams.
func upstreamWords(specs []upstream.Spec, in gateway.Instructions) []prompt.App {
	var all []prompt.App
	for _, u := range specs {
		if slices.ContainsFunc(in.Apps, func(a gateway.App) bool { return a.Slug == u.Slug }) {
			all = append(all, prompt.App{Name: u.Name.In(in.Lang), Prefix: u.Slug, Hint: u.Hint.In(in.Lang)})
		}
	}
	return all
}

// openSlugs are the same for a command that has no house.
func openSlugs(specs []upstream.Spec, company policy.CompanyID) []string {
	var all []string
	for _, u := range specs {
		if u.Auth != upstream.AuthOAuth && (len(u.Companies) == 0 || slices.Contains(u.Companies, company)) {
			all = append(all, u.Slug)
		}
	}
	return all
}

// upstreamTools is what each upstream offers, for a command that only lists. The lists of programs and of upstreams that
// people connect themselves are those that were seen last; of the latter each company has its own.
func upstreamTools(cmd *cobra.Command, cfg Config) (all []gateway.Tool, err error) {
	s, err := openStore(cmd.Context(), cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c, err := listingUpstreams(cfg, s)
	if err != nil {
		return nil, err
	}
	defer c.Close(cmd.Context())
	seen := map[string]bool{}
	for _, u := range cfg.Upstreams {
		companies, err := s.UpstreamCompanies(cmd.Context(), u.Slug)
		if err != nil {
			return nil, err
		}
		if u.Auth != upstream.AuthOAuth {
			companies = []policy.CompanyID{""}
		}
		for _, company := range companies {
			tools, err := c.Tools(cmd.Context(), gateway.Caller{Lang: "es", Apps: []string{u.Slug}, Principal: policy.Principal{Company: company}})
			if err != nil {
				return nil, err
			}
			for _, t := range tools {
				if !seen[t.Name] {
					seen[t.Name], all = true, append(all, t)
				}
			}
		}
	}
	return all, nil
}

// listingUpstreams is a connector whose upstreams are for every company, and that starts no program.
func listingUpstreams(cfg Config, s *store.Store) (*upstream.Connector, error) {
	h := &house{cfg: cfg, log: zerolog.Nop(), store: s}
	up := upstream.Config{Bearer: h.bearer, Version: version, Start: startsNothing}
	for _, u := range cfg.Upstreams {
		u.Companies = nil
		up.Upstreams = append(up.Upstreams, u)
	}
	return upstream.New(up, s)
}
