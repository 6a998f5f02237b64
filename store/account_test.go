package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pilder/store"
)

// link lets a member ask for a link, and gives the secret that went to their chat.
func (w *town) link(t *testing.T, m store.Membership, from store.UpdateRef) store.Secret {
	t.Helper()
	var secret store.Secret
	err := w.CreateLink(t.Context(), from, m, "notion", private(m), 15*time.Minute, func(s store.Secret) store.Draft {
		secret = s
		return store.Draft{Company: m.Company.ID, Chat: private(m), Kind: store.DraftNotice, Notice: "link", Buttons: [][]store.Button{{{Label: "open", URL: s}}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// opened is a link whose person set off with one account there already.
func (w *town) opened(t *testing.T, m store.Membership) store.OpenedLink {
	t.Helper()
	secret := w.link(t, m, store.UpdateRef{})
	if err := w.OpenLink(t.Context(), secret, store.NewSecret("connect-token"), []string{"apn_old"}); err != nil {
		t.Fatal(err)
	}
	all := need(w.OpenedLinks(t.Context()))(t)
	return all[len(all)-1]
}

func (w *town) offer(t *testing.T, link, provider string) (a store.Account) {
	t.Helper()
	err := w.OfferAccount(t.Context(), link, provider, "mia@notion.example", func(got store.Account) store.Draft {
		a = got
		return store.Draft{Company: got.Company, Chat: store.Chat{ID: 103, Private: true}, Kind: store.DraftNotice, Notice: "yours?"}
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnAccountIsConnected(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		u := w.press(t, 103)
		secret := w.link(t, w.member, u)
		want := store.Link{Membership: w.member, App: "notion", Chat: private(w.member), Expires: w.clock.Now().Add(15 * time.Minute), State: store.LinkNew}
		same(t, want, need(w.Link(t.Context(), secret))(t))
		same(t, false, w.isOpen(t, u))
		same(t, []store.OpenedLink(nil), need(w.OpenedLinks(t.Context()))(t))

		if err := w.OpenLink(t.Context(), secret, store.NewSecret("connect"), []string{"apn_old"}); err != nil {
			t.Fatal(err)
		}
		want.State = store.LinkOpened
		opened := need(w.OpenedLinks(t.Context()))(t)
		same(t, []store.OpenedLink{{Link: want, ID: opened[0].ID, Before: []string{"apn_old"}}}, opened)

		a := w.offer(t, opened[0].ID, "apn_new")
		same(t, store.Account{ID: a.ID, Company: w.acme.ID, Membership: w.member.ID, App: "notion", Provider: "apn_new",
			Name: "mia@notion.example", State: store.AccountOffered, Created: w.clock.Now()}, a)
		want.State = store.LinkUsed
		same(t, want, need(w.Link(t.Context(), secret))(t))
		same(t, 1, len(need(w.OpenedLinks(t.Context()))(t)))                                    // it may have made a second one
		same(t, []store.Account(nil), need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t)) // not theirs yet

		got, forget, err := w.ConfirmAccount(t.Context(), w.press(t, 103), a.ID, 103, true, nil,
			store.Draft{Company: w.acme.ID, Chat: private(w.member), Kind: store.DraftNotice, Notice: "connected"})
		a.State, a.Chosen = store.AccountActive, true
		same(t, a, got)
		if err != nil || len(forget) != 0 {
			t.Errorf("%v, forget: %v", err, forget)
		}
		same(t, []store.Account{a}, need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t))
		same(t, []said{{103, "link"}, {103, "yours?"}, {103, "connected"}}, w.said(t))
		got2 := w.actions(t, w.acme.ID)
		same(t, []string{"link.made", "link.opened", "account.offered", "account.connected"}, got2[len(got2)-4:])

		run := w.talk(t, w.member, private(w.member))
		same(t, []store.Account{a}, run.Accounts)
		same(t, []string{"notion"}, run.Grant.Apps)
	})
}

func TestASecondAccountOfOneLinkIsOfferedByItself(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		l := w.opened(t, w.member)
		offered := []store.AccountID{w.offer(t, l.ID, "apn_1").ID, w.offer(t, l.ID, "apn_2").ID}
		same(t, []said{{103, "link"}, {103, "yours?"}, {103, "yours?"}}, w.said(t))
		if _, _, err := w.ConfirmAccount(t.Context(), w.press(t, 103), offered[0], 103, true, nil); err != nil {
			t.Fatal(err)
		}
		same(t, 1, len(need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t))) // the other needs its own word
		for i := range 3 {
			w.offer(t, l.ID, fmt.Sprint("apn_more", i))
		}
		wants(t, w.OfferAccount(t.Context(), l.ID, "apn_6", "x", nil), store.ErrNotFound)
	})
}

func TestTwoLinksOfOneAppDoNotAskTwice(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		first, second := w.opened(t, w.member), w.opened(t, w.member)
		w.offer(t, first.ID, "apn_1")
		w.offer(t, second.ID, "apn_1")
		same(t, []said{{103, "link"}, {103, "link"}, {103, "yours?"}}, w.said(t))
		w.offer(t, second.ID, "apn_2") // the second link is still good
		same(t, []said{{103, "yours?"}}, w.said(t))
	})
}

func TestALinkIsUsedOnceAndInTime(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		card := func(store.Account) store.Draft { return store.Draft{Company: w.acme.ID} }
		l := w.opened(t, w.member)
		w.offer(t, l.ID, "apn_1")
		w.clock.Advance(6 * time.Minute)
		same(t, []store.OpenedLink(nil), need(w.OpenedLinks(t.Context()))(t))
		wants(t, w.OfferAccount(t.Context(), "lnk_nothere", "apn_2", "x", card), store.ErrNotFound)

		secret := w.link(t, w.member, store.UpdateRef{})
		for range 2 { // the person may press twice; what was there before the first time was there before
			if err := w.OpenLink(t.Context(), secret, store.NewSecret("t"), []string{"apn_1"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.OpenLink(t.Context(), secret, store.NewSecret("t"), []string{"apn_1", "apn_2"}); err != nil {
			t.Fatal(err)
		}
		same(t, []string{"apn_1"}, need(w.OpenedLinks(t.Context()))(t)[0].Before)
		w.clock.Advance(15 * time.Minute)
		_, err := w.Link(t.Context(), secret)
		wants(t, err, store.ErrNotFound)
		wants(t, w.OpenLink(t.Context(), secret, store.NewSecret("t"), nil), store.ErrNotFound)
		same(t, 1, len(need(w.OpenedLinks(t.Context()))(t))) // whoever set off in time may still be at the provider
		w.clock.Advance(5 * time.Minute)
		same(t, []store.OpenedLink(nil), need(w.OpenedLinks(t.Context()))(t))
		_, err = w.Link(t.Context(), store.NewSecret("guess"))
		wants(t, err, store.ErrNotFound)
		wants(t, w.OpenLink(t.Context(), store.Secret{}, store.NewSecret("t"), nil), store.ErrNotFound)
	})
}

func TestAUsedLinkIsNotOpenedAgain(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		secret := w.link(t, w.member, store.UpdateRef{})
		if err := w.OpenLink(t.Context(), secret, store.NewSecret("t"), nil); err != nil {
			t.Fatal(err)
		}
		w.offer(t, need(w.OpenedLinks(t.Context()))(t)[0].ID, "apn_1")
		wants(t, w.OpenLink(t.Context(), secret, store.NewSecret("t"), nil), store.ErrNotFound)
	})
}

func TestTheSameAccountOfferedTwiceChangesNothing(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		l := w.opened(t, w.member)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				err := w.OfferAccount(t.Context(), l.ID, "apn_1", "mia@notion.example", func(a store.Account) store.Draft {
					return store.Draft{Company: a.Company, Chat: store.Chat{ID: 103, Private: true}, Kind: store.DraftNotice, Notice: "yours?"}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		same(t, []said{{103, "link"}, {103, "yours?"}}, w.said(t))
		// Nor when it was connected or rejected meanwhile.
		again := w.opened(t, w.member)
		a := w.offer(t, again.ID, "apn_2")
		w.said(t)
		if _, forget, err := w.ConfirmAccount(t.Context(), w.press(t, 103), a.ID, 103, false, nil); err != nil || len(forget) != 1 {
			t.Errorf("%v, forget: %v", err, forget)
		}
		w.offer(t, again.ID, "apn_2")
		same(t, []said(nil), w.said(t))
		same(t, []store.Account(nil), need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t))
	})
}

func TestOnlyItsPersonConfirmsAnAccountAndOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.offer(t, w.opened(t, w.member).ID, "apn_1")
		for _, tt := range []struct {
			account store.AccountID
			who     int64
			want    error
		}{{a.ID, 101, store.ErrNotYours}, {a.ID, 201, store.ErrNotFound}, {a.ID, 999, store.ErrNotFound}, {"acc_nothere", 103, store.ErrNotFound}} {
			u := w.press(t, tt.who)
			_, forget, err := w.ConfirmAccount(t.Context(), u, tt.account, tt.who, true, nil)
			if !errors.Is(err, tt.want) || len(forget) != 0 || !w.isOpen(t, u) {
				t.Errorf("%d: %v, forget: %v", tt.who, err, forget)
			}
		}
		const n = 20
		errs, pressed := make([]error, n), make([]store.UpdateRef, n)
		for i := range n {
			pressed[i] = w.press(t, 103)
		}
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { _, _, errs[i] = w.ConfirmAccount(t.Context(), pressed[i], a.ID, 103, i%2 == 0, nil) })
		}
		all.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				_, _, err := w.ConfirmAccount(t.Context(), pressed[i], a.ID, 103, true, nil)
				wants(t, err, store.ErrSettled)
				continue
			}
			wants(t, err, store.ErrDecided)
		}
		same(t, 1, won)
	})
}

func TestAccountsAreKeptApartByCompanyAndMembership(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := need(w.SeedAccount(t.Context(), w.member, "gmail", "apn_1", "mia@gmail.example"))(t)
		same(t, a, need(w.SeedAccount(t.Context(), w.member, "gmail", "apn_1", "mia@gmail.example"))(t))
		same(t, []store.Account{a}, need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t))
		same(t, []store.Account(nil), need(w.Accounts(t.Context(), w.acme.ID, w.admin.ID))(t))
		_, err := w.Accounts(t.Context(), w.rival.Company.ID, w.member.ID)
		wants(t, err, store.ErrNotFound)
		foreign := w.member
		foreign.Company = w.rival.Company
		_, err = w.SeedAccount(t.Context(), foreign, "gmail", "apn_1", "x")
		wants(t, err, store.ErrNotFound)
		err = w.CreateLink(t.Context(), store.UpdateRef{}, foreign, "notion", private(w.member), time.Hour, func(store.Secret) store.Draft { return store.Draft{} })
		wants(t, err, store.ErrNotFound)
	})
}

func TestLinksAndAccountsAreSealedAndHashed(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		secret := w.link(t, w.member, store.UpdateRef{})
		if err := w.OpenLink(t.Context(), secret, store.NewSecret("connect-token"), []string{"apn_before"}); err != nil {
			t.Fatal(err)
		}
		w.offer(t, need(w.OpenedLinks(t.Context()))(t)[0].ID, "apn_new")
		for _, q := range []string{
			`SELECT secret_hash, connect_hash, accounts_before FROM link`, `SELECT provider, provider_mac, name FROM account`,
		} {
			var held [3][]byte
			if err := behind(t, w.url).QueryRowContext(t.Context(), q).Scan(&held[0], &held[1], &held[2]); err != nil {
				t.Fatal(err)
			}
			for _, b := range held {
				for _, secret := range []string{secret.Reveal(), "connect-token", "apn_", "mia@"} {
					if len(b) == 0 || strings.Contains(string(b), secret) {
						t.Errorf("%s: %q", q, b)
					}
				}
			}
		}
	})
}
