package bot

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-telegram/bot/models"

	"pilder/store"
)

// Bounds of an answer.
const (
	maxParts  = 5               // more become the first part and a document
	renderMax = maxParts * 8192 // bytes of Markdown that are rendered at all; bounds what a hostile text can cost
)

// parts renders a reply into the messages it takes, as the outbox keeps them.
func (b *Bot) parts(r store.Reply) ([][]byte, error) {
	lang := b.langOr(r.Draft.Lang)
	var all []part
	secrets := 0
	add := func(t rich, file string) {
		t, n := redactRich(t)
		text, m := redact(file)
		secrets += n + m
		if t.n > 0 || file != "" {
			all = append(all, part{Text: t.Text, Entities: t.Entities, File: text})
		}
	}
	switch d := r.Draft; d.Kind {
	case store.DraftAnswer:
		b.answer(lang, d.Markdown, add)
		if len(all) == 0 {
			text, _ := b.say(lang, "run.empty", nil)
			add(plain(text), "")
		}
	case store.DraftCard:
		if r.Approval == nil {
			return nil, errors.New("card without its approval")
		}
		if r.Approval.State != store.ApprovalPending { // decided before it went out: no buttons, see keyboard
			text, _ := b.say(lang, settledKey(r.Approval.State), map[string]string{"tool": r.Approval.Tool, "code": r.Approval.Code,
				"at": b.clock(r.Approval.Decided, d.Args["zone"])})
			add(plain(text), "")
			break
		}
		for _, t := range b.card(d, *r.Approval) {
			add(t, "")
		}
	default: // notices and edits; an unknown kind says its notice too
		text, _ := b.say(lang, d.Notice, b.noticeArgs(lang, d))
		ps, _ := split(tidy(plain(clean(text))), maxUnits, 1) // an edit cannot grow into two messages
		for _, t := range ps {
			add(t, "")
		}
	}
	if secrets > 0 {
		b.cfg.Log.Error().Str("event", "security.secret_in_reply").Str("reply", string(r.ID)).Str("run", string(r.Run)).Int("secrets", secrets).Send()
	}
	if len(all) == 0 {
		return nil, errors.New("nothing to say")
	}
	out := make([][]byte, len(all))
	for i, p := range all {
		data, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		out[i] = data
	}
	return out, nil
}

// answer renders the agent's words. One that takes too many messages is shown with its beginning, and whole as a document.
func (b *Bot) answer(lang, markdown string, add func(rich, string)) {
	if len(markdown) <= renderMax {
		parts, rest := split(render(markdown), maxUnits, maxParts)
		if !rest {
			for _, p := range parts {
				add(p, "")
			}
			return
		}
	}
	head := markdown
	if len(head) > renderMax {
		head = clip(head, renderMax)
	}
	start, _ := split(render(head), maxUnits, 1)
	for _, p := range start {
		add(p, "")
	}
	caption, _ := b.say(lang, "answer.document", nil)
	add(plain(caption), clean(markdown))
}

// settledKey says what a card says that is shown when its approval is no longer pending.
func settledKey(s store.ApprovalState) string {
	switch s {
	case store.ApprovalApproved:
		return "card.approved"
	case store.ApprovalDenied:
		return "card.denied"
	case store.ApprovalExpired:
		return "card.expired"
	}
	return "card.cancelled"
}

// noticeArgs bounds the values of a notice, and writes times and lists of tools out.
func (b *Bot) noticeArgs(lang string, d store.Draft) map[string]string {
	out := map[string]string{}
	for k, v := range d.Args {
		out[k] = clip(v, 3000)
	}
	if done := out["done"]; done != "" && strings.HasPrefix(d.Notice, "run.") { // tools, with commas
		out["done"] = "\n\n" + b.texts[lang]["run.before"]
		for _, tool := range strings.Split(done, ",") {
			out["done"] += "\n• " + b.toolName(lang, strings.TrimSpace(tool))
		}
	}
	if d.Notice == "together.ask" || d.Notice == "remind.ask" { // tools and codes, a line each
		list := ""
		for i, l := range strings.Split(out["list"], "\n") {
			tool, code, _ := strings.Cut(l, " ")
			list += fmt.Sprintf("\n%d. %s · %s", i+1, b.toolName(lang, tool), line(code, 16))
		}
		out["list"] = list
	}
	for _, name := range []string{"expires", "at", "until"} {
		if _, ok := out[name]; ok {
			out[name] = b.timeIn(d.Args, name)
		}
	}
	return out
}

// keyboard makes the buttons of a reply's first part; nil for none. A card that is decided has none.
func (b *Bot) keyboard(r store.Reply) *models.InlineKeyboardMarkup {
	if r.Part > 1 || len(r.Draft.Buttons) == 0 || r.Approval != nil && r.Draft.Kind == store.DraftCard && r.Approval.State != store.ApprovalPending {
		return nil
	}
	lang := b.langOr(r.Draft.Lang)
	out := &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{}}
	for i, row := range r.Draft.Buttons {
		var line []models.InlineKeyboardButton
		for j, button := range row {
			if button.Action == store.ButtonShowAll && (r.Parts < 2 || r.Draft.Whole) {
				continue // nothing is folded
			}
			label, _ := b.say(lang, button.Label, button.Args)
			k := models.InlineKeyboardButton{Text: label}
			switch {
			case !button.URL.IsZero():
				k.URL = button.URL.Reveal()
			case i < len(r.ButtonTokens) && j < len(r.ButtonTokens[i]) && !r.ButtonTokens[i][j].IsZero():
				k.CallbackData = r.ButtonTokens[i][j].Reveal()
			default:
				continue // a button that can do nothing is not shown
			}
			line = append(line, k)
		}
		if len(line) > 0 {
			out.InlineKeyboard = append(out.InlineKeyboard, line)
		}
	}
	if len(out.InlineKeyboard) == 0 {
		return nil
	}
	return out
}
