package authorize

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"pilder/gateway"
	"pilder/store"
)

// Connect lets people connect these apps as they do all others: with their own link, button and question.
func (k *Keeper) Connect() map[string]gateway.Connect {
	all := map[string]gateway.Connect{}
	for _, a := range k.cfg.Apps {
		all[a.Slug] = gateway.Connect{StartConnect: k.startConnect, Accounts: k.accounts, DeleteAccount: k.deleteAccount}
	}
	return all
}

// errand is what the way back from the authorization page needs: whom to ask for the tokens, and as who.
type errand struct {
	Keys     keys   `json:"keys"` // all but the tokens
	Verifier string `json:"verifier"`
	Browser  string `json:"browser"` // SHA-256 of the cookie, hex
	SaysIss  bool   `json:"says_iss"`
	Success  string `json:"success"`
	Failure  string `json:"failure"`
}

// startConnect makes the address of the authorization page for one person (RFC 6749 §4.1.1 with PKCE, RFC 7636, and the
// resource, RFC 8707). The state comes back once, to the browser that has the cookie.
func (k *Keeper) startConnect(ctx context.Context, in gateway.StartConnect) (gateway.StartedConnect, error) {
	app, ok := k.app(in.App)
	if !ok {
		return gateway.StartedConnect{}, fmt.Errorf("app %s has no upstream server with OAuth", in.App)
	}
	d, err := k.discover(ctx, app)
	if err != nil {
		return gateway.StartedConnect{}, fmt.Errorf("discovering who authorizes for %s: %w", in.App, err)
	}
	c, err := k.client(ctx, app, d.server)
	if err != nil {
		return gateway.StartedConnect{}, err
	}
	state, verifier, browser := store.RandomSecret(""), store.RandomSecret(""), store.RandomSecret("")
	hash := browser.Hash()
	e := errand{
		Keys: keys{Issuer: d.server.Issuer, Token: d.server.Token, Revoke: d.server.Revoke, Audience: app.Audience, Client: c,
			Scope: strings.Join(scopes(app, d), " ")},
		Verifier: verifier.Reveal(), Browser: hex.EncodeToString(hash[:]), SaysIss: d.server.SaysIssuer, Success: in.Success, Failure: in.Failure,
	}
	if !app.NoResource {
		e.Keys.Resource = d.resource.ID
	}
	notes, err := json.Marshal(e)
	if err != nil {
		return gateway.StartedConnect{}, err
	}
	if err := k.store.BeginErrand(ctx, in.ExternalUser, in.App, state, store.NewSecret(string(notes)), in.TTL); err != nil {
		return gateway.StartedConnect{}, err
	}
	page, err := k.page(d.server, e, state)
	if err != nil {
		return gateway.StartedConnect{}, err
	}
	return gateway.StartedConnect{Token: state, URL: page, Cookie: k.cookie(state, browser.Reveal(), in.TTL)}, nil
}

// page is the address of the authorization page.
func (k *Keeper) page(s server, e errand, state store.Secret) (store.Secret, error) {
	u, err := url.Parse(s.Authorize)
	if err != nil {
		return store.Secret{}, errURL
	}
	sum := sha256.Sum256([]byte(e.Verifier))
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": e.Keys.Client.ID, "redirect_uri": k.callback(), "state": state.Reveal(),
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256",
		"resource": e.Keys.Resource, "audience": e.Keys.Audience, "scope": e.Keys.Scope, "prompt": prompt(s, e.Keys.Scope),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	u.RawQuery = q.Encode()
	return store.NewSecret(u.String()), nil
}

// scopes are what is asked for: least is what the challenge names. offline_access, without which some servers give no
// refresh token, is never in a challenge and is asked for where the server has it.
func scopes(app App, d discovered) []string {
	if len(app.Scopes) > 0 {
		return app.Scopes
	}
	asked := d.scopes
	if len(asked) == 0 {
		asked = d.resource.Scopes
	}
	const offline = "offline_access"
	if slices.Contains(d.server.Scopes, offline) && !slices.Contains(asked, offline) {
		asked = append(slices.Clone(asked), offline)
	}
	return asked
}

// prompt lets a person choose their account where the server can ask, and consent where a refresh token depends on it
// (OpenID Connect Core §11).
func prompt(s server, scope string) string {
	var all []string
	if slices.Contains(strings.Fields(scope), "offline_access") {
		all = append(all, "consent")
	}
	if slices.Contains(s.Prompts, "select_account") {
		all = append(all, "select_account")
	}
	return strings.Join(all, " ")
}

// cookie marks the browser that sets off, so that an authorization page's address that somebody hands on binds nobody else's
// account. Each errand has its own: a person may be on two at once.
func (k *Keeper) cookie(state store.Secret, value string, ttl time.Duration) *http.Cookie {
	secure := strings.HasPrefix(k.cfg.PublicURL, "https:")
	hash := state.Hash()
	name := "pilder-" + hex.EncodeToString(hash[:8])
	if secure {
		name = "__Host-" + name
	}
	// Lax, not strict: the way back is another site's redirect.
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(ttl.Seconds()), Secure: secure, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// accounts gives an external user's grants of an app. One that is over is no account to offer.
func (k *Keeper) accounts(ctx context.Context, externalUser, app string) ([]gateway.ProviderAccount, error) {
	all, err := k.store.Credentials(ctx, externalUser, app)
	if err != nil {
		return nil, err
	}
	var accounts []gateway.ProviderAccount
	for _, c := range all {
		accounts = append(accounts, gateway.ProviderAccount{ID: string(c.ID), Name: c.Name, Usable: c.Broken == ""})
	}
	return accounts, nil
}

// deleteAccount forgets a grant, and has its server revoke it if it will (RFC 7009): what is forgotten here serves nobody any
// more whatever the server answers.
func (k *Keeper) deleteAccount(ctx context.Context, externalUser, account string) error {
	c, err := k.store.TakeCredential(ctx, externalUser, store.CredentialID(account))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.revokeTaken(ctx, c)
}

// revokeTaken revokes a credential that the store has given for the last time.
func (k *Keeper) revokeTaken(ctx context.Context, c store.Credential) error {
	ks, err := openKeys(c.Secret)
	if err != nil {
		return err
	}
	k.revoke(context.WithoutCancel(ctx), c, ks)
	return nil
}

// Tidy revokes every grant that its person never said was theirs, or whose removal was cut off. Run does so every hour.
func (k *Keeper) Tidy(ctx context.Context) error {
	for {
		c, err := k.store.TakeCredentialOfNobody(ctx)
		if err == nil {
			err = k.revokeTaken(ctx, c)
		}
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// revoke ends a grant at its server: the refresh token first, which should take the other with it.
func (k *Keeper) revoke(ctx context.Context, c store.Credential, ks keys) {
	if ks.Revoke == "" {
		return
	}
	for hint, token := range map[string]string{"refresh_token": ks.Refresh, "access_token": ks.Access} {
		if token == "" || hint == "access_token" && ks.Refresh != "" {
			continue
		}
		r, err := k.postForm(ctx, ks.Revoke, ks.Client, url.Values{"token": {token}, "token_type_hint": {hint}})
		if err == nil && r.status != http.StatusOK {
			err = fmt.Errorf("%w %d", errStatus, r.status)
		}
		if err != nil {
			k.cfg.Log.Warn().Str("event", "oauth.not_revoked").Str("app", c.App).Str("company", string(c.Company)).Err(err).Send()
		}
	}
}

// accountName is what a person is shown: whose server it is, which the operator says, then what the server calls the account
// or, where it does not say, when it was connected. A new account mends a broken one of its name, and no two that may be
// different people's are called the same.
func accountName(app App, label string, now time.Time) string {
	if label == "" {
		label = now.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return app.Name + " (" + hostOf(app.URL) + ") · " + label
}
