package bot

import (
	"context"
	"errors"
	"time"

	tg "github.com/go-telegram/bot"

	"pilder/policy"
	"pilder/store"
)

// press carries out a button. The store decides whether this person may; only then is Telegram told, once and best effort:
// nothing depends on that answer arriving.
func (b *Bot) press(ctx context.Context, s asker, t *tap) error {
	button, err := b.store.Button(ctx, store.NewSecret(t.Data))
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := b.store.Settle(ctx, s.ref, store.FateRefused, "button_gone"); err != nil {
			return err
		}
		b.answerTap(ctx, s, t, "button.gone", true)
		return nil
	case err != nil:
		return err
	}
	switch button.Action {
	case store.ButtonApprove, store.ButtonDeny:
		v := store.Verdict{Approval: store.ApprovalID(button.Ref.Reveal()), Approve: button.Action == store.ButtonApprove, Telegram: s.from.Telegram}
		return b.pressedVerdict(ctx, s, t, v)
	case store.ButtonConfirmAccount, store.ButtonRejectAccount:
		return b.pressedAccount(ctx, s, t, store.AccountID(button.Ref.Reveal()), button.Action == store.ButtonConfirmAccount)
	case store.ButtonConnect:
		if err := b.connect(ctx, s, button.Ref.Reveal()); err != nil {
			return err
		}
		b.answerTap(ctx, s, t, "", false)
		return nil
	case store.ButtonUseAccount:
		return b.pressedUse(ctx, s, t, store.AccountID(button.Ref.Reveal()))
	case store.ButtonRemoveAccount:
		return b.pressedRemove(ctx, s, t, store.AccountID(button.Ref.Reveal()))
	case store.ButtonPreference:
		return b.pressedPreference(ctx, s, t, button.Ref.Reveal())
	case store.ButtonAcceptInvite:
		return b.accept(ctx, s, t, button)
	case store.ButtonPolicyRule, store.ButtonPolicyEffect, store.ButtonPolicySet:
		return b.pressedPolicy(ctx, s, t, button)
	}
	if err := b.store.Settle(ctx, s.ref, store.FateBroken, "button_unknown"); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, "button.gone", true)
	return nil
}

// strangersPress is press for somebody in no company, who can only accept an invitation.
func (b *Bot) strangersPress(ctx context.Context, s asker, t *tap) error {
	button, err := b.store.Button(ctx, store.NewSecret(t.Data))
	switch {
	case err == nil && button.Action == store.ButtonAcceptInvite:
		return b.accept(ctx, s, t, button)
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	}
	if err := b.store.Settle(ctx, s.ref, store.FateRefused, "stranger"); err != nil {
		return err
	}
	b.cfg.Log.Warn().Str("event", "security.stranger_pressed").Send()
	b.answerTap(ctx, s, t, "button.gone", false)
	return nil
}

func (b *Bot) pressedVerdict(ctx context.Context, s asker, t *tap, v store.Verdict) error {
	a, err := b.store.Decide(ctx, s.ref, v, func(a store.Approval) []store.Draft { return decided(a, s.m, false, s.chat) })
	key, reason := verdictError(err)
	switch {
	case err == nil:
		b.logVerdict(a)
		b.answerTap(ctx, s, t, pressKey(a), false)
		return nil
	case key == "":
		return err
	}
	if key == "approval.not_yours" {
		b.cfg.Log.Warn().Str("event", "security.not_yours").Str("approval", string(v.Approval)).Send()
	}
	if err := b.store.Settle(ctx, s.ref, store.FateRefused, reason, b.showAgain(s, a, err)...); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, key, key != "approval.not_yours" && key != "approval.not_shown" && key != "approval.arriving")
	return nil
}

// showAgain is the whole card for somebody who said yes to what they have not been shown.
func (b *Bot) showAgain(s asker, a store.Approval, err error) []store.Draft {
	if !errors.Is(err, store.ErrNotShown) {
		return nil
	}
	return []store.Draft{Card(a, store.Approver{Member: s.m, Chat: privateChat(s.m)})}
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
	key, reason := verdictError(err)
	if key == "" {
		return err
	}
	if key == "approval.not_yours" {
		b.cfg.Log.Warn().Str("event", "security.not_yours").Send()
	}
	return b.store.Settle(ctx, s.ref, store.FateRefused, reason, append([]store.Draft{b.notice(s, key, nil)}, b.showAgain(s, a, err)...)...)
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

// pressedAccount records whether an account is the person's own. The provider is told to forget one that is not, after
// that is committed.
func (b *Bot) pressedAccount(ctx context.Context, s asker, t *tap, id store.AccountID, mine bool) error {
	key := "account.rejected"
	if mine {
		key = "account.confirmed"
	}
	resumed := Resumed(func(slug, lang string) string { return b.appName(b.langOr(lang), slug) })
	a, forget, err := b.store.ConfirmAccount(ctx, s.ref, id, s.from.Telegram, mine, resumed, b.notice(s, key, nil))
	if err != nil {
		return b.refusedAccount(ctx, s, t, err)
	}
	for _, old := range forget {
		b.removeAtProvider(ctx, old)
	}
	if mine {
		b.cfg.Log.Info().Str("event", "account.connected").Str("account", string(a.ID)).Str("app", a.App).
			Str("company", string(a.Company)).Str("person", string(s.m.Person.ID)).Send()
		if err := b.askPreference(ctx, s.m, a.App); err != nil { // asked with the next app, and in /preferences
			b.cfg.Log.Error().Str("event", "preference.not_asked").Str("app", a.App).Err(err).Send()
		}
	}
	b.answerTap(ctx, s, t, "", true)
	return nil
}

// accept spends an invitation.
func (b *Bot) accept(ctx context.Context, s asker, t *tap, button store.PressedButton) error {
	inv, err := b.store.Invitation(ctx, button.Ref)
	if err == nil {
		d := b.notice(s, "invite.accepted", map[string]string{"name": line(s.from.Name, 60), "company": line(inv.Company.Name, 80)})
		d.Company, d.Priority = inv.Company.ID, first
		_, err = b.store.AcceptInvitation(ctx, s.ref, button.Ref, s.from, d)
	}
	switch {
	case err == nil:
		b.answerTap(ctx, s, t, "press.ok", true)
		return nil
	case errors.Is(err, store.ErrNotFound):
		if err := b.store.Settle(ctx, s.ref, store.FateRefused, "invitation_invalid"); err != nil {
			return err
		}
		b.answerTap(ctx, s, t, "invite.invalid", true)
		return nil
	}
	return err
}

// answerTap ends the little clock on the button, with a few words or none, and takes the buttons of a finished message away.
// Cards of approvals lose theirs through the outbox, everywhere; this is for the one that was pressed.
func (b *Bot) answerTap(ctx context.Context, s asker, t *tap, key string, spent bool) {
	text := ""
	if key != "" {
		text, _ = b.say(s.lang, key, nil)
	}
	text = cutUnits(text, 200)
	b.aside(context.WithoutCancel(ctx), 15*time.Second, func(ctx context.Context) {
		if _, ok := b.pace.free(0); !ok {
			return
		}
		_, err := b.lib.AnswerCallbackQuery(ctx, &tg.AnswerCallbackQueryParams{CallbackQueryID: t.ID, Text: text, ShowAlert: false})
		if err != nil {
			b.cfg.Log.Debug().Str("event", "tap.not_answered").Err(err).Send()
		}
		if !spent || t.Message == nil || t.Message.ID == 0 {
			return
		}
		if _, _, ok := b.pace.take(t.Message.Chat.ID); !ok {
			return
		}
		_, err = b.lib.EditMessageReplyMarkup(ctx, &tg.EditMessageReplyMarkupParams{ChatID: t.Message.Chat.ID, MessageID: int(t.Message.ID)})
		b.minded(t.Message.Chat.ID, err)
	})
}
