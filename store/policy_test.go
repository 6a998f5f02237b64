package store_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/policy"
	"pilder/store"
)

const denyAll = "rules:\n  - id: own.all\n    effect: deny\n    reason: {es: hoy no, en: not today}\n"

func TestAPolicyHoldsFromTheNextTurnOnAndItsVersionsStay(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		if p := need(w.Policy(t.Context(), w.acme.ID))(t); p.Version != 0 || p.Text != "" {
			t.Errorf("before: %+v", p)
		}
		before := need(w.AsOfNow(t.Context(), w.acme.ID, w.member.ID))(t)
		if v := need(w.SetPolicy(t.Context(), store.UpdateRef{}, w.acme.ID, w.admin.ID, 0, denyAll))(t); v != 1 {
			t.Errorf("version %d", v)
		}
		if v := need(w.SetPolicy(t.Context(), store.UpdateRef{}, w.acme.ID, "", 1, "house: {mail.send: deny}"))(t); v != 2 {
			t.Errorf("version %d", v)
		}
		w.SetPolicy(t.Context(), store.UpdateRef{}, w.rival.Company.ID, "", 0, denyAll)
		want := []store.PolicyVersion{
			{Version: 1, Text: denyAll, By: string(w.admin.ID), At: w.clock.Now()},
			{Version: 2, Text: "house: {mail.send: deny}", By: "operator", At: w.clock.Now()},
		}
		if diff := cmp.Diff(want, need(w.Policies(t.Context(), w.acme.ID, 10))(t)); diff != "" {
			t.Errorf("versions (-want +got):\n%s", diff)
		}
		now := need(w.AsOfNow(t.Context(), w.acme.ID, w.member.ID))(t)
		if before.Grant.Version != policy.Version || now.Grant.Version != policy.Version+"+2" || now.Grant.Rules[0].Effect != policy.Deny {
			t.Errorf("a run would be frozen with %+v", now.Grant)
		}
	})
}

// errUnmet stands for any *policy.CaseError.
var errUnmet = errors.New("a case is not met")

func TestWhoMaySetAPolicyAndWhatIsRefused(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		need(w.SetPolicy(t.Context(), store.UpdateRef{}, w.acme.ID, "", 0, ""))(t)
		for _, tt := range []struct {
			claim   string
			company store.CompanyID
			by      store.MembershipID
			over    int
			text    string
			want    error
		}{
			{"a member may not", w.acme.ID, w.member.ID, 1, denyAll, store.ErrNotYours},
			{"an approver may not", w.acme.ID, w.approver.ID, 1, denyAll, store.ErrNotYours},
			{"another company's people are not there", w.acme.ID, w.rival.ID, 1, denyAll, store.ErrNotFound},
			{"another company is not there", "cmp_none", "", 0, denyAll, store.ErrNotFound},
			{"what was made over an older version", w.acme.ID, w.admin.ID, 0, denyAll, store.ErrPolicyChanged},
			{"what does not do what it says", w.acme.ID, w.admin.ID, 1, "cases: [{name: x, tool: notion-x, app: notion, action: read, expect: deny}]", errUnmet},
			{"what is no policy", w.acme.ID, w.admin.ID, 1, "rules: [", policy.ErrPolicy},
		} {
			if _, err := w.SetPolicy(t.Context(), store.UpdateRef{}, tt.company, tt.by, tt.over, tt.text); !errors.Is(err, tt.want) && !(tt.want == errUnmet && errors.As(err, new(*policy.CaseError))) {
				t.Errorf("%s: %v", tt.claim, err)
			}
		}
		if p := need(w.Policy(t.Context(), w.acme.ID))(t); p.Version != 1 {
			t.Errorf("the old one did not stay: %+v", p)
		}
	})
}

func TestOfTwoWhoSetAPolicyOneIsFirst(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = w.SetPolicy(t.Context(), store.UpdateRef{}, w.acme.ID, "", 0, denyAll) })
		}
		all.Wait()
		set := 0
		for _, err := range errs {
			if err == nil {
				set++
			} else if !errors.Is(err, store.ErrPolicyChanged) {
				t.Error(err)
			}
		}
		if set != 1 {
			t.Errorf("%d have set it", set)
		}
	})
}
