package authorize

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"pilder/gateway"
	"pilder/store"
)

// Errors of the token endpoint (RFC 6749 §5.2).
var (
	errGrant  = errors.New("the server refuses the grant")
	errClient = errors.New("the server refuses the client")
	errAsked  = errors.New("the server refuses the request")
)

// maxToken bounds a token: it has to fit into a header.
const maxToken = 16 << 10

// keys are a grant as it is kept, sealed: the tokens, and what is needed to renew and to revoke them without asking for
// metadata again. They are bound to the issuer that gave them.
type keys struct {
	Access   string `json:"access"`
	Refresh  string `json:"refresh,omitempty"`
	Issuer   string `json:"issuer"`
	Token    string `json:"token_endpoint"`
	Revoke   string `json:"revocation_endpoint,omitempty"`
	Resource string `json:"resource,omitempty"`
	Audience string `json:"audience,omitempty"`
	Scope    string `json:"scope,omitempty"`
	Client   client `json:"client"`
}

func (ks keys) seal() (store.Secret, error) {
	text, err := json.Marshal(ks)
	return store.NewSecret(string(text)), err
}

func openKeys(secret store.Secret) (ks keys, err error) {
	if json.Unmarshal([]byte(secret.Reveal()), &ks) != nil {
		return keys{}, errors.New("a kept credential does not parse") // the decoder would quote it
	}
	return ks, nil
}

// granted is what the token endpoint answers (RFC 6749 §5.1).
type granted struct {
	Access  string          `json:"access_token"`
	Type    string          `json:"token_type"`
	Refresh string          `json:"refresh_token"`
	Scope   string          `json:"scope"`
	Life    json.RawMessage `json:"expires_in"` // seconds; some write them as text
	ID      string          `json:"id_token"`
}

// ask sends a form to the token endpoint as the grant's client, with what the grant is for, and reads the answer. It changes
// nothing that is kept.
func (k *Keeper) ask(ctx context.Context, ks keys, form url.Values) (granted, error) {
	if ks.Resource != "" {
		form.Set("resource", ks.Resource)
	}
	if ks.Audience != "" {
		form.Set("audience", ks.Audience)
	}
	r, err := k.postForm(ctx, ks.Token, ks.Client, form)
	if err != nil {
		return granted{}, err
	}
	if r.status != http.StatusOK {
		return granted{}, fmt.Errorf("token endpoint of %s: %w", hostOf(ks.Token), tokenError(r))
	}
	var g granted
	if json.Unmarshal(r.body, &g) != nil || !fitsHeader(g.Access) || len(g.Refresh) > maxToken || !strings.EqualFold(g.Type, "bearer") {
		return granted{}, fmt.Errorf("token endpoint of %s: %w", hostOf(ks.Token), errContent)
	}
	return g, nil
}

// postForm sends a form as a client.
func (k *Keeper) postForm(ctx context.Context, address string, c client, form url.Values) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return reply{}, errURL
	}
	c.prove(req, form)
	body := form.Encode()
	req.Body, req.ContentLength = readCloser{strings.NewReader(body)}, int64(len(body))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	return k.send(req)
}

// readCloser is a body that was given whole. Without GetBody the transport cannot send it twice.
type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// tokenError reads why the token endpoint refused. What it says in words is not read: it is another's text.
func tokenError(r reply) error {
	var said struct {
		Error string `json:"error"`
	}
	refused := r.status >= 400 && r.status < 500 && r.status != http.StatusTooManyRequests && json.Unmarshal(r.body, &said) == nil
	switch {
	case refused && said.Error == "invalid_grant":
		return errGrant
	case refused && (said.Error == "invalid_client" || said.Error == "unauthorized_client"):
		return errClient
	case refused && said.Error != "" && said.Error != "temporarily_unavailable" && said.Error != "server_error" && said.Error != "slow_down":
		return errAsked
	}
	return fmt.Errorf("%w %d", errStatus, r.status)
}

// fitsHeader tells whether a token can be sent as it is (RFC 6750 §2.1).
func fitsHeader(token string) bool {
	return token != "" && len(token) <= maxToken && strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// expires is when the access token ends; zero when the server does not say.
func (g granted) expires(now time.Time) time.Time {
	seconds, err := strconv.ParseFloat(strings.Trim(string(g.Life), `"`), 64)
	const most = 10 * 365 * 24 * 3600
	if err != nil || seconds <= 0 || seconds > most {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds * float64(time.Second)))
}

// label is what an ID token calls the account. It came from the token endpoint itself, over TLS (OpenID Connect Core
// §3.1.3.7), but is only ever shown to the person, who is asked whether the account is theirs.
func (g granted) label() string {
	parts := strings.Split(g.ID, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Email    string `json:"email"`
		Username string `json:"preferred_username"`
		Name     string `json:"name"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return ""
	}
	for _, said := range []string{claims.Email, claims.Username, claims.Name} {
		if clean := gateway.OneLine(said, maxLabel); clean != "" {
			return clean
		}
	}
	return ""
}

// maxLabel bounds a label in characters.
const maxLabel = 80
