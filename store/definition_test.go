package store_test

import (
	"testing"

	"pilder/store"
)

func TestG40ADefinitionThatChangesWaitsForAHuman(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		first := store.Definition{Action: "gmail-x", Version: "1.0.0", Hash: "h1", Text: []byte(`{"a":1}`)}
		changed := store.Definition{Action: "gmail-x", Version: "1.0.0", Hash: "h2", Text: []byte(`{"a":2}`)}
		newer := store.Definition{Action: "gmail-x", Version: "2.0.0", Hash: "h3", Text: []byte(`{"a":3}`)}
		keep := func(d store.Definition, want store.Definition, fresh bool) {
			t.Helper()
			got, isFresh, err := w.KeepDefinition(t.Context(), d)
			if err != nil || isFresh != fresh || got.Hash != want.Hash {
				t.Errorf("kept %+v, fresh %v: %v", got, isFresh, err)
			}
		}
		all := func() []store.Definition { return need(w.Definitions(t.Context()))(t) }

		keep(first, first, false)
		keep(changed, first, true)  // what was accepted stays
		keep(changed, first, false) // and is told once
		waits := first
		waits.NextVersion, waits.NextHash, waits.NextText = changed.Version, changed.Hash, changed.Text
		same(t, []store.Definition{waits}, all())
		keep(first, first, false) // it went back
		same(t, []store.Definition{first}, all())

		same(t, []bool{true, false}, []bool{need(w.ProposeDefinition(t.Context(), newer))(t), need(w.ProposeDefinition(t.Context(), newer))(t)})
		wants(t, w.AcceptDefinition(t.Context(), "gmail-x"), store.ErrNotFound) // a newer version is pinned, not accepted
		keep(newer, newer, false)                                               // somebody pinned it
		same(t, []store.Definition{newer}, all())

		keep(store.Definition{Action: "gmail-x", Version: "2.0.0", Hash: "h4", Text: []byte(`{"a":4}`)}, newer, true)
		if err := w.AcceptDefinition(t.Context(), "gmail-x"); err != nil {
			t.Fatal(err)
		}
		same(t, []store.Definition{{Action: "gmail-x", Version: "2.0.0", Hash: "h4", Text: []byte(`{"a":4}`)}}, all())
		_, err := w.ProposeDefinition(t.Context(), store.Definition{Action: "unknown", Version: "1"})
		wants(t, err, store.ErrNotFound)
	})
}
