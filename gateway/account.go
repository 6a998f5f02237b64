package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"pilder/policy"
	"pilder/store"
)

// AccountWords is what people are told about their accounts. A function that is nil says nothing.
type AccountWords struct {
	// Broken tells a person that an account must be connected again, with a button for it; Mended that one works again.
	Broken, Mended func(store.Account, store.Membership) store.Draft
	// Choose asks which of an app's accounts to use.
	Choose func([]store.Account, store.Membership) store.Draft
	// Resume words how a request goes on that waited for an app.
	Resume store.Resume
}

// Why no account of an app can be used.
var (
	ErrChooseAccount = errors.New("several accounts and none chosen")
	ErrReconnect     = errors.New("the account must be connected again")
)

// InUse gives the account that an app's calls act with: the chosen one, else the only usable one. Zero for an app without
// accounts. A broken one comes with ErrReconnect.
func InUse(accounts []store.Account, app string) (store.Account, error) {
	var usable, all []store.Account
	for _, a := range accounts {
		switch {
		case a.App != app || a.State != store.AccountActive && a.State != store.AccountBroken:
			continue
		case a.Chosen && !a.Usable():
			return a, ErrReconnect
		case a.Chosen:
			return a, nil
		case a.Usable():
			usable = append(usable, a)
		}
		all = append(all, a)
	}
	switch {
	case len(usable) > 1:
		return store.Account{}, ErrChooseAccount
	case len(usable) == 1:
		return usable[0], nil
	case len(all) > 0:
		return all[len(all)-1], ErrReconnect
	}
	return store.Account{}, nil
}

// account is the account a tool acts with; zero when it needs none. A call is frozen with it, so that an approval cannot end
// in another account than the one it was asked for.
func (a *access) account(t Tool) (store.Account, error) { return InUse(a.accounts, usesOf(t)) }

// usesOf is the app whose account a tool acts with.
func usesOf(t Tool) string {
	if t.Uses != "" {
		return t.Uses
	}
	return t.App
}

// unready answers a call that has no account to act with, and has the person asked for what is missing.
func (g *Gateway) unready(ctx context.Context, a *access, app string, err error) Result {
	if errors.Is(err, ErrChooseAccount) {
		g.askAccount(ctx, a, app)
		return g.wants("choose_account", app, a.lang())
	}
	g.Await(ctx, a.caller, app) // that it is broken, its person was told when it was found
	return g.wants("reconnect", app, a.lang())
}

// wants is an answer that only the person can do something about.
func (g *Gateway) wants(code, app, lang string) Result {
	r := failure(code, "person", lang, store.OutcomeRefused)
	message := strings.ReplaceAll(r.Text, "{app}", g.appName(app, lang))
	return faulty(fault{Status: "error", Code: code, Performed: "no", Retry: "person", Message: message}, store.OutcomeRefused)
}

func (g *Gateway) appName(slug, lang string) string {
	if app, ok := g.app(slug); ok && app.Name.In(lang) != "" {
		return app.Name.In(lang)
	}
	return slug
}

// lacking gives the app that an unlisted tool would be of, if it is one the person could connect.
func (g *Gateway) lacking(a *access, tool string) (app string, ok bool) {
	app, _, found := strings.Cut(tool, "-")
	_, offered := g.app(app)
	return app, found && offered && !a.barred[tool] && !slices.Contains(a.caller.Apps, app)
}

// Await notes that a caller's request waits for an app, so that it goes on by itself once that is connected. A request that
// is over waits for nothing.
func (g *Gateway) Await(ctx context.Context, c Caller, app string) {
	err := g.store.AwaitApp(context.WithoutCancel(ctx), c.Principal.Company, c.Principal.Run, app, g.cfg.LinkTTL)
	if err != nil && !errors.Is(err, store.ErrRunOver) {
		g.cfg.Log.Error().Str("event", "account.failed").Str("run", string(c.Principal.Run)).Str("app", app).Err(err).Send()
	}
}

// askAccount has the person asked which account of an app to use.
func (g *Gateway) askAccount(ctx context.Context, a *access, app string) {
	if g.cfg.Accounts.Choose == nil {
		return
	}
	var of []store.Account
	for _, acc := range a.accounts {
		if acc.App == app {
			of = append(of, acc)
		}
	}
	m := a.run.Member
	_, err := g.store.AskAccount(context.WithoutCancel(ctx), m.Company.ID, m.ID, app, g.cfg.Accounts.Choose(of, m))
	if err != nil {
		g.cfg.Log.Error().Str("event", "account.failed").Str("run", string(a.run.ID)).Str("app", app).Err(err).Send()
	}
}

// tellBroken marks an account as one to connect again, and tells its person once.
func (g *Gateway) tellBroken(ctx context.Context, acc store.Account, m store.Membership, reason string) {
	var drafts []store.Draft
	if g.cfg.Accounts.Broken != nil {
		drafts = append(drafts, g.cfg.Accounts.Broken(acc, m))
	}
	first, err := g.store.MarkAccountBroken(context.WithoutCancel(ctx), acc.Company, acc.ID, reason, drafts...)
	switch {
	case err != nil:
		g.cfg.Log.Error().Str("event", "account.failed").Str("account", string(acc.ID)).Str("app", acc.App).Err(err).Send()
	case first:
		g.cfg.Log.Info().Str("event", "account.broken").Str("account", string(acc.ID)).Str("company", string(acc.Company)).
			Str("person", string(m.Person.ID)).Str("app", acc.App).Str("reason", reason).Send()
	}
}

// learn takes from a call's result what it says of its account.
func (g *Gateway) learn(ctx context.Context, a *access, acc store.Account, r Result) {
	switch {
	case acc.ID == "":
	case r.Code == "reconnect":
		g.tellBroken(ctx, acc, a.run.Member, "refused")
		g.Await(ctx, a.caller, acc.App)
	case r.Code == "not_connected":
		g.tellBroken(ctx, acc, a.run.Member, "missing")
		g.Await(ctx, a.caller, acc.App)
	}
}

// oneOfSeveral is an account's name where its person has more than one of the app; else empty. Names are the provider's text.
func (a *access) oneOfSeveral(acc store.Account) string {
	several := 0
	for _, b := range a.accounts {
		if b.App == acc.App {
			several++
		}
	}
	if several < 2 {
		return ""
	}
	return OneLine(acc.Name, maxName)
}

// naming says with which account a call was made, where its person has several of the app.
func (a *access) naming(acc store.Account, r Result) Result {
	name := a.oneOfSeveral(acc)
	if name == "" {
		return r
	}
	r.Text = policy.Text{ES: "Cuenta usada: ", EN: "Account used: "}.In(a.lang()) + name + "\n" + r.Text
	var object map[string]json.RawMessage
	if json.Unmarshal(r.Structured, &object) == nil && object != nil {
		object["account"], _ = json.Marshal(name) // a text: cannot fail
		r.Structured, _ = json.Marshal(object)    // parts that were valid
	}
	return r
}
