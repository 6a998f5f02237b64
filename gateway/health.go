package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pilder/store"
)

// Bounds of looking after accounts: each is looked at once in healthEvery, and no more than healthBatch of them in a minute: with
// more than 300 accounts for a process it takes longer.
const (
	healthTick  = time.Minute
	healthEvery = 15 * time.Minute
	healthBatch = 20
	// waveOf is how many accounts must be looked at together before "most of them are broken" means that it is not them.
	waveOf = 5
)

// WatchAccounts looks after the accounts in use until ctx ends: one that the provider refuses is told to its person, once,
// and one that works again too.
func (g *Gateway) WatchAccounts(ctx context.Context) error {
	tick := time.NewTicker(healthTick)
	defer tick.Stop()
	for {
		if err := g.CheckAccounts(ctx); err != nil && ctx.Err() == nil {
			g.cfg.Log.Warn().Str("event", "account.failed").Err(err).Send()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// CheckAccounts looks at the accounts that are due.
func (g *Gateway) CheckAccounts(ctx context.Context) error {
	due, err := g.store.TakeAccountsToCheck(ctx, healthEvery, healthBatch)
	if err != nil {
		return fmt.Errorf("finding accounts to check: %w", err)
	}
	type of struct {
		external, app string
	}
	type answer struct {
		accounts []ProviderAccount
		err      error
	}
	asked := map[of]answer{} // what failed too: a provider that is down is not waited for again
	found := map[string][]finding{}
	var failed error
	for _, c := range due {
		key := of{c.Member.ExternalUser, c.App}
		provider := g.connect(c.App).Accounts
		if provider == nil {
			continue
		}
		said, known := asked[key]
		if !known {
			said.accounts, said.err = g.ask(ctx, provider, key.external, key.app)
			asked[key], failed = said, errors.Join(failed, said.err)
		}
		if said.err == nil { // else nothing is known of it now
			at := g.providerOf(c.App)
			found[at] = append(found[at], judge(c.Account, c.Member, said.accounts))
		}
	}
	for _, of := range found {
		g.settleHealth(ctx, of)
	}
	return failed
}

// providerOf names the provider of an app's accounts: the app that has one of its own, empty for the one of all others.
func (g *Gateway) providerOf(app string) string {
	if _, own := g.cfg.ConnectOwn[app]; own {
		return app
	}
	return ""
}

// ask lists a person's accounts at a provider, within its patience.
func (g *Gateway) ask(ctx context.Context, list func(context.Context, string, string) ([]ProviderAccount, error), external, app string) ([]ProviderAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, providerPatience)
	defer cancel()
	all, err := list(ctx, external, app)
	if err != nil {
		return nil, fmt.Errorf("listing accounts: %w", err)
	}
	return append([]ProviderAccount{}, all...), nil
}

// finding is what was seen of one account.
type finding struct {
	account store.Account
	member  store.Membership
	reason  string // why it cannot be used; empty: it can
	ours    bool   // the provider's own trouble, or ours: nobody is sent to connect again for it
}

// judge compares an account with what its provider has. One that bears another name than its person confirmed is somebody
// else's until they say otherwise.
func judge(a store.Account, m store.Membership, at []ProviderAccount) finding {
	f := finding{account: a, member: m, reason: "missing"}
	for _, p := range at {
		if p.ID != a.Provider {
			continue
		}
		f.ours = p.OurFault
		switch {
		case !p.Usable:
			f.reason = "refused"
		case p.Name != "" && a.Name != "" && p.Name != a.Name:
			f.reason = "renamed"
		default:
			f.reason = ""
		}
	}
	return f
}

// settleHealth acts on a round's findings at one provider. When most of what was looked at went bad together, it is the provider, our
// registration or the wrong environment (which shows as empty lists): one alarm for the operator, no word to people.
func (g *Gateway) settleHealth(ctx context.Context, found []finding) {
	bad := 0
	for _, f := range found {
		if f.reason != "" && f.account.Usable() {
			bad++
		}
	}
	wave := len(found) >= waveOf && bad*2 > len(found)
	if wave {
		g.cfg.Log.Error().Str("event", "accounts.wave").Int("checked", len(found)).Int("bad", bad).Send()
	}
	for _, f := range found {
		switch {
		case f.reason == "" && !f.account.Usable():
			g.tellMended(ctx, f.account, f.member)
		case f.reason == "" || !f.account.Usable() || wave:
		case f.ours:
			g.cfg.Log.Error().Str("event", "account.provider_fault").Str("account", string(f.account.ID)).Str("app", f.account.App).Send()
		default:
			g.tellBroken(ctx, f.account, f.member, f.reason)
		}
	}
}

// tellMended puts a broken account back to work, tells its person once and lets go on what waited for it.
func (g *Gateway) tellMended(ctx context.Context, acc store.Account, m store.Membership) {
	var drafts []store.Draft
	if g.cfg.Accounts.Mended != nil {
		drafts = append(drafts, g.cfg.Accounts.Mended(acc, m))
	}
	first, err := g.store.MarkAccountHealthy(ctx, acc.Company, acc.ID, g.cfg.Accounts.Resume, drafts...)
	switch {
	case err != nil:
		g.cfg.Log.Error().Str("event", "account.failed").Str("account", string(acc.ID)).Str("app", acc.App).Err(err).Send()
	case first:
		g.cfg.Log.Info().Str("event", "account.mended").Str("account", string(acc.ID)).Str("company", string(acc.Company)).
			Str("person", string(m.Person.ID)).Str("app", acc.App).Send()
	}
}

// mendKnown puts broken accounts of a link's app back to work that the provider takes again: their person connected them
// anew, and the provider kept their ids.
func (g *Gateway) mendKnown(ctx context.Context, l store.OpenedLink, at []ProviderAccount) error {
	m := l.Link.Membership
	all, err := g.store.Accounts(ctx, m.Company.ID, m.ID)
	if err != nil {
		return fmt.Errorf("reading accounts: %w", err)
	}
	for _, a := range all {
		if a.App != l.Link.App || a.Usable() {
			continue
		}
		if f := judge(a, m, at); f.reason == "" {
			g.tellMended(ctx, a, m)
		}
	}
	return nil
}
