package authorize_test

import (
	"context"
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

// authorizeLife is how long the stand-in's access tokens live.
const authorizeLife = time.Hour

// TestG14_ABearerThatEndsIsRenewedOrItsPersonAsked: renewed before its end; told once when the server refuses the grant; and
// a server that cannot be asked is no reason to ask the person.
func TestG14_ABearerThatEndsIsRenewedOrItsPersonAsked(t *testing.T) {
	each(t, oauth.Config{Registers: true, Rotates: true}, func(t *testing.T, w *world) {
		w.connect(t, w.mia, "mia")
		first := need(w.bearer(t, w.mia))(t)
		w.clock.Advance(authorizeLife - 3*time.Minute)
		if !need(w.bearer(t, w.mia))(t).Equal(first) {
			t.Error("renewed far too early")
		}
		w.clock.Advance(2 * time.Minute)
		if !need(w.bearer(t, w.mia))(t).Equal(first) {
			t.Error("waited for a renewal that nobody needed yet")
		}
		w.settle(t)
		second := need(w.bearer(t, w.mia))(t)
		if second.Equal(first) {
			t.Error("not renewed early")
		}
		same(t, w.vendorURL+"/mcp", w.vendor.Forms("refresh_token")[0].Get("resource"))

		w.clock.Advance(authorizeLife - time.Minute)
		w.vendor.Set(oauth.Faults{TokenStatus: 503})
		for range 3 { // the old one is good yet, and the server is not asked each time
			if !need(w.bearer(t, w.mia))(t).Equal(second) {
				t.Error("another bearer")
			}
			w.settle(t)
		}
		same(t, 2, len(w.vendor.Forms("refresh_token")))
		w.clock.Advance(time.Minute)
		for range 3 {
			if _, err := w.bearer(t, w.mia); !errors.Is(err, authorize.ErrUnreachable) {
				t.Error(err)
			}
		}
		same(t, 3, len(w.vendor.Forms("refresh_token")))
		w.vendor.Set(oauth.Faults{})
		w.clock.Advance(time.Minute)
		login, _ := w.whoami(t, need(w.bearer(t, w.mia))(t))
		same(t, "mia", login)
		same(t, 0, w.brokenOnes())

		w.vendor.Withdraw("mia")
		w.clock.Advance(authorizeLife)
		for range 3 {
			if _, err := w.bearer(t, w.mia); !errors.Is(err, gateway.ErrReconnect) {
				t.Error(err)
			}
		}
		same(t, 1, w.brokenOnes())
		same(t, 5, len(w.vendor.Forms("refresh_token")))
		accounts := need(w.k.Connect()["linear"].Accounts(t.Context(), w.mia.ExternalUser, "linear"))(t)
		if len(accounts) != 1 || accounts[0].Usable {
			t.Errorf("%+v", accounts)
		}
	})
}

// TestG15_OneRefreshAtATime: a hundred calls that need a new bearer at once, in two processes where the database allows it,
// cost one refresh of a server that ends the grant at the second. All wait for its result.
func TestG15_OneRefreshAtATime(t *testing.T) {
	each(t, oauth.Config{Registers: true, Rotates: true}, func(t *testing.T, w *world) {
		w.connect(t, w.mia, "mia")
		old := need(w.bearer(t, w.mia))(t)
		w.clock.Advance(authorizeLife)
		keepers := []*authorize.Keeper{w.k, w.k}
		if strings.HasSuffix(t.Name(), "postgres") {
			keepers[1] = need(authorize.New(w.cfg, w.open(store.Config{Now: w.clock.Now})))(t)
		}
		hold, held := make(chan struct{}), make(chan struct{}, 1000)
		w.vendor.Set(oauth.Faults{Hold: hold, Held: held})
		var mu sync.Mutex
		got := map[string]int{}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				bearer, err := keepers[i%2].Bearer(t.Context(), caller(w.mia), "linear", "")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[bearer.Reveal()]++
			})
		}
		<-held // one is there, and the others have all the time to come
		close(hold)
		all.Wait()
		same(t, 1, len(w.vendor.Forms("refresh_token")))
		if len(got) != 1 || got[old.Reveal()] != 0 {
			t.Errorf("%d bearers", len(got))
		}
		for bearer := range got {
			login, _ := w.whoami(t, store.NewSecret(bearer))
			same(t, "mia", login)
		}
	})
}

// TestG16_APersonsCallsCarryThatPersonsBearer, as an upstream server that records it sees them, whatever runs at once.
func TestG16_APersonsCallsCarryThatPersonsBearer(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true, Rotates: true})
	w.connect(t, w.mia, "mia")
	w.connect(t, w.abel, "abel")
	for range 3 {
		w.clock.Advance(authorizeLife)
		var all sync.WaitGroup
		for i := range 20 {
			m, login := w.mia, "mia"
			if i%2 == 1 {
				m, login = w.abel, "abel"
			}
			all.Go(func() {
				bearer, err := w.k.Bearer(t.Context(), caller(m), "linear", "")
				if err != nil {
					t.Error(err)
					return
				}
				if got, _ := w.whoami(t, bearer); got != login {
					t.Errorf("%s's call was %q's", login, got)
				}
			})
		}
		all.Wait()
	}
	// Nor does another's account, named outright, help.
	if _, err := w.k.Bearer(t.Context(), caller(w.abel), "linear", w.offered[0].Provider); !errors.Is(err, gateway.ErrReconnect) {
		t.Error(err)
	}
	if _, err := w.k.Bearer(t.Context(), caller(w.mia), "linear", w.offered[0].Provider); err != nil {
		t.Error(err)
	}
}

// TestG19_ALostRegistrationIsTheOperatorsTrouble: one alarm, nobody is asked to connect again, and the next who connects gets
// a new registration made, once.
func TestG19_ALostRegistrationIsTheOperatorsTrouble(t *testing.T) {
	each(t, oauth.Config{Registers: true, Rotates: true}, func(t *testing.T, w *world) {
		w.connect(t, w.mia, "mia")
		w.connect(t, w.abel, "abel")
		w.vendor.Forget()
		w.clock.Advance(authorizeLife)
		for range 2 {
			for _, m := range []store.Membership{w.mia, w.abel} {
				if _, err := w.bearer(t, m); !errors.Is(err, authorize.ErrOperator) {
					t.Error(err)
				}
			}
		}
		same(t, 2, len(w.vendor.Forms("refresh_token")))
		same(t, 1, w.log.count("oauth.client_refused"))
		same(t, 0, w.brokenOnes())
		for _, m := range []store.Membership{w.mia, w.abel} {
			accounts := need(w.k.Connect()["linear"].Accounts(t.Context(), m.ExternalUser, "linear"))(t)
			same(t, true, accounts[0].Usable)
		}

		w.connect(t, w.mia, "mia")
		login, _ := w.whoami(t, need(w.bearer(t, w.mia))(t))
		same(t, "mia", login)
		w.connect(t, w.abel, "abel")
		same(t, 2, w.vendor.Asked("/oauth/register"))

		// A server that refuses what it just gave is not registered at by everybody who tries.
		w.vendor.Forget()
		w.clock.Advance(authorizeLife)
		if _, err := w.bearer(t, w.mia); !errors.Is(err, authorize.ErrOperator) {
			t.Error(err)
		}
		w.connect(t, w.mia, "mia")
		w.vendor.Forget()
		b := browser(t)
		_, page := w.press(t, b, w.sent(t, w.abel))
		if to := follow(t, b, page); to != "" { // the vendor shows its own error page
			t.Error(to)
		}
		same(t, 3, w.vendor.Asked("/oauth/register"))
	})
}

// TestG42_RefreshingWorksWheneverTried, with a life of seconds too.
func TestRefreshingWorksWheneverTried(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true, Rotates: true, Life: 10 * time.Second})
	w.connect(t, w.mia, "mia")
	for range 20 {
		w.clock.Advance(7 * time.Second)
		login, _ := w.whoami(t, need(w.bearer(t, w.mia))(t))
		same(t, "mia", login)
		w.settle(t)
	}
}

func TestALostAnswerIsAskedForOnceMore(t *testing.T) {
	for name, tt := range map[string]struct {
		vendor oauth.Config
		want   error
	}{
		"a server that forgives it":        {oauth.Config{Registers: true, Rotates: true, Grace: time.Minute}, nil},
		"a server that does not rotate":    {oauth.Config{Registers: true}, nil},
		"a server that takes it for theft": {oauth.Config{Registers: true, Rotates: true}, gateway.ErrReconnect},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, tt.vendor, func(t *testing.T, w *world) {
				w.connect(t, w.mia, "mia")
				w.clock.Advance(authorizeLife)
				w.vendor.Set(oauth.Faults{Lose: 1})
				bearer, err := w.bearer(t, w.mia)
				if !errors.Is(err, tt.want) {
					t.Fatal(err)
				}
				same(t, 2, len(w.vendor.Forms("refresh_token")))
				same(t, tt.want != nil, w.brokenOnes() == 1)
				if tt.want == nil {
					login, _ := w.whoami(t, bearer)
					same(t, "mia", login)
				}
			})
		})
	}
}

func TestARefusedBearerIsRenewedOnce(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true, Rotates: true})
	w.connect(t, w.mia, "mia")
	w.clock.Advance(10 * time.Minute)
	first := need(w.bearer(t, w.mia))(t)
	w.vendor.Expire()
	if _, status := w.whoami(t, first); status != http.StatusUnauthorized {
		t.Fatal(status)
	}
	for range 3 { // several calls meet it
		if err := w.k.Refused(t.Context(), caller(w.mia), "linear", "", first); err != nil {
			t.Error(err)
		}
	}
	second := need(w.bearer(t, w.mia))(t)
	login, _ := w.whoami(t, second)
	same(t, "mia", login)
	same(t, 1, len(w.vendor.Forms("refresh_token")))
	if err := w.k.Refused(t.Context(), caller(w.mia), "linear", "", first); err != nil { // a late one, of the old bearer
		t.Error(err)
	}
	if !need(w.bearer(t, w.mia))(t).Equal(second) {
		t.Error("renewed for an old refusal")
	}
	if err := w.k.Refused(t.Context(), caller(w.mia), "linear", "", second); !errors.Is(err, gateway.ErrReconnect) {
		t.Errorf("a bearer just issued: %v", err)
	}
	same(t, 1, w.brokenOnes())
}

// TestARenewalOutlivesItsCaller: a pair that the server issued is kept though nobody waits for it, and a process that stops
// waits for it too.
func TestARenewalOutlivesItsCaller(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true, Rotates: true})
	w.connect(t, w.mia, "mia")
	w.clock.Advance(authorizeLife)
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	w.vendor.Set(oauth.Faults{Hold: hold, Held: held})
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := w.k.Bearer(ctx, caller(w.mia), "linear", "")
		asked <- err
	}()
	<-held
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- w.k.Run(ctx) }()
	select {
	case <-stopped:
		t.Error("stopped in the middle of a renewal")
	default:
	}
	close(hold)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	login, _ := w.whoami(t, need(w.bearer(t, w.mia))(t))
	same(t, "mia", login)
	same(t, 1, len(w.vendor.Forms("refresh_token")))
}

func TestWhatIsDisconnectedDuringARenewalIsRevokedAllTheSame(t *testing.T) {
	w := onSQLite(t, oauth.Config{Registers: true, Rotates: true})
	a := w.connect(t, w.mia, "mia")
	w.clock.Advance(authorizeLife)
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	w.vendor.Set(oauth.Faults{Hold: hold, Held: held})
	asked := make(chan error, 1)
	go func() {
		_, err := w.k.Bearer(t.Context(), caller(w.mia), "linear", "")
		asked <- err
	}()
	<-held
	if err := w.g.ForgetAccount(t.Context(), w.mia, a); err != nil {
		t.Fatal(err)
	}
	close(hold)
	if err := <-asked; !errors.Is(err, gateway.ErrReconnect) {
		t.Error(err)
	}
	same(t, 0, w.brokenOnes())
}
