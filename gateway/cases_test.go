package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// The cases of docs/cases.md that are about the gateway as a whole; those of one part stand beside that part.

// Elsewhere an MCP session that another process restored had no identity, and no tools.
func TestG07_ADoorInAnotherProcessListsTheSame(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, _ := w.run(t)
		names := func() []string {
			t.Helper()
			addr, shut := w.door(t, run)
			defer shut()
			var all []string
			for _, revision := range eras() {
				var listed []string
				for _, tool := range need(w.agent(t, run, addr, revision, nil).ListTools(t.Context(), nil))(t).Tools {
					listed = append(listed, tool.Name)
				}
				if all != nil {
					same(t, all, listed)
				}
				all = listed
			}
			return all
		}
		before := names()
		w.build(t)
		after := names()
		if len(before) == 0 {
			t.Error("nothing is listed at all")
		}
		same(t, before, after)
	})
}

// Elsewhere the answer to a question that was asked through the protocol reached an instance that knew nothing of it.
func TestG22_AnyProcessCarriesOutWhatWasApproved(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run := w.approve(t) // asked at a door that is closed since
		w.build(t)          // another process: it shares the store and nothing else
		same(t, row{mail, policy.Hold, "mail.outside", store.OutcomeDone, "ok"}, w.carriedOut(t, run))
		same(t, 1, len(w.app.performed()))
	})
}

// Elsewhere a write that timed out was called again, and performed twice.
func TestG49_AWriteThatTimedOutIsNotPerformedAgain(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.cfg.CallTimeout = 50 * time.Millisecond // the app never answers: any time is long enough
		w.build(t)
		w.app.on(create, func(ctx context.Context, _ gateway.Call) (gateway.Result, error) {
			<-ctx.Done()
			return gateway.Result{}, ctx.Err()
		})
		for era, revision := range eras() {
			run, end := w.run(t)
			addr, _ := w.door(t, run)
			agent := w.agent(t, run, addr, revision, nil)
			for _, args := range []string{`{"summary":"x","minutes":5}`, `{"minutes":5,"summary":"x"}`, `{ "summary" : "\u0078", "minutes": 5 }`} {
				if got := call(t, agent, create, args); !got.IsError || got.Structured["code"] != "outcome_unknown" || got.Structured["performed"] != "unknown" {
					t.Errorf("%s: %s: %+v", era, args, got)
				}
			}
			same(t, []row{{create, policy.Allow, "", store.OutcomeUnknown, "outcome_unknown"}}, w.rows(t, run.ID))
			end()
		}
		same(t, 2, len(w.app.performed())) // one for each era's run
	})
}

// Elsewhere this was an open wish.
func TestG50_AnApprovalIsForOneExactCallOnceAndForAWhile(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, end := w.run(t)
		addr, shut := w.door(t, run)
		agent := w.agent(t, run, addr, "", nil)
		for _, to := range []string{"a@otra.com", "b@otra.com", "c@otra.com"} {
			if held := call(t, agent, mail, fmt.Sprintf(`{"para":[%q]}`, to)); held.Structured["status"] != "pending" {
				t.Fatalf("%+v", held)
			}
		}
		shut()
		end()
		w.said(t) // the cards go out
		w.build(t)
		decide := func(a store.Approval) error {
			_, err := w.Decide(t.Context(), w.update(t, 102), store.Verdict{Approval: a.ID, Approve: true, Telegram: 102},
				func(store.Approval) []store.Draft { return nil })
			return err
		}
		pending := need(w.PendingApprovals(t.Context(), w.other.Principal()))(t)
		approvalOf := func(to string) store.Approval {
			i := slices.IndexFunc(pending, func(a store.Approval) bool { return string(a.Args) == fmt.Sprintf(`{"para":[%q]}`, to) })
			return pending[i]
		}
		if err := decide(approvalOf("b@otra.com")); err != nil {
			t.Fatal(err)
		}
		if err := decide(approvalOf("b@otra.com")); err == nil {
			t.Error("approved twice")
		}
		w.serveApprovedUntil(t, func() bool {
			return slices.ContainsFunc(w.rows(t, run.ID), func(r row) bool { return r.Outcome == store.OutcomeDone })
		})
		same(t, []string{`correo_enviar {"para":["b@otra.com"]} apn_mail`}, w.app.performed())

		w.clock.Advance(25 * time.Hour)
		if err := decide(approvalOf("a@otra.com")); err == nil {
			t.Error("approved after its end")
		}
		w.serveApprovedUntil(t, func() bool {
			return !slices.ContainsFunc(w.rows(t, run.ID), func(r row) bool { return r.Outcome == store.OutcomeHeld })
		})
		same(t, 1, len(w.app.performed()))
	})
}
