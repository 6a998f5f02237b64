package bot

import (
	"context"
	"errors"
	"strconv"

	"pilder/store"
)

// pressedTogether gives one verdict on all that a run wants decided, or says where the single cards are.
func (b *Bot) pressedTogether(ctx context.Context, s asker, t *tap, button store.PressedButton) error {
	if button.Action == store.ButtonOneByOne {
		if err := b.store.Settle(ctx, s.ref, store.FateDone, "one_by_one"); err != nil {
			return err
		}
		b.answerTap(ctx, s, t, "together.one_by_one", false)
		return nil
	}
	yes := button.Action == store.ButtonApproveAll
	all, err := b.store.DecideTogether(ctx, s.ref, store.RunID(button.Ref.Reveal()), yes, s.from.Telegram,
		func(a store.Approval) []store.Draft { return decided(a, s.m, false, s.chat) })
	if err == nil {
		for _, a := range all {
			b.logVerdict(a)
		}
		key := "together.denied"
		if yes {
			key = "together.approved"
		}
		text, _ := b.say(s.lang, key, map[string]string{"count": strconv.Itoa(len(all))})
		b.toast(ctx, t, text, false) // the edit of the summary takes its buttons, unless others may still press them
		return nil
	}
	key, reason := verdictError(err)
	switch {
	case key == "":
		return err
	case errors.Is(err, store.ErrNotYours):
		b.cfg.Log.Warn().Str("event", "security.not_yours").Send()
	case errors.Is(err, store.ErrNotShown):
		return b.showUnseen(ctx, s, t, all)
	case errors.Is(err, store.ErrNotFound):
		key = "button.gone"
	}
	return b.refuseTogether(ctx, s, t, key, reason)
}

// showUnseen shows the first of what was not seen, which settles the press, and with it the others.
func (b *Bot) showUnseen(ctx context.Context, s asker, t *tap, unseen []store.Approval) error {
	from := s.ref
	for _, a := range unseen {
		_, err := b.store.ShowAll(ctx, from, a.ID, s.from.Telegram, Card)
		switch key, _ := verdictError(err); {
		case err == nil:
			from = store.UpdateRef{}
		case errors.Is(err, store.ErrSettled), key == "":
			return err
		}
	}
	if from != (store.UpdateRef{}) { // all of it came up meanwhile
		return b.refuseTogether(ctx, s, t, "approval.arriving", "arriving")
	}
	b.answerTap(ctx, s, t, "together.not_shown", false)
	return nil
}

func (b *Bot) refuseTogether(ctx context.Context, s asker, t *tap, key, reason string) error {
	if err := b.store.Settle(ctx, s.ref, store.FateRefused, reason); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, key, key == "approval.decided" || key == "approval.expired_press" || key == "button.gone")
	return nil
}

// pressedUndo takes back what a call did, for whoever asked for it.
func (b *Bot) pressedUndo(ctx context.Context, s asker, t *tap, id string) error {
	more, err := b.store.TakeBack(ctx, s.ref, id, s.from.Telegram)
	key, reason := "", ""
	switch {
	case err == nil:
		b.cfg.Log.Info().Str("event", "undo.pressed").Str("company", string(s.m.Company.ID)).Send()
		b.answerTap(ctx, s, t, "undo.pressed", !more)
		return nil
	case errors.Is(err, store.ErrNotYours):
		b.cfg.Log.Warn().Str("event", "security.not_yours").Send()
		key, reason = "undo.not_yours", "not_yours"
	case errors.Is(err, store.ErrDecided):
		key, reason = "undo.before", "decided_before"
	case errors.Is(err, store.ErrExpired):
		key, reason = "undo.expired", "expired"
	case errors.Is(err, store.ErrNotFound):
		key, reason = "button.gone", "undo_gone"
	default:
		return err
	}
	if err := b.store.Settle(ctx, s.ref, store.FateRefused, reason); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, key, reason == "expired" || reason == "undo_gone")
	return nil
}
