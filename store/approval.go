package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/big"
	"time"

	"pilder/policy"
)

// ApprovalState is an approval's place in its life.
type ApprovalState string

const (
	ApprovalPending   ApprovalState = "pending"
	ApprovalApproved  ApprovalState = "approved"
	ApprovalDenied    ApprovalState = "denied"
	ApprovalExpired   ApprovalState = "expired"
	ApprovalCancelled ApprovalState = "cancelled"
)

// Approval is a held or to-be-confirmed call with its exact, frozen arguments.
type Approval struct {
	ID        ApprovalID
	Call      CallID
	Company   CompanyID
	Code      string        // short, typed after /approve and /deny: 6 characters of an alphabet without look-alikes
	Kind      policy.Effect // Confirm or Hold
	Rule      string
	State     ApprovalState
	Requester Membership
	Run       RunID
	Chat      Chat // where the request was made and where the outcome goes
	Tool      string
	App       string
	Args      json.RawMessage // frozen
	Account   string          // provider's account id the call was frozen with; empty: none
	Digest    string          // SHA-256 of tool and arguments, hex
	Asked     time.Time
	Expires   time.Time // Asked + 24 h
	DecidedBy MembershipID
	Decided   time.Time
	Outcome   Outcome // of the call
	Facts     []Fact  // what ids in the arguments stand for, as it was read before anybody was asked
	Message   int64   // Telegram id of the message the run was about; 0: not known
	// Deciders are the names of those who may decide it now; only PendingApprovals tells them.
	Deciders []string
}

// Fact is what an id in a call's arguments stands for, as its app says: untrusted data, sealed at rest.
type Fact struct {
	Arg  string `json:"arg"`  // the argument's name; empty: the account the call goes with
	Text string `json:"text"` // empty: it could not be read, and whoever decides is told so
}

// Approver is somebody a card goes to.
type Approver struct {
	Member Membership
	Chat   Chat     // their private chat with the bot
	For    []string // names of those who are away and chose this one as their deputy
}

// approvalLife is how long an approval waits for a button.
const approvalLife = 24 * time.Hour

// ask makes the approval of a held call, and the cards to those who may decide it.
func (s *Store) ask(ctx context.Context, tx *sql.Tx, call CallID, c NewCall, run callingRun, card func(Approval, Approver) Draft) (*Approval, error) {
	var bot BotID
	var chat Chat
	var private int64
	err := tx.QueryRowContext(ctx, `SELECT bot_id, chat_id, topic_id, is_private FROM conversation WHERE conversation_id = $1`,
		run.conversation).Scan(&bot, &chat.ID, &chat.Topic, &private)
	if err != nil {
		return nil, fmt.Errorf("reading conversation %s: %w", run.conversation, err)
	}
	id := ApprovalID(newID(prefixApproval))
	for fresh := false; !fresh; { // the rare code that another pending approval has is drawn again
		fresh, err = one(tx.ExecContext(ctx, `INSERT INTO approval (approval_id, company_id, call_id, run_id, conversation_id, membership_id,
				bot_id, chat_id, topic_id, is_private, code, kind, rule, state, digest, asked_ms, expires_ms, facts)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 'pending', $14, $15, $16, $17)
			ON CONFLICT (company_id, code) WHERE state = 'pending' DO NOTHING`,
			id, run.company, call, run.id, run.conversation, run.membership, bot, chat.ID, chat.Topic, private, approvalCode(),
			c.Decision.Effect.String(), c.Decision.Rule, digest(c.Tool, c.Args), s.now(), s.now()+approvalLife.Milliseconds(),
			s.sealFacts(id, run.company, c.Facts)))
		if err != nil {
			return nil, fmt.Errorf("asking for approval of %s: %w", call, err)
		}
	}
	a, err := s.approval(ctx, tx, run.company, id)
	if err != nil {
		return nil, err
	}
	cards, err := s.deal(ctx, tx, a, origin{bot: bot, run: run.id}, card)
	if err != nil {
		return nil, err
	}
	detail := askedApproval{Call: call, Kind: a.Kind, Rule: a.Rule, Digest: a.Digest, Cards: cards}
	return &a, s.audit(ctx, tx, a.Company, actorPilder, "approval.asked", string(id), detail)
}

// deal queues the cards of an approval to all who may decide it now, and tells how many those are.
func (s *Store) deal(ctx context.Context, tx *sql.Tx, a Approval, from origin, card func(Approval, Approver) Draft) (int, error) {
	deciders, err := s.deciders(ctx, tx, a)
	if err != nil {
		return 0, err
	}
	var cards []Draft
	for _, to := range deciders {
		d := card(a, to)
		d.Company, d.Kind, d.Approval, d.Chat = a.Company, DraftCard, a.ID, to.Chat
		cards = append(cards, d)
	}
	return len(cards), s.say(ctx, tx, from, cards)
}

// deciders are those who may decide an approval, as the company is now. Nobody is left out for being away: they may decide
// if they look in, and whoever they chose as their deputy reads whose place they take.
func (s *Store) deciders(ctx context.Context, q queryer, a Approval) ([]Approver, error) {
	all, err := members(ctx, q, a.Company)
	if err != nil {
		return nil, err
	}
	away, err := s.awayNow(ctx, q, a.Company)
	if err != nil {
		return nil, err
	}
	var out []Approver
	for _, m := range all {
		if !mayDecide(a, m, all) {
			continue
		}
		to := Approver{Member: m, Chat: Chat{ID: m.Person.Telegram, Private: true}}
		for _, o := range all {
			if away[o.ID].Deputy == m.ID && mayDecide(a, o, all) {
				to.For = append(to.For, o.Person.Name)
			}
		}
		out = append(out, to)
	}
	return out, nil
}

// sealFacts is how facts are kept; nil for none.
func (s *Store) sealFacts(id ApprovalID, company CompanyID, facts []Fact) []byte {
	if len(facts) == 0 {
		return nil
	}
	raw, err := json.Marshal(facts)
	if err != nil {
		panic(err) // two strings each
	}
	return s.seal.seal("approval.facts", string(id), company, raw)
}

func (s *Store) openFacts(a *Approval, sealed []byte) error {
	raw, err := s.seal.open("approval.facts", string(a.ID), a.Company, sealed)
	if err != nil || raw == nil {
		return err
	}
	return json.Unmarshal(raw, &a.Facts)
}

// askedApproval is what the audit says of a new approval.
type askedApproval struct {
	Call   CallID        `json:"call"`
	Kind   policy.Effect `json:"kind"`
	Rule   string        `json:"rule,omitempty"`
	Digest string        `json:"digest"`
	Cards  int           `json:"cards"` // to how many people the question went
}

// codeAlphabet is free of look-alikes: no 0 O, 1 I L, U V.
const codeAlphabet = "23456789ABCDEFGHJKMNPQRSTWXYZ"

// approvalCode draws the six characters of a code. They open nothing by themselves: who types them must be entitled.
func approvalCode() string {
	code := make([]byte, 6)
	for i := range code {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(codeAlphabet))))
		if err != nil {
			panic(err) // crypto/rand does not fail (Go 1.24)
		}
		code[i] = codeAlphabet[n.Int64()]
	}
	return string(code)
}

// approval reads an approval of a company with its call's tool, arguments and outcome; ErrNotFound when there is none.
func (s *Store) approval(ctx context.Context, q queryer, company CompanyID, id ApprovalID) (Approval, error) {
	return s.oneApproval(ctx, q, `a.approval_id = $1 AND a.company_id = $2`, id, company)
}

func (s *Store) oneApproval(ctx context.Context, q queryer, where string, args ...any) (Approval, error) {
	all, err := s.approvals(ctx, q, where, args...)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Approval{}, err
	}
	return all[0], nil
}

// approvals reads approvals with their calls; where is a condition on a (approval) and c (call).
func (s *Store) approvals(ctx context.Context, q queryer, where string, args ...any) ([]Approval, error) {
	rows, err := q.QueryContext(ctx, `SELECT a.approval_id, a.call_id, a.company_id, a.membership_id, a.run_id, a.chat_id, a.topic_id,
			a.is_private, a.code, a.kind, a.rule, a.state, a.digest, a.asked_ms, a.expires_ms, a.decided_by, a.decided_ms,
			c.tool, c.app, c.args, c.account, c.outcome, a.facts,
			COALESCE((SELECT MAX(m.telegram_id) FROM message m WHERE m.run_id = a.run_id), 0)
		FROM approval a JOIN call c ON c.call_id = a.call_id WHERE `+where, args...)
	var all []Approval
	err = each(rows, err, func(scan func(...any) error) error {
		var a Approval
		var kind string
		var sealed, account, facts []byte
		var private, asked, expires, decided int64
		err := scan(&a.ID, &a.Call, &a.Company, &a.Requester.ID, &a.Run, &a.Chat.ID, &a.Chat.Topic, &private, &a.Code, &kind,
			&a.Rule, &a.State, &a.Digest, &asked, &expires, &a.DecidedBy, &decided, &a.Tool, &a.App, &sealed, &account, &a.Outcome,
			&facts, &a.Message)
		if err != nil {
			return err
		}
		a.Chat.Private, a.Asked, a.Expires, a.Decided = private == 1, at(asked), at(expires), at(decided)
		if err := a.Kind.UnmarshalText([]byte(kind)); err != nil {
			return fmt.Errorf("approval %s: %w", a.ID, err)
		}
		if a.Args, err = s.seal.open("call.args", string(a.Call), a.Company, sealed); err != nil {
			return err
		}
		if account, err = s.seal.open("call.account", string(a.Call), a.Company, account); err != nil {
			return err
		}
		if err := s.openFacts(&a, facts); err != nil {
			return err
		}
		a.Account = string(account)
		all = append(all, a)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading approvals: %w", err)
	}
	for i := range all {
		a := &all[i]
		if a.Requester, err = membership(ctx, q, `m.company_id = $1 AND m.membership_id = $2`, a.Company, a.Requester.ID); err != nil {
			return nil, fmt.Errorf("reading the requester of %s: %w", a.ID, err)
		}
	}
	return all, nil
}
