package authorize_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/gateway/authorize"
	"pilder/sim/oauth"
	"pilder/store"
)

func TestAPersonConnectsAServerAndUsesItOnceTheySayItIsTheirs(t *testing.T) {
	for name, tt := range map[string]struct {
		vendor   oauth.Config
		app      authorize.App
		clientID func(w *world, id string) bool
	}{
		"by pilder's document": {oauth.Config{TakesDocuments: true, Registers: true}, authorize.App{},
			func(w *world, id string) bool { return id == w.publicURL+"/oauth/client.json" }},
		"by registration": {oauth.Config{Registers: true}, authorize.App{},
			func(_ *world, id string) bool { return strings.HasPrefix(id, "client_") }},
		"by what the operator configured": {oauth.Config{TakesDocuments: true, Clients: map[string]string{"pilder & co": "s:e&c"}},
			authorize.App{ClientID: "pilder & co", ClientSecret: store.NewSecret("s:e&c")},
			func(_ *world, id string) bool { return id == "pilder & co" }},
	} {
		t.Run(name, func(t *testing.T) {
			tt.vendor.Names = "linear.example"
			each(t, tt.vendor, func(t *testing.T, w *world) {
				w.cfg.Apps[0].ClientID, w.cfg.Apps[0].ClientSecret = tt.app.ClientID, tt.app.ClientSecret
				w.build(t)
				b := browser(t)
				status, page := w.press(t, b, w.sent(t, w.mia))
				q := query(t, page)
				if status != http.StatusSeeOther || !tt.clientID(w, q.Get("client_id")) || len(q.Get("state")) < 43 ||
					q.Get("resource") != w.vendorURL+"/mcp" || q.Get("scope") != "notes.read offline_access" || q.Get("code_challenge_method") != "S256" ||
					q.Get("redirect_uri") != w.publicURL+"/oauth/callback" || q.Get("prompt") != "consent" {
					t.Fatalf("%d %s %s", status, page, w.log.text())
				}
				if end := w.consent(t, b, page, "mia"); end != "done" {
					t.Fatal(end, w.log.text())
				}
				form := w.vendor.Forms("authorization_code")[0]
				sum := sha256.Sum256([]byte(form.Get("code_verifier")))
				same(t, q.Get("code_challenge"), base64.RawURLEncoding.EncodeToString(sum[:]))
				same(t, w.vendorURL+"/mcp", form.Get("resource"))

				w.until(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.offered) == 1 })
				a := w.offered[0]
				same(t, "Linear ("+strings.TrimPrefix(w.vendorURL, "http://")+") · mia@linear.example", a.Name)
				if _, err := w.bearer(t, w.mia); !errors.Is(err, gateway.ErrReconnect) {
					t.Errorf("before its person said so: %v", err)
				}
				w.confirm(t, w.mia, a, true)
				login, _ := w.whoami(t, need(w.bearer(t, w.mia))(t))
				same(t, "mia", login)
				same(t, []string(nil), w.vendor.Warnings())
			})
		})
	}
}

// TestAnAccountWithoutANameMendsNoOther: where the server does not say whose account it is, another one may be another's.
func TestAnAccountWithoutANameMendsNoOther(t *testing.T) {
	each(t, oauth.Config{Registers: true}, func(t *testing.T, w *world) {
		was := w.connect(t, w.mia, "mia")
		c := need(w.Credential(t.Context(), was.Company, was.Membership, "linear", ""))(t)
		need(w.BreakCredential(t.Context(), c, "grant_refused"))(t)
		need(w.MarkAccountBroken(t.Context(), was.Company, was.ID, "refused"))(t)
		w.clock.Advance(time.Minute)
		is := w.connect(t, w.mia, "abel")
		all := need(w.Accounts(t.Context(), was.Company, was.Membership))(t)
		states := map[store.AccountID]store.AccountState{}
		for _, a := range all {
			states[a.ID] = a.State
		}
		same(t, map[store.AccountID]store.AccountState{was.ID: store.AccountBroken, is.ID: store.AccountActive}, states)
		used := need(gateway.InUse(all, "linear"))(t)
		same(t, is.ID, used.ID) // calls need not wait for the one that does not work
	})
}

// TestAGrantOfNobodyIsRevokedAfterADay: whether its person never came to it, or the process that removed it did not.
func TestAGrantOfNobodyIsRevokedAfterADay(t *testing.T) {
	each(t, oauth.Config{Registers: true, Names: "linear.example"}, func(t *testing.T, w *world) {
		w.connect(t, w.abel, "abel")
		a := w.offer(t, w.mia, "mia")
		if _, _, err := w.ConfirmAccount(t.Context(), w.update(t, 103), a.ID, 103, false, nil); err != nil { // and nobody forgets it
			t.Fatal(err)
		}
		need(0, w.k.Tidy(t.Context()))(t)
		same(t, 0, len(w.vendor.Revoked()))
		w.clock.Advance(25 * time.Hour)
		need(0, w.k.Tidy(t.Context()))(t)
		need(0, w.k.Tidy(t.Context()))(t)
		same(t, 1, len(w.vendor.Revoked()))
		if _, err := w.Credential(t.Context(), w.abel.Company.ID, w.abel.ID, "linear", ""); err != nil {
			t.Error(err)
		}
	})
}

// TestAForwardedLinkBindsNobody: whoever opens a forwarded link connects an account that does nothing until the link's own
// person, who is shown which one it is, says that it is theirs. When they say no, the server is told as well.
func TestAForwardedLinkBindsNobody(t *testing.T) {
	each(t, oauth.Config{Registers: true, Names: "linear.example"}, func(t *testing.T, w *world) {
		a := w.offer(t, w.mia, "abel") // opened by Abel, who has consented as himself
		if !strings.Contains(a.Name, "abel@linear.example") || a.Membership != w.mia.ID || a.State != store.AccountOffered {
			t.Errorf("%+v", a)
		}
		for _, m := range []store.Membership{w.mia, w.abel} {
			if _, err := w.bearer(t, m); !errors.Is(err, gateway.ErrReconnect) {
				t.Error(err)
			}
		}
		if _, _, err := w.ConfirmAccount(t.Context(), w.update(t, 102), a.ID, 102, true, nil); !errors.Is(err, store.ErrNotYours) {
			t.Error(err)
		}
		w.confirm(t, w.mia, a, false)
		if _, err := w.bearer(t, w.mia); !errors.Is(err, gateway.ErrReconnect) {
			t.Error(err)
		}
		same(t, 1, len(w.vendor.Revoked()))
		same(t, []store.Credential(nil), need(w.Credentials(t.Context(), w.mia.ExternalUser, "linear"))(t))
	})
}

// TestAForwardedAuthorizationPageBindsNobody: the address of the authorization page, handed on past pilder's own page, does
// nothing in a browser that did not set off, and is still good in the one that did.
func TestAForwardedAuthorizationPageBindsNobody(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true})
	own := browser(t)
	_, page := w.press(t, own, w.sent(t, w.mia))
	same(t, "failed", w.consent(t, browser(t), page, "abel"))
	same(t, 0, len(w.vendor.Forms("authorization_code")))
	same(t, 1, w.log.count("security.oauth_foreign"))
	same(t, "done", w.consent(t, own, page, "mia"))
}

func TestTheWayBackIsCheckedBeforeACodeIsExchanged(t *testing.T) {
	for name, tt := range map[string]struct {
		faults oauth.Faults
		login  string
		alter  func(back string) string
		alarm  bool
	}{
		"another issuer (RFC 9207)":       {faults: oauth.Faults{Iss: "https://evil.example"}, alarm: true},
		"an issuer with a slash":          {faults: oauth.Faults{Iss: "ISSUER/"}, alarm: true},
		"no issuer where it is announced": {faults: oauth.Faults{Iss: "none"}, alarm: true},
		"another issuer where none is announced": {faults: oauth.Faults{Iss: "https://evil.example",
			Metadata: map[string]any{"authorization_response_iss_parameter_supported": nil}}, alarm: true},
		"two issuers":     {alter: func(back string) string { return back + "&iss=https%3A%2F%2Fevil.example" }, alarm: true},
		"another state":   {alter: func(back string) string { return strings.Replace(back, "state=", "state=x", 1) }},
		"two states":      {alter: func(back string) string { return back + "&state=x" }},
		"two codes":       {alter: func(back string) string { return back + "&code=x" }},
		"person declines": {login: "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			w := onSQLite(t, oauth.Config{Registers: true})
			tt.faults.Iss = strings.Replace(tt.faults.Iss, "ISSUER", w.vendorURL, 1)
			w.vendor.Set(tt.faults)
			b := browser(t)
			_, page := w.press(t, b, w.sent(t, w.mia))
			back := follow(t, b, page+"&login="+tt.login)
			if tt.alter != nil {
				back = tt.alter(back)
			}
			same(t, "failed", w.comeBack(t, b, back))
			same(t, 0, len(w.vendor.Forms("authorization_code")))
			same(t, []store.Credential(nil), need(w.Credentials(t.Context(), w.mia.ExternalUser, "linear"))(t))
			if tt.alarm != (w.log.count("security.oauth_foreign") == 1) {
				t.Error(w.log.text())
			}
		})
	}
}

func TestAStateComesBackOnce(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true})
	b := browser(t)
	_, page := w.press(t, b, w.sent(t, w.mia))
	back := follow(t, b, page)
	same(t, "done", w.comeBack(t, b, back))
	same(t, "failed", w.comeBack(t, b, back))
	same(t, 1, len(w.vendor.Forms("authorization_code")))
	same(t, 1, len(need(w.Credentials(t.Context(), w.mia.ExternalUser, "linear"))(t)))
}

func TestNothingIsFiledWhenTheTokensDoNotCome(t *testing.T) {
	for name, f := range map[string]oauth.Faults{
		"500":             {TokenStatus: 500},
		"an empty answer": {TokenStatus: 200},
		"refused":         {TokenError: "invalid_grant"},
	} {
		t.Run(name, func(t *testing.T) {
			w := onSQLite(t, oauth.Config{Registers: true})
			b := browser(t)
			_, page := w.press(t, b, w.sent(t, w.mia))
			w.vendor.Set(f)
			same(t, "failed", w.consent(t, b, page, "mia"))
			same(t, 1, len(w.vendor.Forms("authorization_code"))) // a code is never sent twice
			same(t, []store.Credential(nil), need(w.Credentials(t.Context(), w.mia.ExternalUser, "linear"))(t))
		})
	}
}

// TestG17_ReconnectingIsOneStepAndOneApp: a grant that is over is replaced by connecting again, as at first; what the person
// has at another server goes on meanwhile.
func TestG17_ReconnectingIsOneStepAndOneApp(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true, Rotates: true})
	w.cfg.Apps = append(w.cfg.Apps, authorize.App{Slug: "notes", Name: "Notes", URL: w.vendorURL + "/mcp"})
	w.build(t)
	w.app = "notes"
	w.connect(t, w.mia, "mia at notes")
	w.app = "linear"
	w.connect(t, w.mia, "mia")
	first := need(w.bearer(t, w.mia))(t)
	w.vendor.Withdraw("mia")
	w.clock.Advance(authorizeLife)
	if _, err := w.bearer(t, w.mia); !errors.Is(err, gateway.ErrReconnect) {
		t.Fatal(err)
	}
	w.app = "notes"
	login, _ := w.whoami(t, need(w.bearer(t, w.mia))(t))
	same(t, "mia at notes", login)
	w.app = "linear"
	w.connect(t, w.mia, "mia")
	again := need(w.bearer(t, w.mia))(t)
	login, _ = w.whoami(t, again)
	same(t, "mia", login)
	same(t, false, again.Equal(first))
}

// TestG46_AnAudienceIsSentWhereTheServerWantsOne is for servers that know no resource parameter (Auth0).
func TestG46_AnAudienceIsSentWhereTheServerWantsOne(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true, Audience: "https://api.linear.example"})
	w.cfg.Apps[0].Audience, w.cfg.Apps[0].NoResource = "https://api.linear.example", true
	w.build(t)
	w.connect(t, w.mia, "mia")
	w.clock.Advance(authorizeLife)
	need(w.bearer(t, w.mia))(t)
	for _, kind := range []string{"authorization_code", "refresh_token"} {
		form := w.vendor.Forms(kind)[0]
		if form.Get("audience") != "https://api.linear.example" || form.Has("resource") {
			t.Errorf("%s: %v", kind, form)
		}
	}
}

// TestG47_PilderRegistersOnceAtAServer: not once for each person, connection or process.
func TestPilderRegistersOnceAtAServer(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true})
	w.connect(t, w.mia, "mia")
	w.connect(t, w.abel, "abel")
	w.build(t)
	w.connect(t, w.mia, "mia")
	same(t, 1, w.vendor.Asked("/oauth/register"))

	w = onSQLite(t, oauth.Config{Registers: true})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			in := gateway.StartConnect{ExternalUser: w.mia.ExternalUser, App: "linear", TTL: time.Hour}
			if _, err := w.k.Connect()["linear"].StartConnect(t.Context(), in); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	same(t, 1, w.vendor.Asked("/oauth/register"))

	w = onSQLite(t, oauth.Config{Registers: true, TakesDocuments: true})
	w.connect(t, w.mia, "mia")
	same(t, 0, w.vendor.Asked("/oauth/register"))
}

func TestAServerThatTakesNoClientIsTheOperatorsToMend(t *testing.T) {
	w := onSQLite(t, oauth.Config{})
	status, _ := w.press(t, browser(t), w.sent(t, w.mia))
	same(t, http.StatusServiceUnavailable, status)
	if !strings.Contains(w.log.text(), "no client id is configured") {
		t.Error(w.log.text())
	}
}

func TestADisconnectedGrantIsRevoked(t *testing.T) {
	each(t, oauth.Config{Registers: true}, func(t *testing.T, w *world) {
		a := w.connect(t, w.mia, "mia")
		bearer := need(w.bearer(t, w.mia))(t)
		if err := w.g.ForgetAccount(t.Context(), w.abel, a); err != nil { // another's is not there
			t.Error(err)
		}
		same(t, 0, len(w.vendor.Revoked()))
		for range 2 {
			if err := w.g.ForgetAccount(t.Context(), w.mia, a); err != nil {
				t.Error(err)
			}
		}
		same(t, 1, len(w.vendor.Revoked()))
		if _, status := w.whoami(t, bearer); status != http.StatusUnauthorized {
			t.Error(status)
		}
		if _, err := w.bearer(t, w.mia); !errors.Is(err, gateway.ErrReconnect) {
			t.Error(err)
		}
	})
}
