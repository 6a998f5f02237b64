package bot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pilder/bot"
	"pilder/policy"
	"pilder/sim/telegram"
	"pilder/store"
)

// letter is a mail too long for one message.
func letter() string {
	return `{"para":["cliente@otra.com"],"asunto":"Contrato","cuerpo":` + quoted(strings.Repeat("Una cláusula más. ", 200)+"FIN") + `}`
}

// holds has a run of Ana's hold several mails at once.
func (w *world) holds(args ...string) []store.Approval {
	w.t.Helper()
	asked := make(chan store.Approval, len(args))
	w.turns(func(ctx context.Context, r store.Run) store.Finish {
		for _, a := range args {
			begun, err := w.store.BeginCall(ctx, store.NewCall{Run: r, Tool: "correo_enviar", Class: policy.ClassWrite, Args: json.RawMessage(a),
				Decision: policy.Decision{Effect: policy.Hold, Rule: "mail.outside"}}, bot.Card)
			if err != nil {
				w.t.Error(err)
				break
			}
			asked <- *begun.Approval
		}
		close(asked)
		return store.Finish{State: store.RunSucceeded, Reason: "ok", Drafts: []store.Draft{bot.Answer(r, "quedan pendientes")}}
	})
	w.start()
	w.sim.Say(ana, "envía todo")
	var all []store.Approval
	for a := range asked {
		all = append(all, a)
	}
	return all
}

func TestC54ALongCardIsShortAndAYesCountsOnceAllOfItWasShown(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		done := w.executes(store.OutcomeDone)
		w.asks("correo_enviar", letter(), policy.Hold)
		card := w.reads(bruno, "Your approval is needed")
		if len(card.Buttons) != 2 || strings.Contains(card.Text, "FIN") || !strings.Contains(card.Text, "whole under “Show all”") {
			t.Errorf("%+v", card)
		}
		if got := w.answered(w.sim.PressLabel(bruno, card.ID, "✅ Approve")); !strings.HasPrefix(got, "Before you decide") {
			t.Errorf("told %q", got)
		}
		w.reads(bruno, "FIN") // shown without a further press
		w.until("all is shown", func() bool {
			q := w.sim.PressLabel(bruno, card.ID, "👁 Show all")
			return w.answered(q) == "You have all of it above."
		})
		if n := done(); n != 0 {
			t.Errorf("performed %d times", n)
		}
		w.sim.PressLabel(bruno, card.ID, "✅ Approve")
		w.reads(ana, "Hecho: enviar un correo.")
		if n := done(); n != 1 {
			t.Errorf("performed %d times", n)
		}
	})
}

// Telegram has nothing of a card's further part, in no form of a message: it comes as a document, and can be decided.
func TestAPartOfACardThatIsRefusedComesAsADocument(t *testing.T) {
	w := alone(t)
	w.executes(store.OutcomeDone)
	w.sim.Fault(telegram.Fault{Kind: telegram.Refuse, Method: "sendMessage", Chat: bruno, Code: 400, Count: -1, Description: "Bad Request: message is too long"})
	w.asks("correo_enviar", letter(), policy.Hold)
	var card telegram.Message
	w.until("a document with buttons", func() bool {
		for _, m := range w.sim.Transcript(bruno) {
			if m.Bot && len(m.Buttons) == 2 {
				card = m
				return true
			}
		}
		return false
	})
	w.sim.PressLabel(bruno, card.ID, "👁 Show all")
	w.until("all is shown", func() bool {
		return w.answered(w.sim.PressLabel(bruno, card.ID, "👁 Show all")) == "You have all of it above."
	})
	w.sim.PressLabel(bruno, card.ID, "✅ Approve")
	w.reads(ana, "Hecho: enviar un correo.")
	w.until("the document loses its buttons", func() bool {
		for _, m := range w.sim.Transcript(bruno) {
			if m.ID == card.ID {
				return len(m.Buttons) == 0
			}
		}
		return false
	})
}

func TestC53SeveralCallsAreDecidedTogetherEachOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		done := w.executes(store.OutcomeDone)
		all := w.holds(mailArgs, `{"para":["b@otra.com"]}`, letter())
		sum := w.reads(bruno, "waits for 3 decisions of yours")
		for _, a := range all {
			if !strings.Contains(sum.Text, "send a mail · "+a.Code) {
				t.Errorf("the summary lacks %s: %s", a.Code, sum.Text)
			}
		}
		other := w.reads(carla, "espera 3 decisiones tuyas")
		// One of them is long, and was not shown whole: nothing is decided, and it is shown.
		if got := w.answered(w.sim.PressLabel(bruno, sum.ID, "✅ Approve all 3")); !strings.HasPrefix(got, "Before you approve them all") {
			t.Errorf("told %q", got)
		}
		if n := done(); n != 0 {
			t.Errorf("performed %d", n)
		}
		w.reads(bruno, "FIN")
		if got := w.answered(w.sim.Press(ana, sum.ID, sum.Buttons[0][0].Data)); got != "Esta decisión le toca a otra persona." {
			t.Errorf("the requester is told %q", got)
		}
		w.until("approved", func() bool {
			return w.answered(w.sim.Press(bruno, sum.ID, sum.Buttons[0][0].Data)) == "Approved: 3. I am on it."
		})
		w.until("three outcomes", func() bool { return w.count(ana, "Hecho: enviar un correo.") == 3 })
		if n := done(); n != 3 {
			t.Errorf("performed %d", n)
		}
		for who, id := range map[int64]int64{bruno: sum.ID, carla: other.ID} {
			w.until("summaries lose their buttons", func() bool {
				for _, m := range w.sim.Transcript(who) {
					if m.ID == id {
						return len(m.Buttons) == 0
					}
				}
				return false
			})
		}
	})
}

func TestTheOutcomeQuotesTheMessageItBelongsTo(t *testing.T) {
	w := alone(t)
	w.executes(store.OutcomeDone)
	a := w.asks("correo_enviar", mailArgs, policy.Confirm)
	card := w.reads(ana, "¿Lo hago?")
	w.sim.PressLabel(ana, card.ID, "✅ Enviar")
	out := w.reads(ana, "Hecho: enviar un correo.")
	if a.Message == 0 || out.ReplyTo != a.Message {
		t.Errorf("replies to %d, not %d", out.ReplyTo, a.Message)
	}
}

func TestWhatWasDoneCanBeUndoneByItsButton(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		done := w.executes(store.OutcomeDone)
		w.turns(func(ctx context.Context, r store.Run) store.Finish {
			for i := range 2 {
				begun, err := w.store.BeginCall(ctx, store.NewCall{Run: r, Tool: "google_calendar-create-event", App: "google_calendar",
					Class: policy.ClassWrite, Args: json.RawMessage(fmt.Sprintf(`{"summary":"%d"}`, i)), Decision: policy.Decision{Effect: policy.Allow}}, bot.Card)
				if err == nil {
					err = w.store.EndCall(ctx, r.Principal.Company, begun.ID, store.OutcomeDone, "ok", nil, &store.Undo{Tool: "google_calendar-delete-event",
						App: "google_calendar", Class: policy.ClassDestructive, Args: json.RawMessage(fmt.Sprintf(`{"eventId":"evt%d"}`, i))})
				}
				if err != nil {
					w.t.Error(err)
				}
			}
			return store.Finish{State: store.RunSucceeded, Reason: "ok", Drafts: []store.Draft{bot.Answer(r, "agendado")}}
		})
		w.start()
		w.sim.Say(ana, "agenda dos reuniones")
		said := w.reads(ana, "agendado")
		if len(said.Buttons) != 2 || said.Buttons[0][0].Text != "↩️ Deshacer: crear un evento en la agenda" {
			t.Fatalf("buttons %+v", said.Buttons)
		}
		first := said.Buttons[0][0].Data
		if got := w.answered(w.sim.Press(carla, said.ID, first)); got != "Solo puede deshacerlo quien lo pidió." {
			t.Errorf("somebody else is told %q", got)
		}
		if got := w.answered(w.sim.Press(ana, said.ID, first)); got != "Voy a deshacerlo." {
			t.Errorf("told %q", got)
		}
		w.reads(ana, "Deshecho (borrar un evento de la agenda).")
		if got := w.answered(w.sim.Press(ana, said.ID, first)); got != "Eso ya está deshecho o deshaciéndose." {
			t.Errorf("told %q", got)
		}
		if n := done(); n != 1 {
			t.Errorf("performed %d", n)
		}
	})
}

func TestAnApproverGoesAwayAndTheirDeputyIsTold(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.start()
		w.sim.Say(ana, "/away")
		w.reads(ana, "Esto es para quien aprueba cosas en tu empresa.")
		w.sim.Say(bruno, "/away")
		ask := w.reads(bruno, "How long will you be away?")
		w.sim.PressLabel(bruno, ask.ID, "3 days")
		who := w.reads(bruno, "Who decides meanwhile?")
		if len(who.Buttons) != 2 || who.Buttons[0][0].Text != "Carla" {
			t.Fatalf("%+v", who.Buttons)
		}
		w.sim.PressLabel(bruno, who.ID, "Carla")
		w.reads(bruno, "Carla decides meanwhile.")
		w.reads(carla, "Bruno Lee estará fuera hasta el")
		w.asks("correo_enviar", mailArgs, policy.Hold)
		w.reads(carla, "Decides en lugar de Bruno Lee, que no está.")
		w.sim.Say(bruno, "/back")
		w.reads(bruno, "Welcome back.")
	})
}

func TestACardNamesWhatAnIDStandsFor(t *testing.T) {
	b := cardBot(t)
	for text, want := range map[string]string{
		"Comité\u202e · 2026-12-03 10:00 (Europe/Madrid)": "Evento: evt0001\n   → Comité⟦U+202E⟧ · 2026-12-03 10:00 (Europe/Madrid)",
		"": "Evento: evt0001\n   → sin nombre: no he podido leer de qué se trata",
	} {
		parts, err := b.Parts(store.Reply{
			Approval: &store.Approval{Kind: policy.Confirm, State: store.ApprovalPending, Tool: "google_calendar-delete-event",
				Args: json.RawMessage(`{"eventId":"evt0001"}`), Facts: []store.Fact{{Arg: "eventId", Text: text}, {Text: "trabajo\u202e@x.com"}}},
			Draft: store.Draft{Kind: store.DraftCard, Notice: "card.confirm", Lang: "es"},
		})
		must(t, err)
		for _, want := range []string{want, "Cuenta: trabajo⟦U+202E⟧@x.com\n"} {
			if !strings.Contains(parts[0].Text, want) {
				t.Errorf("lacks %q:\n%s", want, parts[0].Text)
			}
		}
	}
}
