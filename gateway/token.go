package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"pilder/policy"
	"pilder/store"
)

// The private door of every run, as seen from inside its sandbox, and what its tokens say of themselves.
const (
	DoorURL     = "http://127.0.0.1:7000/mcp"
	tokenIssuer = "pilder"
	tokenLife   = time.Hour
	minKeyBytes = 32 // an HS256 key shorter than its hash can be guessed from one token
)

// TokenKey is one key of the ring that signs run tokens.
type TokenKey struct {
	ID     string       // the token's kid: any short text, unique in the ring
	Secret store.Secret // at least 32 bytes
}

// Errors of checkToken. Any other error of it means that the token was not made by this ring for a door.
var (
	errTokenExpired = errors.New("run token expired")
	errTokenForeign = errors.New("run token of another run")
	errTokenBefore  = errors.New("run token of the conversation's run before")
)

// claims are what a run token says. It names exactly one run; everything else must agree with that run's row.
type claims struct {
	jwt.RegisteredClaims
	Company    policy.CompanyID    `json:"company"`
	Membership policy.MembershipID `json:"membership"`
	Person     policy.PersonID     `json:"person"`
	Run        policy.RunID        `json:"run"`
	Fence      int64               `json:"fence"`
	Scopes     []policy.Scope      `json:"scopes"`

	Conversation store.ConversationID `json:"conversation"`
}

// MintToken makes the run's token. It dies with the run's expiry, at most one hour from now, and is worth something only
// at the run's own door and while the run lives.
func (g *Gateway) MintToken(run store.Run) (store.Secret, error) {
	now := g.cfg.Now()
	expires := now.Add(tokenLife)
	if !run.Expires.IsZero() && run.Expires.Before(expires) {
		expires = run.Expires
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    tokenIssuer,
			Audience:  jwt.ClaimStrings{DoorURL},
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(expires),
		},
		Company:      run.Principal.Company,
		Membership:   run.Principal.Membership,
		Person:       run.Principal.Person,
		Run:          run.ID,
		Fence:        run.Fence,
		Conversation: run.Conversation,
		Scopes:       run.Principal.Scopes,
	})
	key := g.cfg.TokenKeys[0]
	token.Header["kid"] = key.ID
	signed, err := token.SignedString([]byte(key.Secret.Reveal()))
	if err != nil {
		return store.Secret{}, fmt.Errorf("signing token of run %s: %w", run.ID, err)
	}
	return store.NewSecret(signed), nil
}

// checkToken tells whether a text is this very run's own token, still good by the clock, and until when. Whether the run
// still lives is not said in the token.
func (g *Gateway) checkToken(text string, run store.Run) (expires time.Time, err error) {
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithIssuer(tokenIssuer),
		jwt.WithAudience(DoorURL),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithTimeFunc(g.cfg.Now),
	)
	var c claims
	_, err = parser.ParseWithClaims(text, &c, func(t *jwt.Token) (any, error) {
		for _, k := range g.cfg.TokenKeys {
			if t.Header["kid"] == k.ID {
				return []byte(k.Secret.Reveal()), nil
			}
		}
		return nil, errors.New("unknown key id")
	})
	switch {
	case errors.Is(err, jwt.ErrTokenSignatureInvalid), errors.Is(err, jwt.ErrTokenUnverifiable), errors.Is(err, jwt.ErrTokenMalformed):
		return expires, err
	case errors.Is(err, jwt.ErrTokenExpired):
		return expires, errTokenExpired
	case err != nil:
		return expires, err
	}
	p := run.Principal
	if c.Company == p.Company && c.Membership == p.Membership && c.Conversation == run.Conversation &&
		c.Run != run.ID && c.Fence < run.Fence {
		return expires, errTokenBefore
	}
	if c.Run != run.ID || c.Fence != run.Fence || c.Company != p.Company || c.Membership != p.Membership ||
		c.Person != p.Person || !slices.Equal(c.Scopes, p.Scopes) {
		return expires, errTokenForeign
	}
	return c.ExpiresAt.Time, nil
}

// alive tells whether this run, and not a later attempt at its turn, is running; one that was handed in as prepared may also
// still be that. BeginCall has the last word on calls.
func (g *Gateway) alive(ctx context.Context, run store.Run) (bool, error) {
	live, err := g.store.LiveRun(ctx, run.ID)
	switch {
	case err == nil:
		return live.Fence == run.Fence, nil
	case !errors.Is(err, store.ErrNotFound):
		return false, err
	case run.State != store.RunPrepared:
		return false, nil
	}
	view, err := g.store.RunByID(ctx, run.ID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && view.State == store.RunPrepared, err
}

func checkKeys(keys []TokenKey) error {
	if len(keys) == 0 {
		return errors.New("gateway config: no token key")
	}
	seen := map[string]bool{}
	for _, k := range keys {
		if k.ID == "" || seen[k.ID] {
			return fmt.Errorf("gateway config: token key id %q is empty or doubled", k.ID)
		}
		if len(k.Secret.Reveal()) < minKeyBytes {
			return fmt.Errorf("gateway config: token key %q is shorter than %d bytes", k.ID, minKeyBytes)
		}
		seen[k.ID] = true
	}
	return nil
}
