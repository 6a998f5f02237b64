package bot

import (
	"context"
	"errors"
	"time"

	"pilder/policy"
	"pilder/store"
)

func (b *Bot) pressedVerdict(ctx context.Context, s asker, t *tap, v store.Verdict) error {
	a, err := b.store.Decide(ctx, s.ref, v, func(a store.Approval) []store.Draft { return decided(a, s.m, false, s.chat) })
	key, reason := verdictError(err)
	switch {
	case err == nil:
		b.logVerdict(a)
		b.answerTap(ctx, s, t, pressKey(a), false)
		return nil
	case errors.Is(err, store.ErrNotShown):
		return b.showFirst(ctx, s, t, a.ID)
	case key == "":
		return err
	}
	if key == "approval.not_yours" {
		b.cfg.Log.Warn().Str("event", "security.not_yours").Str("approval", string(v.Approval)).Send()
	}
	if err := b.store.Settle(ctx, s.ref, store.FateRefused, reason); err != nil {
		return err
	}
	text, _ := b.say(s.lang, whoDecided(a, key), b.deciding(ctx, a, s.m))
	b.toast(ctx, t, text, key != "approval.not_yours" && key != "approval.arriving")
	return nil
}

// showFirst shows everything to somebody who said yes to what they have not seen whole.
func (b *Bot) showFirst(ctx context.Context, s asker, t *tap, id store.ApprovalID) error {
	return b.show(ctx, s, t, id, "approval.not_shown")
}

// pressedShowAll shows what a short card left out.
func (b *Bot) pressedShowAll(ctx context.Context, s asker, t *tap, id store.ApprovalID) error {
	return b.show(ctx, s, t, id, "approval.showing")
}

func (b *Bot) show(ctx context.Context, s asker, t *tap, id store.ApprovalID, key string) error {
	_, err := b.store.ShowAll(ctx, s.ref, id, s.from.Telegram, Card)
	if err == nil {
		b.answerTap(ctx, s, t, key, false)
		return nil
	}
	key, reason := verdictError(err)
	if key == "" {
		return err
	}
	if key == "approval.not_yours" {
		b.cfg.Log.Warn().Str("event", "security.not_yours").Str("approval", string(id)).Send()
	}
	if err := b.store.Settle(ctx, s.ref, store.FateRefused, reason); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, key, key == "approval.decided" || key == "approval.expired_press")
	return nil
}

// typedVerdict is /approve CODE and /deny CODE: the same check as the button's.
func (b *Bot) typedVerdict(ctx context.Context, s asker, code string, yes bool) error {
	code = approvalCode(code)
	if code == "" {
		return b.tell(ctx, s, store.FateRefused, "no_code", "approval.usage", nil)
	}
	v := store.Verdict{Code: code, Approve: yes, Telegram: s.from.Telegram}
	a, err := b.store.Decide(ctx, s.ref, v, func(a store.Approval) []store.Draft { return decided(a, s.m, true, s.chat) })
	if err == nil {
		b.logVerdict(a)
		return nil
	}
	if errors.Is(err, store.ErrNotShown) {
		notice := b.notice(s, "approval.not_shown", nil)
		if _, shown := b.store.ShowAll(ctx, s.ref, a.ID, s.from.Telegram, Card, notice); shown == nil || errors.Is(shown, store.ErrSettled) {
			return shown
		}
	}
	key, reason := verdictError(err)
	if key == "" {
		return err
	}
	if key == "approval.not_yours" {
		b.cfg.Log.Warn().Str("event", "security.not_yours").Send()
	}
	return b.tell(ctx, s, store.FateRefused, reason, whoDecided(a, key), b.deciding(ctx, a, s.m))
}

// whoDecided says by whom an approval was decided, where that is known.
func whoDecided(a store.Approval, key string) string {
	if key == "approval.decided" && a.DecidedBy != "" && !a.Decided.IsZero() {
		return "approval.decided_by"
	}
	return key
}

// deciding are the values of whoDecided.
func (b *Bot) deciding(ctx context.Context, a store.Approval, to store.Membership) map[string]string {
	if a.DecidedBy == "" {
		return nil
	}
	args := map[string]string{"at": a.Decided.UTC().Format(time.RFC3339), "zone": zoneName(to)}
	args["at"] = b.timeIn(args, "at")
	if by, err := b.store.Membership(ctx, a.Company, a.DecidedBy); err == nil {
		args["by"] = line(by.Person.Name, 60)
	}
	return args
}

// approvalCode takes a code out of what was typed: the first word, letters and digits, capitals.
func approvalCode(typed string) string {
	var out []rune
	for _, r := range typed {
		switch {
		case r >= 'a' && r <= 'z':
			out = append(out, r-'a'+'A')
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			out = append(out, r)
		case r == ' ' || r == '\n' || r == '\t':
			if len(out) > 0 {
				return string(out)
			}
		}
		if len(out) > 16 {
			break
		}
	}
	return string(out)
}

// verdictError tells which of the expected refusals an error is; key "" for none of them.
func verdictError(err error) (key, reason string) {
	switch {
	case errors.Is(err, store.ErrNotYours):
		return "approval.not_yours", "not_yours"
	case errors.Is(err, store.ErrDecided):
		return "approval.decided", "decided_before"
	case errors.Is(err, store.ErrExpired):
		return "approval.expired_press", "expired"
	case errors.Is(err, store.ErrNotShown):
		return "approval.not_shown", "not_shown"
	case errors.Is(err, store.ErrArriving):
		return "approval.arriving", "arriving"
	case errors.Is(err, store.ErrShown):
		return "approval.all_shown", "all_shown"
	case errors.Is(err, store.ErrNotFound):
		return "approval.unknown", "unknown_approval"
	}
	return "", ""
}

func pressKey(a store.Approval) string {
	switch yes := a.State == store.ApprovalApproved; {
	case yes && a.Kind == policy.Confirm:
		return "approval.confirmed"
	case yes:
		return "approval.approved"
	case a.Kind == policy.Confirm:
		return "approval.cancelled"
	}
	return "approval.denied"
}

func (b *Bot) logVerdict(a store.Approval) {
	b.cfg.Log.Info().Str("event", "approval.decided").Str("approval", string(a.ID)).Str("call", string(a.Call)).
		Str("company", string(a.Company)).Str("tool", a.Tool).Str("state", string(a.State)).Send()
}
