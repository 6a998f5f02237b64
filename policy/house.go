package policy

import "strings"

// Rule is one line of the house's policy: when it applies, what it does to the call, and how it is said. The same rule speaks in
// the agent's prompt and in the answer to a stopped call, so the two cannot drift.
type Rule struct {
	ID     string
	Effect Effect
	// Applies tells whether the rule speaks about this action. What it cannot read, it applies to.
	Applies func(Grant, Action) bool
	// Told is the rule in the prompt; {domains} stands for the company's domains. Empty: the agent is not told.
	// ToldAlone replaces it for a sole admin, whose holds are confirms.
	Told, ToldAlone Text
	// Reason says to a person why this call was stopped; Undone says what therefore did not happen.
	Reason, Undone Text
}

// Text is one text in the two languages of the house.
type Text struct {
	ES string `json:"es,omitempty" yaml:"es"`
	EN string `json:"en,omitempty" yaml:"en"`
}

// In returns the text in the language: Spanish for "es", "es-AR", … and for no language at all, English for all others.
func (t Text) In(lang string) string {
	tag, _, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(lang, "_", "-")), "-")
	if tag == "es" || tag == "" {
		return t.ES
	}
	return t.EN
}

// toolMail is the house tool that sends mail. It is the only way out for mail: Gmail's own is vetoed.
const toolMail = "correo_enviar"

// House returns the rules every company starts from, in the order in which they are told and, within one effect, decide.
func House() []Rule {
	notSent := Text{"No se envió.", "It was not sent."}
	notDone := Text{"No se hizo.", "It was not done."}
	return []Rule{
		{
			ID: "mail.send", Effect: Confirm,
			Applies: func(_ Grant, a Action) bool { return isTool(a, toolMail) },
			Told:    Text{"confirmar antes de enviar cualquier correo", "confirm before sending any mail"},
			Reason:  Text{"es un correo en tu nombre", "it is a mail in your name"},
			Undone:  notSent,
		},
		{
			ID: "mail.outside", Effect: Hold,
			Applies: func(g Grant, a Action) bool { return isTool(a, toolMail) && mailLeaves(a.Args, g.Domains) },
			Told: Text{
				"los envíos a direcciones fuera de {domains} quedan pendientes de aprobación",
				"mail to addresses outside {domains} waits for approval",
			},
			ToldAlone: Text{
				"los envíos a direcciones fuera de {domains} los confirma la propia persona",
				"mail to addresses outside {domains} is confirmed by the person",
			},
			Reason: Text{"el destinatario es externo a la empresa", "the recipient is outside the company"},
			Undone: notSent,
		},
		{
			ID: "event.notifies", Effect: Confirm,
			Applies: func(_ Grant, a Action) bool { return changesEvent(a) && notifiesOthers(a.Args) },
			Told: Text{
				"confirmar antes de un cambio de agenda que invite o avise a otras personas",
				"confirm before a calendar change that invites or notifies other people",
			},
			Reason: Text{"otras personas recibirían un aviso", "other people would be notified"},
			Undone: notDone,
		},
		{
			ID: "call.destructive", Effect: Confirm,
			Applies: func(_ Grant, a Action) bool { return a.Class == ClassDestructive },
			Told:    Text{"confirmar antes de borrar o sobrescribir algo", "confirm before deleting or overwriting anything"},
			Reason:  Text{"borra o cambia algo que ya existe", "it deletes or changes something that exists"},
			Undone:  notDone,
		},
		{
			ID: "taint.unnamed", Effect: Confirm,
			Applies: func(_ Grant, a Action) bool { return len(a.Taint) > 0 && a.Class != ClassRead && len(unnamed(a)) > 0 },
			Reason: Text{"lleva un enlace o una dirección que no escribiste y que puede venir de otra persona",
				"it holds a link or an address that you did not write and that may come from somebody else"},
			Undone: notDone,
		},
		{
			ID: "taint.shared", Effect: Confirm,
			Applies: func(_ Grant, a Action) bool {
				return len(a.Taint) > 0 && a.Class != ClassRead && othersSee(a) && unsaid(a)
			},
			Reason: Text{"otras personas verían un texto que no escribiste y que puede venir de otra parte",
				"others would see a text that you did not write and that may come from elsewhere"},
			Undone: notDone,
		},
		{
			ID: "taint.elsewhere", Effect: Confirm,
			Applies: func(_ Grant, a Action) bool { return a.Elsewhere && tainted(a, a.App) && unsaid(a) },
			Reason: Text{"llevaría a otro servicio un texto que no escribiste y que puede venir de otra parte",
				"it would take a text that you did not write, and that may come from elsewhere, to another service"},
			Undone: notDone,
		},
		{
			ID: "call.unknown", Effect: Confirm,
			Applies: func(_ Grant, a Action) bool {
				return a.Class != ClassRead && a.Class != ClassWrite && a.Class != ClassDestructive
			},
			Reason: Text{"no se sabe del todo qué cambiaría", "it is not fully known what it would change"},
			Undone: notDone,
		},
	}
}

// houseVetoes are the tools that reach third parties without pilder being able to show the person what would go out.
func houseVetoes() []string {
	return []string{
		"google_calendar-add-attendees-to-event", // invites and mails
		"google_calendar-respond-to-event",       // answers third parties
		"gmail-send-email",                       // mail goes through correo_enviar, with its rules
	}
}

func isTool(a Action, name string) bool { return strings.EqualFold(a.Tool, name) }

// changesEvent tells whether an action changes Google Calendar. The four tools named here have guests among their
// arguments (registry of Pipedream, 2026), and stay caught even if a table calls one of them a read.
func changesEvent(a Action) bool {
	tool := strings.ToLower(a.Tool)
	switch tool {
	case "google_calendar-create-event", "google_calendar-update-event",
		"google_calendar-update-event-attendees", "google_calendar-quick-add-event":
		return true
	}
	return a.Class != ClassRead && (strings.HasPrefix(tool, "google_calendar-") || a.App == "google_calendar")
}
