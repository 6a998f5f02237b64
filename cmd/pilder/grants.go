package main

import (
	"context"
	"errors"
	"slices"

	"pilder/gateway"
	"pilder/gateway/authorize"
	"pilder/gateway/upstream"
	"pilder/store"
)

// buildGrants makes the keeper of people's own credentials for the upstreams that ask for OAuth; nil when none does. A grant
// that ends is told by the call that finds it, or by whoever looks after the accounts.
func (h *house) buildGrants(ctx context.Context) error {
	cfg := authorize.Config{
		PublicURL: h.cfg.GatewayPublicURL, Loopback: h.options.loopbackUpstreams, Account: h.account, Log: h.log,
	}
	for _, u := range h.cfg.Upstreams {
		if u.Auth != upstream.AuthOAuth {
			continue
		}
		app := authorize.App{Slug: u.Slug, Name: u.Name.In("es"), URL: u.URL, ClientID: u.OAuth.ClientID, Scopes: u.OAuth.Scopes,
			Audience: u.OAuth.Audience, NoResource: u.OAuth.NoResource}
		secret, err := h.store.UpstreamSecret(ctx, u.Slug)
		switch {
		case err == nil && app.ClientID != "":
			app.ClientSecret = secret
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return err
		}
		cfg.Apps = append(cfg.Apps, app)
	}
	if len(cfg.Apps) == 0 {
		return nil
	}
	if cfg.PublicURL == "" {
		return machineError("upstream %s asks each person in, which needs gateway.public_url", cfg.Apps[0].Slug)
	}
	var err error
	h.grants, err = authorize.New(cfg, h.store)
	return err
}

// offerGrants lets people connect those upstreams as any other app.
func (h *house) offerGrants(cfg *gateway.Config) {
	if h.grants == nil {
		return
	}
	cfg.ConnectOwn, cfg.Pages = h.grants.Connect(), h.grants.Pages()
	cfg.Apps = append(cfg.Apps, h.grantedApps()...)
}

// grantedApps are the upstreams that people connect themselves.
func (h *house) grantedApps() []gateway.App {
	var all []gateway.App
	for _, u := range h.cfg.Upstreams {
		if u.Auth == upstream.AuthOAuth {
			all = append(all, gateway.App{Slug: u.Slug, Name: u.Name})
		}
	}
	return all
}

// bearer gives what an upstream knows a caller by: the person's own grant, or what the operator keeps for all. What is kept
// for an upstream with grants is the OAuth client's secret, which is for the authorization server only: a process without
// grants has nothing to send.
func (h *house) bearer(ctx context.Context, c gateway.Caller, app, account string) (store.Secret, error) {
	switch {
	case !h.isGranted(app):
		return h.upstreamSecret(ctx, app)
	case h.grants == nil:
		return store.Secret{}, gateway.ErrReconnect
	}
	return h.grants.Bearer(ctx, c, app, account)
}

// bearerRefused has the next one be a fresh one. What comes of that, Bearer says.
func (h *house) bearerRefused(ctx context.Context, c gateway.Caller, app, account string, secret store.Secret) {
	if h.grants != nil && h.isGranted(app) {
		_ = h.grants.Refused(ctx, c, app, account, secret)
	}
}

// isGranted tells whether people connect an upstream themselves.
func (h *house) isGranted(app string) bool {
	return slices.ContainsFunc(h.cfg.Upstreams, func(u upstream.Spec) bool { return u.Slug == app && u.Auth == upstream.AuthOAuth })
}
