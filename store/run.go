package store

import (
	"context"
	"time"

	"pilder/policy"
)

// RunState is a run's place in its life.
type RunState string

const (
	RunPrepared    RunState = "prepared"
	RunRunning     RunState = "running"
	RunSucceeded   RunState = "succeeded"
	RunFailed      RunState = "failed"
	RunCancelled   RunState = "cancelled"
	RunTimedOut    RunState = "timed_out"
	RunInterrupted RunState = "interrupted"
)

// Run is one turn of the agent for one sender in one conversation.
type Run struct {
	ID           RunID
	Principal    policy.Principal // with Run and the scopes of the run token
	Member       Membership
	Conversation ConversationID
	Chat         Chat
	Grant        policy.Grant // frozen in StartRun
	Accounts     []Account    // in use when the run began
	State        RunState
	Fence        int64
	Messages     []RunMessage // the turn, in order
	News         []News       // what happened since the last turn
	Session      string       // the CLI's session id to resume; empty: start a new one
	Attempt      int          // 1, or 2 when the first worker died before anything was begun
	Started      time.Time
	Expires      time.Time // when its token dies: Started + 1 h
}

// RunMessage is one message of a turn.
type RunMessage struct {
	ID       MessageID
	Text     string
	Telegram int64
	Received time.Time
}

// News is something the house did since the conversation's last turn that the agent should know: the outcome of an
// approved call, say.
type News struct {
	At      time.Time
	Tool    string
	Outcome Outcome
	Text    string // the result's text: untrusted data of an app
}

// Turn is a wake-up for one conversation.
type Turn struct {
	Conversation ConversationID
	Job          int64
}

// StartRun takes the conversation's turn: raises the fence, ends a run left running by a dead worker, takes the waiting
// messages of one sender in order (at most 50), freezes the grant, and makes the run `running` with an expiry of one
// hour. ok is false when there is nothing to do, and then the job is completed.
func (s *Store) StartRun(ctx context.Context, t Turn) (run Run, ok bool, err error) {
	panic("being built")
}

// ChildStarted records that the agent's process exists: from here on a crash is told to the person. ErrLost as FinishRun.
func (s *Store) ChildStarted(ctx context.Context, r Run) error { panic("being built") }

// Finish is how a run ended.
type Finish struct {
	State   RunState // succeeded, failed, cancelled, timed_out or interrupted
	Reason  string   // content-free code: "ok", "busy", "no_result", "idle", "sandbox", …
	Session string   // the CLI's session id to resume next time; empty: start anew
	Turns   int
	Tokens  Tokens
	CostUSD float64
	Stages  Stages
	Drafts  []Draft // what the person reads
}

// Tokens are counted at the model door.
type Tokens struct{ Input, Output, CacheRead, CacheWrite int64 }

// Stages are milliseconds by stage; queue is filled in by StartRun's clock.
type Stages struct{ Queue, Spawn, FirstToken, Tools, Delivery, Total int64 }

// FinishRun ends the run, all or nothing: its messages, its token, the drafts, the audit, and the job; the next turn is
// enqueued if a message waits. A wish to stop turns any state but succeeded into cancelled. ErrLost when the run was
// taken over: nothing was written, and nothing may be told to anybody.
func (s *Store) FinishRun(ctx context.Context, t Turn, r Run, f Finish) (RunState, error) {
	panic("being built")
}

// LiveRun gives a run that is running now, as a door asks for it; ErrNotFound when it is not, or no more.
func (s *Store) LiveRun(ctx context.Context, id RunID) (Run, error) { panic("being built") }

// Stopped is what /stop did.
type Stopped struct {
	Run       RunID // empty: nothing was running
	Waiting   int   // messages that waited and are now cancelled
	Approvals int   // pending approvals that are now cancelled
	Done      []CallView
}

// Stop cancels what waits in the sender's conversation, wishes the end of its running run and cancels that run's pending
// approvals; it settles the update and queues the draft made from what was done. The running worker's context ends within
// a second.
func (s *Store) Stop(ctx context.Context, from UpdateRef, telegram int64, chat Chat, say func(Stopped) []Draft) (Stopped, error) {
	panic("being built")
}

// NewConversation forgets the transcript of the sender's conversation: the next turn starts a new session. Messages that
// wait stay.
func (s *Store) NewConversation(ctx context.Context, from UpdateRef, telegram int64, chat Chat, drafts ...Draft) error {
	panic("being built")
}

// RunView is a run for operators: no text of anybody.
type RunView struct {
	ID           RunID          `json:"run"`
	Company      CompanyID      `json:"company"`
	Person       PersonID       `json:"person"`
	Conversation ConversationID `json:"conversation"`
	State        RunState       `json:"state"`
	Reason       string         `json:"reason,omitempty"`
	Messages     int            `json:"messages"`
	Turns        int            `json:"turns"`
	Tokens       Tokens         `json:"tokens"`
	CostUSD      float64        `json:"cost_usd"`
	Stages       Stages         `json:"ms"`
	Started      time.Time      `json:"started"`
	Ended        time.Time      `json:"ended,omitzero"`
	Calls        []CallView     `json:"calls"`
	Replies      []ReplyView    `json:"replies"`
}

// ReplyView is a reply for operators.
type ReplyView struct {
	ID    ReplyID    `json:"reply"`
	Kind  DraftKind  `json:"kind"`
	Part  int        `json:"part"`
	State ReplyState `json:"state"`
}

// Runs lists the newest runs, newest first; company empty means all.
func (s *Store) Runs(ctx context.Context, company CompanyID, limit int) ([]RunView, error) {
	panic("being built")
}

// RunByID reads one run for an operator.
func (s *Store) RunByID(ctx context.Context, id RunID) (RunView, error) { panic("being built") }

// MessageFates gives the fates of the last messages and control updates of a chat, newest first: what /why and the demo
// ask. For a message that became a run, Run is set.
func (s *Store) MessageFates(ctx context.Context, bot BotID, chat int64, limit int) ([]MessageFate, error) {
	panic("being built")
}

// MessageFate is one line of it.
type MessageFate struct {
	UpdateID int64
	Fate     Fate
	Reason   string
	Run      RunID
	At       time.Time
}
