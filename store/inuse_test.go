package store_test

import (
	"sync"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
)

func (w *town) seed(t *testing.T, app, provider string) store.Account {
	t.Helper()
	return need(w.SeedAccount(t.Context(), w.member, app, provider, provider+"@example.com"))(t)
}

// used names the accounts in use by their provider's id, the chosen ones with a star and the broken ones in brackets.
func (w *town) used(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, a := range need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t) {
		name := a.Provider
		if a.Chosen {
			name = "*" + name
		}
		if a.State == store.AccountBroken {
			name = "(" + name + " " + a.Reason + ")"
		}
		all = append(all, name)
	}
	return all
}

func says(notice string) func(store.Account) []store.Draft {
	return func(a store.Account) []store.Draft {
		return []store.Draft{{Company: a.Company, Chat: store.Chat{ID: 103, Private: true}, Kind: store.DraftNotice, Notice: notice + " " + a.Provider}}
	}
}

func TestTheFirstAccountOfAnAppIsItsDefaultUntilAnotherIsChosen(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.seed(t, "gmail", "a")
		w.clock.Advance(time.Second)
		b := w.seed(t, "gmail", "b")
		w.seed(t, "notion", "c")
		same(t, []string{"*a", "b", "*c"}, w.used(t))

		got := need(w.ChooseAccount(t.Context(), w.press(t, 103), b.ID, 103, says("chosen")))(t)
		b.Chosen = true
		same(t, b, got)
		same(t, []string{"a", "*b", "*c"}, w.used(t))

		removed := need(w.RemoveAccount(t.Context(), w.press(t, 103), b.ID, 103, says("removed")))(t)
		same(t, store.AccountGone, removed.State)
		same(t, []string{"a", "*c"}, w.used(t))
		same(t, []said{{103, "chosen b"}, {103, "removed b"}}, w.said(t))
		_, err := w.ChooseAccount(t.Context(), w.press(t, 103), b.ID, 103, says("chosen"))
		wants(t, err, store.ErrDecided)
		acts := w.actions(t, w.acme.ID)
		same(t, []string{"account.chosen", "account.removed"}, acts[len(acts)-2:])
	})
}

func TestOnlyItsPersonChoosesOrRemovesAnAccount(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.seed(t, "gmail", "a")
		for who, want := range map[int64]error{101: store.ErrNotYours, 201: store.ErrNotFound, 999: store.ErrNotFound} {
			u := w.press(t, who)
			_, err := w.ChooseAccount(t.Context(), u, a.ID, who, says("x"))
			wants(t, err, want)
			_, err = w.RemoveAccount(t.Context(), u, a.ID, who, says("x"))
			wants(t, err, want)
			same(t, true, w.isOpen(t, u))
		}
		same(t, []string{"*a"}, w.used(t))
		same(t, []said(nil), w.said(t))
	})
}

func TestAMomentsChoicesLeaveOneChosenAccount(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.seed(t, "gmail", "a")
		b := w.seed(t, "gmail", "b")
		var all sync.WaitGroup
		for i := range 10 {
			id, u := []store.AccountID{a.ID, b.ID}[i%2], w.press(t, 103)
			all.Go(func() {
				if _, err := w.ChooseAccount(t.Context(), u, id, 103, says("chosen")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		chosen := 0
		for _, a := range need(w.Accounts(t.Context(), w.acme.ID, w.member.ID))(t) {
			if a.Chosen {
				chosen++
			}
		}
		same(t, 1, chosen)
	})
}

func TestAPersonIsAskedOnceWhichAccountToUseUntilOneComes(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		card := store.Draft{Company: w.acme.ID, Chat: private(w.member), Kind: store.DraftNotice, Notice: "which?"}
		ask := func() bool {
			return need(w.AskAccount(t.Context(), w.acme.ID, w.member.ID, "gmail", card))(t)
		}
		w.seed(t, "gmail", "a")
		same(t, []bool{true, false}, []bool{ask(), ask()})
		w.seed(t, "gmail", "b")
		same(t, []bool{true, false}, []bool{ask(), ask()})
		same(t, []said{{103, "which?"}, {103, "which?"}}, w.said(t))
	})
}

func TestABrokenAccountStaysInUseAndIsToldOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.seed(t, "gmail", "a")
		draft := store.Draft{Company: w.acme.ID, Chat: private(w.member), Kind: store.DraftNotice, Notice: "broken"}
		mark := func() bool { return need(w.MarkAccountBroken(t.Context(), w.acme.ID, a.ID, "refused", draft))(t) }
		same(t, []bool{true, false}, []bool{mark(), mark()})
		same(t, []string{"(*a refused)"}, w.used(t))
		run := w.talk(t, w.member, private(w.member))
		same(t, []string{"gmail"}, run.Grant.Apps) // its tools do not vanish
		run.end(store.RunSucceeded)

		draft.Notice = "mended"
		mend := func() bool { return need(w.MarkAccountHealthy(t.Context(), w.acme.ID, a.ID, nil, draft))(t) }
		same(t, []bool{true, false}, []bool{mend(), mend()})
		same(t, []string{"*a"}, w.used(t))
		same(t, []said{{103, "broken"}, {103, "mended"}}, w.said(t))
		for range 3 { // the app refuses what the provider calls healthy
			same(t, []bool{true, true}, []bool{mark(), mend()})
		}
		same(t, []said(nil), w.said(t))
		w.clock.Advance(24 * time.Hour)
		same(t, []bool{true, true}, []bool{mark(), mend()})
		same(t, []said{{103, "mended"}, {103, "mended"}}, w.said(t)) // the draft's words are the test's
		_, err := w.MarkAccountBroken(t.Context(), w.rival.Company.ID, a.ID, "refused", draft)
		wants(t, err, store.ErrNotFound)
		same(t, []string{"*a"}, w.used(t))
	})
}

func TestConnectingABrokenAccountAgainKeepsItsRowAndTheChoice(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		old := need(w.SeedAccount(t.Context(), w.member, "notion", "apn_old", "mia@notion.example"))(t)
		w.clock.Advance(time.Second)
		need(w.SeedAccount(t.Context(), w.member, "notion", "apn_other", "other@notion.example"))(t)
		need(w.MarkAccountBroken(t.Context(), w.acme.ID, old.ID, "refused"))(t)
		a := w.offer(t, w.opened(t, w.member).ID, "apn_new") // of the same name
		got, forget, err := w.ConfirmAccount(t.Context(), w.press(t, 103), a.ID, 103, true, nil)
		if err != nil || len(forget) != 1 || forget[0].Provider != "apn_old" {
			t.Fatalf("%v, forget: %v", err, forget)
		}
		old.Provider = "apn_new"
		same(t, old, got)
		same(t, []string{"*apn_new", "apn_other"}, w.used(t))
	})
}

func TestAccountsAreCheckedInTurnAndByOneProcessAtATime(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		for _, p := range []string{"a", "b", "c"} {
			w.seed(t, "gmail", p)
		}
		took := func(n int) int { return len(need(w.TakeAccountsToCheck(t.Context(), time.Hour, n))(t)) }
		same(t, []int{2, 1, 0}, []int{took(2), took(2), took(2)})
		w.clock.Advance(time.Hour)
		all := need(w.TakeAccountsToCheck(t.Context(), time.Hour, 5))(t)
		same(t, 3, len(all))
		same(t, w.member, all[0].Member)
	})
}

func TestNoCallBeginsWithAnAccountThatWasRemoved(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a, kept := w.seed(t, "gmail", "a"), w.seed(t, "gmail", "b")
		run := w.talk(t, w.member, private(w.member))
		c := run.call(policy.Allow, `{}`)
		c.With = a.ID
		w.begin(t, c)
		need(w.RemoveAccount(t.Context(), w.press(t, 103), a.ID, 103, says("removed")))(t)
		c = run.call(policy.Allow, `{"other":1}`)
		c.With = a.ID
		_, err := w.BeginCall(t.Context(), c, card)
		wants(t, err, store.ErrAccountGone)
		c.With = kept.ID
		w.begin(t, c)
	})
}
