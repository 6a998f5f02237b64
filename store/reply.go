package store

import (
	"context"
	"time"
)

// Draft is something to say in a chat. It is written before the first attempt to send it.
type Draft struct {
	Company      CompanyID // empty only for a stranger
	Conversation ConversationID
	Chat         Chat
	ReplyTo      int64 // message id in the chat that this answers; 0 for none
	Lang         string
	Kind         DraftKind
	Markdown     string            // DraftAnswer: the agent's words, untrusted
	Notice       string            // DraftNotice, DraftCard: key in the bot's catalogue, e.g. "run.failed"
	Args         map[string]string // values for the catalogue text, untrusted data
	Approval     ApprovalID        // DraftCard: the approval it shows
	Buttons      [][]Button        // rows
	Priority     int               // lower goes first among what waits for a chat: 0 answers and cards, 1 notices, 2 edits
	EditOf       ReplyID           // DraftEdit: the reply whose message is changed
}

// DraftKind says how the bot renders a draft.
type DraftKind string

const (
	DraftAnswer DraftKind = "answer" // Markdown of the agent
	DraftNotice DraftKind = "notice" // a text of the house
	DraftCard   DraftKind = "card"   // a text of the house with an approval's frozen arguments
	DraftEdit   DraftKind = "edit"   // changes an earlier message: new text by Notice, no buttons unless given
)

// Button is an inline button. One with a URL opens it; any other carries a fresh random token whose hash is stored with
// what it does, so that the 64 bytes of callback data mean nothing by themselves.
type Button struct {
	Label  string // key in the bot's catalogue, "button.approve"
	Args   map[string]string
	Action ButtonAction
	Ref    string // what it acts on: an approval, account or invitation
	URL    Secret
}

// ButtonAction is what a press asks for.
type ButtonAction string

const (
	ButtonApprove        ButtonAction = "approve"
	ButtonDeny           ButtonAction = "deny"
	ButtonAcceptInvite   ButtonAction = "accept_invite"
	ButtonConfirmAccount ButtonAction = "confirm_account"
	ButtonRejectAccount  ButtonAction = "reject_account"
	ButtonConnect        ButtonAction = "connect" // Ref is the app's slug
)

// PressedButton is what a token stands for.
type PressedButton struct {
	Action  ButtonAction
	Ref     Secret // an invitation's token is secret; others merely opaque
	Company CompanyID
	Expires time.Time
}

// Button looks a pressed token up. ErrNotFound: unknown or expired.
func (s *Store) Button(ctx context.Context, token Secret) (PressedButton, error) {
	panic("being built")
}

// ReplyState is a reply's place in the outbox.
type ReplyState string

const (
	ReplyQueued    ReplyState = "queued"
	ReplySending   ReplyState = "sending"
	ReplySent      ReplyState = "sent"
	ReplyUncertain ReplyState = "uncertain" // the network cut leaves open whether it arrived; never repeated blindly
	ReplyFailed    ReplyState = "failed"
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
// a chat (priority, then age, then part). ok is false when nothing waits; wait tells when a pause ends, zero if none.
func (s *Store) NextReply(ctx context.Context, p Poller) (r Reply, ok bool, wait time.Time, err error) {
	panic("being built")
}

// SplitReply fixes the rendered parts of a reply: the reply itself becomes part 1, the others are added behind it. Called
// again for a reply that is already split it changes nothing.
func (s *Store) SplitReply(ctx context.Context, p Poller, id ReplyID, parts [][]byte) ([]Reply, error) {
	panic("being built")
}

// MarkSending is committed before the call to Telegram. ErrLost when the lease moved or the reply is not queued.
func (s *Store) MarkSending(ctx context.Context, p Poller, id ReplyID) error { panic("being built") }

// MarkSent records the message id that Telegram gave.
func (s *Store) MarkSent(ctx context.Context, p Poller, id ReplyID, message int64) error {
	panic("being built")
}

// MarkRetry puts a reply back whose send was certainly not performed, and pauses its chat (or, with wholeBot, all chats)
// until the given time.
func (s *Store) MarkRetry(ctx context.Context, p Poller, id ReplyID, until time.Time, wholeBot bool, reason string) error {
	panic("being built")
}

// MarkFailed ends a reply that Telegram refused for good; uncertain=true ends one whose outcome is unknown.
func (s *Store) MarkFailed(ctx context.Context, p Poller, id ReplyID, uncertain bool, reason string) error {
	panic("being built")
}

// RecoverReplies marks what a dead sender left in "sending" as uncertain and returns how many. Called by a new holder of
// the poller's lease before it sends.
func (s *Store) RecoverReplies(ctx context.Context, p Poller) (int, error) { panic("being built") }

// Say queues drafts that belong to no update, run or call.
func (s *Store) Say(ctx context.Context, drafts ...Draft) error { panic("being built") }

// Wake is closed and replaced whenever this process committed something the sender, the control lane or a waiting command
// may act on. Get it before looking, wait on it after finding nothing; other processes are found by polling.
func (s *Store) Wake() <-chan struct{}

// BusyChats gives the chats of a bot in which a run is queued or running: where the typing sign belongs.
func (s *Store) BusyChats(ctx context.Context, bot BotID) ([]Chat, error) { panic("being built") }
