package pipedream_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// office is a gateway with the connector in front of the stand-in, over a real store, and one member.
type office struct {
	*house
	store  *store.Store
	g      *gateway.Gateway
	member store.Membership
	poller store.Poller
	link   string // path of the last connect link
	taps   int64
	cards  []store.Account
}

func openOffice(t *testing.T, openStore func(store.Config) *store.Store) *office {
	t.Helper()
	o := &office{house: open(t)}
	clock := func() time.Time { o.mu.Lock(); defer o.mu.Unlock(); return o.house.now }
	o.store = openStore(store.Config{Now: clock})
	company, err := o.store.CreateCompany(t.Context(), store.Company{Name: "Empresa", Lang: "es"})
	if err == nil {
		o.member, err = o.store.AddMember(t.Context(), company.ID, store.Person{Telegram: 103, Name: "Mía", Lang: "es"}, policy.RoleMember)
	}
	if err == nil {
		o.poller, err = o.store.AcquirePoller(t.Context(), 77, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	note := func(text string) store.Draft {
		return store.Draft{Company: company.ID, Chat: store.Chat{ID: 103, Private: true}, Kind: store.DraftNotice, Notice: text}
	}
	o.g, err = gateway.New(gateway.Config{
		TokenKeys: []gateway.TokenKey{{ID: "k", Secret: store.NewSecret("a key of at least 32 bytes, for a test")}},
		Apps:      []gateway.App{{Slug: "notion", Name: policy.Text{ES: "Notion", EN: "Notion"}}}, PublicURL: "https://pilder.example", Connect: o.conn.Connect(),
		Card:    func(store.Approval, store.Approver) store.Draft { return store.Draft{} },
		Outcome: func(store.Approval, store.Outcome, string) []store.Draft { return nil },
		Lost:    func(store.CallView, store.Run) []store.Draft { return nil },
		LinkCard: func(c gateway.LinkCard) store.Draft {
			o.link = strings.TrimPrefix(c.URL.Reveal(), "https://pilder.example")
			return note("link")
		},
		AccountCard: func(a store.Account, _ store.Link) store.Draft {
			o.cards = append(o.cards, a)
			return note("yours? " + a.Name)
		},
		Accounts: gateway.AccountWords{
			Broken: func(a store.Account, _ store.Membership) store.Draft { return note("broken " + a.Name) },
			Mended: func(a store.Account, _ store.Membership) store.Draft { return note("mended " + a.Name) },
		},
		Now: clock, Log: zerolog.New(o.log),
	}, o.store, o.conn)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// browse is a browser on one of pilder's pages.
func (o *office) browse(method, path string) *httptest.ResponseRecorder {
	o.t.Helper()
	r := httptest.NewRequestWithContext(o.t.Context(), method, "https://pilder.example"+path, nil)
	r.Header.Set("Origin", "https://pilder.example")
	rec := httptest.NewRecorder()
	o.g.Public().ServeHTTP(rec, r)
	return rec
}

// connects lets somebody with the link connect an account of a name at the provider, and gives the page they end on.
func (o *office) connects(link, name string) string {
	o.t.Helper()
	gone := o.browse("POST", link)
	if gone.Code != http.StatusSeeOther {
		o.t.Fatalf("%d %s", gone.Code, gone.Body)
	}
	landing, err := o.sim.OpenLink(gone.Header().Get("Location"), name)
	if err != nil {
		o.t.Fatal(err)
	}
	back, err := url.Parse(landing.Redirect)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.browse("GET", back.Path).Body.String()
}

func (o *office) asksForLink() string {
	o.t.Helper()
	if err := o.g.RequestLink(o.t.Context(), store.UpdateRef{}, o.member, "notion", store.Chat{ID: 103, Private: true}); err != nil {
		o.t.Fatal(err)
	}
	return o.link
}

// confirms lets the member say that the last account offered is theirs.
func (o *office) confirms() {
	o.t.Helper()
	a := o.cards[len(o.cards)-1]
	o.taps++
	ref := store.UpdateRef{Bot: 77, UpdateID: o.taps}
	_, err := o.store.Receive(o.t.Context(), o.poller, []store.Arrival{{UpdateID: o.taps, Raw: []byte(`{}`), Kind: store.ArrivalControl,
		From: store.Person{Telegram: 103}, Chat: store.Chat{ID: 103, Private: true}}})
	if err == nil {
		_, _, err = o.store.ConfirmAccount(o.t.Context(), ref, a.ID, 103, true, nil)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// accounts are the member's accounts in use, by name and state.
func (o *office) accounts() map[string]store.AccountState {
	o.t.Helper()
	all, err := o.store.Accounts(o.t.Context(), o.member.Company.ID, o.member.ID)
	if err != nil {
		o.t.Fatal(err)
	}
	out := map[string]store.AccountState{}
	for _, a := range all {
		out[a.Name] = a.State
	}
	return out
}

// said empties the outbox.
func (o *office) said() (all []string) {
	o.t.Helper()
	for {
		r, ok, _, err := o.store.NextReply(o.t.Context(), o.poller)
		if err == nil && !ok {
			return all
		}
		if err == nil {
			err = errors.Join(o.store.MarkSending(o.t.Context(), o.poller, r.ID), o.store.MarkSent(o.t.Context(), o.poller, r.ID, int64(len(all)+1)))
		}
		if err != nil {
			o.t.Fatal(err)
		}
		all = append(all, r.Draft.Notice)
	}
}

func (o *office) wants(accounts map[string]store.AccountState, said ...string) {
	o.t.Helper()
	if diff := cmp.Diff(accounts, o.accounts()); diff != "" {
		o.t.Errorf("accounts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(said, o.said()); diff != "" {
		o.t.Errorf("said (-want +got):\n%s", diff)
	}
}

// check looks at every account again.
func (o *office) check() {
	o.t.Helper()
	o.pass(time.Hour)
	if err := o.g.CheckAccounts(context.Background()); err != nil {
		o.t.Fatal(err)
	}
}

func TestAnAccountFromItsLinkToItsRepair(t *testing.T) {
	storetest.Each(t, func(t *testing.T, openStore func(store.Config) *store.Store) {
		o := openOffice(t, openStore)
		link := o.asksForLink()
		if page := o.connects(link, "Notas de Mía"); !strings.Contains(page, "Notas de Mía") {
			t.Errorf("the page does not say which account was bound: %s", page)
		}
		o.wants(map[string]store.AccountState{}, "link", "yours? Notas de Mía")
		o.confirms()
		fine := map[string]store.AccountState{"Notas de Mía": store.AccountActive}
		o.wants(fine)
		apn := o.sim.Accounts(o.member.ExternalUser)[0].ID

		o.sim.SetHealth(apn, false, false)
		o.check()
		o.wants(map[string]store.AccountState{"Notas de Mía": store.AccountBroken}, "broken Notas de Mía")
		o.sim.SetHealth(apn, true, false)
		o.check()
		o.wants(fine, "mended Notas de Mía")

		o.pass(24 * time.Hour)
		o.sim.SetHealth(apn, false, true)
		o.check()
		o.connects(o.asksForLink(), "Notas de Mía") // the provider makes another account of it
		o.confirms()
		o.wants(fine, "broken Notas de Mía", "link", "yours? Notas de Mía")
		o.check()
		o.wants(fine)
	})
}

// TestAForwardedLinkBindsNothingByItself: whoever opens it connects their own account, sees so, and the link's owner is
// asked by that name.
func TestAForwardedLinkBindsNothingByItself(t *testing.T) {
	o := openOffice(t, storetest.Opener(t, "sqlite"))
	page := o.connects(o.asksForLink(), "Somebody else's notes")
	if !strings.Contains(page, "Somebody else&#39;s notes") || !strings.Contains(page, "confirma que es tuya") {
		t.Errorf("the page: %s", page)
	}
	o.wants(map[string]store.AccountState{}, "link", "yours? Somebody else's notes")
	// An account that simply appears at the provider is nobody's word either.
	o.sim.AddAccount(o.member.ExternalUser, "notion", "Slipped in")
	o.check()
	o.wants(map[string]store.AccountState{})
	if v := o.sim.Violations(); len(v) != 0 {
		t.Error(v)
	}
}
