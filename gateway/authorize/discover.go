package authorize

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Errors of discovery: each is the server's operator's to mend, or ours.
var (
	errNoMetadata = errors.New("no metadata of an authorization server")
	errResource   = errors.New("metadata is about another resource")
	errIssuer     = errors.New("metadata is of another issuer")
	errNoS256     = errors.New("server does not announce PKCE with S256")
)

// resource is what an upstream server says of itself (RFC 9728).
type resource struct {
	ID      string   `json:"resource"`
	Servers []string `json:"authorization_servers"`
	Scopes  []string `json:"scopes_supported"`
}

// server is what an authorization server says of itself (RFC 8414, RFC 9207, OpenID Connect Discovery).
type server struct {
	Issuer       string   `json:"issuer"`
	Authorize    string   `json:"authorization_endpoint"`
	Token        string   `json:"token_endpoint"`
	Register     string   `json:"registration_endpoint"`
	Revoke       string   `json:"revocation_endpoint"`
	Challenges   []string `json:"code_challenge_methods_supported"`
	AuthMethods  []string `json:"token_endpoint_auth_methods_supported"`
	Scopes       []string `json:"scopes_supported"`
	Prompts      []string `json:"prompt_values_supported"`
	SaysIssuer   bool     `json:"authorization_response_iss_parameter_supported"`
	TakesClients bool     `json:"client_id_metadata_document_supported"`
}

// discovered is all that is known of where a person gives their consent.
type discovered struct {
	resource resource
	server   server
	scopes   []string // of the challenge
}

// discover asks the upstream server who authorizes for it, and that one how.
func (k *Keeper) discover(ctx context.Context, app App) (discovered, error) {
	var d discovered
	challenge, err := k.challenge(ctx, app)
	if err != nil {
		return d, err
	}
	d.scopes = strings.Fields(challenge["scope"])
	at, err := wellKnown(app.URL, "oauth-protected-resource", true)
	if err != nil {
		return d, err
	}
	if named := challenge["resource_metadata"]; named != "" {
		at = slices.Insert(at, 0, named)
	}
	if d.resource, err = k.resource(ctx, app, at); err != nil {
		return d, err
	}
	d.server, err = k.server(ctx, d.resource.Servers[0])
	return d, err
}

// challenge asks the upstream server without a token, and gives what it says that is missing (RFC 6750, RFC 9728 §5). A
// server that does not ask for a token has its metadata looked for where it should be.
func (k *Keeper) challenge(ctx context.Context, app App) (map[string]string, error) {
	r, err := k.postJSON(ctx, app.URL, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "pilder", "version": "0"}}})
	if err != nil {
		return nil, err
	}
	if r.status != http.StatusUnauthorized {
		return nil, nil
	}
	return bearerChallenge(r.header.Values("WWW-Authenticate")), nil
}

// resource reads the upstream server's metadata at the first address that has it. It must be about the server asked for, or
// about a part of the same origin that the server lies in: many name their whole host. Without any, the server's origin is
// taken for its authorization server, as MCP had it until 2025-03-26.
func (k *Keeper) resource(ctx context.Context, app App, at []string) (resource, error) {
	for _, address := range at {
		var r resource
		found, err := k.getJSON(ctx, address, &r)
		if err != nil {
			return resource{}, err
		}
		if !found {
			continue
		}
		if !covers(r.ID, app.URL) {
			return resource{}, fmt.Errorf("metadata at %s: %w", hostOf(address), errResource)
		}
		if len(r.Servers) == 0 {
			return resource{}, fmt.Errorf("metadata at %s: %w", hostOf(address), errNoMetadata)
		}
		return r, nil
	}
	u, err := url.Parse(app.URL)
	if err != nil {
		return resource{}, errURL
	}
	return resource{ID: app.URL, Servers: []string{u.Scheme + "://" + u.Host}}, nil
}

// covers tells whether a resource is the server at address, or holds it.
func covers(id, address string) bool {
	if id == address {
		return true
	}
	r, err := url.Parse(id)
	u, err2 := url.Parse(address)
	if err != nil || err2 != nil || r.Scheme != u.Scheme || r.Host != u.Host || r.User != nil || r.RawQuery != "" || strings.Contains(id, "#") {
		return false
	}
	return strings.HasPrefix(u.EscapedPath()+"/", strings.TrimSuffix(r.EscapedPath(), "/")+"/")
}

// server reads an authorization server's metadata. The first document found counts: one that is not of this issuer, byte for
// byte, is no reason to look on but to stop (RFC 8414 §3.3).
func (k *Keeper) server(ctx context.Context, issuer string) (server, error) {
	if err := k.checkURL(issuer); err != nil {
		return server{}, fmt.Errorf("issuer: %w", err)
	}
	at, err := wellKnown(issuer, "oauth-authorization-server", false)
	if err != nil {
		return server{}, err
	}
	oidc, err := wellKnown(issuer, "openid-configuration", false)
	if err != nil {
		return server{}, err
	}
	at = append(at, oidc...)
	if u, _ := url.Parse(issuer); strings.Trim(u.Path, "/") != "" {
		at = append(at, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	}
	for _, address := range at {
		var s server
		found, err := k.getJSON(ctx, address, &s)
		if err != nil {
			return server{}, err
		}
		if found {
			return s, k.checkServer(s, issuer)
		}
	}
	return server{}, fmt.Errorf("issuer %s: %w", hostOf(issuer), errNoMetadata)
}

func (k *Keeper) checkServer(s server, issuer string) error {
	if s.Issuer != issuer {
		return fmt.Errorf("issuer %s: %w", hostOf(issuer), errIssuer)
	}
	if !slices.Contains(s.Challenges, "S256") {
		return fmt.Errorf("issuer %s: %w", hostOf(issuer), errNoS256)
	}
	for i, endpoint := range []string{s.Authorize, s.Token, s.Register, s.Revoke} {
		if endpoint == "" && i >= 2 {
			continue // optional
		}
		if err := k.checkURL(endpoint); err != nil {
			return fmt.Errorf("endpoint of %s: %w", hostOf(issuer), err)
		}
	}
	return nil
}

// wellKnown gives where a document about address may be: its path put behind the well-known one and, if orRoot, without it.
func wellKnown(address, document string, orRoot bool) ([]string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errURL
	}
	root := u.Scheme + "://" + u.Host + "/.well-known/" + document
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	if path == "" {
		return []string{root}, nil
	}
	at := []string{root + path}
	if orRoot {
		at = append(at, root)
	}
	return at, nil
}

// hostOf is the part of an address that a log may have.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "nowhere"
	}
	return u.Host
}
