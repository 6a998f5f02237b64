package store_test

import (
	"testing"

	"pilder/store"
)

func TestAPreferenceIsAskedOnceAndChangedAtWill(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		card := store.Draft{Company: w.acme.ID, Chat: private(w.member), Kind: store.DraftNotice, Notice: "which calendar?"}
		ask := func() bool {
			return need(w.AskPreference(t.Context(), w.acme.ID, w.member.ID, "calendar", card))(t)
		}
		same(t, []bool{true, false}, []bool{ask(), ask()})
		got := func() []store.Preference { return need(w.Preferences(t.Context(), w.acme.ID, w.member.ID))(t) }
		same(t, []store.Preference{{Category: "calendar"}}, got())
		for _, app := range []string{"google_calendar", "calendly_v2"} {
			if err := w.SetPreference(t.Context(), w.press(t, 103), w.member, store.Preference{Category: "calendar", App: app}); err != nil {
				t.Fatal(err)
			}
			same(t, []store.Preference{{Category: "calendar", App: app}}, got())
		}
		same(t, []said{{103, "which calendar?"}}, w.said(t))
		same(t, []store.Preference(nil), need(w.Preferences(t.Context(), w.acme.ID, w.admin.ID))(t))
		_, err := w.AskPreference(t.Context(), w.rival.Company.ID, w.member.ID, "mail", card)
		wants(t, err, store.ErrNotFound)
	})
}
