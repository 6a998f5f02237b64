package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"pilder/store"
)

// Connect asks the provider of connected apps about one membership's accounts. The external user always comes from the
// store, never from a request.
type Connect struct {
	// StartConnect makes a connect token and the provider's page for one person and app.
	StartConnect func(ctx context.Context, in StartConnect) (StartedConnect, error)
	// Accounts lists the external user's accounts of an app as the provider has them now.
	Accounts func(ctx context.Context, externalUser, app string) ([]ProviderAccount, error)
	// DeleteAccount makes the provider forget an account; one that is not there is no error.
	DeleteAccount func(ctx context.Context, externalUser, account string) error
}

// StartConnect is what a connect token is made for.
type StartConnect struct {
	ExternalUser string
	App          string
	Success      string       // where the browser ends when it worked
	Failure      string       // and when it did not
	Webhook      store.Secret // address the provider may call; zero for none
	TTL          time.Duration
}

// StartedConnect is the provider's answer: its parts let somebody bind an account, so all are secret.
type StartedConnect struct {
	Token store.Secret
	URL   store.Secret // the provider's page for exactly this app
	// Cookie is left with the browser that set off, so that whoever comes back to one of Config.Pages can be known for the
	// same. nil: the provider keeps its own.
	Cookie *http.Cookie
}

// ProviderAccount is an account as the provider has it.
type ProviderAccount struct {
	ID     string
	Name   string // untrusted
	Usable bool   // healthy, not dead, of the asked external user and environment
	// OurFault says that it is unusable through the provider's own fault: nothing a person could mend by connecting again.
	OurFault bool
}

// LinkCard is what Config.LinkCard needs to word a connect link.
type LinkCard struct {
	Member store.Membership
	App    App
	Chat   store.Chat
	URL    store.Secret
	TTL    time.Duration
}

// providerPatience bounds one question to the provider of connected apps.
const providerPatience = 20 * time.Second

// Errors of RequestLink.
var (
	ErrNoConnect  = errors.New("connecting apps is not configured")
	ErrUnknownApp = errors.New("app is not offered")
)

// RequestLink sends a person a link for connecting an app, in the given chat. The link's secret goes into that one message
// and nowhere else: whoever opens it binds their account to this membership. from may be zero.
func (g *Gateway) RequestLink(ctx context.Context, from store.UpdateRef, m store.Membership, slug string, chat store.Chat) error {
	if g.public == nil || !g.connects() {
		return ErrNoConnect
	}
	app, ok := g.app(slug)
	if !ok {
		return ErrUnknownApp
	}
	if g.connect(slug).StartConnect == nil {
		return ErrNoConnect
	}
	err := g.store.CreateLink(ctx, from, m, slug, chat, g.cfg.LinkTTL, func(secret store.Secret) store.Draft {
		url := store.NewSecret(g.public.JoinPath("connect", secret.Reveal()).String())
		return g.cfg.LinkCard(LinkCard{Member: m, App: app, Chat: chat, URL: url, TTL: g.cfg.LinkTTL})
	})
	if err != nil {
		return fmt.Errorf("requesting link for %s: %w", slug, err)
	}
	return nil
}

// ForgetAccount makes the provider forget an account that its person rejected or disconnected.
func (g *Gateway) ForgetAccount(ctx context.Context, m store.Membership, a store.Account) error {
	provider := g.connect(a.App)
	if provider.DeleteAccount == nil {
		return ErrNoConnect
	}
	if err := provider.DeleteAccount(ctx, m.ExternalUser, a.Provider); err != nil {
		return fmt.Errorf("forgetting account %s: %w", a.ID, err)
	}
	return nil
}

// connect gives the provider through which an app is connected.
func (g *Gateway) connect(app string) Connect {
	if own, ok := g.cfg.ConnectOwn[app]; ok {
		return own
	}
	return g.cfg.Connect
}

// connects tells whether anything can be connected at all.
func (g *Gateway) connects() bool {
	return g.cfg.Connect.StartConnect != nil || len(g.cfg.ConnectOwn) > 0
}

func (g *Gateway) app(slug string) (App, bool) {
	i := slices.IndexFunc(g.cfg.Apps, func(a App) bool { return a.Slug == slug })
	if i < 0 {
		return App{}, false
	}
	return g.cfg.Apps[i], true
}

// depart makes the provider's page for a link whose person pressed the button. What the provider has before is noted first,
// so that the new account can be told from it.
func (g *Gateway) depart(ctx context.Context, secret store.Secret, link store.Link) (StartedConnect, error) {
	ctx, cancel := context.WithTimeout(ctx, providerPatience)
	defer cancel()
	external, provider := link.Membership.ExternalUser, g.connect(link.App)
	accounts, err := provider.Accounts(ctx, external, link.App)
	if err != nil {
		return StartedConnect{}, fmt.Errorf("listing accounts: %w", err)
	}
	before := []string{}
	for _, a := range accounts {
		before = append(before, a.ID)
	}
	in := StartConnect{
		ExternalUser: external,
		App:          link.App,
		Success:      g.returnURL("done", secret, link),
		Failure:      g.returnURL("failed", secret, link),
		TTL:          max(time.Minute, link.Expires.Sub(g.cfg.Now())),
	}
	if !g.cfg.WebhookSecret.IsZero() {
		in.Webhook = store.NewSecret(g.public.JoinPath("webhooks", "pipedream", g.cfg.WebhookSecret.Reveal()).String())
	}
	started, err := provider.StartConnect(ctx, in)
	if err != nil {
		return StartedConnect{}, fmt.Errorf("starting connect: %w", err)
	}
	if err := g.store.OpenLink(ctx, secret, started.Token, before); err != nil {
		return StartedConnect{}, fmt.Errorf("opening link: %w", err)
	}
	return started, nil
}

// returnURL is where the provider sends the browser back to. It carries a state that means something to nobody but says
// which language to speak and which link it was: the link's secret itself stays with the person.
func (g *Gateway) returnURL(end string, secret store.Secret, link store.Link) string {
	hash := secret.Hash()
	return g.public.JoinPath("connect", end, langOf(link.Membership)+"-"+hex.EncodeToString(hash[:])).String()
}

// lookSoon asks WatchConnections to look at once.
func (g *Gateway) lookSoon() {
	select {
	case g.look <- struct{}{}:
	default:
	}
}

// WatchConnections asks the provider for the accounts that people set out to connect, until ctx ends. Nothing a browser or
// webhook says about them is believed; both only make it look sooner.
func (g *Gateway) WatchConnections(ctx context.Context) error {
	if !g.connects() {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(g.cfg.WatchEvery)
	defer tick.Stop()
	for {
		if err := g.lookOnce(ctx); err != nil && ctx.Err() == nil {
			g.cfg.Log.Warn().Str("event", "connect.failed").Err(err).Send()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-g.look:
			breath := time.NewTimer(time.Second) // whoever asks for pages sets no pace
			select {
			case <-ctx.Done():
			case <-breath.C:
			}
			breath.Stop()
		}
	}
}

func (g *Gateway) lookOnce(ctx context.Context) error {
	links, err := g.store.OpenedLinks(ctx)
	if err != nil {
		return fmt.Errorf("reading opened links: %w", err)
	}
	var failed error
	for _, l := range links {
		failed = errors.Join(failed, g.offerNew(ctx, l)) // one provider's trouble must not stop the others' people
	}
	return failed
}

// offerNew offers the usable accounts that were not there when its person set off, each by itself, and mends those that
// were there and broken.
func (g *Gateway) offerNew(ctx context.Context, l store.OpenedLink) error {
	ctx, cancel := context.WithTimeout(ctx, providerPatience)
	defer cancel()
	provider := g.connect(l.Link.App)
	if provider.Accounts == nil {
		return nil // no longer offered: the link ends by itself
	}
	accounts, err := provider.Accounts(ctx, l.Link.Membership.ExternalUser, l.Link.App)
	if err != nil {
		return fmt.Errorf("listing accounts: %w", err)
	}
	if err := g.mendKnown(ctx, l, accounts); err != nil {
		return err
	}
	for _, a := range accounts {
		if !a.Usable || slices.Contains(l.Before, a.ID) {
			continue
		}
		offered := false
		card := func(acc store.Account) store.Draft { offered = true; return g.cfg.AccountCard(acc, l.Link) }
		err := g.store.OfferAccount(ctx, l.ID, a.ID, a.Name, card)
		switch {
		case errors.Is(err, store.ErrNotFound): // more than one link may bring
			g.cfg.Log.Warn().Str("event", "security.accounts_of_link").Str("app", l.Link.App).Send()
			return nil
		case err != nil:
			return fmt.Errorf("offering account: %w", err)
		case offered:
			g.cfg.Log.Info().Str("event", "account.offered").Str("company", string(l.Link.Membership.Company.ID)).
				Str("person", string(l.Link.Membership.Person.ID)).Str("app", l.Link.App).Send()
		}
	}
	return nil
}
