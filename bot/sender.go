package bot

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	tg "github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
	"golang.org/x/sync/errgroup"

	"pilder/store"
)

// Bounds of sending.
const (
	sendTimeout = 30 * time.Second
	lookEvery   = time.Second    // how often the outbox is looked at for what other processes put there
	senders     = 8              // chats that are sent to at once
	giveUpAfter = 24 * time.Hour // a reply that could not be sent for so long is no answer any more
)

// part is one message as it was rendered, fixed in the outbox before the first attempt.
type part struct {
	Text     string                 `json:"text,omitempty"` // a caption when there is a file
	Entities []models.MessageEntity `json:"entities,omitempty"`
	File     string                 `json:"file,omitempty"` // content of a document
}

// send empties the outbox until ctx ends; then it goes on for at most Config.Drain while anything can go at once. It takes
// one reply at a time to where it may go out and lets up to senders of them be under way, each in a chat of its own (a
// chat whose reply is being sent has no next one). Nothing is sent twice: what a process that died left in "sending" is
// uncertain before the first one goes out, and a lease that moved ends it at the next verb.
func (b *Bot) send(ctx context.Context, p store.Poller) error {
	if n, err := b.store.RecoverReplies(ctx, p); err != nil {
		return err
	} else if n > 0 {
		b.cfg.Log.Warn().Str("event", "replies.uncertain").Int("replies", n).Send()
	}
	held := context.WithoutCancel(ctx) // what was begun is brought to its end
	under := new(errgroup.Group)
	under.SetLimit(senders)
	defer under.Wait()
	var end time.Time
	failures := 0
	for {
		if ctx.Err() != nil {
			if end.IsZero() {
				end = time.Now().Add(b.cfg.Drain)
			}
			if time.Now().After(end) {
				return ctx.Err()
			}
		}
		wake := b.store.Wake()
		r, ok, until, err := b.store.NextReply(held, p)
		ready := false
		if err == nil && ok {
			ready, err = b.ready(held, p, r)
		}
		switch {
		case errors.Is(err, store.ErrLost):
			return err
		case err != nil:
			failures++
			b.cfg.Log.Error().Str("event", "outbox.failed").Str("reply", string(r.ID)).Err(err).Send()
			if !rest(ctx, b.backoff(failures)) {
				return ctx.Err()
			}
			continue
		case ready:
			under.Go(func() error { b.carry(held, p, r); return nil })
		case !ok && ctx.Err() != nil:
			return ctx.Err()
		case !ok:
			b.await(ctx, wake, until)
		}
		failures = 0
	}
}

// await waits for news, for a pause to end, or for a while.
func (b *Bot) await(ctx context.Context, wake <-chan struct{}, until time.Time) {
	d := lookEvery
	if !until.IsZero() {
		d = min(d, max(until.Sub(b.cfg.Now()), 10*time.Millisecond))
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-t.C:
	}
}

// ready takes a reply one step on: it is rendered, or put off, or ended, or, and then it tells so, marked as being sent.
func (b *Bot) ready(ctx context.Context, p store.Poller, r store.Reply) (bool, error) {
	end := func(reason string) (bool, error) {
		b.failure(r, reason, nil)
		return false, b.store.MarkFailed(ctx, p, r.ID, false, reason)
	}
	if r.Parts == 0 {
		parts, err := b.parts(r)
		if err != nil {
			return end("not_rendered")
		}
		_, err = b.store.SplitReply(ctx, p, r.ID, parts)
		return false, err
	}
	switch now := b.cfg.Now(); {
	case len(r.Rendered) == 0:
		return end("not_rendered")
	case r.Draft.Kind == store.DraftEdit && r.EditMessage == 0:
		return end("nothing_to_edit")
	case !r.Created.IsZero() && now.Sub(r.Created) > giveUpAfter:
		return end("too_old")
	}
	if until, whole, ok := b.pace.take(r.Draft.Chat.ID); !ok {
		return false, b.store.MarkRetry(ctx, p, r.ID, until, whole, "paced")
	}
	return true, b.store.MarkSending(ctx, p, r.ID)
}

// carry makes the attempt and records what came of it. Once begun it is not broken off: its outcome must be known.
func (b *Bot) carry(ctx context.Context, p store.Poller, r store.Reply) {
	began := b.cfg.Now()
	var m part
	var id int64
	err := json.Unmarshal(r.Rendered, &m)
	if err == nil {
		id, err = b.attempt(ctx, r, m)
	}
	mark := b.conclude(r, id, err, b.cfg.Now().Sub(began))
	for try := 1; ; try++ {
		err := mark(ctx, p)
		if err == nil || errors.Is(err, store.ErrLost) {
			return
		}
		b.cfg.Log.Error().Str("event", "outbox.failed").Str("reply", string(r.ID)).Err(err).Send()
		if try == 10 || !rest(ctx, b.backoff(try)) {
			return // the next holder finds it in "sending" and calls it uncertain
		}
	}
}

// attempt sends the part; when Telegram refuses its entities it sends the same text without any, once, and a card's text that
// it refuses even so as a document. All happens while the reply is "sending": what was refused was certainly not performed.
func (b *Bot) attempt(ctx context.Context, r store.Reply, m part) (int64, error) {
	id, err := b.once(ctx, r, m)
	if unfit(err) && len(m.Entities) > 0 {
		b.cfg.Log.Warn().Str("event", "reply.plain").Str("reply", string(r.ID)).Send()
		m.Entities = nil
		id, err = b.once(ctx, r, m)
	}
	if unfit(err) && r.Draft.Kind == store.DraftCard && m.File == "" {
		b.cfg.Log.Warn().Str("event", "reply.filed").Str("reply", string(r.ID)).Send()
		id, err = b.once(ctx, r, b.filed(r, m))
	}
	return id, err
}

// unfit tells that Telegram refused what was said, not whom it was said to.
func unfit(err error) bool {
	no := refused(err)
	return no != nil && no.Code == 400 && !unchanged(no) && !gone(no)
}

// filed is a part of a card as a document, for one that Telegram will not have as a message: what is to be decided must be
// seen, and a document takes any text.
func (b *Bot) filed(r store.Reply, m part) part {
	caption, _ := b.say(r.Draft.Lang, "card.document", nil)
	return part{Text: caption, File: m.Text}
}

// once makes one call to Telegram.
func (b *Bot) once(ctx context.Context, r store.Reply, m part) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	var markup models.ReplyMarkup
	if k := b.keyboard(r); k != nil {
		markup = *k
	}
	quiet := true
	preview := &models.LinkPreviewOptions{IsDisabled: &quiet}
	chat := r.Draft.Chat
	var reply *models.ReplyParameters
	if r.Draft.ReplyTo != 0 && r.Part == 1 {
		reply = &models.ReplyParameters{MessageID: int(r.Draft.ReplyTo), AllowSendingWithoutReply: true}
	}
	var sent *models.Message
	var err error
	switch {
	case r.Draft.Kind == store.DraftEdit:
		_, err = b.lib.EditMessageText(ctx, &tg.EditMessageTextParams{
			ChatID: chat.ID, MessageID: int(r.EditMessage), Text: m.Text, Entities: m.Entities, LinkPreviewOptions: preview, ReplyMarkup: markup,
		})
		if no := refused(err); no != nil && strings.Contains(no.Description, "no text in the message") { // a card that went out as a document
			_, err = b.lib.EditMessageCaption(ctx, &tg.EditMessageCaptionParams{
				ChatID: chat.ID, MessageID: int(r.EditMessage), Caption: m.Text, CaptionEntities: m.Entities, ReplyMarkup: markup,
			})
		}
		if err == nil || unchanged(refused(err)) {
			return r.EditMessage, nil
		}
	case m.File != "":
		sent, err = b.lib.SendDocument(ctx, &tg.SendDocumentParams{
			ChatID: chat.ID, MessageThreadID: int(chat.Topic), Caption: m.Text, ReplyParameters: reply, ReplyMarkup: markup,
			Document: &models.InputFileUpload{Filename: "pilder.md", Data: strings.NewReader(m.File)},
		})
	default:
		sent, err = b.lib.SendMessage(ctx, &tg.SendMessageParams{
			ChatID: chat.ID, MessageThreadID: int(chat.Topic), Text: m.Text, Entities: m.Entities, LinkPreviewOptions: preview,
			ReplyParameters: reply, ReplyMarkup: markup,
		})
	}
	if err != nil {
		return 0, err // beside an error the library's message is an empty one
	}
	return int64(sent.ID), nil
}

// conclude judges an attempt and gives what has to be committed about it.
func (b *Bot) conclude(r store.Reply, id int64, err error, took time.Duration) func(context.Context, store.Poller) error {
	now, edit := b.cfg.Now(), r.Draft.Kind == store.DraftEdit
	again := now.Add(b.backoff(r.Attempts + 1))
	retry := func(until time.Time, whole bool, reason string) func(context.Context, store.Poller) error {
		return func(ctx context.Context, p store.Poller) error {
			return b.store.MarkRetry(ctx, p, r.ID, until, whole, reason)
		}
	}
	end := func(unsure bool, reason, confession string) func(context.Context, store.Poller) error {
		b.failure(r, reason, err)
		return func(ctx context.Context, p store.Poller) error {
			if err := b.store.MarkFailed(ctx, p, r.ID, unsure, reason); err != nil {
				return err
			}
			b.confess(ctx, r, confession)
			return nil
		}
	}
	var notSent *notSentError
	no := refused(err)
	switch {
	case err == nil:
		b.cfg.Log.Info().Str("event", "reply.sent").Str("reply", string(r.ID)).Str("run", string(r.Run)).
			Str("conversation", string(r.Draft.Conversation)).Int("part", r.Part).Int64("ms", took.Milliseconds()).Send()
		return func(ctx context.Context, p store.Poller) error { return b.store.MarkSent(ctx, p, r.ID, id) }
	case errors.As(err, &notSent):
		return retry(again, true, "network")
	case no == nil && edit:
		return retry(again, false, "unsure_edit") // an edit may be repeated
	case no == nil:
		return end(true, "no_answer", "send.uncertain")
	case no.Code == 429:
		until := now.Add(max(no.RetryAfter, time.Second))
		return retry(until, b.pace.block(r.Draft.Chat.ID, until), "too_many")
	case no.Code == 401 || no.Code == 404:
		until := now.Add(revokedPause)
		b.pace.blockAll(until)
		b.cfg.Log.Error().Str("event", "telegram.token_refused").Int("code", no.Code).Send()
		return retry(until, true, "token_refused")
	case no.Code >= 500:
		return retry(again, false, "server_error")
	case no.Code == 403 || gone(no):
		return end(false, "unreachable", "")
	case edit || r.Draft.Kind == store.DraftNotice:
		return end(false, "refused", "") // a remark about a remark helps nobody
	}
	return end(false, "refused", "send.failed")
}

// failure logs a reply that ended without having been sent, as far as we know. Telegram's words may quote ours, so of a
// refusal only the code is logged.
func (b *Bot) failure(r store.Reply, reason string, err error) {
	ev := b.cfg.Log.Error()
	if no := refused(err); no != nil {
		ev.Int("code", no.Code)
	} else if err != nil {
		ev.Err(err)
	}
	ev.Str("event", "reply.failed").Str("reply", string(r.ID)).Str("run", string(r.Run)).
		Str("conversation", string(r.Draft.Conversation)).Int("part", r.Part).Str("reason", reason).Send()
}

// confess tells the person that something of ours may be missing: once per chat and cause in ten minutes.
func (b *Bot) confess(ctx context.Context, r store.Reply, key string) {
	d := r.Draft
	if key == "" || d.Notice == key || d.Company == "" || !b.notices.pass(key+" "+strconv.FormatInt(d.Chat.ID, 10), 10*time.Minute) {
		return
	}
	err := b.store.Say(ctx, store.Draft{Company: d.Company, Conversation: d.Conversation, Chat: d.Chat, Lang: d.Lang,
		Kind: store.DraftNotice, Notice: key, Priority: second})
	if err != nil {
		b.cfg.Log.Warn().Str("event", "remark.not_stored").Err(err).Send()
	}
}

// refused gives Telegram's refusal out of an error, nil when it is something else.
func refused(err error) *refusedError {
	var no *refusedError
	if errors.As(err, &no) {
		return no
	}
	return nil
}

// unchanged tells of an edit that had nothing to change: a success.
func unchanged(no *refusedError) bool {
	return no != nil && no.Code == 400 && strings.Contains(no.Description, "message is not modified")
}

// gone tells that the chat cannot be reached, whatever is sent.
func gone(no *refusedError) bool {
	for _, text := range []string{"chat not found", "bot was blocked", "user is deactivated", "bot was kicked", "can't initiate conversation", "upgraded to a supergroup", "PEER_ID_INVALID"} {
		if strings.Contains(no.Description, text) {
			return true
		}
	}
	return false
}
