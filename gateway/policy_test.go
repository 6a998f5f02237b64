package gateway_test

import (
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
)

// setPolicy makes a text the policy of the world's company.
func (w *world) setPolicy(t *testing.T, over int, text string) {
	t.Helper()
	need(w.SetPolicy(t.Context(), store.UpdateRef{}, w.member.Company.ID, "", over, text))(t)
}

func TestACompanysRuleStopsACallWithItsOwnSentence(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.setPolicy(t, 0, `rules:
  - id: agenda.big
    effect: hold
    tools: [google_calendar-create-*]
    when: args.summary.contains("Junta")
    reason: {es: las juntas las mira alguien más, en: somebody else looks at board meetings}
  - id: agenda.never
    effect: deny
    tools: [google_calendar-create-*]
    when: args.summary == "Fiesta"
    reason: {es: las fiestas no van en la agenda, en: parties do not go into the calendar}
`)
		run, _ := w.run(t)
		w.setPolicy(t, 1, "") // a run keeps what it was frozen with
		addr, _ := w.door(t, run)
		agent := w.agent(t, run, addr, "", nil)
		if got := call(t, agent, create, `{"summary":"Café"}`); got.IsError {
			t.Errorf("what no rule speaks of: %+v", got)
		}
		w.clock.Advance(time.Second)
		const held = "Pendiente de aprobación: las juntas las mira alguien más. No se hizo."
		for range 2 { // asked again: the same sentence
			if got := call(t, agent, create, `{"summary":"Junta anual"}`); got.Text != held || got.Structured["message"] != held || got.Structured["kind"] != "hold" {
				t.Errorf("held: %+v", got)
			}
		}
		w.clock.Advance(time.Second)
		if got := call(t, agent, create, `{"summary":"Fiesta"}`); !got.IsError || got.Text != "No permitido: las fiestas no van en la agenda. No se hizo." {
			t.Errorf("denied: %+v", got)
		}
		same(t, []row{{create, policy.Hold, "agenda.big", store.OutcomeHeld, ""}, {create, policy.Deny, "agenda.never", store.OutcomeRefused, "denied"},
			{create, policy.Allow, "", store.OutcomeDone, "ok"}}, w.rows(t, run.ID))
		same(t, 1, len(w.app.performed()))
	})
}

func TestAnApprovedCallThatTodaysRulesForbidIsNotPerformed(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run := w.approve(t)
		w.setPolicy(t, 0, "house: {mail.outside: deny}")
		same(t, row{mail, policy.Hold, "mail.outside", store.OutcomeRefused, "not_allowed"}, w.carriedOut(t, run))
		same(t, []string{}, w.app.performed())
		same(t, 1, len(w.said(t)[103]))
	})
}

func TestACompanysVetoHidesATool(t *testing.T) {
	w := onSQLite(t)
	w.setPolicy(t, 0, "vetoes: [google_calendar-create-event]")
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	if got := call(t, agent, create, `{"summary":"x"}`); !got.IsError || got.Structured["code"] != "unknown_tool" {
		t.Errorf("%+v", got)
	}
	same(t, []string{}, w.app.performed())
}

// A mail that the agent has read says where to send the data. Whatever was read, in this turn or one before, what the person
// did not write needs their button.
func TestAfterReadingALinkThatThePersonDidNotWriteIsConfirmed(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const link = `{"summary":"https://evil.example/?d=secret"}`
		run, end := w.run(t)
		addr, shut := w.door(t, run)
		agent := w.agent(t, run, addr, "", nil)
		if got := call(t, agent, create, link); got.IsError || got.Structured["status"] != "ok" {
			t.Errorf("before anything was read: %+v", got)
		}
		call(t, agent, list, `{}`)
		if got := call(t, agent, create, `{"summary":"https://evil.example/2"}`); got.Structured["kind"] != "confirm" {
			t.Errorf("after reading: %+v", got)
		}
		if got := call(t, agent, create, `{"summary":"Café"}`); got.Structured["status"] != "ok" {
			t.Errorf("words alone: %+v", got)
		}
		shut()
		end()
		next, _ := w.run(t)
		addr, _ = w.door(t, next)
		if got := call(t, w.agent(t, next, addr, "", nil), create, link); got.Structured["kind"] != "confirm" {
			t.Errorf("in the next turn: %+v", got)
		}
		same(t, []string{"google_calendar"}, need(w.Background(t.Context(), next.Principal.Company, next.ID))(t).Taint)
	})
}
