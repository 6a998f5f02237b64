package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/policy"
)

func TestWhatIsSaidOfAStoppedCall(t *testing.T) {
	g := grantFor(policy.RoleMember, false)
	g.Own = []policy.Own{{ID: "own.night", Effect: policy.Hold, Reason: policy.Text{ES: "es de noche", EN: "it is night"}}}
	for _, tt := range []struct {
		decision policy.Decision
		lang     string
		want     string
	}{
		{policy.Decision{Effect: policy.Hold, Rule: "mail.outside"}, "es",
			"Pendiente de aprobación: el destinatario es externo a la empresa. No se envió."},
		{policy.Decision{Effect: policy.Hold, Rule: "mail.outside"}, "en-GB",
			"Waiting for approval: the recipient is outside the company. It was not sent."},
		{policy.Decision{Effect: policy.Confirm, Rule: "mail.outside", Downgraded: true}, "es-AR",
			"Pendiente de tu confirmación: el destinatario es externo a la empresa. No se envió."},
		{policy.Decision{Effect: policy.Confirm, Rule: "mail.send"}, "es",
			"Pendiente de tu confirmación: es un correo en tu nombre. No se envió."},
		{policy.Decision{Effect: policy.Confirm, Rule: "call.destructive"}, "fr",
			"Waiting for your confirmation: it deletes or changes something that exists. It was not done."},
		{policy.Decision{Effect: policy.Deny, Rule: policy.RuleVetoed}, "es",
			"No permitido: tu empresa no deja hacer esto desde aquí. No se hizo."},
		{policy.Decision{Effect: policy.Hold, Rule: "own.night"}, "es", "Pendiente de aprobación: es de noche. No se hizo."},
		{policy.Decision{Effect: policy.Deny, Rule: "own.gone"}, "en", "Not allowed: your company's rules do not allow it. It was not done."},
		{policy.Decision{}, "", "No permitido: no lo permiten las reglas de tu empresa. No se hizo."},
		{policy.Decision{Effect: policy.Allow}, "es", ""},
		{policy.Decision{Effect: policy.Effect(9), Rule: "mail.send"}, "es",
			"No permitido: es un correo en tu nombre. No se envió."},
	} {
		if diff := cmp.Diff(tt.want, g.Sentence(tt.decision, tt.lang)); diff != "" {
			t.Errorf("%+v in %q: %s", tt.decision, tt.lang, diff)
		}
	}
}

func TestEveryRuleSpeaksBothLanguages(t *testing.T) {
	for _, r := range policy.House() {
		for name, text := range map[string]policy.Text{"Reason": r.Reason, "Undone": r.Undone} {
			if text.ES == "" || text.EN == "" || text.ES == text.EN {
				t.Errorf("%s of %s: %+v", name, r.ID, text)
			}
		}
		for name, text := range map[string]policy.Text{"Told": r.Told, "ToldAlone": r.ToldAlone} {
			if (text.ES == "") != (text.EN == "") {
				t.Errorf("%s of %s: %+v", name, r.ID, text)
			}
		}
		if r.Effect == policy.Hold && r.ToldAlone.ES == "" {
			t.Errorf("%s holds, and says nothing to a sole admin", r.ID)
		}
	}
}

func TestWhatTheAgentIsToldOfTheRules(t *testing.T) {
	const last = "confirmar antes de un cambio de agenda que invite o avise a otras personas|confirmar antes de borrar o sobrescribir algo"
	held := func() policy.Grant {
		g := grantFor(policy.RoleMember, false)
		g.Domains = []string{"empresa.com"}
		return g
	}
	tightened := held()
	tightened.Rules = append(tightened.Rules, policy.RuleRef{ID: "mail.send", Effect: policy.Deny})
	for _, tt := range []struct {
		claim string
		grant policy.Grant
		lang  string
		want  string
	}{
		{"the founding sentences", held(), "es", "confirmar antes de enviar cualquier correo|" +
			"los envíos a direcciones fuera de @empresa.com quedan pendientes de aprobación|" + last},
		{"a sole admin's holds are told as confirms", grantFor(policy.RoleAdmin, true), "es", "confirmar antes de enviar cualquier correo|" +
			"los envíos a direcciones fuera de @empresa.com y @xn--and-6ma2c.example los confirma la propia persona|" + last},
		{"a company without domain", policy.NewGrant(policy.GrantInput{}), "en", "confirm before sending any mail|" +
			"mail to addresses outside the company waits for approval|" +
			"confirm before a calendar change that invites or notifies other people|confirm before deleting or overwriting anything"},
		{"a rule made stricter says so", tightened, "es", "confirmar antes de enviar cualquier correo (no permitido)|" +
			"los envíos a direcciones fuera de @empresa.com quedan pendientes de aprobación|" + last},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			if diff := cmp.Diff(strings.Split(tt.want, "|"), tt.grant.Sentences(tt.lang)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
