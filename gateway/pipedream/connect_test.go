package pipedream_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/gateway"
	"pilder/gateway/pipedream"
	sim "pilder/sim/pipedream"
	"pilder/store"
)

func TestALinkConnectsTheAppForItsPersonAlone(t *testing.T) {
	h := open(t)
	ctx := context.Background()
	started, err := h.conn.StartConnect(ctx, gateway.StartConnect{ExternalUser: "person-3", App: "notion",
		Success: "https://pilder.example/connect/done?s=1", Failure: "https://pilder.example/connect/failed?s=1", TTL: 15 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v %+v %s", started, started, started.URL); len(h.sim.Inspect(text)) != 0 {
		t.Error("a connect token prints")
	}
	link, err := url.Parse(started.URL.Reveal())
	if err != nil || link.Query().Get("app") != "notion" || link.Query().Get("token") != started.Token.Reveal() {
		t.Fatalf("link without app or token, %v", err)
	}
	landing, err := h.sim.OpenLink(started.URL.Reveal(), "Espacio de trabajo")
	if err != nil || landing.Redirect != "https://pilder.example/connect/done?s=1" {
		t.Fatalf("%+v %v", landing, err)
	}
	got, err := h.conn.Accounts(ctx, "person-3", "notion")
	if diff := cmp.Diff([]gateway.ProviderAccount{{ID: landing.Account, Name: "Espacio de trabajo", Usable: true}}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := h.conn.Account(ctx, "person-1", landing.Account); !errors.Is(err, pipedream.ErrForeign) {
		t.Errorf("somebody else's account: %v", err)
	}
	c := caller()
	c.ExternalUser = "person-3"
	wantVerdict(t, h.send(gateway.Call{Caller: c, Tool: "notion-get-current-user", Args: []byte(`{}`)}), done)
}

func TestALinkIsShortLived(t *testing.T) {
	h := open(t)
	started, err := h.conn.StartConnect(context.Background(), gateway.StartConnect{ExternalUser: "person-3", App: "notion", TTL: 15 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	h.pass(15 * time.Minute)
	if _, err := h.sim.OpenLink(started.URL.Reveal(), "x"); !errors.Is(err, sim.ErrLinkUsed) {
		t.Errorf("after a quarter of an hour: %v", err)
	}
}

func TestOnlyOnesOwnAccountIsDeleted(t *testing.T) {
	h := open(t)
	ctx := context.Background()
	if err := h.conn.DeleteAccount(ctx, "person-1", "apn_other01"); !errors.Is(err, pipedream.ErrForeign) {
		t.Errorf("somebody else's: %v", err)
	}
	if len(h.sim.Accounts("person-2")) != 1 {
		t.Error("somebody else's account is gone")
	}
	for range 2 { // the second finds none, which is no error
		if err := h.conn.DeleteAccount(ctx, "person-1", "apn_gmail01"); err != nil {
			t.Error(err)
		}
	}
	wantVerdict(t, h.call("gmail-list-labels", `{}`), verdict{store.OutcomeFailed, "not_connected", "no", "person"})
}

func TestAccountListsOfAnyLengthAndFormEnd(t *testing.T) {
	for name, set := range map[string]func(*sim.Switches){
		"as documented":     func(*sim.Switches) {},
		"legacy":            func(s *sim.Switches) { s.LegacyAccounts = true },
		"a cursor for ever": func(s *sim.Switches) { s.RepeatCursor = true },
		"a wrong total":     func(s *sim.Switches) { s.WrongTotal = true },
		"unknown fields":    func(s *sim.Switches) { s.ExtraFields = true },
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			for i := range 150 {
				h.sim.AddAccount("person-4", "gmail", fmt.Sprintf("p%d@example.com", i))
			}
			h.sim.Set(set)
			want := 150
			if name == "a cursor for ever" {
				want = 100 // the second page is the first again
			}
			got, err := h.conn.Accounts(context.Background(), "person-4", "gmail")
			if err != nil || len(got) != want {
				t.Errorf("%d accounts, %v", len(got), err)
			}
		})
	}
}
