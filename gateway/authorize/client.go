package authorize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"pilder/store"
)

// Paths of the public handler.
const (
	callbackPath = "/oauth/callback"
	documentPath = "/oauth/client.json"
)

// registerAgain is how long a registration that is refused stands before another one is tried: a server that refuses
// everybody would otherwise be registered at by every person who tries.
const registerAgain = 10 * time.Minute

// errNoClient: the server takes neither a client id metadata document nor registrations, and none is configured.
var errNoClient = errors.New("no client id is configured, and the server gives none")

// Ways a client proves itself at the token endpoint (RFC 7591 §2).
const (
	authNone  = "none"
	authBasic = "client_secret_basic"
	authPost  = "client_secret_post"
)

// client is who pilder is to one authorization server.
type client struct {
	ID     string `json:"client_id"`
	Secret string `json:"client_secret,omitempty"`
	Auth   string `json:"token_endpoint_auth_method"`
	// Expires is when the secret ends, in unix seconds; 0: never.
	Expires int64 `json:"client_secret_expires_at,omitempty"`
	// Callback is the redirect address it was registered with.
	Callback string `json:"callback,omitempty"`
}

// document is what pilder says of itself: its client id metadata document, and what it registers with (RFC 7591 §2).
type document struct {
	ClientID    string   `json:"client_id,omitempty"`
	Name        string   `json:"client_name"`
	URI         string   `json:"client_uri"`
	Redirects   []string `json:"redirect_uris"`
	Grants      []string `json:"grant_types"`
	Responses   []string `json:"response_types"`
	Auth        string   `json:"token_endpoint_auth_method"`
	Application string   `json:"application_type"`
}

func (k *Keeper) document() document {
	return document{
		Name: k.cfg.Name, URI: k.cfg.PublicURL, Redirects: []string{k.callback()}, Grants: []string{"authorization_code", "refresh_token"},
		Responses: []string{"code"}, Auth: authNone, Application: "web",
	}
}

func (k *Keeper) callback() string   { return k.cfg.PublicURL + callbackPath }
func (k *Keeper) documentID() string { return k.cfg.PublicURL + documentPath }

// serveDocument answers for pilder's client id (draft-ietf-oauth-client-id-metadata-document).
func (k *Keeper) serveDocument(w http.ResponseWriter, _ *http.Request) {
	d := k.document()
	d.ClientID = k.documentID()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_ = json.NewEncoder(w).Encode(d) // the server is gone: nobody to tell
}

// client gives who pilder is to a server: what the operator configured, else its document, else a registration. The
// operator's word comes first, as MCP has it too.
func (k *Keeper) client(ctx context.Context, app App, s server) (client, error) {
	if app.ClientID != "" {
		c := client{ID: app.ClientID, Secret: app.ClientSecret.Reveal(), Auth: authNone}
		if c.Secret != "" {
			c.Auth = authBasic // what a server takes that does not say (RFC 8414 §2)
			if len(s.AuthMethods) > 0 && !slices.Contains(s.AuthMethods, authBasic) {
				c.Auth = authPost
			}
		}
		return c, nil
	}
	if s.TakesClients {
		return client{ID: k.documentID(), Auth: authNone}, nil
	}
	if s.Register == "" {
		return client{}, fmt.Errorf("issuer %s: %w", hostOf(s.Issuer), errNoClient)
	}
	return k.registered(ctx, s)
}

// registered gives the one registration at a server, made when there is none that serves. Of several people who set off at
// once, one makes it; of several processes, the first one's counts.
func (k *Keeper) registered(ctx context.Context, s server) (client, error) {
	select {
	case k.registering <- struct{}{}:
		defer func() { <-k.registering }()
	case <-ctx.Done():
		return client{}, ctx.Err()
	}
	kept, instead, err := k.kept(ctx, s)
	if err != nil || kept.ID != "" {
		return kept, err
	}
	c, err := k.register(ctx, s)
	if err != nil {
		return client{}, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return client{}, err
	}
	counts, err := k.store.KeepOAuthClient(ctx, store.OAuthClient{Issuer: s.Issuer, ID: c.ID, Secret: store.NewSecret(string(text))}, instead)
	if err != nil {
		return client{}, err
	}
	k.cfg.Log.Info().Str("event", "oauth.registered").Str("issuer", hostOf(s.Issuer)).Send()
	return parseClient(counts.Secret)
}

// kept gives the registration that serves; its id is empty when there is none, and instead names the one that a new one
// replaces.
func (k *Keeper) kept(ctx context.Context, s server) (c client, instead string, err error) {
	all, err := k.store.OAuthClients(ctx, s.Issuer)
	if err != nil {
		return client{}, "", err
	}
	for _, known := range all {
		if known.Secret.IsZero() {
			continue // configured, or pilder's document
		}
		if !known.Refused.IsZero() {
			if k.cfg.Now().Sub(known.Created) < registerAgain {
				return client{}, "", fmt.Errorf("issuer %s refuses a registration it just gave: %w", hostOf(s.Issuer), ErrOperator)
			}
			continue
		}
		c, err := parseClient(known.Secret)
		if err != nil || c.Callback == k.callback() && (c.Expires == 0 || k.cfg.Now().Unix() < c.Expires) {
			return c, "", err
		}
		instead = known.ID
	}
	return client{}, instead, nil
}

func parseClient(text store.Secret) (c client, err error) {
	if json.Unmarshal([]byte(text.Reveal()), &c) != nil {
		return client{}, errors.New("a kept registration does not parse") // the decoder would quote it
	}
	return c, nil
}

// register registers pilder at a server (RFC 7591 §3).
func (k *Keeper) register(ctx context.Context, s server) (client, error) {
	r, err := k.postJSON(ctx, s.Register, k.document())
	if err != nil {
		return client{}, err
	}
	if r.status != http.StatusCreated && r.status != http.StatusOK {
		return client{}, fmt.Errorf("registering at %s: %w %d", hostOf(s.Register), errStatus, r.status)
	}
	c := client{}
	if json.Unmarshal(r.body, &c) != nil || c.ID == "" {
		return client{}, fmt.Errorf("registering at %s: %w", hostOf(s.Register), errContent)
	}
	c.Callback = k.callback()
	switch {
	case c.Secret == "":
		c.Auth = authNone
	case c.Auth == "":
		c.Auth = authBasic // the default of RFC 7591 §2
	case c.Auth != authBasic && c.Auth != authPost && c.Auth != authNone:
		return client{}, fmt.Errorf("registering at %s: %w", hostOf(s.Register), errContent)
	}
	return c, nil
}

// prove adds to a request at the token or revocation endpoint who is asking (RFC 6749 §2.3.1).
func (c client) prove(req *http.Request, form url.Values) {
	switch c.Auth {
	case authBasic:
		req.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret))
	case authPost:
		form.Set("client_id", c.ID)
		form.Set("client_secret", c.Secret)
	default:
		form.Set("client_id", c.ID)
	}
}

// refused notes that a server does not know pilder any more, and tells the operator once: it is nothing that a person could
// mend. A registration is made anew by the next person who connects.
func (k *Keeper) refused(ctx context.Context, issuer string, c client, app string) error {
	first, err := k.store.RefuseOAuthClient(ctx, issuer, c.ID)
	if err != nil {
		return err
	}
	if first {
		k.cfg.Log.Error().Str("event", "oauth.client_refused").Str("issuer", hostOf(issuer)).Str("app", app).Send()
	}
	return ErrOperator
}
