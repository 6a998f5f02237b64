package authorize

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"pilder/gateway"
	"pilder/store"
)

// renewal is one on its way, and what came of it once done is closed.
type renewal struct {
	done   chan struct{}
	bearer store.Secret
	err    error
}

// renew sees to it that a bearer is renewed. One renewal of a credential runs at a time: in this process the others wait for
// its result, in another one for its row. It does not end with the patience of who began it: a pair that was issued must be
// kept.
func (k *Keeper) renew(ctx context.Context, c store.Credential) *renewal {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, runs := k.renewals[c.ID]
	if !runs {
		r = &renewal{done: make(chan struct{})}
		k.renewals[c.ID] = r
		go k.run(context.WithoutCancel(ctx), c, r) // Run waits for it
	}
	return r
}

func (r *renewal) wait(ctx context.Context) (store.Secret, error) {
	select {
	case <-r.done:
		return r.bearer, r.err
	case <-ctx.Done():
		return store.Secret{}, ctx.Err()
	}
}

// run runs one renewal.
func (k *Keeper) run(ctx context.Context, c store.Credential, r *renewal) {
	ctx, cancel := context.WithTimeout(ctx, k.lease())
	defer cancel()
	r.bearer, r.err = k.whoeverRenews(ctx, c)
	k.mu.Lock()
	delete(k.renewals, c.ID)
	k.mu.Unlock()
	close(r.done) // after it is out of the map: who finds it closed must not find it there
}

func (k *Keeper) lease() time.Duration { return leasePatiences * k.cfg.Patience }

// lookAgain is how often a credential that another process renews is looked at.
const lookAgain = 200 * time.Millisecond

// whoeverRenews gives the bearer after somebody has renewed it: this process when it gets the lease, else who has it.
func (k *Keeper) whoeverRenews(ctx context.Context, c store.Credential) (store.Secret, error) {
	for {
		c, ks, err := k.look(ctx, owner{c.Company, c.Membership, c.App}, c.ID)
		switch {
		case err != nil:
			return store.Secret{}, err
		case !k.due(c), k.cfg.Now().Before(c.PutOff) && k.good(c):
			return store.NewSecret(ks.Access), nil
		case k.cfg.Now().Before(c.PutOff):
			return store.Secret{}, k.whyPutOff(ctx, ks)
		case ks.Refresh == "" && k.good(c):
			return store.NewSecret(ks.Access), nil
		case ks.Refresh == "":
			return store.Secret{}, k.over(ctx, c, "expired")
		}
		lease, ok, err := k.store.LeaseCredential(ctx, c, k.lease())
		if err != nil {
			return store.Secret{}, err
		}
		if ok {
			return k.refresh(ctx, c, ks, lease)
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return store.Secret{}, ErrUnreachable
		}
	}
}

// whyPutOff tells what keeps a bearer from being renewed: pilder's own place at the server, or something that passes.
func (k *Keeper) whyPutOff(ctx context.Context, ks keys) error {
	all, err := k.store.OAuthClients(ctx, ks.Issuer)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.ID == ks.Client.ID && !c.Refused.IsZero() {
			return ErrOperator
		}
	}
	return ErrUnreachable
}

// refresh asks for a new pair under the lease, and files it before anybody uses it. The server's no ends the grant; that it
// could not be asked says nothing of the grant, and the old bearer serves for as long as it is good.
//
// When the answer is lost, the server may have ended the old pair for a new one that nobody has. It is asked once more with
// the old refresh token, at once: servers that forgive that do so for seconds only (RFC 9700 §4.14.2), and at one that does
// not forgive it the grant is over anyway.
func (k *Keeper) refresh(ctx context.Context, c store.Credential, ks keys, lease store.RenewalID) (store.Secret, error) {
	ask := func() (granted, error) {
		return k.ask(ctx, ks, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {ks.Refresh}})
	}
	g, err := ask()
	if isLost(err) {
		k.cfg.Log.Warn().Str("event", "oauth.answer_lost").Str("app", c.App).Str("company", string(c.Company)).Err(err).Send()
		g, err = ask()
	}
	switch {
	case err == nil:
		return k.file(ctx, c, ks.with(g), g.expires(k.cfg.Now()))
	case errors.Is(err, errGrant):
		return store.Secret{}, k.over(ctx, c, "grant_refused")
	case errors.Is(err, errClient):
		return k.putOff(ctx, c, ks, lease, operatorPutOff, k.refused(ctx, ks.Issuer, ks.Client, c.App))
	case errors.Is(err, errAsked):
		k.cfg.Log.Error().Str("event", "oauth.refused").Str("app", c.App).Str("issuer", hostOf(ks.Issuer)).Err(err).Send()
		return k.putOff(ctx, c, ks, lease, operatorPutOff, ErrOperator)
	default:
		k.cfg.Log.Warn().Str("event", "oauth.unreachable").Str("app", c.App).Str("issuer", hostOf(ks.Issuer)).Err(err).Send()
		return k.putOff(ctx, c, ks, lease, k.cfg.PutOff, ErrUnreachable)
	}
}

// isLost tells whether a request may have been acted upon without its answer being known.
func isLost(err error) bool {
	if err == nil || errors.Is(err, errNotSent) {
		return false
	}
	for _, answered := range []error{errStatus, errGrant, errClient, errAsked} {
		if errors.Is(err, answered) {
			return false
		}
	}
	return true
}

// file files a new pair and gives its bearer.
func (k *Keeper) file(ctx context.Context, c store.Credential, ks keys, expires time.Time) (store.Secret, error) {
	secret, err := ks.seal()
	if err != nil {
		return store.Secret{}, err
	}
	_, err = k.store.RenewCredential(ctx, c, secret, expires)
	switch {
	case errors.Is(err, store.ErrNotFound): // disconnected meanwhile
		k.revoke(ctx, c, ks)
		return store.Secret{}, gateway.ErrReconnect
	case errors.Is(err, store.ErrLost):
		_, ks, err = k.look(ctx, owner{c.Company, c.Membership, c.App}, c.ID)
	}
	if err != nil {
		return store.Secret{}, fmt.Errorf("filing a renewed credential: %w", err)
	}
	if err := k.store.AcceptOAuthClient(ctx, ks.Issuer, ks.Client.ID); err != nil {
		return store.Secret{}, err
	}
	return store.NewSecret(ks.Access), nil
}

// putOff lets nobody ask again for a while. The old bearer serves for as long as it is good.
func (k *Keeper) putOff(ctx context.Context, c store.Credential, ks keys, lease store.RenewalID, wait time.Duration, why error) (store.Secret, error) {
	if err := k.store.PutOffCredential(ctx, c, lease, k.cfg.Now().Add(wait)); err != nil {
		return store.Secret{}, err
	}
	if k.good(c) {
		return store.NewSecret(ks.Access), nil
	}
	return store.Secret{}, why
}
