package gateway

import (
	"context"
	"time"

	"pilder/store"
)

// Connect asks the provider of connected apps about one membership's accounts. The external user always comes from the
// store, never from a request.
type Connect struct {
	// StartConnect makes a connect token and the provider's page for one person and app.
	StartConnect func(ctx context.Context, in StartConnect) (StartedConnect, error)
	// Accounts lists the external user's accounts of an app as the provider has them now.
	Accounts func(ctx context.Context, externalUser, app string) ([]ProviderAccount, error)
	// DeleteAccount makes the provider forget an account; one that is not there is no error.
	DeleteAccount func(ctx context.Context, externalUser, account string) error
}

// StartConnect is what a connect token is made for.
type StartConnect struct {
	ExternalUser string
	App          string
	Success      string       // where the browser ends when it worked
	Failure      string       // and when it did not
	Webhook      store.Secret // address the provider may call; zero for none
	TTL          time.Duration
}

// StartedConnect is the provider's answer: both parts let somebody bind an account, so both are secret.
type StartedConnect struct {
	Token store.Secret
	URL   store.Secret // the provider's page for exactly this app
}

// ProviderAccount is an account as the provider has it.
type ProviderAccount struct {
	ID     string
	Name   string // untrusted
	Usable bool   // healthy, not dead, of the asked external user and environment
}

// LinkCard is what Config.LinkCard needs to word a connect link.
type LinkCard struct {
	Member store.Membership
	App    App
	Chat   store.Chat
	URL    store.Secret
	TTL    time.Duration
}
