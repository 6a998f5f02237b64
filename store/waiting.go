package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// WaitingTurn is the head of a conversation's queue.
type WaitingTurn struct {
	Company CompanyID
	Person  PersonID
	Member  Membership
	Chat    Chat
	Message MessageID // the first that waits
	Since   time.Time // when it came
	Told    bool      // its person was told that they wait
}

// Waiting tells, to whoever has a turn of the conversation and has not started it, whose turn it is; ok is false when there
// is nothing to do, and then StartRun ends it at once. What a dead worker had begun waits too: StartRun decides about it.
func (s *Store) Waiting(ctx context.Context, c ConversationID) (w WaitingTurn, ok bool, err error) {
	var m MembershipID
	var private, since, told int64
	err = s.reads.QueryRowContext(ctx, `SELECT m.company_id, m.person_id, m.membership_id, m.message_id, m.received_ms, m.told_ms,
			c.chat_id, c.topic_id, c.is_private
		FROM message m JOIN conversation c ON c.conversation_id = m.conversation_id
		WHERE m.conversation_id = $1 AND m.state IN ('queued', 'running') ORDER BY m.seq LIMIT 1`, c).
		Scan(&w.Company, &w.Person, &m, &w.Message, &since, &told, &w.Chat.ID, &w.Chat.Topic, &private)
	if errors.Is(err, sql.ErrNoRows) {
		return WaitingTurn{}, false, nil
	}
	if err == nil {
		w.Member, err = membership(ctx, s.reads, `m.company_id = $1 AND m.membership_id = $2`, w.Company, m)
	}
	if err != nil {
		return WaitingTurn{}, false, fmt.Errorf("looking who waits in %s: %w", c, err)
	}
	w.Chat.Private, w.Since, w.Told = private == 1, at(since), told > 0
	return w, true, nil
}

// TellWaiting queues a draft for a message that still waits, in reply to it, once in the message's life. told is false when
// it was told before or does not wait any more: then nothing is said.
func (s *Store) TellWaiting(ctx context.Context, t Turn, head MessageID, d Draft) (told bool, err error) {
	if _, err = s.turn(t.Job); err == nil {
		err = s.tx(ctx, func(tx *sql.Tx) error {
			told, err = s.tellWaiting(ctx, tx, t, head, d)
			return err
		})
	}
	if err != nil {
		return false, fmt.Errorf("telling that %s waits: %w", head, err)
	}
	return told, nil
}

func (s *Store) tellWaiting(ctx context.Context, tx *sql.Tx, t Turn, head MessageID, d Draft) (bool, error) {
	var company CompanyID
	var bot BotID
	var telegram int64
	err := tx.QueryRowContext(ctx, `UPDATE message SET told_ms = $3
		WHERE message_id = $1 AND conversation_id = $2 AND state = 'queued' AND told_ms = 0
		RETURNING company_id, bot_id, telegram_id`, head, t.Conversation, s.now()).Scan(&company, &bot, &telegram)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d.Company, d.Conversation, d.ReplyTo = company, t.Conversation, cmp.Or(d.ReplyTo, telegram)
	return true, s.say(ctx, tx, origin{bot: bot}, []Draft{d})
}

// OtherInstances counts the living processes beside this one that take turns.
func (s *Store) OtherInstances(ctx context.Context) (int, error) {
	var n int
	err := s.reads.QueryRowContext(ctx, `SELECT COUNT(*) FROM instance WHERE instance_id <> $1 AND serves_turns = 1
		AND beat_ms > `+s.d.nowMS+` - $2`, s.instance, s.ttl.Milliseconds()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("counting instances: %w", err)
	}
	return n, nil
}

// OutboxWaiting counts the replies of a chat that are queued or being sent: 0 means that all was said.
func (s *Store) OutboxWaiting(ctx context.Context, bot BotID, chat int64) (int, error) {
	var n int
	err := s.reads.QueryRowContext(ctx, `SELECT COUNT(*) FROM reply WHERE bot_id IN ($1, 0) AND chat_id = $2
		AND state IN ('queued', 'sending')`, bot, chat).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("counting what waits for a chat: %w", err)
	}
	return n, nil
}
