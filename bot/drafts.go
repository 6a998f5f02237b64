package bot

import (
	"strconv"
	"strings"
	"time"

	"pilder/policy"
	"pilder/store"
)

// The drafts in this file are what other folders have to say to people. They carry keys and values; the words are chosen
// when they are sent. cmd hands these functions to the gateway and the runner.

// Priorities of drafts in one chat.
const (
	first  = 0 // answers and cards
	second = 1 // notices
	third  = 2 // edits
)

// Answer is the agent's answer to a run's messages.
func Answer(run store.Run, markdown string) store.Draft {
	d := ofRun(run)
	d.Kind, d.Markdown = store.DraftAnswer, markdown
	if strings.TrimSpace(clean(markdown)) == "" {
		d.Kind, d.Markdown, d.Notice = store.DraftNotice, "", "run.empty" // never nothing at all
	}
	return d
}

// RunNotice is a sentence of the house about a run: "run.failed", "run.busy", "run.timed_out", "run.interrupted",
// "run.restarted", "run.failed_twice", "run.context_lost", "run.empty", "run.too_long", "run.not_ready", "run.memory",
// "run.disk", "run.budget", "run.cut", and "run.busy_minutes" and "run.busy_hours" with a number as "minutes" or "hours"; its
// "done" lists tools, with commas, that changed something all the same. "call.unknown" names a "tool" that may have. An
// unknown key is sent as a generic, kind sentence, and logged.
func RunNotice(run store.Run, key string, args map[string]string) store.Draft {
	d := ofRun(run)
	d.Kind, d.Notice, d.Args = store.DraftNotice, key, args
	return d
}

// WaitingNotice tells somebody in a conversation that others are served before their message, and how many. It is as urgent
// as an answer, or it could come after the one it announces.
func WaitingNotice(m store.Membership, chat store.Chat, conversation store.ConversationID, ahead int) store.Draft {
	key := "queue.position"
	switch {
	case ahead <= 0:
		key = "queue.next"
	case ahead == 1:
		key = "queue.position_one"
	}
	return store.Draft{
		Company: m.Company.ID, Conversation: conversation, Chat: chat, Lang: langOf(m), Kind: store.DraftNotice, Notice: key,
		Args: map[string]string{"ahead": strconv.Itoa(max(0, ahead))}, Priority: first,
	}
}

// ofRun is where a run's words go: the chat of its messages, in reply to the last of them.
func ofRun(run store.Run) store.Draft {
	d := store.Draft{
		Company: run.Principal.Company, Conversation: run.Conversation, Chat: run.Chat,
		Lang: langOf(run.Member), Priority: first,
	}
	if n := len(run.Messages); n > 0 {
		d.ReplyTo = run.Messages[n-1].Telegram
	}
	return d
}

// Card asks one approver about a held or to-be-confirmed call. Its arguments come with the reply, straight from the frozen
// row, when it is sent.
func Card(a store.Approval, to store.Approver) store.Draft {
	yes, no, key := "button.approve", "button.deny", "card.hold"
	if a.Kind == policy.Confirm {
		yes, no, key = "button.confirm", "button.cancel", "card.confirm"
		if a.Tool == "correo_enviar" {
			yes = "button.send"
		}
	}
	return store.Draft{
		Company: a.Company, Chat: to.Chat, Lang: langOf(to.Member), Kind: store.DraftCard, Notice: key, Approval: a.ID,
		Priority: first,
		Args:     map[string]string{"expires": a.Expires.UTC().Format(time.RFC3339), "zone": zoneName(to.Member), "for": line(strings.Join(to.For, ", "), 100)},
		Buttons: [][]store.Button{{
			{Label: yes, Action: store.ButtonApprove, Ref: string(a.ID)},
			{Label: no, Action: store.ButtonDeny, Ref: string(a.ID)},
		}, {{Label: "button.show_all", Action: store.ButtonShowAll, Ref: string(a.ID)}}},
	}
}

// Remind recalls to somebody what has waited for their decision.
func Remind(to store.Approver, waiting []store.Approval) store.Draft {
	var list []string
	ends := waiting[0].Expires
	for _, a := range waiting {
		if a.Expires.Before(ends) {
			ends = a.Expires
		}
		if len(list) < 10 {
			list = append(list, a.Tool+" "+a.Code)
		}
	}
	return store.Draft{
		Company: to.Member.Company.ID, Chat: to.Chat, Lang: langOf(to.Member), Kind: store.DraftNotice, Notice: "remind.ask", Priority: second,
		Args: map[string]string{"count": strconv.Itoa(len(waiting)), "list": strings.Join(list, "\n"),
			"expires": ends.UTC().Format(time.RFC3339), "zone": zoneName(to.Member)},
	}
}

// Outcome tells the requester's chat what came of an approved call, or that its approval expired, in reply to the message it
// was asked for with; the cards of an expired one lose their buttons. The text is the result's: untrusted, and told only
// where the call was not done.
func Outcome(a store.Approval, o store.Outcome, text string) []store.Draft {
	d := store.Draft{
		Company: a.Company, Chat: a.Chat, Lang: langOf(a.Requester), Kind: store.DraftNotice, Priority: first,
		ReplyTo: a.Message, Args: map[string]string{"tool": a.Tool, "text": line(text, 300)},
	}
	what := "outcome."
	if a.Rule == store.RuleUndo {
		what = "undo."
	}
	switch o {
	case store.OutcomeDone:
		d.Notice = what + "done"
	case store.OutcomeFailed:
		d.Notice = what + "failed"
	case store.OutcomeRefused:
		d.Notice = what + "refused"
	case store.OutcomeExpired:
		return Expired(a)
	default:
		d.Notice = what + "unknown" // also for an outcome that does not exist yet: never claim what is not known
	}
	return []store.Draft{d}
}

// Expired says that nobody decided an approval in time, in the requester's chat and on its cards.
func Expired(a store.Approval) []store.Draft {
	return []store.Draft{
		editCards(a, "card.expired", ""),
		{Company: a.Company, Chat: a.Chat, Lang: langOf(a.Requester), Kind: store.DraftNotice, Notice: "approval.expired",
			ReplyTo: a.Message, Args: map[string]string{"tool": a.Tool}, Priority: second},
	}
}

// Lost says that a call was under way when its process died, so that nobody knows whether it happened.
func Lost(c store.CallView, run store.Run) []store.Draft {
	d := ofRun(run)
	d.Kind, d.Notice, d.Args = store.DraftNotice, "call.unknown", map[string]string{"tool": c.Tool, "app": c.App}
	return []store.Draft{d}
}

// LinkDraft brings a person the link with which they connect one app.
func LinkDraft(m store.Membership, app string, chat store.Chat, link store.Secret) store.Draft {
	return store.Draft{
		Company: m.Company.ID, Chat: chat, Lang: langOf(m), Kind: store.DraftNotice, Notice: "connect.link",
		Args: map[string]string{"app": app}, Priority: first,
		Buttons: [][]store.Button{{{Label: "button.connect_link", Args: map[string]string{"app": app}, URL: link}}},
	}
}

// AccountCard asks a person, in their private chat, whether an account that was just bound is theirs.
func AccountCard(a store.Account, m store.Membership) store.Draft {
	return store.Draft{
		Company: a.Company, Chat: privateChat(m), Lang: langOf(m), Kind: store.DraftNotice, Notice: "account.offer",
		Args: map[string]string{"app": a.App, "account": line(a.Name, 100)}, Priority: first,
		Buttons: [][]store.Button{{
			{Label: "button.account_mine", Action: store.ButtonConfirmAccount, Ref: string(a.ID)},
			{Label: "button.account_other", Action: store.ButtonRejectAccount, Ref: string(a.ID)},
		}},
	}
}

// privateChat is a person's chat with the bot: Telegram gives it the person's own number.
func privateChat(m store.Membership) store.Chat {
	return store.Chat{ID: m.Person.Telegram, Private: true}
}

// editCards changes every card of an approval, in whatever chat it stands, and takes its buttons away.
func editCards(a store.Approval, key, by string) store.Draft {
	return store.Draft{
		Company: a.Company, Lang: langOf(a.Requester), Kind: store.DraftEdit, Notice: key, Approval: a.ID, Priority: third,
		Args: map[string]string{"tool": a.Tool, "code": a.Code, "by": line(by, 60), "at": a.Decided.UTC().Format(time.RFC3339)},
	}
}

// decided is what a verdict says: on the cards, to a decider who typed, and to a requester whose wish somebody else
// refused. What came of an approved call is told later, by Outcome.
func decided(a store.Approval, by store.Membership, typed bool, chat store.Chat) []store.Draft {
	key, notice := "card.approved", "approval.approved"
	confirm, yes := a.Kind == policy.Confirm, a.State == store.ApprovalApproved
	switch {
	case confirm && yes:
		key, notice = "card.confirmed", "approval.confirmed"
	case confirm:
		key, notice = "card.cancelled", "approval.cancelled"
	case !yes:
		key, notice = "card.denied", "approval.denied"
	}
	out := []store.Draft{editCards(a, key, by.Person.Name)}
	if typed {
		out = append(out, store.Draft{Company: a.Company, Chat: chat, Lang: langOf(by), Kind: store.DraftNotice, Notice: notice, Priority: second})
	}
	if !yes && a.Chat != chat {
		out = append(out, store.Draft{Company: a.Company, Chat: a.Chat, Lang: langOf(a.Requester), Kind: store.DraftNotice,
			Notice: "approval.denied_chat", ReplyTo: a.Message, Args: map[string]string{"tool": a.Tool}, Priority: second})
	}
	return out
}

// stopped says what /stop did: what was given up and what had already happened.
func (b *Bot) stopped(s store.Stopped, m store.Membership, chat store.Chat) []store.Draft {
	lang := b.langOr(langOf(m))
	d := store.Draft{Company: m.Company.ID, Chat: chat, Lang: lang, Kind: store.DraftNotice, Notice: "stop.nothing", Priority: first}
	if s.Run == "" && s.Waiting == 0 && s.Approvals == 0 {
		return []store.Draft{d}
	}
	say := func(key string, n int) string {
		if n == 0 {
			return ""
		}
		text, _ := b.say(lang, key, map[string]string{"count": strconv.Itoa(n)})
		return " " + text
	}
	done := ""
	for _, c := range s.Done {
		if c.Class == policy.ClassRead || c.Outcome != store.OutcomeDone && c.Outcome != store.OutcomeUnknown && c.Outcome != store.OutcomeOpen {
			continue
		}
		done += "\n• " + b.toolName(lang, c.Tool)
		if c.Outcome != store.OutcomeDone {
			done += " " + b.texts[lang]["stop.unsure"]
		}
	}
	if done != "" {
		done = "\n" + b.texts[lang]["stop.before"] + done
	}
	d.Notice = "stop.done"
	d.Args = map[string]string{"waiting": say("stop.waiting", s.Waiting), "approvals": say("stop.approvals", s.Approvals), "done": done}
	return []store.Draft{d}
}
