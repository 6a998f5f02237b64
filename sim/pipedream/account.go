package pipedream

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Account is one connected account as tests and the demo see it.
type Account struct {
	ID, ExternalUser, App, Name string
	Healthy, Dead               bool
}

// account is an Account with its environment, its times and the world behind it.
type account struct {
	Account
	environment string
	made        time.Time
	world       *world
}

// AccountOption changes a new account.
type AccountOption func(*account)

// WithID gives the account a fixed id.
func WithID(apn string) AccountOption { return func(a *account) { a.ID = apn } }

// Unhealthy makes an account whose refresh fails.
func Unhealthy() AccountOption { return func(a *account) { a.Healthy = false } }

// Dead makes an account the service has given up.
func Dead() AccountOption { return func(a *account) { a.Healthy, a.Dead = false, true } }

// InEnvironment puts the account into development or production.
func InEnvironment(env string) AccountOption { return func(a *account) { a.environment = env } }

// AddAccount connects an account without a link and gives its id, which is the same in every server for the same person,
// app and name. The name is what the person sees; for calendar and mail it is the address of its owner.
func (s *Server) AddAccount(externalUser, app, name string, opts ...AccountOption) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addAccount(externalUser, app, name, append([]AccountOption{InEnvironment(s.cfg.Environment)}, opts...)...).ID
}

// addAccount is AddAccount for callers that hold the lock.
func (s *Server) addAccount(externalUser, app, name string, opts ...AccountOption) *account {
	a := &account{Account: Account{ExternalUser: externalUser, App: app, Name: name, Healthy: true}, made: s.cfg.Now().UTC()}
	for _, o := range opts {
		o(a)
	}
	if a.ID == "" {
		same := 0
		for _, b := range s.accounts {
			if b.ExternalUser == externalUser && b.App == app && b.Name == name {
				same++
			}
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", externalUser, app, name, same))
		a.ID = "apn_" + hex.EncodeToString(sum[:5])
	}
	a.world = newWorld(app, name, s.cfg.Now())
	s.accounts = append(s.accounts, a)
	s.marker(a.ID)
	return a
}

// Accounts lists a person's accounts in both environments, oldest first.
func (s *Server) Accounts(externalUser string) []Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Account
	for _, a := range s.accounts {
		if a.ExternalUser == externalUser {
			out = append(out, a.Account)
		}
	}
	return out
}

// SetHealth changes whether an account can be used.
func (s *Server) SetHealth(apn string, healthy, dead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		if a.ID == apn {
			a.Healthy, a.Dead = healthy, dead
		}
	}
}

// seed makes the accounts of the fixtures' README.
func (s *Server) seed() {
	for _, a := range []struct {
		id, person, app, name string
		opts                  []AccountOption
	}{
		{"apn_gcal01", "person-1", "google_calendar", "person@example.com", nil},
		{"apn_gmail01", "person-1", "gmail", "person@example.com", nil},
		{"apn_notion01", "person-1", "notion", "First workspace", []AccountOption{Unhealthy()}},
		{"apn_notion02", "person-1", "notion", "Second workspace", nil},
		{"apn_calendly01", "person-1", "calendly_v2", "", []AccountOption{Dead()}},
		{"apn_calendly02", "person-1", "calendly_v2", "Example team", nil},
		{"apn_other01", "person-2", "google_calendar", "other@example.com", nil},
	} {
		s.AddAccount(a.person, a.app, a.name, append(a.opts, WithID(a.id))...)
	}
}

// find gives the account of that id in the environment of the request, or nil.
func (s *Server) find(r request, apn string) *account {
	i := slices.IndexFunc(s.accounts, func(a *account) bool { return a.ID == apn && a.environment == r.environment() })
	if i < 0 {
		return nil
	}
	return s.accounts[i]
}

// listAccounts answers GET accounts. Without external_user_id the real service lists everybody; violation has refused that.
func (s *Server) listAccounts(r request) answer {
	var all []any
	for _, a := range s.accounts {
		if a.environment == r.environment() && a.ExternalUser == r.query.Get("external_user_id") &&
			(r.query.Get("app") == "" || r.query.Get("app") == a.App) {
			all = append(all, s.accountJSON(a))
		}
	}
	page := s.page(r, all, "id")
	if s.switches.LegacyAccounts {
		page["data"] = object{"accounts": page["data"]}
	}
	return ok(page)
}

// accountsOfUser answers the bare, unpaged list of one person.
func (s *Server) accountsOfUser(r request, externalUser string) answer {
	if s.switches.LimitReached {
		return answer{status: http.StatusRequestEntityTooLarge, body: object{"error": "account_limit_reached",
			"message": "This external user has over 100 accounts; read them through the paged list."}}
	}
	all := []any{}
	for _, a := range s.accounts {
		if a.environment == r.environment() && a.ExternalUser == externalUser &&
			(r.query.Get("app") == "" || r.query.Get("app") == a.App) {
			all = append(all, s.accountJSON(a))
		}
	}
	return ok(all)
}

// getAccount answers any account of the project, whoever it belongs to: that is what the scope of a project token means.
func (s *Server) getAccount(r request, apn string) answer {
	a := s.find(r, apn)
	switch {
	case a == nil:
		return fail(http.StatusNotFound, "record not found")
	case s.switches.WrapAccount:
		return ok(object{"data": s.accountJSON(a)})
	}
	return ok(s.accountJSON(a))
}

// deleteAccount answers 204, with the account gone.
func (s *Server) deleteAccount(r request, apn string) answer {
	a := s.find(r, apn)
	if a == nil {
		return fail(http.StatusNotFound, "record not found")
	}
	s.accounts = slices.DeleteFunc(s.accounts, func(b *account) bool { return a == b })
	return answer{status: http.StatusNoContent}
}

// deleteUser erases one person: the only deletion of more than one account that pilder may ask for.
func (s *Server) deleteUser(r request, externalUser string) answer {
	s.accounts = slices.DeleteFunc(s.accounts, func(a *account) bool {
		return a.ExternalUser == externalUser && a.environment == r.environment()
	})
	return answer{status: http.StatusNoContent}
}

// accountJSON is the account as the API shows it. dead is null, false or true; name may be null.
func (s *Server) accountJSON(a *account) object {
	const layout = "2006-01-02T15:04:05.000Z"
	out := object{
		"id": a.ID, "name": a.Name, "external_id": a.ExternalUser, "healthy": a.Healthy, "dead": nil,
		"app": s.catalog.app(a.App), "created_at": a.made.Format(layout), "updated_at": a.made.Format(layout),
		"authorized_scopes": []any{}, "expires_at": a.made.Add(time.Hour).Format(layout), "error": nil,
		"last_refreshed_at": a.made.Format(layout), "next_refresh_at": a.made.Add(45 * time.Minute).Format(layout),
	}
	switch {
	case a.Name == "":
		out["name"] = nil
	case a.App == "gmail":
		out["dead"] = false
	}
	if a.Dead {
		out["dead"] = true
	}
	if !a.Healthy {
		out["error"], out["last_refreshed_at"], out["next_refresh_at"] = "invalid_grant: token was revoked", nil, nil
	}
	return out
}

// page cuts all to one page: 10 by default, 100 at most, cursors of base64url ids, an end_cursor on the last full page
// too, and null cursors on the empty page after it.
func (s *Server) page(r request, all []any, idField string) object {
	limit, err := strconv.Atoi(r.query.Get("limit"))
	if err != nil || limit < 1 {
		limit = 10
	}
	limit = min(limit, 100)
	cursor := func(v any) string {
		id, _ := v.(object)[idField].(string)
		return base64.RawURLEncoding.EncodeToString([]byte(id))
	}
	rest := all
	if after := r.query.Get("after"); after != "" && !s.switches.RepeatCursor {
		at := slices.IndexFunc(all, func(v any) bool { return cursor(v) == after })
		rest = all[at+1:]
	}
	data := append([]any{}, rest[:min(limit, len(rest))]...)
	info := object{"total_count": len(all), "count": len(data), "start_cursor": nil, "end_cursor": nil}
	if len(data) > 0 {
		info["start_cursor"], info["end_cursor"] = cursor(data[0]), cursor(data[len(data)-1])
	}
	if s.switches.WrongTotal {
		info["total_count"] = 1000 + len(all)
	}
	return object{"page_info": info, "data": data}
}
