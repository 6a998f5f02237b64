package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"pilder/policy"
)

// Outcome is what came of a call.
type Outcome string

const (
	OutcomeOpen    Outcome = ""        // begun and not ended
	OutcomeDone    Outcome = "done"    // performed
	OutcomeRefused Outcome = "refused" // not performed: denied by policy or by a human
	OutcomeFailed  Outcome = "failed"  // certainly not performed
	OutcomeUnknown Outcome = "unknown" // may have been performed; never repeated
	OutcomeHeld    Outcome = "held"    // waits for a button
	OutcomeExpired Outcome = "expired" // nobody pressed it in time
)

// ErrRunOver is returned when a call's run is not running: its token is worth nothing any more.
var ErrRunOver = errors.New("run is over")

// NewCall is a validated and decided call before its effect.
type NewCall struct {
	Run      Run
	Tool     string
	App      string
	Class    policy.Class
	Args     json.RawMessage // exact bytes; sealed at rest
	Decision policy.Decision
	Account  string // provider's account id frozen with the call, if any; sealed at rest
	Why      string // for a refusal before any decision ("bad_arguments", "unknown_tool"): content-free
}

// BegunCall is a call's row.
type BegunCall struct {
	ID CallID
	// Repeat is set when this run already made the identical write (tool and exact arguments): nothing was begun, and
	// the caller answers with what the first one came to.
	Repeat   bool
	Outcome  Outcome
	Result   json.RawMessage // of a repeat that ended: the stored result, as EndCall got it
	Approval *Approval       // of a held call
}

// BeginCall commits the call and its audit row before any effect, in one transaction with the check that the run is still
// running (ErrRunOver otherwise). A denied call is written with its outcome at once. A call to confirm or hold is written
// as held, together with its approval and the cards to those who may decide (made by card for each of them).
func (s *Store) BeginCall(ctx context.Context, c NewCall, card func(Approval, Approver) Draft) (BegunCall, error) {
	panic("being built")
}

// EndCall commits what came of a call, before the agent hears of it. result is kept sealed for repeats. It needs no living
// run: an effect that happened is recorded whatever became of its run.
func (s *Store) EndCall(ctx context.Context, company CompanyID, id CallID, outcome Outcome, code string, result json.RawMessage) error {
	panic("being built")
}

// CallView is a call for operators, the demo and /stop: no arguments.
type CallView struct {
	ID       CallID        `json:"call"`
	Tool     string        `json:"tool"`
	App      string        `json:"app"`
	Class    policy.Class  `json:"class"`
	Decision policy.Effect `json:"decision"`
	Rule     string        `json:"rule,omitempty"`
	Outcome  Outcome       `json:"outcome"`
	Code     string        `json:"code,omitempty"`
	MS       int64         `json:"ms"`
	Begun    time.Time     `json:"begun"`
}

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
)

// Decide records the first verdict of somebody who may give it, audits it, settles the update, makes the cards lose their
// buttons (drafts made by say), and wakes the execution of an approved call: one transaction.
func (s *Store) Decide(ctx context.Context, from UpdateRef, v Verdict, say func(Approval) []Draft) (Approval, error) {
	panic("being built")
}

// BeginApproved marks an approved call as being performed, durably, before its effect. ok is false when it was begun
// before: if that worker died the call is unknown by now and must not be repeated.
func (s *Store) BeginApproved(ctx context.Context, a Approval) (ok bool, err error) {
	panic("being built")
}

// EndApproved commits the outcome of an approved call, tells the chat (drafts) and files it as news for the next turn.
func (s *Store) EndApproved(ctx context.Context, a Approval, outcome Outcome, code, text string, drafts ...Draft) error {
	panic("being built")
}

// PendingApprovals lists what waits: requested by the principal, or (for approvers) to be decided by it.
func (s *Store) PendingApprovals(ctx context.Context, p policy.Principal) ([]Approval, error) {
	panic("being built")
}

// ExpireApprovals ends what nobody decided in time and says so in the chat (drafts by say); returns how many.
func (s *Store) ExpireApprovals(ctx context.Context, say func(Approval) []Draft) (int, error) {
	panic("being built")
}

// RecoverCalls marks calls that a dead process left open as unknown and tells their people (drafts by say). Writes only;
// an open read is simply failed. Called at start and by the reaper.
func (s *Store) RecoverCalls(ctx context.Context, say func(CallView, Run) []Draft) (int, error) {
	panic("being built")
}

// approvedCall reads the approval of a call that is approved and still held; ErrNotFound when it is not, or no more.
func (s *Store) approvedCall(ctx context.Context, call CallID) (Approval, error) {
	panic("being built")
}

// approval reads an approval of a company with its call's tool, arguments and outcome; ErrNotFound when there is none.
func (s *Store) approval(ctx context.Context, q queryer, company CompanyID, id ApprovalID) (Approval, error) {
	panic("being built")
}
