package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
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
}

// Approver is somebody a card goes to.
type Approver struct {
	Member Membership
	Chat   Chat // their private chat with the bot
}

// Verdict is a human's decision.
type Verdict struct {
	Approval ApprovalID // from a button
	Code     string     // or from /approve CODE, /deny CODE
	Approve  bool
	Telegram int64 // who says so
}

// Errors of Decide. Nothing was changed, and the update stays open for the caller to settle with a kind word.
var (
	ErrNotYours = errors.New("this person may not decide this approval")
	ErrDecided  = errors.New("approval already decided")
	ErrExpired  = errors.New("approval expired")
	// ErrNotShown is returned for a yes of somebody to whom the whole card has not gone out: they have not seen what would
	// be executed. They are to be shown it (the approval comes along), not refused.
	ErrNotShown = errors.New("what would be executed was not shown to this person")
	// ErrArriving is returned instead while parts of that card are still on their way.
	ErrArriving = errors.New("what would be executed is still being shown to this person")
)

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
				bot_id, chat_id, topic_id, is_private, code, kind, rule, state, digest, asked_ms, expires_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 'pending', $14, $15, $16)
			ON CONFLICT (company_id, code) WHERE state = 'pending' DO NOTHING`,
			id, run.company, call, run.id, run.conversation, run.membership, bot, chat.ID, chat.Topic, private, approvalCode(),
			c.Decision.Effect.String(), c.Decision.Rule, digest(c.Tool, c.Args), s.now(), s.now()+approvalLife.Milliseconds()))
		if err != nil {
			return nil, fmt.Errorf("asking for approval of %s: %w", call, err)
		}
	}
	a, err := s.approval(ctx, tx, run.company, id)
	if err != nil {
		return nil, err
	}
	all, err := members(ctx, tx, run.company)
	if err != nil {
		return nil, err
	}
	var cards []Draft
	for _, m := range all {
		if !mayDecide(a, m, all) {
			continue
		}
		d := card(a, Approver{Member: m, Chat: Chat{ID: m.Person.Telegram, Private: true}})
		d.Company, d.Kind, d.Approval, d.Chat = a.Company, DraftCard, a.ID, Chat{ID: m.Person.Telegram, Private: true}
		cards = append(cards, d)
	}
	if err := s.say(ctx, tx, origin{bot: bot, run: run.id}, cards); err != nil {
		return nil, err
	}
	detail := askedApproval{Call: call, Kind: a.Kind, Rule: a.Rule, Digest: a.Digest, Cards: len(cards)}
	return &a, s.audit(ctx, tx, a.Company, actorPilder, "approval.asked", string(id), detail)
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

// mayDecide tells whether a member may decide an approval, among all members of the company as they are now.
func mayDecide(a Approval, m Membership, all []Membership) bool {
	alone := !slices.ContainsFunc(all, func(o Membership) bool {
		return o.ID != a.Requester.ID && (o.Role == policy.RoleApprover || o.Role == policy.RoleAdmin)
	})
	return policy.MayApprove(m.Role, a.Kind, a.Requester.ID, m.ID, alone)
}

// Decide records the first verdict of somebody who may give it, audits it, settles the update, makes the cards lose their
// buttons (drafts made by say), and wakes the execution of an approved call: one transaction. ErrNotFound for an approval
// of a company the person is not in. With ErrDecided and ErrExpired the approval is returned as it is.
func (s *Store) Decide(ctx context.Context, from UpdateRef, v Verdict, say func(Approval) []Draft) (Approval, error) {
	var a Approval
	err := s.tx(ctx, func(tx *sql.Tx) error {
		a = Approval{}
		state := ApprovalDenied
		if v.Approve {
			state = ApprovalApproved
		}
		if err := s.settle(ctx, tx, from, FateDone, string(state)); err != nil {
			return err
		}
		found, by, err := s.judge(ctx, tx, v)
		if err != nil {
			return err
		}
		a = found
		switch {
		case a.State == ApprovalExpired, a.State == ApprovalPending && s.now() >= ms(a.Expires):
			return ErrExpired
		case a.State != ApprovalPending:
			return ErrDecided
		}
		if v.Approve {
			if err := s.shown(ctx, tx, a, v); err != nil {
				return err
			}
		}
		a.State, a.DecidedBy, a.Decided = state, by.ID, at(s.now())
		if _, err := tx.ExecContext(ctx, `UPDATE approval SET state = $2, decided_by = $3, decided_ms = $4 WHERE approval_id = $1`,
			a.ID, a.State, a.DecidedBy, ms(a.Decided)); err != nil {
			return err
		}
		if v.Approve {
			err = s.enqueueApproved(ctx, tx, a.Call)
		} else {
			a.Outcome = OutcomeRefused
			err = s.endHeld(ctx, tx, a, "denied", "")
		}
		if err != nil {
			return err
		}
		if err := s.cutCards(ctx, tx, a); err != nil {
			return err
		}
		if err := s.sayOfApproval(ctx, tx, a, say(a)); err != nil {
			return err
		}
		detail := decidedApproval{a.Call, a.Kind, a.Rule, a.Digest}
		return s.audit(ctx, tx, a.Company, string(by.ID), "approval."+string(state), string(a.ID), detail)
	})
	if err != nil {
		return a, fmt.Errorf("deciding an approval: %w", err)
	}
	return a, nil
}

// shown is nil when a card of the approval has gone out whole to whoever says yes, else ErrNotShown or ErrArriving. A press proves that the part with the
// buttons arrived, even before its send is recorded; a typed code proves nothing, since the requester's agent knows it too.
func (s *Store) shown(ctx context.Context, tx *sql.Tx, a Approval, v Verdict) error {
	arrived := `'sent'`
	if v.Approval != "" {
		arrived = `'sending', 'sent', 'uncertain'`
	}
	const card = `SELECT COUNT(*) FROM reply c WHERE c.approval_id = $1 AND c.kind = 'card' AND c.chat_id = $2 AND c.part = 1 `
	for _, look := range []struct {
		where string
		found error
	}{
		{`AND c.state IN (` + arrived + `)
			AND NOT EXISTS (SELECT 1 FROM reply p WHERE p.group_id = c.group_id AND p.part > 1 AND p.state <> 'sent')`, nil},
		{`AND EXISTS (SELECT 1 FROM reply p WHERE p.group_id = c.group_id AND p.state IN ('queued', 'sending'))
			AND NOT EXISTS (SELECT 1 FROM reply p WHERE p.group_id = c.group_id AND p.state IN ('failed', 'uncertain'))`, ErrArriving},
	} {
		var cards int
		if err := tx.QueryRowContext(ctx, card+look.where, a.ID, v.Telegram).Scan(&cards); err != nil {
			return fmt.Errorf("looking for the card of %s: %w", a.ID, err)
		}
		if cards > 0 {
			return look.found
		}
	}
	return ErrNotShown
}

// cutCards ends what is still to be sent of the cards of a decided approval.
func (s *Store) cutCards(ctx context.Context, tx *sql.Tx, a Approval) error {
	_, err := tx.ExecContext(ctx, `UPDATE reply SET state = 'failed', reason = 'decided', ended_ms = $2
		WHERE approval_id = $1 AND kind = 'card' AND part > 1 AND state = 'queued'`, a.ID, s.now())
	if err != nil {
		return fmt.Errorf("cutting the cards of %s: %w", a.ID, err)
	}
	return nil
}

// decidedApproval is what the audit says of a verdict: the digest names the very arguments.
type decidedApproval struct {
	Call   CallID        `json:"call"`
	Kind   policy.Effect `json:"kind"`
	Rule   string        `json:"rule,omitempty"`
	Digest string        `json:"digest"`
}

// judge finds the approval a verdict is about, locks it, and the membership of whoever gives it. Their role is read now:
// who may decide is not a matter of who got a card.
func (s *Store) judge(ctx context.Context, tx *sql.Tx, v Verdict) (Approval, Membership, error) {
	var id ApprovalID
	var company CompanyID
	row := tx.QueryRowContext(ctx, `SELECT approval_id, company_id FROM approval WHERE approval_id = $1`+s.d.forUpdate, v.Approval)
	if v.Approval == "" {
		// Of the companies this person is in, since codes are unique only within one; what still waits first.
		row = tx.QueryRowContext(ctx, `SELECT a.approval_id, a.company_id FROM approval a WHERE a.code = $1 AND a.company_id IN (
				SELECT m.company_id FROM membership m JOIN person p ON p.person_id = m.person_id WHERE p.telegram_id = $2)
			ORDER BY CASE WHEN a.state = 'pending' THEN 0 ELSE 1 END, a.asked_ms DESC LIMIT 1`+s.d.forUpdate,
			strings.ToUpper(strings.TrimSpace(v.Code)), v.Telegram)
	}
	err := row.Scan(&id, &company)
	if errors.Is(err, sql.ErrNoRows) {
		return Approval{}, Membership{}, ErrNotFound
	}
	if err != nil {
		return Approval{}, Membership{}, err
	}
	by, err := membership(ctx, tx, `m.company_id = $1 AND p.telegram_id = $2`, company, v.Telegram)
	if err != nil {
		return Approval{}, Membership{}, err
	}
	a, err := s.approval(ctx, tx, company, id)
	if err != nil {
		return Approval{}, Membership{}, err
	}
	all, err := members(ctx, tx, company)
	if err != nil {
		return Approval{}, Membership{}, err
	}
	if !mayDecide(a, by, all) {
		return Approval{}, Membership{}, ErrNotYours
	}
	return a, by, nil
}

// endHeld ends an approval's held call with a.Outcome and files it as news for the conversation's next turn.
func (s *Store) endHeld(ctx context.Context, tx *sql.Tx, a Approval, code, text string) error {
	first, err := s.endCall(ctx, tx, a.Company, a.Call, OutcomeHeld, endedCall{a.Outcome, code}, nil)
	if err != nil || !first {
		return err
	}
	return s.news(ctx, tx, a.Company, a.Call, text)
}

// news tells the next turn of a call's conversation what came of it.
func (s *Store) news(ctx context.Context, tx *sql.Tx, company CompanyID, call CallID, text string) error {
	id := newID(prefixNews)
	_, err := tx.ExecContext(ctx, `INSERT INTO news (news_id, company_id, conversation_id, membership_id, tool, outcome, text, at_ms)
		SELECT $1, company_id, conversation_id, membership_id, tool, outcome, $4, $5 FROM call WHERE call_id = $2 AND company_id = $3`,
		id, call, company, s.seal.seal("news.text", id, company, []byte(text)), s.now())
	if err != nil {
		return fmt.Errorf("filing news of call %s: %w", call, err)
	}
	return nil
}

// sayOfApproval queues drafts through the bot that asked.
func (s *Store) sayOfApproval(ctx context.Context, tx *sql.Tx, a Approval, drafts []Draft) error {
	from := origin{run: a.Run}
	err := tx.QueryRowContext(ctx, `SELECT bot_id FROM approval WHERE approval_id = $1`, a.ID).Scan(&from.bot)
	if err != nil {
		return fmt.Errorf("finding the bot of %s: %w", a.ID, err)
	}
	return s.say(ctx, tx, from, drafts)
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
			c.tool, c.app, c.args, c.account, c.outcome
		FROM approval a JOIN call c ON c.call_id = a.call_id WHERE `+where, args...)
	var all []Approval
	err = each(rows, err, func(scan func(...any) error) error {
		var a Approval
		var kind string
		var sealed, account []byte
		var private, asked, expires, decided int64
		err := scan(&a.ID, &a.Call, &a.Company, &a.Requester.ID, &a.Run, &a.Chat.ID, &a.Chat.Topic, &private, &a.Code, &kind,
			&a.Rule, &a.State, &a.Digest, &asked, &expires, &a.DecidedBy, &decided, &a.Tool, &a.App, &sealed, &account, &a.Outcome)
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
