package pipedream_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/gateway/pipedream"
	sim "pilder/sim/pipedream"
	"pilder/store"
)

// An account of another person is refused even where the provider would run it.
func TestAForeignAccountIsRefusedWhateverTheProviderThinks(t *testing.T) {
	for _, mode := range []bool{false, true} {
		h := open(t)
		h.sim.Set(func(s *sim.Switches) { s.RunsForeign = mode })
		for name, account := range map[string]string{"another person's": "apn_other01", "another app's": "apn_gmail01"} {
			r := h.send(gateway.Call{ID: "cal_7", Caller: caller(), Tool: createEvent, Args: json.RawMessage(lunch), Account: account})
			wantVerdict(t, r, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"})
			if !strings.Contains(h.log.String(), `"event":"security.foreign_account","call":"cal_7","company":"com_1","person":"per_1"`) {
				t.Errorf("%s account: no security event in %s", name, h.log)
			}
		}
		if got := h.performed(); len(got) != 0 {
			t.Errorf("performed %v", got)
		}
	}
}

func TestCallsWithoutAnOwnerGoNowhere(t *testing.T) {
	h := open(t)
	c := caller()
	c.ExternalUser = ""
	for _, account := range []string{"", "apn_gcal01"} {
		r := h.send(gateway.Call{Caller: c, Tool: createEvent, Args: json.RawMessage(lunch), Account: account})
		wantVerdict(t, r, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"})
	}
	if _, err := h.conn.Accounts(context.Background(), "", "gmail"); err == nil {
		t.Error("everybody's accounts were listed")
	}
	if _, err := h.conn.StartConnect(context.Background(), gateway.StartConnect{App: "gmail"}); err == nil {
		t.Error("a link for nobody was made")
	}
}

func TestAccountsInEveryState(t *testing.T) {
	for _, c := range []struct {
		name, tool, args, account string
		prepare                   func(*house)
		want                      verdict
	}{
		{"dead", "calendly_v2-list-event-types", `{}`, "apn_calendly01", nil, verdict{store.OutcomeFailed, "reconnect", "no", "person"}},
		{"unhealthy", "notion-get-current-user", `{}`, "apn_notion01", nil, verdict{store.OutcomeFailed, "reconnect", "no", "person"}},
		{"gone", createEvent, lunch, "apn_gone", nil, verdict{store.OutcomeFailed, "not_connected", "no", "person"}},
		{"none", "gmail-list-labels", `{}`, "", func(h *house) { _ = h.conn.DeleteAccount(context.Background(), "person-1", "apn_gmail01") },
			verdict{store.OutcomeFailed, "not_connected", "no", "person"}},
		{"only unhealthy ones", "gmail-list-labels", `{}`, "", func(h *house) { h.sim.SetHealth("apn_gmail01", false, false) },
			verdict{store.OutcomeFailed, "reconnect", "no", "person"}},
		{"several", "gmail-list-labels", `{}`, "", func(h *house) { h.sim.AddAccount("person-1", "gmail", "zwei@example.com") },
			verdict{store.OutcomeFailed, "choose_account", "no", "person"}},
		{"the only usable one", "notion-get-current-user", `{}`, "", nil, verdict{store.OutcomeDone, "ok", "", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
			if c.prepare != nil {
				c.prepare(h)
			}
			r := h.send(gateway.Call{Caller: caller(), Tool: c.tool, Args: json.RawMessage(c.args), Account: c.account})
			wantVerdict(t, r, c.want)
		})
	}
}

func TestAnAppThatIsNotConnectedIsNotCalled(t *testing.T) {
	h := open(t)
	c := caller()
	c.Apps = []string{"gmail"}
	r := h.send(gateway.Call{Caller: c, Tool: createEvent, Args: json.RawMessage(lunch)})
	wantVerdict(t, r, verdict{store.OutcomeFailed, "not_connected", "no", "person"})
	if n := len(h.asked()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestTheWrongEnvironmentLooksEmptyAndNothingRuns(t *testing.T) {
	h := open(t, func(s *sim.Config, _ *pipedream.Config) { s.Environment = "production" })
	wantVerdict(t, h.call(createEvent, lunch), verdict{store.OutcomeFailed, "not_connected", "no", "person"})
	r := h.send(gateway.Call{Caller: caller(), Tool: createEvent, Args: json.RawMessage(lunch), Account: "apn_gcal01"})
	wantVerdict(t, r, verdict{store.OutcomeFailed, "not_connected", "no", "person"})
	if got := h.performed(); len(got) != 0 {
		t.Errorf("performed %v", got)
	}
}

func TestTheAccountInUseDecidesWhenThereAreSeveral(t *testing.T) {
	var inUse string
	h := open(t, func(_ *sim.Config, c *pipedream.Config) {
		c.Account = func(_ context.Context, who gateway.Caller, app string) (string, error) {
			if who.Principal.Person != "per_1" || app != "gmail" {
				t.Errorf("asked for %s of %s", app, who.Principal.Person)
			}
			return inUse, nil
		}
	})
	inUse = h.sim.AddAccount("person-1", "gmail", "zwei@example.com")
	wantVerdict(t, h.call("gmail-list-labels", `{}`), verdict{store.OutcomeDone, "ok", "", ""})
	if got := h.sim.Ledger()[0].Account; got != inUse {
		t.Errorf("ran with %s", got)
	}
	inUse = ""
	wantVerdict(t, h.call("gmail-list-labels", `{}`), verdict{store.OutcomeFailed, "not_connected", "no", "person"})
}

func TestWithoutAnAccountInUseNothingIsAsked(t *testing.T) {
	var why error
	h := open(t, func(_ *sim.Config, c *pipedream.Config) {
		c.Account = func(context.Context, gateway.Caller, string) (string, error) { return "", why }
	})
	h.tools(caller())
	h.asked()
	for err, code := range map[error]string{gateway.ErrChooseAccount: "choose_account", gateway.ErrReconnect: "reconnect"} {
		why = err
		wantVerdict(t, h.call("gmail-list-labels", `{}`), verdict{store.OutcomeFailed, code, "no", "person"})
		wantVerdict(t, h.call("retrieve_options", calendars), verdict{store.OutcomeFailed, code, "no", "person"})
	}
	if got := h.asked(); len(got) != 0 {
		t.Errorf("requests were made: %v", got)
	}
}

func TestAnAccountIsBelievedForAMinuteAtMost(t *testing.T) {
	h := open(t)
	h.call("gmail-list-labels", `{}`)
	h.asked()
	h.call("gmail-list-labels", `{}`)
	if got := h.asked(); len(got) != 1 {
		t.Errorf("second call made requests %v, want the run alone", got)
	}
	h.sim.SetHealth("apn_gmail01", false, true)
	h.pass(61 * time.Second)
	wantVerdict(t, h.call("gmail-list-labels", `{}`), verdict{store.OutcomeFailed, "reconnect", "no", "person"})
}

func TestAnAccountTheProviderItselfLostIsTheOperatorsTrouble(t *testing.T) {
	h := open(t)
	body := `{"id":"apn_gmail01","name":null,"external_id":"person-1","healthy":false,"dead":null,"error":"Invalid Client","app":{"name_slug":"gmail"}}`
	h.mu.Lock()
	h.replace = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/accounts/apn_gmail01") {
			return false
		}
		_, _ = w.Write([]byte(body))
		return true
	}
	h.mu.Unlock()
	r := h.send(gateway.Call{Caller: caller(), Tool: "gmail-list-labels", Args: json.RawMessage(`{}`), Account: "apn_gmail01"})
	wantVerdict(t, r, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"})
	if !strings.Contains(h.log.String(), "app registration") {
		t.Error("the operator was not told")
	}
}
