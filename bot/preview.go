package bot

import (
	"context"
	"encoding/json"
	"strings"

	"pilder/policy"
	"pilder/store"
)

// The preview of the policy: what would happen to a call, without making it. It is decided by the code that decides on real
// ones, for a member of the admin's company who has every app; what the person wrote and what was read before stays empty.

// example is a call that everybody can picture.
type example struct {
	key string // of its name in the table of texts
	policy.Action
}

// examples are the calls whose fate an admin sees at a glance; inside is a mail domain of the company.
func examples(inside string) []example {
	call := func(key, tool, app string, class policy.Class, scope policy.Scope, args string) example {
		return example{key, policy.Action{Tool: tool, App: app, Class: class, Scope: scope, Args: json.RawMessage(args)}}
	}
	mail := func(key, to string) example {
		return call(key, "correo_enviar", "", policy.ClassWrite, policy.ScopeMailSend, `{"para":["`+to+`"],"asunto":"Hola","cuerpo":"Hola"}`)
	}
	const calendar = "google_calendar"
	var all []example
	if inside != "" {
		all = append(all, mail("mail_inside", "ana@"+inside))
	}
	return append(all,
		mail("mail_outside", "ana@elsewhere.example"),
		call("read", calendar+"-list-events", calendar, policy.ClassRead, policy.ScopeAppsRead, `{}`),
		call("event", calendar+"-create-event", calendar, policy.ClassWrite, policy.ScopeAppsWrite, `{"summary":"Hola"}`),
		call("guests", calendar+"-create-event", calendar, policy.ClassWrite, policy.ScopeAppsWrite, `{"summary":"Hola","attendees":["ana@elsewhere.example"]}`),
		call("delete", calendar+"-delete-event", calendar, policy.ClassDestructive, policy.ScopeAppsWrite, `{"eventId":"1"}`),
		call("unknown", "elsewhere-do-something", "elsewhere", policy.ClassUnknown, policy.ScopeAppsWrite, `{}`),
	)
}

// imagined is a member of a company under a policy, with these apps.
func imagined(c store.Company, p policy.Policy, apps ...string) (policy.Grant, policy.Principal) {
	who := policy.Principal{Company: c.ID, Membership: "mem_somebody", Person: "per_somebody", Role: policy.RoleMember, Scopes: policy.RoleMember.Scopes()}
	return policy.NewGrant(policy.GrantInput{Principal: who, Domains: c.Domains, Apps: apps, Policy: p}), who
}

// fate is what a policy would do with a call at this moment.
func (b *Bot) fate(c store.Company, p policy.Policy, a policy.Action) (policy.Grant, policy.Decision) {
	a.At = b.cfg.Now()
	grant, who := imagined(c, p, "google_calendar", "elsewhere", a.App)
	return grant, grant.Decide(who, a)
}

// pressedPreview shows the examples under the rules in force.
func (b *Bot) pressedPreview(ctx context.Context, s asker, t *tap, now store.PolicyVersion) error {
	p, err := policy.Parse([]byte(now.Text))
	switch {
	case s.m.Role != policy.RoleAdmin:
		return b.refuseTap(ctx, s, t, "not_admin", "policy.not_admin")
	case err != nil:
		return b.refuseTap(ctx, s, t, "policy_unreadable", "policy.unreadable")
	}
	var lines strings.Builder
	for _, e := range examples(insideOf(s.m.Company)) {
		_, d := b.fate(s.m.Company, p, e.Action)
		line, _ := b.say(s.lang, "policy.preview_line", map[string]string{"what": b.word(s.lang, "preview."+e.key), "effect": b.word(s.lang, "effect."+d.Effect.String())})
		lines.WriteString("\n• " + line)
	}
	return b.tellTap(ctx, s, t, "policy_preview", b.notice(s, "policy.preview", map[string]string{"lines": lines.String()}))
}

// changedPreview is the examples that another policy would treat otherwise; empty when there is none.
func (b *Bot) changedPreview(s asker, before, after policy.Policy) string {
	var lines strings.Builder
	for _, e := range examples(insideOf(s.m.Company)) {
		_, was := b.fate(s.m.Company, before, e.Action)
		_, is := b.fate(s.m.Company, after, e.Action)
		if was.Effect == is.Effect {
			continue
		}
		line, _ := b.say(s.lang, "policy.preview_change", map[string]string{"what": b.word(s.lang, "preview."+e.key),
			"before": b.word(s.lang, "effect."+was.Effect.String()), "after": b.word(s.lang, "effect."+is.Effect.String())})
		lines.WriteString("\n• " + line)
	}
	if lines.Len() == 0 {
		return ""
	}
	return "\n\n" + b.word(s.lang, "policy.preview_changes") + lines.String()
}

// asksPreview tells whether what follows /policy asks about one call, "if TOOL DATA", rather than being a file.
func asksPreview(rest string) (call string, ok bool) {
	word, call, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(call), strings.EqualFold(word, "if") || strings.EqualFold(word, "si")
}

// previewCall says what would happen to one exact call. What a tool does is known for the examples' tools only; any other is
// judged as one that nobody knows, so the answer is never milder than the truth.
func (b *Bot) previewCall(ctx context.Context, s asker, p policy.Policy, asked string) error {
	tool, data, _ := strings.Cut(asked, " ")
	if data = plainFile(data); strings.TrimSpace(data) == "" {
		data = "{}"
	}
	if tool == "" || !json.Valid([]byte(data)) {
		return b.tell(ctx, s, store.FateRefused, "policy_preview_wrong", "policy.preview_wrong", map[string]string{"example": `{"para":["ana@example.com"]}`})
	}
	a := policy.Action{Tool: tool, Scope: policy.ScopeAppsWrite}
	if slug, _, ok := strings.Cut(tool, "-"); ok {
		a.App = slug
	}
	for _, e := range examples("") {
		if e.Tool == tool {
			a = e.Action
		}
	}
	a.Args = json.RawMessage(data)
	grant, d := b.fate(s.m.Company, p, a)
	told := grant.Sentence(d, s.lang)
	if told != "" {
		told = "\n" + clean(told)
	}
	return b.tell(ctx, s, store.FateDone, "policy_preview", "policy.preview_call", map[string]string{
		"tool": b.toolName(s.lang, clip(clean(tool), 64)), "effect": b.word(s.lang, "effect."+d.Effect.String()), "told": told, "rule": ruleName(d)})
}

// ruleName is the rule that spoke, or a dash.
func ruleName(d policy.Decision) string {
	if d.Rule == "" {
		return "–"
	}
	return d.Rule
}

// insideOf is a mail domain of the company, empty when it has none.
func insideOf(c store.Company) string {
	for _, d := range c.Domains {
		if ascii, ok := policy.Domain(d); ok {
			return ascii
		}
	}
	return ""
}
