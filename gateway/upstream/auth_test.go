package upstream_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/policy"
	"pilder/sim/mcp"
	"pilder/store"
)

// keyring gives each member a secret, and another once it was refused.
type keyring struct {
	mu      sync.Mutex
	secrets map[policy.MembershipID][]string // the first is in use
	refused int
}

func (k *keyring) bearer(_ context.Context, c gateway.Caller, _, _ string) (store.Secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	own := k.secrets[c.Principal.Membership]
	if len(own) == 0 {
		return store.Secret{}, gateway.ErrReconnect
	}
	return store.NewSecret(own[0]), nil
}

func (k *keyring) drop(_ context.Context, c gateway.Caller, _, _ string, secret store.Secret) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused++
	if own := k.secrets[c.Principal.Membership]; len(own) > 0 && own[0] == secret.Reveal() {
		k.secrets[c.Principal.Membership] = own[1:]
	}
}

// oauth makes each person's secret their own.
func oauth(k *keyring) func(*upstream.Spec, *upstream.Config) {
	return func(s *upstream.Spec, cfg *upstream.Config) {
		s.Auth, cfg.Bearer, cfg.Refused = upstream.AuthOAuth, k.bearer, k.drop
	}
}

func TestG14_ARefusedTokenIsReplacedOnceAndThenThePersonIsAsked(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		keys := &keyring{secrets: map[policy.MembershipID][]string{"mem_ana": {"ana-token-1", "ana-token-2"}}}
		sim := mcp.New(mcp.Config{OnlyLegacy: legacy, Secrets: []string{"ana-token-1"}}, mcp.Simple("read"), mcp.Simple("write"))
		w := newWorld(t, sim, oauth(keys))
		same(t, "at first", wentWell, saidBy(t, w.call(t, "ana", "write", `{"n":1}`)))
		sim.Secrets("ana-token-2") // the first has expired
		same(t, "refreshed", wentWell, saidBy(t, w.call(t, "ana", "write", `{"n":2}`)))
		if keys.refused != 1 {
			t.Errorf("told of a refusal %d times", keys.refused)
		}
		sim.Secrets("somebody else's")
		reconnect := said{Outcome: store.OutcomeFailed, Code: "reconnect", Performed: "no", Retry: "person"}
		same(t, "refused", reconnect, saidBy(t, w.call(t, "ana", "write", `{"n":3}`)))
		same(t, "her tools", []string{"notes-read", "notes-write"}, w.names(t, "ana"))
		if n := len(sim.Performed()); n != 2 {
			t.Errorf("performed %d calls", n)
		}
		// A human is not asked about a call that cannot work.
		r := w.Check(t.Context(), gateway.Call{Caller: caller("ana"), Tool: "notes-write", Args: []byte(`{}`)})
		if r == nil || r.Code != "reconnect" || !strings.Contains(r.Text, "connect the account again") {
			t.Errorf("checked: %+v", r)
		}
	}
}

func TestG16_TheUpstreamSeesEachPersonsCredentialInTheirCalls(t *testing.T) {
	eachEra(t, func(t *testing.T, cfg mcp.Config) {
		sim := mcp.New(cfg, mcp.Simple("read"))
		w := newWorld(t, sim, oauth(&keyring{secrets: map[policy.MembershipID][]string{"mem_ana": {"ana-token"}, "mem_bo": {"bo-token"}}}))
		w.call(t, "ana", "read", `{}`)
		w.call(t, "bo", "read", `{}`)
		var seen []string
		for _, c := range sim.Performed() {
			seen = append(seen, c.Secret)
		}
		same(t, "seen", []string{"Bearer ana-token", "Bearer bo-token"}, seen)
		for _, r := range sim.Requests() {
			if r.Header.Get("Authorization") == "" {
				t.Errorf("%s %s came without a credential", r.Method, r.RPC)
			}
		}
		same(t, "one who has not connected it", "reconnect", func() string { w.names(t, "cleo"); return w.check(t, "cleo") }())
	})
}

// check gives the code of what stands in the way of a member's call.
func (w *world) check(t *testing.T, member string) string {
	t.Helper()
	if r := w.Check(t.Context(), gateway.Call{Caller: caller(member), Tool: "notes-read", Args: []byte(`{}`)}); r != nil {
		return r.Code
	}
	return ""
}

func TestG36_TwoPeopleNeverShareASession(t *testing.T) {
	for claim, secrets := range map[string]map[policy.MembershipID][]string{
		"with secrets of their own":  {"mem_ana": {"ana-token"}, "mem_bo": {"bo-token"}},
		"even with one and the same": {"mem_ana": {"one-token"}, "mem_bo": {"one-token"}},
	} {
		t.Run(claim, func(t *testing.T) {
			sim := mcp.New(mcp.Config{OnlyLegacy: true}, mcp.Simple("read"))
			w := newWorld(t, sim, oauth(&keyring{secrets: secrets}))
			var calling sync.WaitGroup
			for range 5 {
				for _, member := range []string{"ana", "bo"} {
					calling.Go(func() { w.call(t, member, "read", `{"by":"`+member+`"}`) })
				}
			}
			calling.Wait()
			sessions := map[string]string{}
			for _, c := range sim.Performed() {
				by := strings.Trim(strings.TrimPrefix(c.Arguments, `{"by":`), `"}`)
				if owner, known := sessions[c.Session]; known && owner != by {
					t.Fatalf("%s and %s share a session", owner, by)
				}
				sessions[c.Session] = by
				if want := secrets[policy.MembershipID("mem_"+by)][0]; c.Secret != "Bearer "+want {
					t.Errorf("%s called with the secret %q", by, c.Secret)
				}
			}
			if len(sessions) != 2 {
				t.Errorf("two people have %d sessions", len(sessions))
			}
		})
	}
}

func TestAnOperatorsSecretThatIsRefusedIsTheOperatorsTrouble(t *testing.T) {
	sim := mcp.New(mcp.Config{Header: "X-Api-Key", Secrets: []string{"key-of-the-house"}}, mcp.Simple("read"))
	secret := "key-of-the-house"
	w := newWorld(t, sim, func(s *upstream.Spec, cfg *upstream.Config) {
		s.Auth, s.Header = upstream.AuthHeader, "X-Api-Key"
		cfg.Bearer = func(context.Context, gateway.Caller, string, string) (store.Secret, error) {
			if secret == "" {
				return store.Secret{}, errors.New("the store is away")
			}
			return store.NewSecret(secret), nil
		}
	})
	same(t, "with it", wentWell, saidBy(t, w.call(t, "ana", "read", `{}`)))
	secret = ""
	same(t, "without one", said{Outcome: store.OutcomeFailed, Code: "unavailable", Performed: "no", Retry: "wait"}, saidBy(t, w.call(t, "ana", "read", `{}`)))
	secret = "another"
	same(t, "with another", said{Outcome: store.OutcomeFailed, Code: "gateway_problem", Performed: "no", Retry: "never"}, saidBy(t, w.call(t, "ana", "read", `{}`)))
	if !strings.Contains(w.log.text(), `"upstream.problem"`) {
		t.Error("the operator was not told")
	}
}

func TestASecretThatIsEchoedIsNotPassedOn(t *testing.T) {
	echo := mcp.Simple("read")
	echo.Do = func(c mcp.Call, _ func(float64, float64, string)) string { return mcp.Text("you sent " + c.Secret) }
	w := newWorld(t, mcp.New(mcp.Config{}, echo), oauth(&keyring{secrets: map[policy.MembershipID][]string{"mem_ana": {"ana-very-secret"}}}))
	r := w.call(t, "ana", "read", `{}`)
	if strings.Contains(r.Text+string(r.Structured)+w.log.text(), "ana-very-secret") {
		t.Errorf("told %s", r.Text)
	}
}

func TestAnUpstreamIsForItsCompaniesAlone(t *testing.T) {
	w := newWorld(t, mcp.New(mcp.Config{}, mcp.Simple("read")), func(s *upstream.Spec, _ *upstream.Config) { s.Companies = []policy.CompanyID{"com_b"} })
	same(t, "listed to another company", []string{}, w.names(t, "ana"))
	same(t, "called by another company", "not_found", w.call(t, "ana", "read", `{}`).Code)
	if len(w.Open("com_a")) != 0 || len(w.Open("com_b")) != 1 {
		t.Errorf("open to %d and %d", len(w.Open("com_a")), len(w.Open("com_b")))
	}
	if len(w.sim.Requests()) != 0 {
		t.Error("the upstream was asked")
	}
}

func TestASecretGoesThroughNoProxyOfTheMachine(t *testing.T) {
	asked := false
	all := http.DefaultTransport.(*http.Transport)
	before := all.Proxy
	all.Proxy = func(*http.Request) (*url.URL, error) { asked = true; return nil, nil }
	t.Cleanup(func() { all.Proxy = before })
	w := newWorld(t, mcp.New(mcp.Config{}, mcp.Simple("read")), nil)
	same(t, "a call", wentWell, saidBy(t, w.call(t, "ana", "read", `{}`)))
	same(t, "a proxy was looked for", false, asked)
}

func TestWhoeverHasSeveralAccountsAndChoseNoneIsToldSo(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		w := newWorld(t, mcp.New(mcp.Config{OnlyLegacy: legacy}, mcp.Simple("write")), func(s *upstream.Spec, cfg *upstream.Config) {
			s.Auth = upstream.AuthOAuth
			cfg.Bearer = func(context.Context, gateway.Caller, string, string) (store.Secret, error) {
				return store.NewSecret("ana-token"), nil
			}
		})
		w.names(t, "ana")
		w.cfg.Bearer = func(context.Context, gateway.Caller, string, string) (store.Secret, error) {
			return store.Secret{}, gateway.ErrChooseAccount
		}
		w.build(t)
		choose := said{Outcome: store.OutcomeFailed, Code: "choose_account", Performed: "no", Retry: "person"}
		same(t, "a call", choose, saidBy(t, w.call(t, "ana", "write", `{}`)))
	}
}
