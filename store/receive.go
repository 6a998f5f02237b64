package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Poller is the right to poll one bot, held by at most one process. Its fence rises with every change of owner; a verb
// with an old fence writes nothing.
type Poller struct {
	Bot    BotID
	Fence  int64
	Offset int64 // what to send as getUpdates offset: the last committed update id + 1, 0 at first
}

// ErrLost is returned to a holder whose lease or run has been taken over. Nothing was written.
var ErrLost = errors.New("ownership lost")

// HeldError says who polls the bot now.
type HeldError struct {
	Owner string // instance id of the holder
	Until time.Time
}

func (e *HeldError) Error() string { return "bot is polled by " + e.Owner }

// AcquirePoller takes or renews the lease of a bot's poller for ttl. *HeldError when another process holds it.
func (s *Store) AcquirePoller(ctx context.Context, bot BotID, ttl time.Duration) (Poller, error) {
	panic("being built")
}

// ReleasePoller gives the lease back, so that the next process takes over at once.
func (s *Store) ReleasePoller(ctx context.Context, p Poller) error { panic("being built") }

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
	panic("being built")
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

// OpenUpdates gives the updates of the control lane that have no fate yet, oldest first.
func (s *Store) OpenUpdates(ctx context.Context, bot BotID, limit int) ([]Update, error) {
	panic("being built")
}

// Settle gives an update its fate and queues the drafts in the same transaction.
func (s *Store) Settle(ctx context.Context, from UpdateRef, fate Fate, reason string, drafts ...Draft) error {
	panic("being built")
}

// RefuseStranger settles a stranger's update. The draft is queued only if this person got no such line for a day and
// fewer than 30 such lines went out in the last hour; otherwise the update is refused in silence.
func (s *Store) RefuseStranger(ctx context.Context, from UpdateRef, telegram int64, line Draft) error {
	panic("being built")
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
