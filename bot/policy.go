package bot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"pilder/policy"
	"pilder/store"
)

// The policy in the chat: an admin reads the rules, sees what they would do, gives a rule of the house another effect by
// buttons, or sends a whole file, behind /policy or as a document with that caption. Each button names the version that was
// shown, so that nobody overwrites what they have not seen.

// policy shows the rules, what would change with the file that came with the command, or what would happen to one call.
func (b *Bot) policy(ctx context.Context, s asker, file string, sent *document) error {
	switch {
	case s.m.Role != policy.RoleAdmin:
		return b.tell(ctx, s, store.FateRefused, "not_admin", "policy.not_admin", nil)
	case !s.chat.Private:
		return b.tell(ctx, s, store.FateRefused, "not_private", "policy.private", nil)
	}
	now, err := b.store.Policy(ctx, s.m.Company.ID)
	if err != nil {
		return err
	}
	p, broken := policy.Parse([]byte(now.Text))
	asked, asks := asksPreview(file)
	if broken != nil && (asks || file == "" && sent == nil) { // set by a pilder that knew more
		return b.tell(ctx, s, store.FateFailed, "policy_unreadable", "policy.unreadable", nil)
	}
	if asks {
		return b.previewCall(ctx, s, p, asked)
	}
	if sent != nil {
		if file, err = b.policyFile(ctx, *sent); err != nil {
			b.cfg.Log.Warn().Str("event", "policy.file_unread").Err(err).Send()
			return b.tell(ctx, s, store.FateFailed, "policy_file", "policy.file", nil)
		}
	}
	if file != "" {
		return b.proposePolicy(ctx, s, now, file)
	}
	d := b.notice(s, "policy.rules", map[string]string{"lines": b.policyLines(s.lang, p), "version": strconv.Itoa(now.Version)})
	for _, r := range policy.House() {
		d.Buttons = append(d.Buttons, []store.Button{{Label: "button.policy_rule", Args: map[string]string{"rule": b.word(s.lang, "rule."+r.ID)},
			Action: store.ButtonPolicyRule, Ref: fmt.Sprint(now.Version, " ", r.ID)}})
	}
	d.Buttons = append(d.Buttons, []store.Button{{Label: "button.policy_preview", Action: store.ButtonPolicyPreview, Ref: fmt.Sprint(now.Version, " ")}})
	return b.store.Settle(ctx, s.ref, store.FateDone, "policy", d)
}

// policyLines are the rules of the house with their effects, and then the company's own.
func (b *Bot) policyLines(lang string, p policy.Policy) string {
	var lines strings.Builder
	for _, r := range policy.House() {
		effect, switched := p.House[r.ID]
		if !switched {
			effect = r.Effect
		}
		fmt.Fprintf(&lines, "\n• %s: %s", b.word(lang, "rule."+r.ID), b.word(lang, "effect."+effect.String()))
	}
	for _, o := range p.Rules {
		fmt.Fprintf(&lines, "\n• %s (%s): %s", clean(o.Reason.In(lang)), o.ID, b.word(lang, "effect."+o.Effect.String()))
	}
	for _, v := range p.Vetoes {
		fmt.Fprintf(&lines, "\n• %s: %s", b.toolName(lang, v), b.word(lang, "effect.deny"))
	}
	return lines.String()
}

// word is a short text without values.
func (b *Bot) word(lang, key string) string {
	text, _ := b.say(lang, key, nil)
	return text
}

// proposePolicy says what is wrong with a file, or shows the rules as they would be with the one button that sets it.
func (b *Bot) proposePolicy(ctx context.Context, s asker, now store.PolicyVersion, file string) error {
	file = plainFile(file)
	p, err := policy.Parse([]byte(file))
	if err == nil {
		err = p.Unmet(s.m.Company.Domains)
	}
	if err != nil {
		return b.tell(ctx, s, store.FateRefused, "policy_wrong", "policy.wrong", map[string]string{"problems": clip(err.Error(), 1500)})
	}
	before, broken := policy.Parse([]byte(now.Text))
	changes := ""
	if broken == nil {
		changes = b.changedPreview(s, before, p)
	}
	d := b.notice(s, "policy.proposed", map[string]string{"lines": b.policyLines(s.lang, p) + changes})
	d.Buttons = [][]store.Button{{{Label: "button.policy_set", Action: store.ButtonPolicySet, Ref: fmt.Sprint(now.Version, "\n", file)}}}
	return b.store.Settle(ctx, s.ref, store.FateDone, "policy_proposed", d)
}

// plainFile undoes what phones do to a file that is written as a message: a fence around it, typographic quotes, spaces that
// are not.
func plainFile(text string) string {
	text = strings.NewReplacer("\u00a0", " ", "“", `"`, "”", `"`, "‘", "'", "’", "'").Replace(strings.TrimSpace(text))
	if rest, ok := strings.CutPrefix(text, "```"); ok {
		_, rest, _ = strings.Cut(rest, "\n")
		text = strings.TrimSuffix(strings.TrimSpace(rest), "```")
	}
	return text + "\n"
}

// pressedPolicy carries out a button of the policy.
func (b *Bot) pressedPolicy(ctx context.Context, s asker, t *tap, button store.PressedButton) error {
	version, what, ok := strings.Cut(button.Ref.Reveal(), " ")
	if button.Action == store.ButtonPolicySet {
		version, what, ok = strings.Cut(button.Ref.Reveal(), "\n")
	}
	over, err := strconv.Atoi(version)
	if !ok || err != nil || button.Company != s.m.Company.ID { // of another company than the one they speak to now
		return b.refuseTap(ctx, s, t, "button_gone", "button.gone")
	}
	if button.Action == store.ButtonPolicyRule {
		return b.chooseEffect(ctx, s, t, over, what)
	}
	now, err := b.store.Policy(ctx, s.m.Company.ID)
	if err != nil {
		return err
	}
	if button.Action == store.ButtonPolicyPreview {
		return b.pressedPreview(ctx, s, t, now)
	}
	text, done := what, b.notice(s, "policy.done", nil)
	if button.Action == store.ButtonPolicyEffect {
		rule, word, _ := strings.Cut(what, " ")
		var e policy.Effect
		if err := e.UnmarshalText([]byte(word)); err != nil {
			return b.refuseTap(ctx, s, t, "button_gone", "button.gone")
		}
		if text, err = policy.WithHouse(now.Text, rule, e); err != nil {
			return b.refuseTap(ctx, s, t, "policy_wrong", "policy.unreadable")
		}
		done = b.notice(s, "policy.switched", map[string]string{"rule": b.word(s.lang, "rule."+rule), "effect": b.word(s.lang, "effect."+word)})
	}
	_, err = b.store.SetPolicy(ctx, s.ref, s.m.Company.ID, s.m.ID, over, text, done)
	var unmet *policy.CaseError
	switch {
	case err == nil:
		b.cfg.Log.Info().Str("event", "policy.set").Str("company", string(s.m.Company.ID)).Str("person", string(s.m.Person.ID)).Int("version", over+1).Send()
		b.answerTap(ctx, s, t, "press.ok", true)
		return nil
	case errors.Is(err, store.ErrPolicyChanged):
		return b.refuseTap(ctx, s, t, "policy_changed", "policy.changed")
	case errors.Is(err, store.ErrNotYours):
		b.cfg.Log.Warn().Str("event", "security.not_yours").Send()
		return b.refuseTap(ctx, s, t, "not_admin", "policy.not_admin")
	case errors.As(err, &unmet):
		return b.tellTap(ctx, s, t, "policy_wrong", b.notice(s, "policy.wrong", map[string]string{"problems": clip(unmet.Error(), 1500)}))
	}
	return err
}

// chooseEffect asks which effect a rule of the house is to have.
func (b *Bot) chooseEffect(ctx context.Context, s asker, t *tap, over int, rule string) error {
	if s.m.Role != policy.RoleAdmin {
		return b.refuseTap(ctx, s, t, "not_admin", "policy.not_admin")
	}
	d := b.notice(s, "policy.choose", map[string]string{"rule": b.word(s.lang, "rule."+rule)})
	for _, e := range []policy.Effect{policy.Allow, policy.Confirm, policy.Hold, policy.Deny} {
		if _, err := policy.WithHouse("", rule, e); err != nil {
			continue // not for this rule
		}
		d.Buttons = append(d.Buttons, []store.Button{{Label: "button.policy_effect", Args: map[string]string{"effect": b.word(s.lang, "effect."+e.String())},
			Action: store.ButtonPolicyEffect, Ref: fmt.Sprint(over, " ", rule, " ", e)}})
	}
	return b.tellTap(ctx, s, t, "policy_rule", d)
}

// refuseTap settles a press that came to nothing and says so in the little line over the chat.
func (b *Bot) refuseTap(ctx context.Context, s asker, t *tap, reason, key string) error {
	if err := b.store.Settle(ctx, s.ref, store.FateRefused, reason); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, key, true)
	return nil
}

// tellTap settles a press with a message.
func (b *Bot) tellTap(ctx context.Context, s asker, t *tap, reason string, d store.Draft) error {
	if err := b.store.Settle(ctx, s.ref, store.FateDone, reason, d); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, "", false)
	return nil
}
