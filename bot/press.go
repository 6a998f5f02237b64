package bot

import (
	"context"
	"errors"
	"time"

	tg "github.com/go-telegram/bot"

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
	case store.ButtonShowAll:
		return b.pressedShowAll(ctx, s, t, store.ApprovalID(button.Ref.Reveal()))
	case store.ButtonApproveAll, store.ButtonDenyAll, store.ButtonOneByOne:
		return b.pressedTogether(ctx, s, t, button)
	case store.ButtonUndo:
		return b.pressedUndo(ctx, s, t, button.Ref.Reveal())
	case store.ButtonAway, store.ButtonDeputy:
		return b.pressedAway(ctx, s, t, button)
	case store.ButtonConfirmAccount, store.ButtonRejectAccount:
		return b.pressedAccount(ctx, s, t, store.AccountID(button.Ref.Reveal()), button.Action == store.ButtonConfirmAccount)
	case store.ButtonConnect:
		if button.Company != "" && button.Company != s.m.Company.ID { // of another company than the one they speak to now
			return b.refuseTap(ctx, s, t, "button_gone", "button.gone")
		}
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
	case store.ButtonPolicyRule, store.ButtonPolicyEffect, store.ButtonPolicySet, store.ButtonPolicyPreview:
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
	b.toast(ctx, t, text, spent)
}

// toast is answerTap with words that are made already.
func (b *Bot) toast(ctx context.Context, t *tap, text string, spent bool) {
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
