package bot

import (
	"context"
	"errors"
	"strings"
	"time"

	"pilder/policy"
	"pilder/store"
)

// The control lane settles commands, buttons and strangers. It never waits for a run. Each update is settled by exactly one
// verb of the store, in the verb's own transaction; one that was settled before is left alone, so a replay does nothing.

// control settles what is open, oldest first, until ctx ends.
func (b *Bot) control(ctx context.Context) error {
	tries := map[int64]int{}
	for ctx.Err() == nil {
		wake := b.store.Wake()
		open, err := b.store.OpenUpdates(ctx, b.id, 50)
		if err != nil {
			if ctx.Err() == nil {
				b.cfg.Log.Error().Str("event", "control.failed").Err(err).Send()
			}
			rest(ctx, time.Second)
			continue
		}
		if len(open) == 0 {
			clear(tries)
			b.await(ctx, wake, time.Time{})
			continue
		}
		failed := 0
		for _, u := range open {
			if b.settle(ctx, u, tries) {
				delete(tries, u.Ref.UpdateID)
				continue
			}
			failed++
		}
		if failed > 0 {
			rest(ctx, b.backoff(failed))
		}
	}
	return ctx.Err()
}

// settle handles one update and tells whether it needs no more. One that fails five times is set aside, so that it cannot
// hold up the lane.
func (b *Bot) settle(ctx context.Context, u store.Update, tries map[int64]int) bool {
	err := b.handle(ctx, u)
	if err == nil || errors.Is(err, store.ErrSettled) {
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	tries[u.Ref.UpdateID]++
	b.cfg.Log.Error().Str("event", "control.failed").Int64("update", u.Ref.UpdateID).Int("try", tries[u.Ref.UpdateID]).Err(err).Send()
	if tries[u.Ref.UpdateID] < 5 {
		return false
	}
	err = b.store.Settle(ctx, u.Ref, store.FateBroken, "control_failed")
	return err == nil || errors.Is(err, store.ErrSettled)
}

// asker is who sent an update of the control lane, and from where.
type asker struct {
	ref  store.UpdateRef
	from store.Person // as Telegram says
	chat store.Chat
	m    store.Membership // zero for a stranger
	lang string
}

// handle settles one update.
func (b *Bot) handle(ctx context.Context, u store.Update) error {
	me, _ := b.name.Load().(string)
	e := decode(u.Ref.UpdateID, u.Raw, me)
	s := asker{ref: u.Ref, from: e.From, chat: e.Chat, lang: b.langOr(e.From.Lang)}
	if e.Kind == store.ArrivalBroken || e.Kind == store.ArrivalIgnored {
		return b.store.Settle(ctx, u.Ref, store.FateBroken, "decoded_otherwise")
	}
	m, err := b.store.MembershipOf(ctx, e.From.Telegram)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return b.stranger(ctx, s, e)
	case err != nil:
		return err
	}
	s.m, s.lang = m, b.langOr(langOf(m))
	switch e.Want {
	case wantTap:
		return b.press(ctx, s, e.Tap)
	case wantStop:
		return b.stop(ctx, s)
	case wantFiles:
		if e.Album != "" && !b.notices.pass("album "+e.Album, time.Hour) {
			return b.store.Settle(ctx, s.ref, store.FateRefused, "file_in_album") // one remark for an album is enough
		}
		return b.tell(ctx, s, store.FateRefused, "file", "files.not_yet", nil)
	case wantTooLong:
		return b.tell(ctx, s, store.FateRefused, "too_long", "message.too_long", nil)
	case wantCommand:
		return b.command(ctx, s, e)
	}
	// Words of somebody who was a stranger when they came and is none any more: they were not queued, so say it.
	return b.tell(ctx, s, store.FateRefused, "was_stranger", "generic", nil)
}

// command carries out a command of a member.
func (b *Bot) command(ctx context.Context, s asker, e event) error {
	name, rest := e.Name, e.Rest
	switch name {
	case "start":
		return b.start(ctx, s, rest)
	case "help":
		return b.tell(ctx, s, store.FateDone, name, "help", nil)
	case "new":
		return b.store.NewConversation(ctx, s.ref, s.from.Telegram, s.chat, b.notice(s, "new.done", nil))
	case "stop":
		return b.stop(ctx, s)
	case "connect":
		return b.connect(ctx, s, rest)
	case "apps":
		return b.apps(ctx, s)
	case "disconnect":
		return b.disconnect(ctx, s, rest)
	case "preferences":
		return b.preferences(ctx, s)
	case "approvals":
		return b.approvals(ctx, s)
	case "approve", "deny":
		return b.typedVerdict(ctx, s, rest, name == "approve")
	case "away":
		return b.away(ctx, s)
	case "back":
		return b.back(ctx, s)
	case "why":
		return b.why(ctx, s)
	case "policy":
		return b.policy(ctx, s, rest, e.File)
	}
	return b.tell(ctx, s, store.FateRefused, "unknown_command", "command.unknown", nil)
}

// notice is a draft to the sender.
func (b *Bot) notice(s asker, key string, args map[string]string) store.Draft {
	return store.Draft{Company: s.m.Company.ID, Chat: s.chat, Lang: s.lang, Kind: store.DraftNotice, Notice: key, Args: args, Priority: second}
}

// tell settles an update with a notice.
func (b *Bot) tell(ctx context.Context, s asker, fate store.Fate, reason, key string, args map[string]string) error {
	return b.store.Settle(ctx, s.ref, fate, reason, b.notice(s, key, args))
}

// stranger answers somebody in no company: an invitation is looked at, everything else gets one neutral line, and that not
// often. Nothing is said about the product or who uses it.
func (b *Bot) stranger(ctx context.Context, s asker, e event) error {
	key := "stranger"
	switch {
	case e.Want == wantCommand && e.Name == "start" && e.Rest != "":
		d, ok, err := b.invitation(ctx, s, e.Rest)
		if err != nil {
			return err
		}
		if ok {
			return b.store.Settle(ctx, s.ref, store.FateDone, "invitation_shown", d)
		}
		key = "invite.invalid"
	case e.Want == wantTap:
		return b.strangersPress(ctx, s, e.Tap)
	}
	b.cfg.Log.Info().Str("event", "security.stranger").Send()
	return b.store.RefuseStranger(ctx, s.ref, s.from.Telegram, b.notice(s, key, nil))
}

// invitation shows an invitation with the one button that accepts it.
func (b *Bot) invitation(ctx context.Context, s asker, token string) (store.Draft, bool, error) {
	if len(token) > 64 { // a deep link's payload has at most 64 characters
		return store.Draft{}, false, nil
	}
	inv, err := b.store.Invitation(ctx, store.NewSecret(token))
	if errors.Is(err, store.ErrNotFound) {
		return store.Draft{}, false, nil
	}
	if err != nil {
		return store.Draft{}, false, err
	}
	d := b.notice(s, "invite.offer", map[string]string{"company": line(inv.Company.Name, 80), "role": string(inv.Role)})
	d.Company, d.Priority = inv.Company.ID, first
	d.Buttons = [][]store.Button{{{Label: "button.accept_invite", Action: store.ButtonAcceptInvite, Ref: token}}}
	return d, true, nil
}

// start greets a member, or shows them an invitation to another company.
func (b *Bot) start(ctx context.Context, s asker, token string) error {
	if token != "" {
		d, ok, err := b.invitation(ctx, s, token)
		switch {
		case err != nil:
			return err
		case !ok:
			return b.tell(ctx, s, store.FateRefused, "invitation_invalid", "invite.invalid", nil)
		case d.Company == s.m.Company.ID:
			return b.tell(ctx, s, store.FateDone, "invitation_own", "invite.own", map[string]string{"company": line(s.m.Company.Name, 80)})
		}
		return b.store.Settle(ctx, s.ref, store.FateDone, "invitation_shown", d)
	}
	return b.tell(ctx, s, store.FateDone, "start", "hello", map[string]string{
		"name": line(s.m.Person.Name, 60), "company": line(s.m.Company.Name, 80)})
}

func (b *Bot) stop(ctx context.Context, s asker) error {
	_, err := b.store.Stop(ctx, s.ref, s.from.Telegram, s.chat, func(done store.Stopped) []store.Draft { return b.stopped(done, s.m, s.chat) })
	return err
}

// connect offers the apps, or hands one over to whoever makes links.
func (b *Bot) connect(ctx context.Context, s asker, app string) error {
	if len(b.cfg.Apps) == 0 {
		return b.tell(ctx, s, store.FateRefused, "no_apps", "connect.none", nil)
	}
	if app == "" {
		return b.store.Settle(ctx, s.ref, store.FateDone, "connect_choice", b.offer(s, "connect.choose"))
	}
	if a, ok := b.appNamed(app); ok {
		return b.link(ctx, s, a.Slug)
	}
	return b.store.Settle(ctx, s.ref, store.FateDone, "connect_unknown", b.offer(s, "connect.unknown"))
}

// appNamed finds an app by its slug or by its name, in whatever language, as people write it.
func (b *Bot) appNamed(typed string) (App, bool) {
	if typed == "" {
		return App{}, false
	}
	for _, a := range b.cfg.Apps {
		for _, name := range []string{a.Slug, a.Name.ES, a.Name.EN} {
			if strings.EqualFold(name, typed) || strings.EqualFold(strings.ReplaceAll(name, " ", "_"), typed) {
				return a, true
			}
		}
	}
	return App{}, false
}

// link has the link made, in the person's private chat: in a group anybody could follow it. Whoever makes it settles the
// update.
func (b *Bot) link(ctx context.Context, s asker, app string) error {
	if len(b.cfg.Apps) == 0 {
		return b.tell(ctx, s, store.FateRefused, "no_apps", "connect.none", nil)
	}
	err := b.cfg.Connect(ctx, s.m, app, s.ref, privateChat(s.m))
	if err == nil && !s.chat.Private {
		return b.store.Say(ctx, b.notice(s, "told.privately", nil))
	}
	if err == nil || errors.Is(err, store.ErrSettled) || ctx.Err() != nil {
		return err
	}
	b.cfg.Log.Error().Str("event", "connect.failed").Str("app", app).Err(err).Send()
	return b.tell(ctx, s, store.FateFailed, "connect_failed", "connect.failed", nil)
}

// offer shows the apps as buttons, two in a row.
func (b *Bot) offer(s asker, key string) store.Draft {
	d := b.notice(s, key, nil)
	for i, a := range b.cfg.Apps {
		button := store.Button{Label: "button.connect_app", Args: map[string]string{"app": a.Slug}, Action: store.ButtonConnect, Ref: a.Slug}
		if i%2 == 0 {
			d.Buttons = append(d.Buttons, nil)
		}
		d.Buttons[len(d.Buttons)-1] = append(d.Buttons[len(d.Buttons)-1], button)
	}
	return d
}

// approvals shows what waits: fresh cards for what this person may decide, a line each for what others must.
func (b *Bot) approvals(ctx context.Context, s asker) error {
	all, err := b.store.PendingApprovals(ctx, s.m.Principal())
	if err != nil {
		return err
	}
	var drafts []store.Draft
	lines := ""
	for _, a := range all {
		if mayDecide(a, s.m) && len(drafts) < 5 {
			drafts = append(drafts, Card(a, store.Approver{Member: s.m, Chat: privateChat(s.m)}))
			continue
		}
		text, _ := b.say(s.lang, "approvals.line", map[string]string{"tool": a.Tool, "code": a.Code, "expires": b.clock(a.Expires, zoneName(s.m))})
		lines += "\n• " + text
	}
	if lines != "" {
		drafts = append(drafts, b.notice(s, "approvals.list", map[string]string{"lines": lines}))
	}
	if len(drafts) == 0 {
		drafts = append(drafts, b.notice(s, "approvals.none", nil))
	}
	return b.store.Settle(ctx, s.ref, store.FateDone, "approvals", drafts...)
}

// mayDecide guesses who sees buttons. Whether somebody may decide is the store's word alone.
func mayDecide(a store.Approval, m store.Membership) bool {
	return policy.MayApprove(m.Role, a.Kind, a.Requester.ID, m.ID, false)
}

// why tells the fates of the last messages.
func (b *Bot) why(ctx context.Context, s asker) error {
	fates, err := b.store.MessageFates(ctx, b.id, s.chat.ID, 8)
	if err != nil {
		return err
	}
	text, n := "", 0
	for _, f := range fates {
		if f.UpdateID == s.ref.UpdateID || f.Fate == store.FateIgnored || n == 5 {
			continue
		}
		n++
		line, _ := b.say(s.lang, "why.line", map[string]string{"at": b.clock(f.At, zoneName(s.m)), "fate": string(f.Fate)})
		text += "\n" + line
	}
	if n == 0 {
		return b.tell(ctx, s, store.FateDone, "why", "why.none", nil)
	}
	return b.tell(ctx, s, store.FateDone, "why", "why.head", map[string]string{"lines": text})
}
