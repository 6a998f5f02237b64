package pipedream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"pilder/store"
)

// scopes is the narrowest set that covers actions, accounts and connect tokens. That it suffices is inferred: the
// provider's OpenAPI document names no scope on these calls.
const scopes = "connect:actions:* connect:accounts:read connect:accounts:write connect:tokens:create"

// bearer keeps the project's access token: one request for it at a time, renewed before it dies.
type bearer struct {
	client *client
	id     string
	secret store.Secret

	lock  chan struct{} // holds one while somebody looks or asks
	token store.Secret
	renew time.Time // ask again from here on
	ends  time.Time
	// alarmed is when the operator was last told that the credentials are refused.
	alarmed time.Time
}

// get gives a living token. Whoever comes while one is asked for waits for it.
func (b *bearer) get(ctx context.Context) (store.Secret, error) {
	select {
	case b.lock <- struct{}{}:
	case <-ctx.Done():
		return store.Secret{}, ctx.Err()
	}
	defer func() { <-b.lock }()
	now := b.client.now()
	if !b.token.IsZero() && now.Before(b.renew) {
		return b.token, nil
	}
	token, life, err := b.request(ctx)
	if err != nil {
		if !b.token.IsZero() && now.Before(b.ends) {
			return b.token, nil // not renewed early; it still lives
		}
		return store.Secret{}, err
	}
	// As the provider's own client does: some minutes early, or at half the life of a short-lived one.
	early := 3 * time.Minute
	if life < 6*time.Minute {
		early = life / 2
	}
	b.token, b.renew, b.ends = token, now.Add(life-early), now.Add(life)
	return token, nil
}

// drop forgets a token the provider refused, unless it was replaced meanwhile.
func (b *bearer) drop(token store.Secret) {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	if b.token.Equal(token) {
		b.token = store.Secret{}
	}
}

// request asks for a token. A refusal is the operator's trouble, told once in five minutes and never to people.
func (b *bearer) request(ctx context.Context) (store.Secret, time.Duration, error) {
	r, err := b.client.send(ctx, ask{method: http.MethodPost, path: []string{"oauth", "token"}, body: map[string]string{
		"grant_type": "client_credentials", "client_id": b.id, "client_secret": b.secret.Reveal(), "scope": scopes,
	}}, store.Secret{})
	if err != nil {
		return store.Secret{}, 0, fmt.Errorf("asking for an access token: %w", err)
	}
	if r.status == http.StatusUnauthorized || r.status == http.StatusBadRequest || r.status == http.StatusForbidden {
		if now := b.client.now(); now.Sub(b.alarmed) >= 5*time.Minute {
			b.alarmed = now
			b.client.log.Error().Str("event", "pipedream.credentials_refused").Int("status", r.status).Send()
		}
		return store.Secret{}, 0, errCredentials
	}
	var got struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"`
	}
	if r.status != http.StatusOK {
		return store.Secret{}, 0, &statusError{"asking for an access token", r.status}
	}
	if json.Unmarshal(r.body, &got) != nil || got.AccessToken == "" {
		return store.Secret{}, 0, &statusError{"reading an access token", r.status}
	}
	life := time.Duration(got.ExpiresIn * float64(time.Second))
	if life <= 0 || life > 24*time.Hour {
		life = time.Hour
	}
	return store.NewSecret(got.AccessToken), life, nil
}
