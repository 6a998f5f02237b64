package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ReplyState is a reply's place in the outbox.
type ReplyState string

const (
	ReplyQueued    ReplyState = "queued"
	ReplySending   ReplyState = "sending"
	ReplySent      ReplyState = "sent"
	ReplyUncertain ReplyState = "uncertain" // the network cut leaves open whether it arrived; never repeated blindly
	ReplyFailed    ReplyState = "failed"
	ReplyFolded    ReplyState = "folded" // a card's further part, kept back until its person asks to see all
)

// Reply is one row of the outbox: one part of a draft.
type Reply struct {
	ID           ReplyID
	Draft        Draft
	Part         int    // 1-based
	Parts        int    // 0 until the draft was split
	Rendered     []byte // a split part as the bot rendered it; nil until then
	Approval     *Approval
	ButtonTokens [][]Secret // beside Draft.Buttons; zero for URL buttons
	EditMessage  int64      // DraftEdit: the Telegram message id to change; 0 if that message never went out
	Run          RunID
	State        ReplyState
	Attempts     int
	Sent         int64 // Telegram message id
	Reason       string
	Created      time.Time
}

// NextReply gives the next reply to send in any chat that is not paused, oldest chat first and strictly in order within
// a chat (priority, then age, then part). ok is false when nothing waits; wait tells when a pause ends, zero if none. A
// damaged reply is ended as failed, so that it keeps nobody else's back.
func (s *Store) NextReply(ctx context.Context, p Poller) (r Reply, ok bool, wait time.Time, err error) {
	for {
		id, wait, err := s.nextInLine(ctx, p.Bot)
		if err != nil || id == "" {
			return Reply{}, false, wait, err
		}
		all, err := s.replies(ctx, s.reads, `r.reply_id = $1`, id)
		if errors.Is(err, errSealed) {
			s.log.Error().Str("event", "store.sealed").Str("reply", string(id)).Err(err).Send()
			if err = s.MarkFailed(ctx, p, id, false, "sealed"); err == nil {
				continue
			}
		}
		if err != nil || len(all) == 0 {
			return Reply{}, false, time.Time{}, err
		}
		return all[0], true, time.Time{}, nil
	}
}

// nextInLine is the id of the next reply; empty when there is none, and then wait tells when a pause ends.
func (s *Store) nextInLine(ctx context.Context, bot BotID) (id ReplyID, wait time.Time, err error) {
	now := s.now()
	// A chat whose reply is being sent waits for what comes of it.
	err = s.reads.QueryRowContext(ctx, `WITH chat AS (
			SELECT r.chat_id, MIN(r.ordinal) AS oldest FROM reply r
			WHERE r.bot_id IN ($1, 0) AND r.state IN ('queued', 'sending')
				AND NOT EXISTS (SELECT 1 FROM chat_pause w WHERE w.bot_id = $1 AND w.chat_id = r.chat_id AND w.until_ms > $2)
				AND NOT EXISTS (SELECT 1 FROM bot b WHERE b.bot_id = $1 AND b.paused_ms > $2)
			GROUP BY r.chat_id HAVING SUM(CASE WHEN r.state = 'sending' THEN 1 ELSE 0 END) = 0)
		SELECT r.reply_id FROM reply r
		WHERE r.bot_id IN ($1, 0) AND r.state = 'queued' AND r.chat_id = (SELECT chat_id FROM chat ORDER BY oldest LIMIT 1)
		ORDER BY r.priority, r.group_ordinal, r.part LIMIT 1`, bot, now).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		wait, err = s.pauseEnds(ctx, bot, now)
		return "", wait, err
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("finding the next reply: %w", err)
	}
	return id, time.Time{}, nil
}

// pauseEnds is when the first of the chats in which something waits may be spoken to again; zero when none is paused.
func (s *Store) pauseEnds(ctx context.Context, bot BotID, now int64) (time.Time, error) {
	var until sql.NullInt64
	err := s.reads.QueryRowContext(ctx, `SELECT MIN(CASE WHEN b.paused_ms > COALESCE(w.until_ms, 0) THEN b.paused_ms ELSE w.until_ms END)
		FROM reply r JOIN bot b ON b.bot_id = $1 LEFT JOIN chat_pause w ON w.bot_id = $1 AND w.chat_id = r.chat_id
		WHERE r.bot_id IN ($1, 0) AND r.state = 'queued' AND (b.paused_ms > $2 OR w.until_ms > $2)`, bot, now).Scan(&until)
	if err != nil {
		return time.Time{}, fmt.Errorf("finding the end of a pause: %w", err)
	}
	return at(until.Int64), nil
}

// SplitReply fixes the rendered parts of a reply: the reply itself becomes part 1, the others are added behind it. A card's
// are folded, unless its draft says Whole: nobody's yes counts before they were sent too (Decide, ShowAll). Called
// again for a reply that is already split it changes nothing.
func (s *Store) SplitReply(ctx context.Context, p Poller, id ReplyID, parts [][]byte) ([]Reply, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("splitting reply %s into nothing", id)
	}
	var all []Reply
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		if err := s.holds(ctx, tx, p); err != nil {
			return err
		}
		var group ReplyID
		var company CompanyID
		var known int
		var sealed []byte
		err := tx.QueryRowContext(ctx, `SELECT group_id, company_id, parts, body FROM reply WHERE reply_id = $1 AND bot_id IN ($2, 0)`+s.d.forUpdate,
			id, p.Bot).Scan(&group, &company, &known, &sealed)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if known == 0 {
			body, err := s.seal.open("reply.body", string(id), company, sealed)
			if err != nil {
				return err
			}
			if err := s.split(ctx, tx, id, company, body, parts); err != nil {
				return err
			}
		}
		all, err = s.replies(ctx, tx, `r.group_id = $1 ORDER BY r.part`, group)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("splitting reply %s: %w", id, err)
	}
	return all, nil
}

func (s *Store) split(ctx context.Context, tx *sql.Tx, id ReplyID, company CompanyID, body []byte, parts [][]byte) error {
	var b replyBody
	if err := json.Unmarshal(body, &b); err != nil {
		return fmt.Errorf("reading reply %s: %w", id, err)
	}
	if _, err := tx.ExecContext(ctx, `UPDATE reply SET parts = $2, rendered = $3 WHERE reply_id = $1`,
		id, len(parts), s.seal.seal("reply.rendered", string(id), company, parts[0])); err != nil {
		return err
	}
	for i, part := range parts[1:] {
		next := newID(prefixReply)
		if _, err := tx.ExecContext(ctx, `INSERT INTO reply (reply_id, company_id, bot_id, conversation_id, run_id, chat_id, topic_id,
				is_private, group_id, group_ordinal, part, parts, priority, kind, approval_id, edit_of, body, rendered, state, created_ms)
			SELECT $2, company_id, bot_id, conversation_id, run_id, chat_id, topic_id, is_private, group_id, group_ordinal, $3, parts,
				priority, kind, approval_id, edit_of, $4, $5, CASE WHEN kind = 'card' AND $6 = 0 THEN 'folded' ELSE 'queued' END, created_ms
			FROM reply WHERE reply_id = $1`,
			id, next, i+2, s.seal.seal("reply.body", next, company, body), s.seal.seal("reply.rendered", next, company, part), bit(b.Whole)); err != nil {
			return err
		}
	}
	return nil
}

// MarkSending is committed before the call to Telegram. ErrLost when the lease moved or the reply is not queued.
func (s *Store) MarkSending(ctx context.Context, p Poller, id ReplyID) error {
	return s.mark(ctx, p, id, s.quietTx, `UPDATE reply SET state = 'sending', attempts = attempts + 1, bot_id = $2
		WHERE reply_id = $1 AND bot_id IN ($2, 0) AND state = 'queued'`)
}

// MarkSent records the message id that Telegram gave, and with a run's first reply how long its delivery took.
func (s *Store) MarkSent(ctx context.Context, p Poller, id ReplyID, message int64) error {
	inOne := func(ctx context.Context, f func(tx *sql.Tx) error) error {
		return s.tx(ctx, func(tx *sql.Tx) error {
			if err := f(tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE run SET ms_delivery = $2 - ended_ms
				WHERE run_id = (SELECT run_id FROM reply WHERE reply_id = $1) AND ended_ms > 0 AND ended_ms < $2 AND ms_delivery = 0`, id, s.now())
			return err
		})
	}
	return s.mark(ctx, p, id, inOne, `UPDATE reply SET state = 'sent', sent_id = $3, ended_ms = $4
		WHERE reply_id = $1 AND bot_id = $2 AND state = 'sending'`, message, s.now())
}

// MarkRetry puts a reply back whose send was certainly not performed, or not tried, and pauses its chat (or, with
// wholeBot, all chats) until the given time.
func (s *Store) MarkRetry(ctx context.Context, p Poller, id ReplyID, until time.Time, wholeBot bool, reason string) error {
	pause := `INSERT INTO chat_pause (bot_id, chat_id, until_ms) SELECT $2, chat_id, $3 FROM reply WHERE reply_id = $1
		ON CONFLICT (bot_id, chat_id) DO UPDATE SET until_ms = excluded.until_ms`
	if wholeBot {
		pause = `UPDATE bot SET paused_ms = $3 WHERE bot_id = $2 AND EXISTS (SELECT 1 FROM reply WHERE reply_id = $1)`
	}
	inOne := func(ctx context.Context, f func(tx *sql.Tx) error) error {
		return s.quietTx(ctx, func(tx *sql.Tx) error {
			if err := f(tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, pause, id, p.Bot, ms(until))
			return err
		})
	}
	return s.mark(ctx, p, id, inOne, `UPDATE reply SET state = 'queued', reason = $3
		WHERE reply_id = $1 AND bot_id IN ($2, 0) AND state IN ('queued', 'sending')`, reason)
}

// MarkFailed ends a reply that Telegram refused for good; uncertain=true ends one whose outcome is unknown.
func (s *Store) MarkFailed(ctx context.Context, p Poller, id ReplyID, uncertain bool, reason string) error {
	state := ReplyFailed
	if uncertain {
		state = ReplyUncertain
	}
	return s.mark(ctx, p, id, s.tx, `UPDATE reply SET state = $3, reason = $4, ended_ms = $5
		WHERE reply_id = $1 AND bot_id IN ($2, 0) AND state IN ('queued', 'sending')`, state, reason, s.now())
}

// mark moves one reply on, as the holder of the poller only. What remains of a message in parts goes before everything
// else that waits in the chat, so that nothing comes between two parts.
func (s *Store) mark(ctx context.Context, p Poller, id ReplyID, in func(context.Context, func(*sql.Tx) error) error, update string, args ...any) error {
	err := in(ctx, func(tx *sql.Tx) error {
		if err := s.holds(ctx, tx, p); err != nil {
			return err
		}
		ok, err := one(tx.ExecContext(ctx, update, append([]any{id, p.Bot}, args...)...))
		if err != nil {
			return err
		}
		if !ok {
			return ErrLost
		}
		// What has begun goes on before anything else, all of its parts alike: a part that is put back keeps its place.
		_, err = tx.ExecContext(ctx, `UPDATE reply SET priority = -1 WHERE state = 'queued' AND priority <> -1
			AND group_id = (SELECT group_id FROM reply WHERE reply_id = $1)
			AND EXISTS (SELECT 1 FROM reply o WHERE o.group_id = reply.group_id AND (o.state <> 'queued' OR o.priority = -1))`, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("marking reply %s: %w", id, err)
	}
	return nil
}

// RecoverReplies marks what a dead sender left in "sending" as uncertain and returns how many. Called by a new holder of
// the poller's lease before it sends.
func (s *Store) RecoverReplies(ctx context.Context, p Poller) (int, error) {
	var n int64
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.holds(ctx, tx, p); err != nil {
			return err
		}
		r, err := tx.ExecContext(ctx, `UPDATE reply SET state = 'uncertain', reason = 'sender_died', ended_ms = $2
			WHERE bot_id = $1 AND state = 'sending'`, p.Bot, s.now())
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("recovering replies: %w", err)
	}
	return int(n), nil
}

// replies reads replies, where is a condition on r.
func (s *Store) replies(ctx context.Context, q queryer, where string, args ...any) ([]Reply, error) {
	rows, err := q.QueryContext(ctx, `SELECT r.reply_id, r.company_id, r.conversation_id, r.run_id, r.chat_id, r.topic_id,
			r.is_private, r.part, r.parts, r.priority, r.kind, r.approval_id, r.edit_of, r.body, r.rendered, r.state, r.attempts,
			r.sent_id, r.reason, r.created_ms, COALESCE((SELECT e.sent_id FROM reply e WHERE e.reply_id = r.edit_of), 0)
		FROM reply r WHERE `+where, args...)
	var all []Reply
	err = each(rows, err, func(scan func(...any) error) error {
		var r Reply
		var private, created int64
		var body, rendered []byte
		d := &r.Draft
		err := scan(&r.ID, &d.Company, &d.Conversation, &r.Run, &d.Chat.ID, &d.Chat.Topic, &private, &r.Part, &r.Parts, &d.Priority,
			&d.Kind, &d.Approval, &d.EditOf, &body, &rendered, &r.State, &r.Attempts, &r.Sent, &r.Reason, &created, &r.EditMessage)
		if err != nil {
			return err
		}
		d.Chat.Private, r.Created = private == 1, at(created)
		if r.Rendered, err = s.seal.open("reply.rendered", string(r.ID), d.Company, rendered); err != nil {
			return err
		}
		if err := s.openBody(&r, body); err != nil {
			return err
		}
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading replies: %w", err)
	}
	for i := range all {
		if d := all[i].Draft; d.Approval != "" {
			a, err := s.approval(ctx, q, d.Company, d.Approval)
			if errors.Is(err, ErrNotFound) {
				continue // told without it; nothing may block the outbox
			}
			if err != nil {
				return nil, fmt.Errorf("reading the approval of %s: %w", all[i].ID, err)
			}
			all[i].Approval = &a
		}
	}
	return all, nil
}

// openBody fills in what of a draft is sealed.
func (s *Store) openBody(r *Reply, sealed []byte) error {
	b, err := s.openReplyBody(r.ID, r.Draft.Company, sealed)
	if err != nil {
		return err
	}
	d := &r.Draft
	d.Markdown, d.Notice, d.Args, d.Lang, d.ReplyTo, d.Whole = b.Markdown, b.Notice, b.Args, b.Lang, b.ReplyTo, b.Whole
	for _, line := range b.Buttons {
		var buttons []Button
		var tokens []Secret
		for _, x := range line {
			b, token := Button{Label: x.Label, Args: x.Args, Action: x.Action, Ref: x.Ref}, Secret{}
			if x.URL != "" {
				b.URL = NewSecret(x.URL)
			} else {
				token = NewSecret(x.Token)
			}
			buttons, tokens = append(buttons, b), append(tokens, token)
		}
		d.Buttons = append(d.Buttons, buttons)
		r.ButtonTokens = append(r.ButtonTokens, tokens)
	}
	return nil
}

// Say queues drafts that belong to no update, run or call.
func (s *Store) Say(ctx context.Context, drafts ...Draft) error {
	return s.tx(ctx, func(tx *sql.Tx) error { return s.say(ctx, tx, origin{}, drafts) })
}

// BusyChats gives the chats of a bot in which a run is queued or running: where the typing sign belongs.
func (s *Store) BusyChats(ctx context.Context, bot BotID) ([]Chat, error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT c.chat_id, c.topic_id, c.is_private FROM conversation c
		WHERE c.bot_id = $1 AND EXISTS (SELECT 1 FROM message m WHERE m.conversation_id = c.conversation_id AND m.state IN ('queued', 'running'))
		GROUP BY c.chat_id, c.topic_id, c.is_private ORDER BY c.chat_id, c.topic_id`, bot)
	var all []Chat
	err = each(rows, err, func(scan func(...any) error) error {
		var c Chat
		var private int64
		if err := scan(&c.ID, &c.Topic, &private); err != nil {
			return err
		}
		c.Private = private == 1
		all = append(all, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading busy chats: %w", err)
	}
	return all, nil
}
