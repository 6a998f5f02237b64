package authorize

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"pilder/store"
)

// Pages are what the public handler serves for Connect: pilder's client id metadata document, and the way back.
func (k *Keeper) Pages() map[string]http.Handler {
	return map[string]http.Handler{
		"GET " + documentPath: http.HandlerFunc(k.serveDocument),
		"GET " + callbackPath: http.HandlerFunc(k.comeBack),
	}
}

// Errors of the way back.
var (
	errBrowser  = errors.New("another browser came back")
	errMixUp    = errors.New("the answer is of another issuer")
	errDeclined = errors.New("the server gave no code")
)

// comeBack takes a browser back from the authorization page (RFC 6749 §4.1.2). It leads on at once to pages that say nothing
// of what came, so that no code stays in an address bar.
func (k *Keeper) comeBack(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	state := store.NewSecret(single(q, "state"))
	next := k.cfg.PublicURL + "/connect/failed/-"
	noted, err := k.store.Errand(r.Context(), state)
	if err == nil {
		next, err = k.finish(r, q, state, noted)
	}
	switch {
	case errors.Is(err, errBrowser), errors.Is(err, errMixUp):
		k.cfg.Log.Warn().Str("event", "security.oauth_foreign").Str("app", noted.App).Str("company", string(noted.Company)).Err(err).Send()
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, errDeclined):
	default:
		k.cfg.Log.Error().Str("event", "connect.failed").Str("app", noted.App).Str("company", string(noted.Company)).Err(err).Send()
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// finish ends an errand: it checks that the answer is of the issuer that was asked, and came to the browser that set off,
// exchanges the code, and files the grant. Nobody uses it before its person said that it is theirs.
func (k *Keeper) finish(r *http.Request, q url.Values, state store.Secret, noted store.Errand) (next string, err error) {
	var e errand
	if json.Unmarshal([]byte(noted.Notes.Reveal()), &e) != nil {
		return k.cfg.PublicURL + "/connect/failed/-", errors.New("an errand's notes do not parse")
	}
	if !k.setOff(r, state, e) {
		return e.Failure, errBrowser // its own may still come
	}
	if err := k.store.EndErrand(r.Context(), state); err != nil {
		return e.Failure, err
	}
	iss := single(q, "iss")
	if (len(q["iss"]) > 0 || e.SaysIss) && iss != e.Keys.Issuer { // RFC 9207 §2.4: as text
		return e.Failure, errMixUp
	}
	code := single(q, "code")
	if len(q["error"]) > 0 || code == "" {
		return e.Failure, errDeclined
	}
	// Whoever closes the page has consented all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*k.cfg.Patience)
	defer cancel()
	if err := k.exchange(ctx, noted, e, code); err != nil {
		return e.Failure, err
	}
	return e.Success, nil
}

// setOff tells whether the browser that comes back is the one that set off.
func (k *Keeper) setOff(r *http.Request, state store.Secret, e errand) bool {
	c, err := r.Cookie(k.cookie(state, "", time.Hour).Name)
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(c.Value))
	return subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(e.Browser)) == 1
}

// exchange exchanges the code for tokens, once (RFC 6749 §4.1.3), and files them.
func (k *Keeper) exchange(ctx context.Context, noted store.Errand, e errand, code string) error {
	app, ok := k.app(noted.App)
	if !ok {
		return fmt.Errorf("app %s is not offered any more", noted.App)
	}
	g, err := k.ask(ctx, e.Keys, url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {k.callback()},
		"code_verifier": {e.Verifier}})
	if errors.Is(err, errClient) {
		return errors.Join(err, k.refused(ctx, e.Keys.Issuer, e.Keys.Client, noted.App))
	}
	if err != nil {
		return err
	}
	if err := k.store.AcceptOAuthClient(ctx, e.Keys.Issuer, e.Keys.Client.ID); err != nil {
		return err
	}
	ks := e.Keys.with(g)
	secret, err := ks.seal()
	if err != nil {
		return err
	}
	id, err := k.store.FileCredential(ctx, noted, accountName(app, g.label(), k.cfg.Now()), secret, g.expires(k.cfg.Now()))
	if err != nil {
		return err
	}
	k.cfg.Log.Info().Str("event", "oauth.granted").Str("app", noted.App).Str("company", string(noted.Company)).
		Str("credential", string(id)).Bool("renewable", ks.Refresh != "").Send()
	return nil
}

// with are the keys after the server granted a pair. A server that does not rotate gives no new refresh token, and one that
// gives what was asked for need not name the scope (RFC 6749 §5.1, §6).
func (ks keys) with(g granted) keys {
	ks.Access = g.Access
	if g.Refresh != "" {
		ks.Refresh = g.Refresh
	}
	if g.Scope != "" {
		ks.Scope = g.Scope
	}
	return ks
}

// single gives a parameter that is there exactly once, else nothing (RFC 6749 §3.1).
func single(q url.Values, name string) string {
	if len(q[name]) != 1 {
		return ""
	}
	return q[name][0]
}
