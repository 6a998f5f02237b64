package store_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/store"
	"pilder/store/storetest"
)

func defined(text string) store.ToolDefinition {
	raw := json.RawMessage(fmt.Sprintf("%q", text))
	sum := sha256.Sum256(raw)
	return store.ToolDefinition{Hash: hex.EncodeToString(sum[:]), Text: raw}
}

func TestAnUpstreamsToolIsAcceptedAtFirstSightAndHeldWhenItChanges(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		clock := storetest.NewClock()
		s := open(store.Config{Now: clock.Now})
		see := func(review bool, list map[string]store.ToolDefinition) store.SeenUpstream {
			t.Helper()
			return need(s.SeeUpstreamTools(t.Context(), "notes", "", list, review))(t)
		}
		at := func(d store.ToolDefinition) store.ToolDefinition { d.At = clock.Now(); return d }
		one, two := defined("one"), defined("two")

		accepted := store.UpstreamTool{Upstream: "notes", Tool: "add", Listed: true, Accepted: at(one)}
		if d := cmp.Diff(store.SeenUpstream{Tools: []store.UpstreamTool{accepted}}, see(false, map[string]store.ToolDefinition{"add": one})); d != "" {
			t.Errorf("first sight (-want +got):\n%s", d)
		}
		held := accepted
		held.Held = at(two)
		want := store.SeenUpstream{Tools: []store.UpstreamTool{held}, Held: []store.UpstreamTool{held}}
		if d := cmp.Diff(want, see(false, map[string]store.ToolDefinition{"add": two})); d != "" {
			t.Errorf("changed (-want +got):\n%s", d)
		}
		want.Held = nil // told once
		if d := cmp.Diff(want, see(false, map[string]store.ToolDefinition{"add": two})); d != "" {
			t.Errorf("seen again (-want +got):\n%s", d)
		}
		if err := s.AcceptUpstreamTool(t.Context(), "notes", "", "add", one.Hash); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("accepting what is not held: %v", err)
		}
		if d := cmp.Diff([]store.UpstreamTool{held}, need(s.HeldUpstreamTools(t.Context()))(t)); d != "" {
			t.Errorf("held (-want +got):\n%s", d)
		}
		if err := s.AcceptUpstreamTool(t.Context(), "notes", "", "add", two.Hash); err != nil {
			t.Fatal(err)
		}
		gone := store.UpstreamTool{Upstream: "notes", Tool: "add", Accepted: at(two)}
		fresh := store.UpstreamTool{Upstream: "notes", Tool: "new", Listed: true, Held: at(one)}
		want = store.SeenUpstream{Tools: []store.UpstreamTool{gone, fresh}, Held: []store.UpstreamTool{fresh}}
		if d := cmp.Diff(want, see(true, map[string]store.ToolDefinition{"new": one})); d != "" {
			t.Errorf("gone, and a new one under review (-want +got):\n%s", d)
		}
		if all := need(s.UpstreamTools(t.Context(), "notes", "com_other"))(t); len(all) != 0 {
			t.Errorf("another company's: %+v", all)
		}
		need(s.SeeUpstreamTools(t.Context(), "notes", "com_a", map[string]store.ToolDefinition{"add": one, "new": one}, false))(t)
		if d := cmp.Diff([]store.CompanyID{"com_a"}, need(s.UpstreamCompanies(t.Context(), "notes"))(t)); d != "" {
			t.Errorf("companies with a list of their own (-want +got):\n%s", d)
		}
	})
}

func TestALookNeverUndoesAnAcceptance(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		s := open(store.Config{})
		look := func(d store.ToolDefinition) error {
			_, err := s.SeeUpstreamTools(t.Context(), "notes", "", map[string]store.ToolDefinition{"add": d}, false)
			return err
		}
		wants(t, look(defined("first")), nil)
		for i := range 40 {
			next := defined(fmt.Sprint("next ", i))
			wants(t, look(next), nil)
			looked := make(chan error)
			go func() { looked <- look(defined(fmt.Sprint("later ", i))) }()
			err := s.AcceptUpstreamTool(t.Context(), "notes", "", "add", next.Hash)
			wants(t, <-looked, nil)
			if got := need(s.UpstreamTools(t.Context(), "notes", ""))(t)[0].Accepted.Hash; err == nil && got != next.Hash {
				t.Fatal("what an operator accepted is not what is offered")
			}
		}
	})
}

func TestAnUpstreamsSecretIsSealedAndReplaced(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		s := open(store.Config{})
		if _, err := s.UpstreamSecret(t.Context(), "notes"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("none set: %v", err)
		}
		for _, text := range []string{"first", "second"} {
			if err := s.SetUpstreamSecret(t.Context(), "notes", store.NewSecret(text)); err != nil {
				t.Fatal(err)
			}
			if got := need(s.UpstreamSecret(t.Context(), "notes"))(t); got.Reveal() != text {
				t.Errorf("secret is not %s", text)
			}
		}
		if err := s.SetUpstreamSecret(t.Context(), "notes", store.Secret{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.UpstreamSecret(t.Context(), "notes"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("forgotten: %v", err)
		}
	})
}
