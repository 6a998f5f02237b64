package bot

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"pilder/policy"
	"pilder/store"
)

// Commands and buttons about a person's own apps and accounts. Names of accounts are theirs alone: whoever asks in a group
// is answered in their private chat.

// apps shows every app of theirs and every account, with what can be done about each.
func (b *Bot) apps(ctx context.Context, s asker) error {
	accounts, err := b.store.Accounts(ctx, s.m.Company.ID, s.m.ID)
	if err != nil {
		return err
	}
	if len(accounts) == 0 && len(b.cfg.Apps) == 0 {
		return b.tell(ctx, s, store.FateRefused, "no_apps", "connect.none", nil)
	}
	return b.privately(ctx, s, "apps", b.appsList(s.m, accounts))
}

// appsList is the answer to /apps.
func (b *Bot) appsList(m store.Membership, accounts []store.Account) store.Draft {
	lang := b.langOr(langOf(m))
	d := private(m, "apps.none", nil)
	lines := ""
	for _, a := range accounts {
		lines += "\n• " + b.accountLine(lang, a, accounts)
		d.Buttons = append(d.Buttons, accountButtons(a, accounts)...)
	}
	if lines != "" {
		d.Notice, d.Args = "apps.list", map[string]string{"lines": lines}
	}
	last := []store.Button{{Label: "button.connect_other", Action: store.ButtonConnect}}
	if len(b.choices(accounts)) > 0 {
		last = append(last, store.Button{Label: "button.preferences", Action: store.ButtonPreference})
	}
	d.Buttons = append(d.Buttons, last)
	return d
}

// accountLine says an account's app, name and state.
func (b *Bot) accountLine(lang string, a store.Account, all []store.Account) string {
	key := "apps.line"
	switch {
	case a.State == store.AccountBroken:
		key = "apps.line_broken"
	case several(all, a.App) && a.Chosen:
		key = "apps.line_chosen"
	}
	text, _ := b.say(lang, key, accountArgs(a))
	return text
}

// accountButtons are what can be done about one account. Pressing twice does nothing more.
func accountButtons(a store.Account, all []store.Account) [][]store.Button {
	var row []store.Button
	button := func(label string, action store.ButtonAction, ref string) {
		row = append(row, store.Button{Label: label, Args: accountArgs(a), Action: action, Ref: ref})
	}
	switch {
	case a.State == store.AccountBroken:
		button("button.reconnect", store.ButtonConnect, a.App)
	case several(all, a.App) && !a.Chosen:
		button("button.use_account", store.ButtonUseAccount, string(a.ID))
	}
	button("button.disconnect", store.ButtonRemoveAccount, string(a.ID))
	if len(row) == 1 {
		return [][]store.Button{row}
	}
	return [][]store.Button{row[:1], row[1:]} // names are long
}

func accountArgs(a store.Account) map[string]string {
	return map[string]string{"app": a.App, "account": line(a.Name, 100)}
}

func several(all []store.Account, app string) bool {
	n := 0
	for _, a := range all {
		if a.App == app {
			n++
		}
	}
	return n > 1
}

// disconnect shows the accounts to take away: all of them, or those of one app.
func (b *Bot) disconnect(ctx context.Context, s asker, wanted string) error {
	accounts, err := b.store.Accounts(ctx, s.m.Company.ID, s.m.ID)
	if err != nil {
		return err
	}
	slug := wanted
	if a, ok := b.appNamed(wanted); ok {
		slug = a.Slug
	}
	d := private(s.m, "disconnect.none", nil)
	for _, a := range accounts {
		if slug != "" && a.App != slug {
			continue
		}
		d.Notice = "disconnect.choose"
		d.Buttons = append(d.Buttons, []store.Button{{Label: "button.disconnect_account", Args: accountArgs(a), Action: store.ButtonRemoveAccount, Ref: string(a.ID)}})
	}
	return b.privately(ctx, s, "disconnect", d)
}

// pressedRemove takes an account out of use; the provider is told to forget it after that is committed.
func (b *Bot) pressedRemove(ctx context.Context, s asker, t *tap, id store.AccountID) error {
	a, err := b.store.RemoveAccount(ctx, s.ref, id, s.from.Telegram, func(a store.Account) []store.Draft {
		return []store.Draft{private(s.m, "disconnect.done", accountArgs(a))}
	})
	if err != nil {
		return b.refusedAccount(ctx, s, t, err)
	}
	b.cfg.Log.Info().Str("event", "account.removed").Str("account", string(a.ID)).Str("app", a.App).
		Str("company", string(a.Company)).Str("person", string(s.m.Person.ID)).Send()
	b.removeAtProvider(ctx, a)
	b.answerTap(ctx, s, t, "press.ok", false)
	return nil
}

// removeAtProvider has the provider forget an account, aside: its person does not wait for it.
func (b *Bot) removeAtProvider(ctx context.Context, a store.Account) {
	if b.cfg.RemoveAccount == nil {
		return
	}
	notRemoved := func(err error) {
		b.cfg.Log.Error().Str("event", "account.not_removed").Str("account", string(a.ID)).Err(err).Send()
	}
	if !b.aside(context.WithoutCancel(ctx), time.Minute, func(ctx context.Context) {
		if err := b.cfg.RemoveAccount(ctx, a); err != nil {
			notRemoved(err)
		}
	}) {
		notRemoved(errors.New("too much is under way"))
	}
}

// pressedUse makes an account the one in use.
func (b *Bot) pressedUse(ctx context.Context, s asker, t *tap, id store.AccountID) error {
	a, err := b.store.ChooseAccount(ctx, s.ref, id, s.from.Telegram, func(a store.Account) []store.Draft {
		return []store.Draft{private(s.m, "account.chosen", accountArgs(a))}
	})
	if err != nil {
		return b.refusedAccount(ctx, s, t, err)
	}
	b.cfg.Log.Info().Str("event", "account.chosen").Str("account", string(a.ID)).Str("app", a.App).
		Str("company", string(a.Company)).Str("person", string(s.m.Person.ID)).Send()
	b.answerTap(ctx, s, t, "press.ok", false)
	return nil
}

// refusedAccount settles a press on an account that its presser may not decide about, or no more.
func (b *Bot) refusedAccount(ctx context.Context, s asker, t *tap, err error) error {
	key, reason := "", ""
	switch {
	case errors.Is(err, store.ErrNotYours):
		key, reason = "approval.not_yours", "not_yours"
		b.cfg.Log.Warn().Str("event", "security.not_yours").Send()
	case errors.Is(err, store.ErrDecided):
		key, reason = "account.decided", "decided_before"
	case errors.Is(err, store.ErrNotFound):
		key, reason = "button.gone", "account_gone"
	default:
		return err
	}
	if err := b.store.Settle(ctx, s.ref, store.FateRefused, reason); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, key, reason != "not_yours")
	return nil
}

// choice is a category in which a person has several apps.
type choice struct {
	category string
	apps     []string // slugs
}

// choices are the categories of their apps in which there is something to prefer, in the order of the apps.
func (b *Bot) choices(accounts []store.Account) []choice {
	var all []choice
	for _, app := range b.cfg.Apps {
		if app.Category == "" || !slices.ContainsFunc(accounts, func(a store.Account) bool { return a.App == app.Slug }) {
			continue
		}
		i := slices.IndexFunc(all, func(c choice) bool { return c.category == app.Category })
		if i < 0 {
			all = append(all, choice{category: app.Category})
			i = len(all) - 1
		}
		all[i].apps = append(all[i].apps, app.Slug)
	}
	return slices.DeleteFunc(all, func(c choice) bool { return len(c.apps) < 2 })
}

// preferences shows what they prefer in each category, with buttons to change it.
func (b *Bot) preferences(ctx context.Context, s asker) error {
	accounts, err := b.store.Accounts(ctx, s.m.Company.ID, s.m.ID)
	if err != nil {
		return err
	}
	said, err := b.store.Preferences(ctx, s.m.Company.ID, s.m.ID)
	if err != nil {
		return err
	}
	lang := b.langOr(langOf(s.m))
	d := private(s.m, "preferences.none", nil)
	lines := ""
	for _, c := range b.choices(accounts) {
		args, key := map[string]string{"category": b.category(lang, c.category)}, "preferences.line_open"
		if i := slices.IndexFunc(said, func(p store.Preference) bool { return p.Category == c.category && p.App != "" }); i >= 0 {
			args["app"], key = said[i].App, "preferences.line"
		}
		text, _ := b.say(lang, key, args)
		lines += "\n• " + text
		d.Buttons = append(d.Buttons, b.preferenceButtons(lang, c)...)
	}
	if lines != "" {
		d.Notice, d.Args = "preferences.list", map[string]string{"lines": lines}
	}
	return b.privately(ctx, s, "preferences", d)
}

func (b *Bot) preferenceButtons(lang string, c choice) (rows [][]store.Button) {
	for _, app := range c.apps {
		rows = append(rows, []store.Button{{Label: "button.prefer", Args: map[string]string{"app": app, "category": b.category(lang, c.category)},
			Action: store.ButtonPreference, Ref: c.category + "\n" + app}})
	}
	return rows
}

// category is a category as people call it.
func (b *Bot) category(lang, category string) string {
	if t, ok := b.texts[lang]["category."+category]; ok {
		return t
	}
	return line(category, 40)
}

// askPreference asks, once in a person's life, which app they mean where a new one is the second of its category.
func (b *Bot) askPreference(ctx context.Context, m store.Membership, app string) error {
	accounts, err := b.store.Accounts(ctx, m.Company.ID, m.ID)
	if err != nil {
		return err
	}
	lang := b.langOr(langOf(m))
	for _, c := range b.choices(accounts) {
		if !slices.Contains(c.apps, app) {
			continue
		}
		d := private(m, "preferences.ask", map[string]string{"category": b.category(lang, c.category)})
		d.Buttons = b.preferenceButtons(lang, c)
		if _, err := b.store.AskPreference(ctx, m.Company.ID, m.ID, c.category, d); err != nil {
			return err
		}
	}
	return nil
}

// pressedPreference records a preference; a press without one shows them all. Only apps of the presser's own count, so that
// a button pressed by somebody else changes nothing of either.
func (b *Bot) pressedPreference(ctx context.Context, s asker, t *tap, ref string) error {
	category, app, set := strings.Cut(ref, "\n")
	if !set {
		if err := b.preferences(ctx, s); err != nil {
			return err
		}
		b.answerTap(ctx, s, t, "", false)
		return nil
	}
	accounts, err := b.store.Accounts(ctx, s.m.Company.ID, s.m.ID)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(b.choices(accounts), func(c choice) bool { return c.category == category && slices.Contains(c.apps, app) }) {
		return b.refusedAccount(ctx, s, t, store.ErrNotFound)
	}
	args := map[string]string{"app": app, "category": b.category(b.langOr(langOf(s.m)), category)}
	if err := b.store.SetPreference(ctx, s.ref, s.m, store.Preference{Category: category, App: app}, private(s.m, "preferences.set", args)); err != nil {
		return err
	}
	b.answerTap(ctx, s, t, "press.ok", false)
	return nil
}

// privately answers in the person's private chat; a group only hears that.
func (b *Bot) privately(ctx context.Context, s asker, reason string, d store.Draft) error {
	drafts := []store.Draft{d}
	if !s.chat.Private {
		drafts = append(drafts, b.notice(s, "told.privately", nil))
	}
	return b.store.Settle(ctx, s.ref, store.FateDone, reason, drafts...)
}

// private is a notice in a person's private chat.
func private(m store.Membership, key string, args map[string]string) store.Draft {
	return store.Draft{Company: m.Company.ID, Chat: privateChat(m), Lang: langOf(m), Kind: store.DraftNotice, Notice: key, Args: args, Priority: second}
}

// BrokenCard tells a person that an account must be connected again.
func BrokenCard(a store.Account, m store.Membership) store.Draft {
	d := private(m, "account.broken", accountArgs(a))
	d.Buttons = [][]store.Button{{{Label: "button.reconnect", Args: accountArgs(a), Action: store.ButtonConnect, Ref: a.App}}}
	return d
}

// MendedNotice tells a person that an account works again.
func MendedNotice(a store.Account, m store.Membership) store.Draft {
	return private(m, "account.mended", accountArgs(a))
}

// ChooseCard asks a person which of an app's accounts to use.
func ChooseCard(accounts []store.Account, m store.Membership) store.Draft {
	d := private(m, "account.choose", nil)
	for _, a := range accounts {
		d.Args = map[string]string{"app": a.App}
		if a.Usable() {
			d.Buttons = append(d.Buttons, []store.Button{{Label: "button.use_account", Args: accountArgs(a), Action: store.ButtonUseAccount, Ref: string(a.ID)}})
		}
	}
	return d
}

// Resumed words how a request goes on that waited for an app; name gives the app's. The message stands for one of the
// person's: it repeats their own words and nothing of anybody else.
func Resumed(name func(slug, lang string) string) store.Resume {
	return func(w store.AppWait) (string, store.Draft) {
		lang, asked := langOf(w.Member), w.Asked
		if r := []rune(asked); len(r) > 2000 {
			asked = string(r[:2000]) + " …"
		}
		words := policy.Text{
			ES: "Ya está conectada {app}; continúa con lo que te pedí: «{asked}»",
			EN: "{app} is connected now; go on with what I asked you: “{asked}”",
		}
		text := strings.NewReplacer("{app}", name(w.App, lang), "{asked}", asked).Replace(words.In(lang))
		return text, store.Draft{Company: w.Member.Company.ID, Conversation: w.Conversation, Chat: w.Chat, ReplyTo: w.ReplyTo, Lang: lang,
			Kind: store.DraftNotice, Notice: "app.resumed", Args: map[string]string{"app": w.App}, Priority: second}
	}
}
