package pipedream_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"pilder/sim/pipedream"
)

// hooks collects webhooks.
type hooks struct {
	mu   sync.Mutex
	seen []map[string]any
}

func (h *hooks) serve(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen = append(h.seen, body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func (h *hooks) all() []map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]map[string]any(nil), h.seen...)
}

// link makes a connect link of person-3.
func (w *world) link(webhook string) string {
	w.t.Helper()
	status, body := w.call("POST", "/v1/connect/proj_test1/tokens", `{"external_user_id":"person-3","expires_in":900,
		"success_redirect_uri":"https://gateway.example.com/ok?s=1","error_redirect_uri":"https://gateway.example.com/no?s=1","webhook_uri":"`+webhook+`"}`)
	if status != 200 {
		w.t.Fatalf("token: %d", status)
	}
	return body.(map[string]any)["connect_link_url"].(string) + "&app=gmail"
}

func TestALinkConnectsOnceCallsTheWebhookAndRedirects(t *testing.T) {
	w, h := start(t), &hooks{}
	link := w.link(h.serve(t))
	landing, err := w.sim.OpenLink(link, "tres@example.com")
	if err != nil || landing.Redirect != "https://gateway.example.com/ok?s=1" {
		t.Fatalf("landing %+v, %v", landing, err)
	}
	got := h.all()
	if len(got) != 1 || got[0]["event"] != "CONNECTION_SUCCESS" {
		t.Fatalf("webhooks %v", got)
	}
	if a := got[0]["account"].(map[string]any); a["id"] != landing.Account || a["external_id"] != "person-3" {
		t.Errorf("webhook names %v", a)
	}
	if _, err := w.sim.OpenLink(link, "otra@example.com"); !errors.Is(err, pipedream.ErrLinkUsed) {
		t.Errorf("second use: %v", err)
	}
	if n := len(w.sim.Accounts("person-3")); n != 1 {
		t.Errorf("%d accounts, want 1", n)
	}
}

func TestThePageDoesWhatOpenLinkDoes(t *testing.T) {
	w, h := start(t), &hooks{}
	link := w.link(h.serve(t))
	resp, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err = client.PostForm(link, url.Values{"name": {"tres@example.com"}, "do": {"connect"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "https://gateway.example.com/ok?s=1" {
		t.Errorf("page answered %d to %s", resp.StatusCode, resp.Header.Get("Location"))
	}
	if len(h.all()) != 1 || len(w.sim.Accounts("person-3")) != 1 {
		t.Errorf("webhooks %d, accounts %d", len(h.all()), len(w.sim.Accounts("person-3")))
	}
}

func TestARefusedLinkConnectsNothing(t *testing.T) {
	w, h := start(t), &hooks{}
	landing, err := w.sim.RefuseLink(w.link(h.serve(t)))
	if err != nil || !strings.Contains(landing.Redirect, "/no?") || len(w.sim.Accounts("person-3")) != 0 {
		t.Errorf("landing %+v, %v", landing, err)
	}
	if got := h.all(); len(got) != 1 || got[0]["event"] != "CONNECTION_ERROR" {
		t.Errorf("webhooks %v", got)
	}
}

func TestWebhooksGoWrongOnDemand(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*pipedream.Switches)
		want int
	}{
		{"never", func(s *pipedream.Switches) { s.WebhookNever = true }, 0},
		{"twice", func(s *pipedream.Switches) { s.WebhookTwice = true }, 2},
		{"late", func(s *pipedream.Switches) { s.WebhookLate = true }, 0},
		{"after", func(s *pipedream.Switches) { s.WebhookAfter = true }, 1},
		{"forged", func(s *pipedream.Switches) { s.WebhookForged = true }, 1},
		{"odd documented shape", func(s *pipedream.Switches) { s.WebhookDocs = true }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, h := start(t), &hooks{}
			w.sim.Set(c.set)
			landing, err := w.sim.OpenLink(w.link(h.serve(t)), "tres@example.com")
			if err != nil {
				t.Fatal(err)
			}
			got := h.all()
			if len(got) != c.want {
				t.Fatalf("%d webhooks, want %d", len(got), c.want)
			}
			switch c.name {
			case "late":
				if w.sim.FlushWebhooks(); len(h.all()) != 1 {
					t.Error("the late webhook did not come")
				}
			case "forged":
				if a := got[0]["account"].(map[string]any); a["id"] == landing.Account {
					t.Error("the forged webhook names the right account")
				}
			case "odd documented shape":
				if a := got[0]["account"].(map[string]any); a["app"].(map[string]any)["categories"] != "Productivity" {
					t.Errorf("%v", a)
				}
			}
		})
	}
}
