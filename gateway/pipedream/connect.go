package pipedream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"pilder/gateway"
	"pilder/store"
)

// Errors of the functions about accounts.
var (
	// ErrForeign says that an account belongs to somebody else.
	ErrForeign = errors.New("account of another person")
	// ErrNoSuchAccount says that the provider has no such account.
	ErrNoSuchAccount = errNoAccount
)

// Connect gives the functions the gateway's connect pages need.
func (c *Connector) Connect() gateway.Connect {
	return gateway.Connect{StartConnect: c.StartConnect, Accounts: c.Accounts, DeleteAccount: c.DeleteAccount}
}

// StartConnect makes a connect token and its link for one app. The provider's address is taken as it comes, since its
// host may change; only the app is added.
func (c *Connector) StartConnect(ctx context.Context, in gateway.StartConnect) (gateway.StartedConnect, error) {
	if in.ExternalUser == "" {
		return gateway.StartedConnect{}, errNoOwner
	}
	body := map[string]any{"external_user_id": in.ExternalUser}
	for name, value := range map[string]string{
		"success_redirect_uri": in.Success, "error_redirect_uri": in.Failure, "webhook_uri": in.Webhook.Reveal(),
	} {
		if value != "" {
			body[name] = value
		}
	}
	if in.TTL > 0 {
		body["expires_in"] = int(min(max(in.TTL, time.Minute), 4*time.Hour).Seconds())
	}
	r, err := c.client.once(ctx, ask{method: http.MethodPost, path: c.client.inProject("tokens"), body: body}, c.cfg.ReadTimeout)
	var got struct {
		Token string `json:"token"`
		Link  string `json:"connect_link_url"`
	}
	if err := expect(r, err, "making a connect token", &got); err != nil {
		return gateway.StartedConnect{}, err
	}
	link, err := url.Parse(got.Link)
	if got.Token == "" || err != nil || link.Host == "" || (link.Scheme != "https" && link.Scheme != "http") {
		return gateway.StartedConnect{}, fmt.Errorf("making a connect token: %w", errNoLink)
	}
	q := link.Query()
	q.Set("app", in.App)
	link.RawQuery = q.Encode()
	c.accounts.forget(in.ExternalUser)
	return gateway.StartedConnect{Token: store.NewSecret(got.Token), URL: store.NewSecret(link.String())}, nil
}

var errNoLink = errors.New("the answer holds no usable link")

// Accounts lists a person's accounts of an app as the provider has them now.
func (c *Connector) Accounts(ctx context.Context, externalUser, app string) ([]gateway.ProviderAccount, error) {
	found, err := c.accounts.list(ctx, externalUser, app)
	if err != nil {
		return nil, err
	}
	out := make([]gateway.ProviderAccount, 0, len(found))
	for _, a := range found {
		out = append(out, gateway.ProviderAccount{ID: a.ID, Name: clean(a.Name, 100), Usable: a.Usable(), OurFault: a.OurFault})
	}
	return out, nil
}

// Account gives one of a person's accounts as it is now. ErrForeign: it is somebody else's; ErrNoSuchAccount: there is none.
func (c *Connector) Account(ctx context.Context, externalUser, id string) (Account, error) {
	c.accounts.forget(externalUser)
	a, err := c.accounts.get(ctx, externalUser, id)
	if err == nil && a.ExternalUser != externalUser {
		return Account{}, ErrForeign
	}
	return a, err
}

// DeleteAccount makes the provider forget one of a person's accounts; one that is not there is no error.
func (c *Connector) DeleteAccount(ctx context.Context, externalUser, id string) error {
	return c.accounts.delete(ctx, externalUser, id)
}
