package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Chat is where a message came from and where its answer goes.
type Chat struct {
	ID      int64
	Topic   int64 // message_thread_id of a forum topic, else 0
	Private bool
}

// Arrival is one update as the poll loop decoded it.
type Arrival struct {
	UpdateID int64
	Raw      []byte // the update's JSON as it came; sealed at rest
	Kind     ArrivalKind
	From     Person // Telegram, Name and Lang as Telegram says; the store knows the rest
	Chat     Chat
	Telegram int64  // message id in the chat
	Text     string // ArrivalMessage: what the person wrote; sealed at rest
	Foreign  bool   // somebody else wrote it, and the person passed it on
	Reason   string // ArrivalBroken, ArrivalIgnored: why, content-free
}

// ArrivalKind tells the store what an update needs.
type ArrivalKind string

const (
	ArrivalMessage ArrivalKind = "message" // goes to the conversation's next turn
	ArrivalControl ArrivalKind = "control" // command, button, change of membership: the control lane settles it
	ArrivalIgnored ArrivalKind = "ignored" // nothing for us; settled at once
	ArrivalBroken  ArrivalKind = "broken"  // set aside with its reason
)

// Fate is what became of an update or a message.
type Fate string

// The fates. received and queued are not yet ends.
const (
	FateReceived  Fate = "received"
	FateQueued    Fate = "queued"
	FateRunning   Fate = "running"
	FateAnswered  Fate = "answered"
	FateFailed    Fate = "failed"
	FateCancelled Fate = "cancelled"
	FateRefused   Fate = "refused"
	FateDone      Fate = "done"    // a command or button, carried out
	FateIgnored   Fate = "ignored" // nothing for us
	FateBroken    Fate = "broken"  // set aside
)

// Admission is what Receive did with one arrival.
type Admission struct {
	UpdateID     int64
	Fate         Fate
	Duplicate    bool           // seen before, by update id or by (chat, message id); nothing was done
	Stranger     bool           // a message of somebody in no company: left to the control lane, which refuses it
	Conversation ConversationID // for FateQueued
	Message      MessageID
	Company      CompanyID
	Waits        bool // another run of this conversation is busy, so the message waits for the next turn
}

// Receive stores the raw updates (unique by bot and update id), advances the offset to the last one + 1 (even downwards)
// and, for each message of a member, appends it to its conversation and enqueues the turn: one transaction. Only after
// it may Telegram be told the new offset. ErrLost when the poller's fence is old.
func (s *Store) Receive(ctx context.Context, p Poller, arrivals []Arrival) ([]Admission, error) {
	var admitted []Admission
	err := s.tx(ctx, func(tx *sql.Tx) error {
		admitted = make([]Admission, len(arrivals)) // anew with each try
		if err := s.holds(ctx, tx, p); err != nil {
			return err
		}
		var talk []arrived
		for i, a := range arrivals {
			next, err := s.admit(ctx, tx, p.Bot, a)
			if err != nil {
				return fmt.Errorf("update %d: %w", a.UpdateID, err)
			}
			admitted[i] = next.Admission
			if next.Fate == FateQueued && !next.Duplicate {
				next.i = i
				talk = append(talk, next)
			}
		}
		// By conversation, so that no two transactions lock conversations in different orders; within one as they came.
		slices.SortStableFunc(talk, func(a, b arrived) int { return cmp.Compare(a.Conversation, b.Conversation) })
		for _, a := range talk {
			if err := s.append(ctx, tx, p.Bot, &a); err != nil {
				return fmt.Errorf("update %d: %w", a.UpdateID, err)
			}
			admitted[a.i] = a.Admission
		}
		if len(arrivals) == 0 {
			return nil
		}
		_, err := tx.ExecContext(ctx, `UPDATE bot SET next_offset = $2 WHERE bot_id = $1`, p.Bot, arrivals[len(arrivals)-1].UpdateID+1)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("receiving %d updates: %w", len(arrivals), err)
	}
	return admitted, nil
}

// arrived is an arrival on its way into its conversation.
type arrived struct {
	Admission
	arrival Arrival
	member  Membership
	i       int
}

// admit files one update, unless it was seen before, and decides what it is to become.
func (s *Store) admit(ctx context.Context, tx *sql.Tx, bot BotID, a Arrival) (arrived, error) {
	in := arrived{Admission: Admission{UpdateID: a.UpdateID, Fate: FateReceived}, arrival: a}
	var err error
	in.member, err = membershipOf(ctx, tx, a.From.Telegram)
	known := err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return in, err
	}
	switch a.Kind {
	case ArrivalMessage:
		in.Stranger = !known
		if known {
			in.Fate = FateQueued
		}
	case ArrivalControl:
		in.Stranger = !known
		if known && a.Chat.Private { // a sign of life, and what they write next has its conversation
			if _, err := s.conversation(ctx, tx, bot, in.member, a.Chat); err != nil {
				return in, err
			}
		}
	case ArrivalIgnored:
		in.Fate = FateIgnored
	case ArrivalBroken:
		in.Fate = FateBroken
	default:
		in.Fate, a.Kind, a.Reason = FateBroken, ArrivalBroken, "unknown_kind"
	}
	in.Company = in.member.Company.ID
	if in.Fate == FateQueued {
		in.Message = MessageID(newID(prefixMessage))
		if in.Conversation, err = s.conversation(ctx, tx, bot, in.member, a.Chat); err != nil {
			return in, err
		}
	}
	settled := s.now()
	if in.Fate == FateReceived || in.Fate == FateQueued {
		settled = 0
	}
	fresh, err := one(tx.ExecContext(ctx, `INSERT INTO arrival (bot_id, update_id, company_id, kind, from_id, chat_id, topic_id,
			is_private, telegram_id, is_stranger, conversation_id, message_id, raw, fate, reason, received_ms, settled_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING`,
		bot, a.UpdateID, in.Company, a.Kind, a.From.Telegram, a.Chat.ID, a.Chat.Topic, bit(a.Chat.Private), a.Telegram,
		bit(in.Stranger), in.Conversation, in.Message, s.seal.seal("arrival.raw", rawRow(bot, a.UpdateID), in.Company, a.Raw),
		in.Fate, a.Reason, s.now(), settled))
	if err != nil || fresh {
		return in, err
	}
	in.Admission = Admission{UpdateID: a.UpdateID, Duplicate: true}
	err = tx.QueryRowContext(ctx, `SELECT COALESCE(m.state, a.fate), a.company_id, a.conversation_id, a.message_id
		FROM arrival a LEFT JOIN message m ON m.message_id = a.message_id
		WHERE a.bot_id = $1 AND (a.update_id = $2 OR a.chat_id = $3 AND a.telegram_id = $4 AND a.kind = 'message' AND $5 = 'message')
		ORDER BY a.update_id = $2 DESC LIMIT 1`,
		bot, a.UpdateID, a.Chat.ID, a.Telegram, string(a.Kind)).Scan(&in.Fate, &in.Company, &in.Conversation, &in.Message)
	return in, err
}

// rawRow names the row of a sealed update.
func rawRow(bot BotID, update int64) string { return fmt.Sprintf("%d:%d", bot, update) }

// conversation finds or begins the conversation of a membership in a chat.
func (s *Store) conversation(ctx context.Context, tx *sql.Tx, bot BotID, m Membership, c Chat) (ConversationID, error) {
	if _, err := tx.ExecContext(ctx, `INSERT INTO conversation (conversation_id, company_id, bot_id, chat_id, topic_id, is_private,
			membership_id, created_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (bot_id, company_id, chat_id, topic_id, membership_id) DO NOTHING`,
		newID(prefixConversation), m.Company.ID, bot, c.ID, c.Topic, bit(c.Private), inChat(m, c), s.now()); err != nil {
		return "", err
	}
	return findConversation(ctx, tx, bot, m, c)
}

// findConversation gives the conversation of a membership in a chat; sql.ErrNoRows when they never talked there.
func findConversation(ctx context.Context, q queryer, bot BotID, m Membership, c Chat) (id ConversationID, err error) {
	err = q.QueryRowContext(ctx, `SELECT conversation_id FROM conversation
		WHERE bot_id = $1 AND company_id = $2 AND chat_id = $3 AND topic_id = $4 AND membership_id = $5`,
		bot, m.Company.ID, c.ID, c.Topic, inChat(m, c)).Scan(&id)
	return id, err
}

// inChat is the part of a conversation's key that keeps a private one to its membership; a group's is shared.
func inChat(m Membership, c Chat) MembershipID {
	if c.Private {
		return m.ID
	}
	return ""
}

// append adds a message to its conversation, whose row it locks until commit, and wakes it.
func (s *Store) append(ctx context.Context, tx *sql.Tx, bot BotID, in *arrived) error {
	var seq int64
	if err := tx.QueryRowContext(ctx, `UPDATE conversation SET next_seq = next_seq + 1 WHERE conversation_id = $1 RETURNING next_seq`,
		in.Conversation).Scan(&seq); err != nil {
		return err
	}
	var busy int
	if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM run WHERE conversation_id = $1 AND state = 'running'`,
		in.Conversation).Scan(&busy); err != nil {
		return err
	}
	in.Waits = busy > 0
	_, err := tx.ExecContext(ctx, `INSERT INTO message (message_id, company_id, conversation_id, seq, membership_id, person_id, bot_id,
			update_id, telegram_id, state, is_foreign, text, received_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'queued', $10, $11, $12)`,
		in.Message, in.Company, in.Conversation, seq, in.member.ID, in.member.Person.ID, bot, in.UpdateID, in.arrival.Telegram, bit(in.arrival.Foreign),
		s.seal.seal("message.text", string(in.Message), in.Company, []byte(in.arrival.Text)), s.now())
	if err != nil {
		return err
	}
	_, err = s.enqueueTurn(ctx, tx, in.Conversation)
	return err
}

// UpdateRef names a stored update; a verb that carries one settles it in its own transaction and, called again for a
// settled update, changes nothing and returns ErrSettled.
type UpdateRef struct {
	Bot      BotID
	UpdateID int64
}

// ErrSettled is returned for an update whose fate is already decided. The effects of the first time stand.
var ErrSettled = errors.New("update already settled")

// Update is a stored update that waits for its fate.
type Update struct {
	Ref      UpdateRef
	Raw      []byte
	Kind     ArrivalKind
	Stranger bool
	Received time.Time
}

// OpenUpdates gives the updates of the control lane that have no fate yet, oldest first. A damaged one is set aside as
// broken, so that it does not hold up the lane.
func (s *Store) OpenUpdates(ctx context.Context, bot BotID, limit int) ([]Update, error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT update_id, company_id, raw, kind, is_stranger, received_ms FROM arrival
		WHERE bot_id = $1 AND fate = 'received' ORDER BY received_ms, update_id LIMIT $2`, bot, limit)
	var open []Update
	var damaged []UpdateRef
	err = each(rows, err, func(scan func(...any) error) error {
		u := Update{Ref: UpdateRef{Bot: bot}}
		var company CompanyID
		var sealed []byte
		var stranger, received int64
		if err := scan(&u.Ref.UpdateID, &company, &sealed, &u.Kind, &stranger, &received); err != nil {
			return err
		}
		u.Stranger, u.Received = stranger == 1, at(received)
		if u.Raw, err = s.seal.open("arrival.raw", rawRow(bot, u.Ref.UpdateID), company, sealed); err != nil {
			damaged = append(damaged, u.Ref)
			return nil
		}
		open = append(open, u)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading open updates: %w", err)
	}
	for _, ref := range damaged {
		s.log.Error().Str("event", "store.sealed").Int64("update", ref.UpdateID).Send()
		if err := s.Settle(ctx, ref, FateBroken, "sealed"); err != nil && !errors.Is(err, ErrSettled) {
			return nil, fmt.Errorf("setting update %d aside: %w", ref.UpdateID, err)
		}
	}
	return open, nil
}

// Settle gives an update its fate and queues the drafts in the same transaction.
func (s *Store) Settle(ctx context.Context, from UpdateRef, fate Fate, reason string, drafts ...Draft) error {
	return s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.settle(ctx, tx, from, fate, reason); err != nil {
			return err
		}
		return s.say(ctx, tx, origin{bot: from.Bot}, drafts)
	})
}

// Strangers hear at most one neutral line a day each and all together at most 30 an hour: a flood of them must cost us
// nothing and must not use up the bot's pace.
const (
	strangerEvery   = 24 * time.Hour
	strangersInHour = 30
)

// RefuseStranger settles a stranger's update. The draft is queued only if this person got no such line for a day and
// fewer than 30 such lines went out in the last hour; otherwise the update is refused in silence.
func (s *Store) RefuseStranger(ctx context.Context, from UpdateRef, telegram int64, line Draft) error {
	return s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.settle(ctx, tx, from, FateRefused, "stranger"); err != nil {
			return err
		}
		now := s.now()
		if _, err := tx.ExecContext(ctx, `DELETE FROM stranger_line WHERE bot_id = $1 AND at_ms <= $2`,
			from.Bot, now-strangerEvery.Milliseconds()); err != nil {
			return fmt.Errorf("forgetting old lines to strangers: %w", err)
		}
		var theirs, all int
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(SUM(CASE WHEN from_id = $2 THEN 1 ELSE 0 END), 0),
				COALESCE(SUM(CASE WHEN at_ms > $3 THEN 1 ELSE 0 END), 0)
			FROM stranger_line WHERE bot_id = $1`, from.Bot, telegram, now-time.Hour.Milliseconds()).Scan(&theirs, &all); err != nil {
			return fmt.Errorf("counting lines to strangers: %w", err)
		}
		if theirs > 0 || all >= strangersInHour {
			return nil
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO stranger_line (bot_id, from_id, at_ms) VALUES ($1, $2, $3)`,
			from.Bot, telegram, now); err != nil {
			return fmt.Errorf("counting a line to a stranger: %w", err)
		}
		return s.say(ctx, tx, origin{bot: from.Bot}, []Draft{line})
	})
}

// settle gives an open update its fate inside a verb's own transaction. The row is locked by it until commit, so of two
// workers on one update the second gets ErrSettled. An unknown update is ErrNotFound. A zero ref is no update: nothing
// to settle.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, from UpdateRef, fate Fate, reason string) error {
	if from == (UpdateRef{}) {
		return nil
	}
	ok, err := one(tx.ExecContext(ctx, `UPDATE arrival SET fate = $3, reason = $4, settled_ms = $5
		WHERE bot_id = $1 AND update_id = $2 AND fate = 'received'`, from.Bot, from.UpdateID, fate, reason, s.now()))
	if err != nil {
		return fmt.Errorf("settling update %d: %w", from.UpdateID, err)
	}
	if ok {
		return nil
	}
	var known int
	err = tx.QueryRowContext(ctx, `SELECT 1 FROM arrival WHERE bot_id = $1 AND update_id = $2`, from.Bot, from.UpdateID).Scan(&known)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("update %d: %w", from.UpdateID, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("settling update %d: %w", from.UpdateID, err)
	}
	return ErrSettled
}
