package bot_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/policy"
	"pilder/sim/telegram"
	"pilder/store"
)

// labels are the texts of a message's buttons, row by row.
func labels(m telegram.Message) (all []string) {
	for _, row := range m.Buttons {
		for _, b := range row {
			all = append(all, b.Text)
		}
	}
	return all
}

// tap presses the first button of a row.
func (w *world) tap(person int64, m telegram.Message, row int) (query string) {
	return w.sim.Press(person, m.ID, m.Buttons[row][0].Data)
}

func TestAnAdminSwitchesARuleOfTheHouseByButtons(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.live()
		w.start()
		w.sim.Say(carla, "/policy")
		shown := w.reads(carla, "Estas son las reglas")
		if !strings.Contains(shown.Text, "• Enviar un correo fuera de la empresa: lo aprueba otra persona") {
			t.Errorf("shown: %s", shown.Text)
		}
		rules := []string{"Enviar un correo", "Enviar un correo fuera de la empresa", "Cambiar la agenda cuando avisa a otras personas", "Borrar o sobrescribir algo",
			"Usar enlaces o direcciones que la persona no escribió", "Poner a la vista de otros un texto que la persona no escribió",
			"Llevar a otro servicio un texto que la persona no escribió", "Hacer algo que no se conoce del todo", "¿Qué pasaría si…?"}
		if diff := cmp.Diff(rules, labels(shown)); diff != "" {
			t.Error(diff)
		}
		w.tap(carla, shown, 7)
		unknown := w.reads(carla, "Hacer algo que no se conoce del todo: ¿qué debe pasar?")
		if diff := cmp.Diff([]string{"lo confirma quien lo pide", "lo aprueba otra persona", "no se hace"}, labels(unknown)); diff != "" {
			t.Errorf("what nobody knows is never let through: %s", diff)
		}
		w.tap(carla, shown, 1)
		choice := w.reads(carla, "Enviar un correo fuera de la empresa: ¿qué debe pasar?")
		w.tap(carla, choice, 3)
		w.reads(carla, "Hecho. Desde el próximo mensaje, Enviar un correo fuera de la empresa: no se hace.")
		now, err := w.store.Policy(t.Context(), w.company.ID)
		must(t, err)
		if now.Version != 1 || now.Text != "house:\n  mail.outside: deny\n" || now.By != string(w.who[carla].ID) {
			t.Errorf("in force: %+v", now)
		}
		late := w.tap(carla, unknown, 2) // was shown before that
		if got := w.answered(late); !strings.Contains(got, "Las reglas cambiaron mientras tanto") {
			t.Errorf("the older button says %q", got)
		}
		if again, err := w.store.Policy(t.Context(), w.company.ID); err != nil || again.Version != 1 {
			t.Errorf("an older button has set %+v, %v", again, err)
		}
	})
}

func TestAnAdminWritesAPolicyAndSeesItBeforeItHolds(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.live()
		w.start()
		w.sim.Say(carla, "/policy\nhouse: {mail.sent: deny}")
		w.reads(carla, "Así no puedo usar esas reglas, y quedan las de antes:\nline 1: the house has no rule")
		w.sim.Say(carla, "/policy\nrules:\n  - id: own\n    effect: deny\n    tools: [“notion-*”]\n    reason: {es: hoy no, en: not today}\n")
		shown := w.reads(carla, "las reglas quedarían así")
		if !strings.Contains(shown.Text, "• hoy no (own): no se hace") {
			t.Errorf("shown: %s", shown.Text)
		}
		if p, err := w.store.Policy(t.Context(), w.company.ID); err != nil || p.Version != 0 {
			t.Errorf("before the button: %+v, %v", p, err)
		}
		w.tap(carla, shown, 0)
		w.reads(carla, "Las reglas nuevas valen")
		now, err := w.store.AsOfNow(t.Context(), w.company.ID, w.who[ana].ID)
		must(t, err)
		if len(now.Grant.Own) != 1 || now.Grant.Own[0].ID != "own" || now.Grant.Own[0].Effect != policy.Deny {
			t.Errorf("a run would be frozen with %+v", now.Grant)
		}
	})
}

func TestOnlyAnAdminInPrivateSeesAndChangesTheRules(t *testing.T) {
	w := alone(t)
	w.live()
	w.start()
	w.sim.Say(bruno, "/policy")
	w.reads(bruno, "for your company's administrators")
	w.sim.Say(carla, "/policy")
	w.tap(carla, w.reads(carla, "Estas son las reglas"), 0)
	choice := w.reads(carla, "Enviar un correo: ¿qué debe pasar?")
	forged := w.sim.Press(bruno, choice.ID, choice.Buttons[0][0].Data) // only the data is theirs
	if got := w.answered(forged); !strings.Contains(got, "administrators") {
		t.Errorf("the press of somebody else says %q", got)
	}
	if p, err := w.store.Policy(t.Context(), w.company.ID); err != nil || p != (store.PolicyVersion{}) {
		t.Errorf("set: %+v, %v", p, err)
	}
}

func TestAPolicyMayComeAsADocument(t *testing.T) {
	w := alone(t)
	w.live()
	w.start()
	w.sim.Send(carla, telegram.Upload{Name: "rules.yaml", Caption: "/policy", Content: []byte("\uFEFFhouse:\n  mail.outside: deny\n")})
	shown := w.reads(carla, "las reglas quedarían así")
	if !strings.Contains(shown.Text, "Con esto cambiaría:\n• Enviar un correo fuera de la empresa: lo aprueba otra persona → no se hace") {
		t.Errorf("shown: %s", shown.Text)
	}
	w.tap(carla, shown, 0)
	w.reads(carla, "Las reglas nuevas valen")
	if p, err := w.store.Policy(t.Context(), w.company.ID); err != nil || p.Text != "house:\n  mail.outside: deny\n" {
		t.Errorf("in force: %+v, %v", p, err)
	}
	for name, file := range map[string]telegram.Upload{
		"too large as it is":   {Content: []byte(strings.Repeat("# rules\n", 9000))},
		"too large as it says": {Content: []byte("house: {}\n"), Size: 1 << 30},
		"no text":              {Content: []byte("house:\x00\xff")},
	} {
		file.Name, file.Caption = "rules.yaml", "/policy"
		t.Log(name)
		w.readsAfter(carla, w.sim.Send(carla, file), "No pude leer ese archivo")
	}
	w.sim.Send(bruno, telegram.Upload{Name: "rules.yaml", Caption: "/policy", Content: []byte("house: {}\n")})
	w.reads(bruno, "for your company's administrators")
}

func TestAnAdminSeesWhatWouldHappenBeforeItDoes(t *testing.T) {
	w := alone(t)
	w.live()
	w.start()
	w.sim.Say(carla, "/policy")
	shown := w.reads(carla, "Estas son las reglas")
	w.tap(carla, shown, len(shown.Buttons)-1)
	preview := w.reads(carla, "Si hoy alguien de tu equipo pidiera esto")
	for _, line := range []string{
		"• Enviar un correo fuera de la empresa: lo aprueba otra persona",
		"• Leer su agenda: se hace sin preguntar",
		"• Crear una reunión propia: se hace sin preguntar",
		"• Crear una reunión con invitados: lo confirma quien lo pide",
		"• Borrar una reunión: lo confirma quien lo pide",
	} {
		if !strings.Contains(preview.Text, line) {
			t.Errorf("%q is not in: %s", line, preview.Text)
		}
	}
	for asked, answer := range map[string]string{
		`/policy si correo_enviar {"para": ["juan@otra.com"], "asunto": "x", "cuerpo": "y"}`: "lo aprueba otra persona",
		`/policy if google_calendar-list-events`:                                             "se hace sin preguntar",
		`/policy if some-tool {“a”: 1}`:                                                      "lo confirma quien lo pide",
		`/policy if gmail-send-email {}`:                                                     "no se hace",
		`/policy if correo_enviar {"para"`:                                                   "Escríbelo así: /policy si correo_enviar",
	} {
		w.readsAfter(carla, w.sim.Say(carla, asked), answer)
	}
	if p, err := w.store.Policy(t.Context(), w.company.ID); err != nil || p.Version != 0 {
		t.Errorf("a preview has set %+v, %v", p, err)
	}
}
