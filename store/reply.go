package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	Whole        bool              // DraftCard: send all of it at once, and fold nothing
	Buttons      [][]Button        // rows
	Priority     int               // lower goes first among what waits for a chat: 0 answers and cards, 1 notices, 2 edits
	EditOf       ReplyID           // DraftEdit: the reply whose message is changed; empty: all cards of Approval, each in its chat
}

// DraftKind says how the bot renders a draft.
type DraftKind string

const (
	DraftAnswer   DraftKind = "answer"   // Markdown of the agent
	DraftNotice   DraftKind = "notice"   // a text of the house
	DraftCard     DraftKind = "card"     // a text of the house with an approval's frozen arguments
	DraftTogether DraftKind = "together" // a text of the house that sums up what a run wants decided
	DraftEdit     DraftKind = "edit"     // changes an earlier message: new text by Notice, no buttons unless given
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
	ButtonShowAll        ButtonAction = "show_all"    // what a short card left out; Ref is the approval
	ButtonApproveAll     ButtonAction = "approve_all" // Ref is the run
	ButtonDenyAll        ButtonAction = "deny_all"
	ButtonOneByOne       ButtonAction = "one_by_one"
	ButtonUndo           ButtonAction = "undo"   // Ref is what TakeBack takes
	ButtonAway           ButtonAction = "away"   // Ref is until when, in milliseconds
	ButtonDeputy         ButtonAction = "deputy" // Ref is until when, and behind a space a membership or nothing
	ButtonAcceptInvite   ButtonAction = "accept_invite"
	ButtonConfirmAccount ButtonAction = "confirm_account"
	ButtonRejectAccount  ButtonAction = "reject_account"
	ButtonConnect        ButtonAction = "connect" // Ref is the app's slug; empty: show those there are
	ButtonUseAccount     ButtonAction = "use_account"
	ButtonRemoveAccount  ButtonAction = "remove_account"
	ButtonPreference     ButtonAction = "preference" // Ref is category and app, each on its line; empty: show them

	// The policy's: Ref begins with the version that was shown, and then has the rule of the house to choose an effect for,
	// the rule and its effect, or a whole policy file.
	ButtonPolicyRule   ButtonAction = "policy_rule"
	ButtonPolicyEffect ButtonAction = "policy_effect"
	ButtonPolicySet    ButtonAction = "policy_set"
	// ButtonPolicyPreview only shows what today's rules would do; its Ref is the version like that of the others.
	ButtonPolicyPreview ButtonAction = "policy_preview"
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
	hash := token.Hash()
	var b PressedButton
	var ref []byte
	var expires int64
	err := s.reads.QueryRowContext(ctx, `SELECT action, ref, company_id, expires_ms FROM button WHERE token_hash = $1`,
		hash[:]).Scan(&b.Action, &ref, &b.Company, &expires)
	if errors.Is(err, sql.ErrNoRows) || err == nil && expires <= s.now() {
		return PressedButton{}, ErrNotFound
	}
	if err != nil {
		return PressedButton{}, fmt.Errorf("reading a button: %w", err)
	}
	plain, err := s.seal.open("button.ref", hex.EncodeToString(hash[:]), b.Company, ref)
	if err != nil {
		return PressedButton{}, err
	}
	b.Ref, b.Expires = NewSecret(string(plain)), at(expires)
	return b, nil
}

// buttonTTL is how long a button can be pressed. What it acts on may end sooner by itself.
const buttonTTL = 7 * 24 * time.Hour

// origin is where drafts come from, as far as it decides which bot says them.
type origin struct {
	bot BotID // 0: the conversation's, or the one that last heard from the chat
	run RunID
}

// replyBody is what is sealed of a draft.
type replyBody struct {
	Markdown string            `json:"markdown,omitempty"`
	Notice   string            `json:"notice,omitempty"`
	Args     map[string]string `json:"args,omitempty"`
	Lang     string            `json:"lang,omitempty"`
	ReplyTo  int64             `json:"reply_to,omitempty"`
	Whole    bool              `json:"whole,omitempty"`
	Buttons  [][]buttonBody    `json:"buttons,omitempty"`
}

// openReplyBody undoes what sayOne seals.
func (s *Store) openReplyBody(id ReplyID, company CompanyID, sealed []byte) (b replyBody, err error) {
	plain, err := s.seal.open("reply.body", string(id), company, sealed)
	if err != nil {
		return b, err
	}
	if err := json.Unmarshal(plain, &b); err != nil {
		return b, fmt.Errorf("reading reply %s: %w", id, err)
	}
	return b, nil
}

// buttonBody is a button with the token that its press will carry. Only sealed does it reach a disk.
type buttonBody struct {
	Label  string            `json:"label"`
	Args   map[string]string `json:"args,omitempty"`
	Action ButtonAction      `json:"action,omitempty"`
	Ref    string            `json:"ref,omitempty"`
	URL    string            `json:"url,omitempty"`
	Token  string            `json:"token,omitempty"`
}

// say writes drafts into the outbox, in their order. A DraftEdit that names an approval and no reply changes all cards of
// that approval.
func (s *Store) say(ctx context.Context, tx *sql.Tx, from origin, drafts []Draft) error {
	for _, d := range drafts {
		if d.Kind == DraftEdit && d.EditOf == "" {
			if err := s.sayToCards(ctx, tx, from, d); err != nil {
				return err
			}
			continue
		}
		if err := s.sayOne(ctx, tx, from, d); err != nil {
			return err
		}
	}
	return nil
}

// sayToCards writes one edit for each card of the draft's approval, in the card's own chat and language: of one approval
// the cards may go to people of two.
func (s *Store) sayToCards(ctx context.Context, tx *sql.Tx, from origin, d Draft) error {
	var edits []Draft
	rows, err := tx.QueryContext(ctx, `SELECT reply_id, chat_id, topic_id, is_private, body FROM reply
		WHERE approval_id = $1 AND approval_id <> '' AND company_id = $2 AND kind = $3 AND part = 1 ORDER BY ordinal`,
		d.Approval, d.Company, DraftCard)
	err = each(rows, err, func(scan func(...any) error) error {
		e := d
		var private int64
		var sealed []byte
		if err := scan(&e.EditOf, &e.Chat.ID, &e.Chat.Topic, &private, &sealed); err != nil {
			return err
		}
		e.Chat.Private = private == 1
		if card, err := s.openReplyBody(e.EditOf, d.Company, sealed); err == nil { // a damaged card loses its buttons too
			e.Lang, e.Args = cmp.Or(card.Lang, d.Lang), maps.Clone(d.Args)
			if zone := card.Args["zone"]; zone != "" && e.Args != nil {
				e.Args["zone"] = zone
			}
		}
		edits = append(edits, e)
		return nil
	})
	if err != nil {
		return fmt.Errorf("finding the cards of %s: %w", d.Approval, err)
	}
	for _, e := range edits {
		if err := s.sayOne(ctx, tx, from, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) sayOne(ctx context.Context, tx *sql.Tx, from origin, d Draft) error {
	id := ReplyID(newID(prefixReply))
	bot, err := s.botFor(ctx, tx, from, d)
	if err != nil {
		return fmt.Errorf("finding the bot of %s: %w", id, err)
	}
	buttons, err := s.makeButtons(ctx, tx, id, d)
	if err != nil {
		return err
	}
	body, err := json.Marshal(replyBody{Markdown: d.Markdown, Notice: d.Notice, Args: d.Args, Lang: d.Lang, ReplyTo: d.ReplyTo, Whole: d.Whole, Buttons: buttons})
	if err != nil {
		return fmt.Errorf("writing reply %s: %w", id, err)
	}
	var ordinal int64
	err = tx.QueryRowContext(ctx, `INSERT INTO reply (reply_id, company_id, bot_id, conversation_id, run_id, chat_id, topic_id,
			is_private, group_id, part, priority, kind, approval_id, edit_of, body, state, created_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $1, 1, $9, $10, $11, $12, $13, 'queued', $14) RETURNING ordinal`,
		id, d.Company, bot, d.Conversation, from.run, d.Chat.ID, d.Chat.Topic, bit(d.Chat.Private), d.Priority, d.Kind,
		d.Approval, d.EditOf, s.seal.seal("reply.body", string(id), d.Company, body), s.now()).Scan(&ordinal)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE reply SET group_ordinal = ordinal WHERE ordinal = $1`, ordinal)
	}
	if err != nil {
		return fmt.Errorf("writing reply %s: %w", id, err)
	}
	return nil
}

// makeButtons gives each button that is no link its token and files what the token stands for.
func (s *Store) makeButtons(ctx context.Context, tx *sql.Tx, id ReplyID, d Draft) ([][]buttonBody, error) {
	var all [][]buttonBody
	for _, line := range d.Buttons {
		var out []buttonBody
		for _, b := range line {
			body := buttonBody{Label: b.Label, Args: b.Args, Action: b.Action, Ref: b.Ref, URL: b.URL.Reveal()}
			if b.URL.IsZero() {
				token := RandomSecret("")
				body.Token = token.Reveal()
				hash := token.Hash()
				_, err := tx.ExecContext(ctx, `INSERT INTO button (token_hash, company_id, reply_id, action, ref, created_ms, expires_ms)
					VALUES ($1, $2, $3, $4, $5, $6, $7)`, hash[:], d.Company, id, b.Action,
					s.seal.seal("button.ref", hex.EncodeToString(hash[:]), d.Company, []byte(b.Ref)), s.now(), s.now()+buttonTTL.Milliseconds())
				if err != nil {
					return nil, fmt.Errorf("writing a button of %s: %w", id, err)
				}
			}
			out = append(out, body)
		}
		all = append(all, out)
	}
	return all, nil
}

// botFor finds which bot says a draft. 0 is said by whichever polls first: there is no trace of the chat yet.
func (s *Store) botFor(ctx context.Context, q queryer, from origin, d Draft) (BotID, error) {
	if from.bot != 0 {
		return from.bot, nil
	}
	var bot BotID
	err := q.QueryRowContext(ctx, `SELECT bot_id FROM conversation WHERE conversation_id = $1 AND company_id = $2`,
		d.Conversation, d.Company).Scan(&bot)
	if errors.Is(err, sql.ErrNoRows) {
		err = q.QueryRowContext(ctx, `SELECT bot_id FROM arrival WHERE chat_id = $1 ORDER BY received_ms DESC LIMIT 1`,
			d.Chat.ID).Scan(&bot)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return bot, err
}
