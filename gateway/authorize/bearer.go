package authorize

import (
	"context"
	"errors"
	"time"

	"pilder/gateway"
	"pilder/store"
)

// freshFor is how long a bearer counts as just issued: one that is refused then will not get better by renewing it.
const freshFor = time.Minute

// operatorPutOff is how long a server that refuses pilder itself is not asked again.
const operatorPutOff = 5 * time.Minute

// Bearer gives the access token for one request of a caller to an app's server: that of the account a call was frozen with
// (gateway.Call.Account) or, where none is named, of the one in use. It is renewed early, beside the calls, and once for all who
// need it. The errors say who can mend it.
func (k *Keeper) Bearer(ctx context.Context, c gateway.Caller, app, account string) (store.Secret, error) {
	cred, ks, err := k.of(ctx, c, app, account)
	if err != nil {
		return store.Secret{}, err
	}
	if !k.due(cred) {
		return store.NewSecret(ks.Access), nil
	}
	r := k.renew(ctx, cred)
	if k.good(cred) {
		return store.NewSecret(ks.Access), nil // a slow server costs nobody time while there is any
	}
	return r.wait(ctx)
}

// of reads the credential of a caller's account of an app. Empty: the one in use, or the one connected last where nobody says
// which that is.
func (k *Keeper) of(ctx context.Context, c gateway.Caller, app, account string) (store.Credential, keys, error) {
	if account == "" && k.cfg.Account != nil {
		var err error
		if account, err = k.cfg.Account(ctx, c, app); err == nil && account == "" {
			err = gateway.ErrReconnect
		}
		if err != nil {
			return store.Credential{}, keys{}, err
		}
	}
	return k.look(ctx, owner{c.Principal.Company, c.Principal.Membership, app}, store.CredentialID(account))
}

// Refused tells that a server refused the bearer of a caller's account with 401. nil: ask for another with Bearer, and try
// once more. A server that refuses a bearer just issued wants its person.
func (k *Keeper) Refused(ctx context.Context, c gateway.Caller, app, account string, bearer store.Secret) error {
	cred, ks, err := k.of(ctx, c, app, account)
	switch {
	case err != nil:
		return err
	case !bearer.Equal(store.NewSecret(ks.Access)):
		return nil // renewed meanwhile
	case ks.Refresh == "" || k.cfg.Now().Sub(cred.Issued) < freshFor && cred.Version > 1:
		return k.over(ctx, cred, "bearer_refused")
	}
	return k.store.RefuseCredential(ctx, cred)
}

// owner is whose credential for which app.
type owner struct {
	company    store.CompanyID
	membership store.MembershipID
	app        string
}

// look reads a credential that may be used.
func (k *Keeper) look(ctx context.Context, o owner, id store.CredentialID) (store.Credential, keys, error) {
	c, err := k.store.Credential(ctx, o.company, o.membership, o.app, id)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && c.Broken != "":
		return store.Credential{}, keys{}, gateway.ErrReconnect
	case err != nil:
		return store.Credential{}, keys{}, err
	}
	ks, err := openKeys(c.Secret)
	return c, ks, err
}

// good tells whether the access token may still be sent.
func (k *Keeper) good(c store.Credential) bool {
	return c.Refused.IsZero() && (c.Expires.IsZero() || k.cfg.Now().Before(c.Expires))
}

// due tells whether the access token should be renewed before it is sent again.
func (k *Keeper) due(c store.Credential) bool {
	if c.Expires.IsZero() || !c.Refused.IsZero() {
		return !k.good(c)
	}
	early := min(k.cfg.Early, c.Expires.Sub(c.Issued)/5)
	return !k.cfg.Now().Before(c.Expires.Add(-early))
}

// over records that a grant is over. Its person hears of it from the call that finds out, or from whoever looks after the
// accounts.
func (k *Keeper) over(ctx context.Context, c store.Credential, why string) error {
	first, err := k.store.BreakCredential(ctx, c, why)
	if err != nil {
		return err
	}
	if first {
		k.cfg.Log.Info().Str("event", "account.broken").Str("app", c.App).Str("company", string(c.Company)).
			Str("credential", string(c.ID)).Str("reason", why).Send()
	}
	return gateway.ErrReconnect
}
