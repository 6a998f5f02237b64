package bot

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"pilder/store"
)

// away asks somebody who decides for their company how long they will not be there.
func (b *Bot) away(ctx context.Context, s asker) error {
	if !s.m.Role.Decides() {
		return b.tell(ctx, s, store.FateRefused, "not_approver", "away.not_you", nil)
	}
	d := private(s.m, "away.how_long", nil)
	for i, days := range []int{1, 3, 7, 14} {
		if i%2 == 0 {
			d.Buttons = append(d.Buttons, nil)
		}
		label := "button.away_days"
		if days == 1 {
			label = "button.away_day"
		}
		until := b.cfg.Now().Add(time.Duration(days) * 24 * time.Hour)
		d.Buttons[i/2] = append(d.Buttons[i/2], store.Button{Label: label, Args: map[string]string{"days": strconv.Itoa(days)},
			Action: store.ButtonAway, Ref: strconv.FormatInt(until.UnixMilli(), 10)})
	}
	return b.privately(ctx, s, "away_choice", d)
}

// back ends it.
func (b *Bot) back(ctx context.Context, s asker) error {
	err := b.store.SetAway(ctx, s.ref, s.m.ID, b.cfg.Now().Add(-time.Hour), "", b.notice(s, "away.back", nil))
	if errors.Is(err, store.ErrNotYours) {
		return b.tell(ctx, s, store.FateRefused, "not_approver", "away.not_you", nil)
	}
	return err
}

// pressedAway carries out the buttons of away: how long, and then who decides meanwhile.
func (b *Bot) pressedAway(ctx context.Context, s asker, t *tap, button store.PressedButton) error {
	when, deputy, chosen := strings.Cut(button.Ref.Reveal(), " ")
	ms, err := strconv.ParseInt(when, 10, 64)
	if err != nil || button.Company != s.m.Company.ID || t.Message == nil || t.Message.Chat.ID != s.from.Telegram {
		return b.refuseTap(ctx, s, t, "button_gone", "button.gone")
	}
	until := time.UnixMilli(ms)
	others, err := b.store.Deputies(ctx, s.m)
	if err != nil {
		return err
	}
	if !chosen {
		return b.tellTap(ctx, s, t, "away_deputy", b.whoDecidesMeanwhile(s, when, others))
	}
	args := map[string]string{"until": until.UTC().Format(time.RFC3339), "zone": zoneName(s.m), "who": ""}
	drafts := []store.Draft{b.notice(s, "away.set", args)}
	for _, o := range others {
		if string(o.ID) == deputy {
			args["who"] = line(o.Person.Name, 60)
			drafts = []store.Draft{b.notice(s, "away.set_deputy", args), {Company: s.m.Company.ID, Chat: privateChat(o), Lang: langOf(o),
				Kind: store.DraftNotice, Notice: "away.deputy", Priority: second,
				Args: map[string]string{"who": line(s.m.Person.Name, 60), "until": args["until"], "zone": zoneName(o)}}}
		}
	}
	err = b.store.SetAway(ctx, s.ref, s.m.ID, until, store.MembershipID(deputy), drafts...)
	switch {
	case err == nil:
		b.answerTap(ctx, s, t, "press.ok", true)
		return nil
	case errors.Is(err, store.ErrNotYours), errors.Is(err, store.ErrNotFound): // roles changed since the buttons were made
		return b.refuseTap(ctx, s, t, "button_gone", "button.gone")
	}
	return err
}

// whoDecidesMeanwhile asks for a deputy.
func (b *Bot) whoDecidesMeanwhile(s asker, when string, others []store.Membership) store.Draft {
	d := b.notice(s, "away.who", nil)
	for i, o := range others {
		if i == 8 {
			break
		}
		d.Buttons = append(d.Buttons, []store.Button{{Label: "button.deputy", Args: map[string]string{"name": line(o.Person.Name, 40)},
			Action: store.ButtonDeputy, Ref: when + " " + string(o.ID)}})
	}
	d.Buttons = append(d.Buttons, []store.Button{{Label: "button.no_deputy", Action: store.ButtonDeputy, Ref: when + " "}})
	return d
}
