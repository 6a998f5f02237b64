package main

import (
	"context"
	"slices"

	"pilder/gateway"
	"pilder/gateway/pipedream"
	"pilder/gateway/upstream"
	"pilder/policy"
	"pilder/prompt"
	"pilder/store"
)

// What the parts have to know of apps and accounts, and may not ask each other.

// appName is an app as people know it.
func (h *house) appName(slug, lang string) string {
	if h.apps != nil {
		for _, a := range h.apps.Apps() {
			if a.Slug == slug {
				return a.Name.In(lang)
			}
		}
	}
	for _, u := range h.cfg.Upstreams {
		if u.Slug == slug {
			return u.Name.In(lang)
		}
	}
	return slug
}

// link sends a caller a connect link in their own private chat, whatever chat they asked in.
func (h *house) link(ctx context.Context, c gateway.Caller, app string) error {
	m, err := h.store.Membership(ctx, c.Principal.Company, c.Principal.Membership)
	if err != nil {
		return err
	}
	err = h.gateway.RequestLink(ctx, store.UpdateRef{}, m, app, store.Chat{ID: m.Person.Telegram, Private: true})
	if err != nil {
		h.log.Error().Str("event", "connect.failed").Str("app", app).Err(err).Send()
		return err
	}
	h.gateway.Await(ctx, c, app)
	return nil
}

// account names the account that a caller uses for an app.
func (h *house) account(ctx context.Context, c gateway.Caller, app string) (string, error) {
	all, err := h.store.Accounts(ctx, c.Principal.Company, c.Principal.Membership)
	if err != nil {
		return "", err
	}
	a, err := gateway.InUse(all, app)
	return a.Provider, err
}

func offeredApps(apps []pipedream.App) []gateway.App {
	var all []gateway.App
	for _, a := range apps {
		all = append(all, gateway.App{Slug: a.Slug, Name: policy.Text(a.Name), Category: a.Category.EN})
	}
	return all
}

// instructions words the server's instructions from the house table: the gateway knows who asks, prompt knows how to say it.
func instructions(apps []pipedream.App, upstreams []upstream.Spec) func(gateway.Instructions) string {
	return func(in gateway.Instructions) string {
		words := prompt.InstructionsInput{Lang: in.Lang, Empty: in.Empty}
		for _, p := range in.Preferences {
			words.Preferences = append(words.Preferences, preferenceIn(apps, p, in.Lang))
		}
		for _, a := range apps {
			if slices.ContainsFunc(in.Apps, func(c gateway.App) bool { return c.Slug == a.Slug }) {
				words.Apps = append(words.Apps, prompt.App{Name: a.Name.In(in.Lang), Prefix: a.Slug, Hint: a.Instruction.In(in.Lang)})
			}
		}
		words.Apps = append(words.Apps, upstreamWords(upstreams, in)...)
		return prompt.Instructions(words)
	}
}

// preference words a person's preference for their prompt.
func (h *house) preference(p store.Preference, lang string) prompt.Preference {
	if h.apps == nil {
		return prompt.Preference{}
	}
	return preferenceIn(h.apps.Apps(), p, lang)
}

func preferenceIn(apps []pipedream.App, p store.Preference, lang string) prompt.Preference {
	words := prompt.Preference{}
	for _, a := range apps {
		if a.Category.EN == p.Category {
			words.Category = a.Category.In(lang)
		}
		if a.Slug == p.App {
			words.App = a.Name.In(lang)
		}
	}
	return words
}
