package pipedream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxCachedAccounts bounds the accounts believed for a minute; beyond it all are forgotten and looked up anew.
const maxCachedAccounts = 10_000

// errNoAccount says that the provider knows no such account in our project and environment.
var errNoAccount = errors.New("no such account")

// Account is one connected account as the provider has it now.
type Account struct {
	ID           string // apn_…: never shown to an agent
	ExternalUser string
	App          string // slug
	Name         string // untrusted
	Healthy      bool
	Dead         bool
	// OurFault says that the provider could not refresh the account because it refuses its own app registration: nothing
	// a person could mend by connecting again.
	OurFault bool
}

// Usable tells whether calls can be made with the account.
func (a Account) Usable() bool { return a.Healthy && !a.Dead }

// UnmarshalJSON reads an account loosely: old and documented shapes differ in everything but these fields.
func (a *Account) UnmarshalJSON(raw []byte) error {
	var in struct {
		ID         string `json:"id"`
		Name       any    `json:"name"`
		ExternalID any    `json:"external_id"`
		Healthy    any    `json:"healthy"`
		Dead       any    `json:"dead"`
		Error      any    `json:"error"`
		App        struct {
			Slug any `json:"name_slug"`
		} `json:"app"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	*a = Account{ID: in.ID, Healthy: in.Healthy == true, Dead: in.Dead == true}
	a.Name, _ = in.Name.(string)
	a.ExternalUser, _ = in.ExternalID.(string)
	a.App, _ = in.App.Slug.(string)
	problem, _ := in.Error.(string)
	problem = strings.ToLower(problem)
	a.OurFault = strings.Contains(problem, "invalid_client") || strings.Contains(problem, "invalid client")
	return nil
}

// accounts looks accounts up and believes them for a while.
type accounts struct {
	client *client
	ttl    time.Duration
	now    func() time.Time

	mu   sync.Mutex
	byID map[[2]string]seen // external user, account id
	sole map[[2]string]seen // external user, app: the list
}

// seen is what was looked up, and when.
type seen struct {
	accounts []Account
	at       time.Time
}

func newAccounts(c *client, cfg Config) *accounts {
	return &accounts{client: c, ttl: cfg.AccountTTL, now: cfg.Now, byID: map[[2]string]seen{}, sole: map[[2]string]seen{}}
}

// listQuery is the only place that addresses the account list: without an external user it would be everybody's.
func listQuery(externalUser, app string) (url.Values, error) {
	if externalUser == "" {
		return nil, errNoOwner
	}
	q := url.Values{"external_user_id": {externalUser}, "limit": {"100"}}
	if app != "" {
		q.Set("app", app)
	}
	return q, nil
}

// list gives a person's accounts of an app as they are now. It reads the paged form, and the bare and legacy ones too;
// the last page still has a cursor, so the end is also an empty page, a cursor seen before, or the total reached.
func (s *accounts) list(ctx context.Context, externalUser, app string) ([]Account, error) {
	q, err := listQuery(externalUser, app)
	if err != nil {
		return nil, err
	}
	var all []Account
	cursors := map[string]bool{}
	for range 20 {
		r, err := s.client.read(ctx, ask{method: http.MethodGet, path: s.client.inProject("accounts"), query: q})
		var raw json.RawMessage
		if err := expect(r, err, "listing accounts", &raw); err != nil {
			return nil, err
		}
		page, cursor, total, err := readAccounts(raw)
		if err != nil {
			return nil, err
		}
		for _, a := range page {
			known := slices.ContainsFunc(all, func(b Account) bool { return a.ID == b.ID })
			if !known && a.ExternalUser == externalUser && (app == "" || a.App == app) {
				all = append(all, a)
			}
		}
		if len(page) == 0 || cursor == "" || cursors[cursor] || total > 0 && len(all) >= total {
			break
		}
		cursors[cursor] = true
		q.Set("after", cursor)
	}
	s.remember([2]string{externalUser, app}, s.sole, all)
	return all, nil
}

// readAccounts reads one page in any of its forms.
func readAccounts(raw json.RawMessage) (page []Account, cursor string, total int, err error) {
	if json.Unmarshal(raw, &page) == nil {
		return page, "", 0, nil // bare array
	}
	var in struct {
		PageInfo struct {
			EndCursor  string `json:"end_cursor"`
			TotalCount int    `json:"total_count"`
		} `json:"page_info"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, "", 0, fmt.Errorf("listing accounts: decoding the answer: %w", err)
	}
	if json.Unmarshal(in.Data, &page) != nil {
		var legacy struct{ Accounts []Account }
		if err := json.Unmarshal(in.Data, &legacy); err != nil {
			return nil, "", 0, fmt.Errorf("listing accounts: decoding the answer: %w", err)
		}
		page = legacy.Accounts
	}
	return page, in.PageInfo.EndCursor, in.PageInfo.TotalCount, nil
}

// ofApp gives a person's usable and unusable accounts of an app, looked up within the last minute.
func (s *accounts) ofApp(ctx context.Context, externalUser, app string) ([]Account, error) {
	if got, ok := s.recall([2]string{externalUser, app}, s.sole); ok {
		return got, nil
	}
	return s.list(ctx, externalUser, app)
}

// get gives an account by its id, whoever it belongs to: the caller compares. Bare and wrapped answers are read.
func (s *accounts) get(ctx context.Context, externalUser, id string) (Account, error) {
	if externalUser == "" {
		return Account{}, errNoOwner
	}
	key := [2]string{externalUser, id}
	if got, ok := s.recall(key, s.byID); ok {
		return got[0], nil
	}
	r, err := s.client.read(ctx, ask{method: http.MethodGet, path: s.client.inProject("accounts", id)})
	if err == nil && r.status == http.StatusNotFound {
		return Account{}, errNoAccount
	}
	var in struct {
		Data *Account `json:"data"`
	}
	if err := expect(r, err, "reading an account", &in); err != nil {
		return Account{}, err
	}
	if in.Data == nil {
		in.Data = new(Account)
		if err := json.Unmarshal(r.body, in.Data); err != nil {
			return Account{}, fmt.Errorf("reading an account: decoding the answer: %w", err)
		}
	}
	if in.Data.ID != id {
		return Account{}, fmt.Errorf("reading an account: the answer is about another one: %w", errNoAccount)
	}
	if in.Data.ExternalUser == externalUser {
		s.remember(key, s.byID, []Account{*in.Data})
	}
	return *in.Data, nil
}

// delete makes the provider forget an account. One that is not there is no error; one of somebody else is not touched.
func (s *accounts) delete(ctx context.Context, externalUser, id string) error {
	s.forget(externalUser)
	a, err := s.get(ctx, externalUser, id)
	if errors.Is(err, errNoAccount) {
		return nil
	}
	if err != nil {
		return err
	}
	if a.ExternalUser != externalUser {
		return ErrForeign
	}
	// Deleting again does nothing more, so this may be repeated like a read.
	r, err := s.client.read(ctx, ask{method: http.MethodDelete, path: s.client.inProject("accounts", id)})
	s.forget(externalUser)
	if err != nil {
		return fmt.Errorf("deleting an account: %w", err)
	}
	if r.status != http.StatusNoContent && r.status != http.StatusOK && r.status != http.StatusNotFound {
		return &statusError{"deleting an account", r.status}
	}
	return nil
}

func (s *accounts) recall(key [2]string, from map[[2]string]seen) ([]Account, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got, ok := from[key]
	return got.accounts, ok && s.now().Sub(got.at) < s.ttl
}

func (s *accounts) remember(key [2]string, into map[[2]string]seen, found []Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(into) >= maxCachedAccounts {
		clear(into)
	}
	into[key] = seen{accounts: found, at: s.now()}
}

// forget drops what is believed of a person's accounts, after something showed that it is no longer true.
func (s *accounts) forget(externalUser string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range []map[[2]string]seen{s.byID, s.sole} {
		for key := range m {
			if key[0] == externalUser {
				delete(m, key)
			}
		}
	}
}
