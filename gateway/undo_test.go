package gateway_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// makes lets the member's agent create an event that can be taken back, and answers; it gives the run and the undo button.
func (w *world) makes(t *testing.T, undo gateway.Undo) (run store.RunID, button string) {
	t.Helper()
	w.app.on(create, func(context.Context, gateway.Call) (gateway.Result, error) {
		r := done("made")
		r.Undo = &undo
		return r, nil
	})
	w.answer = []store.Draft{{Kind: store.DraftAnswer, Markdown: "made"}}
	r, end := w.run(t)
	addr, shut := w.door(t, r)
	call(t, w.agent(t, r, addr, "", nil), create, `{"summary":"x"}`)
	shut()
	end()
	return r.ID, w.undoButton(t)
}

// undoButton empties the outbox and gives the last undo button in it.
func (w *world) undoButton(t *testing.T) (ref string) {
	t.Helper()
	for {
		r, ok, _, err := w.NextReply(t.Context(), w.poller)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return ref
		}
		for _, row := range r.Draft.Buttons {
			for _, b := range row {
				if b.Action == store.ButtonUndo {
					ref = b.Ref
				}
			}
		}
		w.updates++
		if err := w.MarkSending(t.Context(), w.poller, r.ID); err != nil {
			t.Fatal(err)
		}
		if err := w.MarkSent(t.Context(), w.poller, r.ID, w.updates); err != nil {
			t.Fatal(err)
		}
	}
}

// takenBack presses the button and gives the row of what came of it.
func (w *world) takenBack(t *testing.T, run store.RunID, button string) row {
	t.Helper()
	if _, err := w.TakeBack(t.Context(), w.update(t, 103), button, 103); err != nil {
		t.Fatal(err)
	}
	var found row
	w.serveApprovedUntil(t, func() bool {
		for _, r := range w.rows(t, run) {
			if r.Rule == store.RuleUndo {
				found = r
			}
		}
		return found.Outcome != store.OutcomeHeld
	})
	return found
}

func delete1() gateway.Undo { return gateway.Undo{Tool: remove, Args: json.RawMessage(`{"id":"1"}`)} }

func TestAnEffectIsTakenBackAsAnApprovedCallIs(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, button := w.makes(t, delete1())
		same(t, row{remove, policy.Confirm, store.RuleUndo, store.OutcomeDone, "ok"}, w.takenBack(t, run, button))
		same(t, []string{`google_calendar-create-event {"summary":"x"} apn_calendar`, `google_calendar-delete-event {"id":"1"} apn_calendar`}, w.app.performed())
		same(t, []string{"done: effect 2"}, w.said(t)[103])
		w.serveApprovedUntil(t, func() bool { return true })
		same(t, 2, len(w.app.performed()))
	})
}

func TestATakingBackIsLookedAtWithTodaysRulesAndAccounts(t *testing.T) {
	for claim, tt := range map[string]struct {
		change func(w *world, t *testing.T)
		want   row
	}{
		"today's rules forbid it": {func(w *world, t *testing.T) { w.setPolicy(t, 0, "house:\n  call.destructive: deny\n") },
			row{remove, policy.Confirm, store.RuleUndo, store.OutcomeRefused, "not_allowed"}},
		"the tool is gone": {func(w *world, _ *testing.T) { delete(w.app.tools, "google_calendar") },
			row{remove, policy.Confirm, store.RuleUndo, store.OutcomeFailed, "unknown_tool"}},
		"its outcome is not known": {func(w *world, _ *testing.T) {
			w.app.on(remove, func(context.Context, gateway.Call) (gateway.Result, error) { panic("cut") })
		}, row{remove, policy.Confirm, store.RuleUndo, store.OutcomeUnknown, "outcome_unknown"}},
	} {
		t.Run(claim, func(t *testing.T) {
			w := onSQLite(t)
			run, button := w.makes(t, delete1())
			tt.change(w, t)
			same(t, tt.want, w.takenBack(t, run, button))
			same(t, 1, len(w.said(t)[103]))
		})
	}
}

func TestAnUndoThatCouldNotWorkIsNotOffered(t *testing.T) {
	for claim, undo := range map[string]gateway.Undo{
		"a tool that the person lacks":       {Tool: "asana-search", Args: json.RawMessage(`{}`)},
		"a tool that does not exist":         {Tool: "x", Args: json.RawMessage(`{}`)},
		"arguments that do not fit the tool": {Tool: remove, Args: json.RawMessage(`[]`)},
	} {
		w := onSQLite(t)
		if _, button := w.makes(t, undo); button != "" {
			t.Errorf("%s is offered", claim)
		}
	}
}

// describer is the app, telling what ids stand for.
type describer struct {
	*app
	facts func() []store.Fact
}

func (d describer) Describe(context.Context, gateway.Call) []store.Fact { return d.facts() }

func TestWhoDecidesReadsWhatAnIDStandsFor(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for claim, facts := range map[string]func() []store.Fact{
			"named":     func() []store.Fact { return []store.Fact{{Arg: "id", Text: "Comité · 10:00"}} },
			"unnamed":   func() []store.Fact { return []store.Fact{{Arg: "id"}} },
			"a failure": func() []store.Fact { panic("secret") },
		} {
			w.g = need(gateway.New(w.cfg, w.Store, describer{w.app, facts}))(t)
			run, end := w.run(t)
			addr, shut := w.door(t, run)
			call(t, w.agent(t, run, addr, "", nil), remove, `{"id":"`+claim+`"}`)
			shut()
			end()
			var want []store.Fact
			if claim != "a failure" {
				want = facts()
			}
			waiting := slices.DeleteFunc(need(w.PendingApprovals(t.Context(), w.member.Principal()))(t), func(a store.Approval) bool {
				return a.Run != run.ID
			})
			if len(waiting) != 1 {
				t.Fatalf("%s: %d approvals wait", claim, len(waiting))
			}
			same(t, want, waiting[0].Facts)
		}
	})
}

func TestThoseWhoMayDecideAreReminded(t *testing.T) {
	w := onSQLite(t)
	w.cfg.Remind = func(to store.Approver, all []store.Approval) store.Draft {
		return store.Draft{Kind: store.DraftNotice, Notice: "remember"}
	}
	w.cfg.Reminding = store.Reminding{From: 0, To: 24}
	w.build(t)
	run, end := w.run(t)
	addr, shut := w.door(t, run)
	call(t, w.agent(t, run, addr, "", nil), mail, `{"para":["fuera@otra.com"]}`)
	shut()
	end()
	w.said(t)
	w.clock.Advance(6 * time.Hour)
	w.serveApprovedUntil(t, func() bool { return need(w.OutboxWaiting(t.Context(), worldBot, 102))(t) > 0 })
	same(t, map[int64][]string{101: {"remember"}, 102: {"remember"}}, w.said(t))
}
