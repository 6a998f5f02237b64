package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"pilder/store"
)

// credential files a credential of a member for linear and, unless it is only offered, has its person confirm it.
func (w *town) credential(t *testing.T, m store.Membership, secret string, active bool) store.Credential {
	t.Helper()
	state := store.RandomSecret("")
	if err := w.BeginErrand(t.Context(), m.ExternalUser, "linear", state, store.NewSecret("notes"), time.Hour); err != nil {
		t.Fatal(err)
	}
	e := need(w.Errand(t.Context(), state))(t)
	if err := w.EndErrand(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	id := need(w.FileCredential(t.Context(), e, "mia@linear.example", store.NewSecret(secret), w.clock.Now().Add(time.Hour)))(t)
	if active {
		need(w.SeedAccount(t.Context(), m, "linear", string(id), "mia@linear.example"))(t)
	}
	return store.Credential{ID: id, Company: m.Company.ID, Membership: m.ID, App: "linear", Name: "mia@linear.example", Secret: store.NewSecret(secret),
		Version: 1, Issued: w.clock.Now(), Expires: w.clock.Now().Add(time.Hour)}
}

func (w *town) credentialOf(m store.Membership, t *testing.T) (store.Credential, error) {
	t.Helper()
	return w.Credential(t.Context(), m.Company.ID, m.ID, "linear", "")
}

func TestAnErrandComesBackOnceAndInTime(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		state := store.RandomSecret("")
		begin := func() error {
			return w.BeginErrand(t.Context(), w.member.ExternalUser, "linear", state, store.NewSecret("verifier"), time.Hour)
		}
		if err := begin(); err != nil {
			t.Fatal(err)
		}
		want := store.Errand{Company: w.acme.ID, Membership: w.member.ID, App: "linear", Notes: store.NewSecret("verifier")}
		same(t, want, need(w.Errand(t.Context(), state))(t))
		_, err := w.Errand(t.Context(), store.RandomSecret(""))
		wants(t, err, store.ErrNotFound)
		wants(t, w.EndErrand(t.Context(), state), nil)
		wants(t, w.EndErrand(t.Context(), state), store.ErrNotFound)
		wants(t, w.BeginErrand(t.Context(), "usr_nobody", "linear", state, store.Secret{}, time.Hour), store.ErrNotFound)

		wants(t, begin(), nil)
		w.clock.Advance(time.Hour)
		_, err = w.Errand(t.Context(), state)
		wants(t, err, store.ErrNotFound)
		wants(t, w.EndErrand(t.Context(), state), store.ErrNotFound)
	})
}

func TestACredentialServesOnlyItsPersonAndOnlyOnceConfirmed(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		offered := w.credential(t, w.member, "offered", false)
		_, err := w.credentialOf(w.member, t)
		wants(t, err, store.ErrNotFound)
		mine := w.credential(t, w.member, "mine", true)
		same(t, mine, need(w.credentialOf(w.member, t))(t))
		for _, m := range []store.Membership{w.approver, w.rival} {
			_, err := w.credentialOf(m, t)
			wants(t, err, store.ErrNotFound)
			_, err = w.Credential(t.Context(), m.Company.ID, m.ID, "linear", mine.ID)
			wants(t, err, store.ErrNotFound)
			_, err = w.TakeCredential(t.Context(), m.ExternalUser, mine.ID)
			wants(t, err, store.ErrNotFound)
		}
		same(t, 2, len(need(w.Credentials(t.Context(), w.member.ExternalUser, "linear"))(t)))
		same(t, []store.Credential(nil), need(w.Credentials(t.Context(), w.approver.ExternalUser, "linear"))(t))

		w.clock.Advance(time.Minute)
		newer := w.credential(t, w.member, "newer", true)
		same(t, newer, need(w.credentialOf(w.member, t))(t))
		same(t, mine, need(w.Credential(t.Context(), w.acme.ID, w.member.ID, "linear", mine.ID))(t))
		same(t, newer, need(w.TakeCredential(t.Context(), w.member.ExternalUser, newer.ID))(t))
		_, err = w.TakeCredential(t.Context(), w.member.ExternalUser, newer.ID)
		wants(t, err, store.ErrNotFound)
		_, err = w.Credential(t.Context(), w.acme.ID, w.member.ID, "linear", offered.ID)
		wants(t, err, store.ErrNotFound)
		for _, row := range ask(t, w.url, `SELECT secret, name FROM credential`, 2) {
			if strings.Contains(row[0]+row[1], "mine") || strings.Contains(row[0]+row[1], "linear.example") || len(row[0]) < 20 {
				t.Errorf("not sealed: %q", row)
			}
		}
	})
}

func TestOneOfManyRenewsACredential(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		c := w.credential(t, w.member, "old", true)
		var mu sync.Mutex
		var leases []store.RenewalID
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				r, ok, err := w.LeaseCredential(t.Context(), c, time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if ok {
					leases = append(leases, r)
				}
			})
		}
		all.Wait()
		if len(leases) != 1 {
			t.Fatalf("%d leases", len(leases))
		}
		until := w.clock.Now().Add(time.Minute)
		wants(t, w.PutOffCredential(t.Context(), c, "ren_another", until), nil) // whose lease has passed on changes nothing
		same(t, c, need(w.credentialOf(w.member, t))(t))
		wants(t, w.PutOffCredential(t.Context(), c, leases[0], until), nil)
		c.PutOff = until
		same(t, c, need(w.credentialOf(w.member, t))(t))
		wants(t, w.RefuseCredential(t.Context(), c), nil)
		c.Refused, c.PutOff = w.clock.Now(), time.Time{}
		same(t, c, need(w.credentialOf(w.member, t))(t))

		want := c
		want.Secret, want.Version, want.Refused, want.Expires = store.NewSecret("new"), 2, time.Time{}, w.clock.Now().Add(2*time.Hour)
		same(t, want, need(w.RenewCredential(t.Context(), c, store.NewSecret("new"), want.Expires))(t))
		same(t, want, need(w.credentialOf(w.member, t))(t))
		_, err := w.RenewCredential(t.Context(), c, store.NewSecret("late"), want.Expires) // what came second does not count
		wants(t, err, store.ErrLost)
		_, ok, err := w.LeaseCredential(t.Context(), c, time.Hour) // nor is an old pair worth a lease
		if ok || err != nil {
			t.Error(ok, err)
		}
		wants(t, w.RefuseCredential(t.Context(), c), nil)
		same(t, want, need(w.credentialOf(w.member, t))(t))
	})
}

func TestADeadProcessKeepsNobodyFromRenewing(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		c := w.credential(t, w.member, "old", true)
		if _, ok, err := w.LeaseCredential(t.Context(), c, -time.Second); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, ok, err := w.LeaseCredential(t.Context(), c, time.Hour); !ok || err != nil {
			t.Error(ok, err)
		}
		need(w.TakeCredential(t.Context(), w.member.ExternalUser, c.ID))(t)
		_, err := w.RenewCredential(t.Context(), c, store.NewSecret("new"), time.Time{})
		wants(t, err, store.ErrNotFound)
	})
}

func TestACredentialBreaksOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		c := w.credential(t, w.member, "old", true)
		for i, want := range []bool{true, false} {
			first, err := w.BreakCredential(t.Context(), c, "grant_refused")
			if first != want || err != nil {
				t.Errorf("%d: %v %v", i, first, err)
			}
		}
		c.Broken = "grant_refused"
		same(t, c, need(w.credentialOf(w.member, t))(t))
		if _, ok, err := w.LeaseCredential(t.Context(), c, time.Hour); ok || err != nil {
			t.Error(ok, err)
		}
		actions := w.actions(t, w.acme.ID)
		same(t, []string{"credential.filed", "account.seeded", "credential.broken"}, actions[len(actions)-3:])

		renewed := w.credential(t, w.approver, "old", true) // one that was renewed meanwhile is not broken by the old one's end
		need(w.RenewCredential(t.Context(), renewed, store.NewSecret("new"), time.Time{}))(t)
		if first, err := w.BreakCredential(t.Context(), renewed, "grant_refused"); first || err != nil {
			t.Error(first, err)
		}
	})
}

func TestOfTwoRegistrationsAtOneServerOneCounts(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		const issuer = "https://as.example"
		keep := func(id, instead string) store.OAuthClient {
			return need(w.KeepOAuthClient(t.Context(), store.OAuthClient{Issuer: issuer, ID: id, Secret: store.NewSecret("registration of " + id)}, instead))(t)
		}
		first := store.OAuthClient{Issuer: issuer, ID: "a", Secret: store.NewSecret("registration of a"), Created: w.clock.Now()}
		same(t, first, keep("a", ""))
		same(t, first, keep("b", ""))
		for i, want := range []bool{true, false} {
			if got := need(w.RefuseOAuthClient(t.Context(), issuer, "a"))(t); got != want {
				t.Errorf("%d: %v", i, got)
			}
		}
		same(t, "c", keep("c", "").ID)
		wants(t, w.AcceptOAuthClient(t.Context(), issuer, "a"), nil) // too late: c counts
		same(t, "c", keep("d", "a").ID)
		same(t, "e", keep("e", "c").ID)
		same(t, "a", keep("a", "e").ID) // a server may give a name again

		if !need(w.RefuseOAuthClient(t.Context(), issuer, "configured"))(t) {
			t.Error("no alarm for a client that was never registered")
		}
		wants(t, w.AcceptOAuthClient(t.Context(), issuer, "configured"), nil)
		if !need(w.RefuseOAuthClient(t.Context(), issuer, "configured"))(t) {
			t.Error("no alarm the second time it went wrong")
		}
	})
}

func TestACredentialThatNobodyWantedIsTakenAfterADay(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		unwanted := w.credential(t, w.member, "never confirmed", false)
		w.credential(t, w.approver, "in use", true)
		_, err := w.TakeCredentialOfNobody(t.Context())
		wants(t, err, store.ErrNotFound)
		w.clock.Advance(25 * time.Hour)
		w.credential(t, w.member, "just filed", false)
		same(t, unwanted, need(w.TakeCredentialOfNobody(t.Context()))(t))
		_, err = w.TakeCredentialOfNobody(t.Context())
		wants(t, err, store.ErrNotFound)
	})
}

func TestACredentialThatNobodyTookGoesAfterAWeek(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.credential(t, w.member, "never confirmed", false)
		kept := w.credential(t, w.approver, "in use", true)
		w.clock.Advance(8 * 24 * time.Hour)
		w.credential(t, w.member, "just filed", false)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx) }()
		until(t, w.Store, func() bool {
			return len(need(w.Credentials(t.Context(), w.member.ExternalUser, "linear"))(t)) == 1
		})
		cancel()
		wants(t, <-ran, nil)
		same(t, store.NewSecret("just filed"), need(w.Credentials(t.Context(), w.member.ExternalUser, "linear"))(t)[0].Secret)
		same(t, kept, need(w.credentialOf(w.approver, t))(t))
	})
}
