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
func (d Decision) Sentence(lang string) string {
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

// Sentence is Decision.Sentence for a rule with its house effect; an unknown rule reads as a plain refusal.
func Sentence(rule, lang string) string {
	d := Decision{Effect: Deny, Rule: rule}
	for _, r := range House() {
		if r.ID == rule {
			d.Effect = r.Effect
		}
	}
	return d.Sentence(lang)
}

// Sentences returns the rules in force as the agent's prompt tells them, in order and without a full stop. They say what
// will happen to this person's calls, so a sole admin's holds are told as confirms.
func (g Grant) Sentences(lang string) []string {
	domains := "@" + strings.Join(g.Domains, Text{" y @", " and @"}.In(lang))
	if len(g.Domains) == 0 {
		domains = Text{"la empresa", "the company"}.In(lang)
	}
	out := []string{}
	for _, r := range House() {
		effect := r.Effect
		for _, ref := range g.Rules {
			if ref.ID == r.ID {
				effect = stricter(effect, ref.Effect)
			}
		}
		told := r.Told.In(lang)
		if told == "" {
			continue
		}
		if effect == Hold && g.SoleAdmin {
			effect = Confirm
			if alone := r.ToldAlone.In(lang); alone != "" {
				told = alone
			}
		}
		told = strings.ReplaceAll(told, "{domains}", domains)
		switch { // a reference made the rule stricter than its text
		case effect < r.Effect && effect == Hold:
			told += Text{" (queda pendiente de aprobación)", " (waits for approval)"}.In(lang)
		case effect < r.Effect:
			told += Text{" (no permitido)", " (not allowed)"}.In(lang)
		}
		out = append(out, told)
	}
	return out
}
