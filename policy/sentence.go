package policy

import "strings"

// refusals say why a call was stopped before any rule was asked.
func refusals() map[string]Text {
	return map[string]Text{
		RuleNobody:       {"no sé quién lo pide", "I cannot tell who is asking"},
		RuleOtherGrant:   {"este permiso es de otra persona", "this permission belongs to somebody else"},
		RuleScope:        {"este acceso no lo incluye", "this access does not include it"},
		RuleVetoed:       {"tu empresa no deja hacer esto desde aquí", "your company does not let this be done from here"},
		RuleNotConnected: {"esa app no está conectada", "that app is not connected"},
		RuleUnknown:      {"las reglas de tu empresa han cambiado", "your company's rules have changed"},
	}
}

// Sentence returns what the model and the person read about a stopped call. It is empty for Allow.
func (g Grant) Sentence(d Decision, lang string) string {
	if d.Effect == Allow {
		return ""
	}
	reason := Text{"no lo permiten las reglas de tu empresa", "your company's rules do not allow it"}
	undone := Text{"No se hizo.", "It was not done."}
	if t, ok := refusals()[d.Rule]; ok {
		reason = t
	}
	for _, r := range House() {
		if r.ID == d.Rule {
			reason, undone = r.Reason, r.Undone
		}
	}
	for _, o := range g.Own {
		if o.ID == d.Rule {
			reason = o.Reason
		}
	}
	var lead Text
	switch d.Effect {
	case Hold:
		lead = Text{"Pendiente de aprobación", "Waiting for approval"}
	case Confirm:
		lead = Text{"Pendiente de tu confirmación", "Waiting for your confirmation"}
	default:
		lead = Text{"No permitido", "Not allowed"}
	}
	return lead.In(lang) + ": " + reason.In(lang) + ". " + undone.In(lang)
}

// Sentences returns the rules in force as the agent's prompt tells them, the house's before the company's, in order and
// without a full stop. They say what will happen to this person's calls, so a sole admin's holds are told as confirms.
func (g Grant) Sentences(lang string) []string {
	domains := "@" + strings.Join(g.Domains, Text{" y @", " and @"}.In(lang))
	if len(g.Domains) == 0 {
		domains = Text{"la empresa", "the company"}.In(lang)
	}
	out := []string{}
	house := House()
	for i, r := range g.inForce() {
		if r.ID == RuleUnknown {
			return []string{Text{"hoy no se puede hacer nada en las apps", "nothing can be done in the apps today"}.In(lang)}
		}
		told := r.Told.In(lang)
		if told == "" || r.Effect == Allow {
			continue
		}
		effect := r.Effect
		if effect == Hold && g.SoleAdmin {
			effect = Confirm
		}
		if house[i].Effect == Hold && effect == Confirm && r.ToldAlone.In(lang) != "" {
			told = r.ToldAlone.In(lang)
		}
		told = strings.ReplaceAll(told, "{domains}", domains)
		switch { // the company made the rule stricter than its text
		case effect < house[i].Effect && effect == Hold:
			told += Text{" (queda pendiente de aprobación)", " (waits for approval)"}.In(lang)
		case effect < house[i].Effect && effect == Deny:
			told += Text{" (no permitido)", " (not allowed)"}.In(lang)
		}
		out = append(out, told)
	}
	for _, o := range g.Own {
		if told := o.Told.In(lang); told != "" {
			out = append(out, told)
		}
	}
	return out
}
