package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
	Account  string    // provider's account id frozen with the call, if any; sealed at rest
	With     AccountID // that account here, if any: it must still be in use
	Facts    []Fact    // what ids in the arguments stand for; only for calls that people are asked about
	Why      string    // for a refusal before any decision ("bad_arguments", "unknown_tool"): content-free
}

// BegunCall is a call's row.
type BegunCall struct {
	ID CallID
	// Repeat is set when this run already made the identical write (tool and arguments, however they are spelt) and it may have
	// happened, waits or was refused: nothing was begun, and the caller answers with what the first one came to. One that
	// certainly did not happen may be tried again.
	Repeat   bool
	Outcome  Outcome
	Result   json.RawMessage // of a repeat that ended: the stored result, as EndCall got it
	Approval *Approval       // of a held call
}

// BeginCall commits the call and its audit row before any effect, in one transaction with the check that the run is still
// running (ErrRunOver otherwise, and from the moment its person asked to stop) and its account in use (ErrAccountGone from
// the moment its person disconnected it). A denied call is written with its outcome
// at once. A call to confirm or hold is written as held, together with its approval and the cards to those who may decide
// (made by card for each of them).
func (s *Store) BeginCall(ctx context.Context, c NewCall, card func(Approval, Approver) Draft) (BegunCall, error) {
	outcome := c.begins()
	var begun BegunCall
	last := throughPowerLoss
	if c.Class == policy.ClassRead && outcome != OutcomeHeld {
		last = throughKill
	}
	err := s.sharedTx(ctx, last, func(ctx context.Context, tx *sql.Tx) error {
		begun = BegunCall{ID: CallID(newID(prefixCall)), Outcome: outcome}
		run, err := s.callingRun(ctx, tx, c.Run)
		if err == nil && outcome != OutcomeRefused {
			err = s.stillInUse(ctx, tx, run, c.With)
		}
		if err != nil {
			return err
		}
		fresh, err := s.insertCall(ctx, tx, begun, c, run)
		if err != nil {
			return err
		}
		if !fresh {
			begun, err = s.firstCall(ctx, tx, run, c)
			return err
		}
		if outcome == OutcomeHeld {
			if begun.Approval, err = s.ask(ctx, tx, begun.ID, c, run, card); err != nil {
				return err
			}
		}
		return s.audit(ctx, tx, run.company, string(run.membership), "call.decided", string(begun.ID), decidedCall{
			Run: run.id, Tool: c.Tool, App: c.App, Class: c.Class, Decision: c.Decision.Effect, Rule: c.Decision.Rule,
			Downgraded: c.Decision.Downgraded, Why: c.Why, Digest: digest(c.Tool, c.Args),
		})
	})
	if err != nil {
		return BegunCall{}, fmt.Errorf("beginning a call of run %s: %w", c.Run.ID, err)
	}
	if outcome == OutcomeHeld {
		s.wake.broadcast() // cards wait to be sent
	}
	return begun, nil
}

// decidedCall is what the audit says of a call.
type decidedCall struct {
	Run        RunID         `json:"run"`
	Tool       string        `json:"tool"`
	App        string        `json:"app,omitempty"`
	Class      policy.Class  `json:"class"`
	Decision   policy.Effect `json:"decision"`
	Rule       string        `json:"rule,omitempty"`
	Downgraded bool          `json:"downgraded,omitempty"`
	Why        string        `json:"why,omitempty"`
	Digest     string        `json:"digest"`
}

// begins is the outcome a call is written with. An effect that does not exist yet is refused.
func (c NewCall) begins() Outcome {
	switch {
	case c.Why != "":
		return OutcomeRefused
	case c.Decision.Effect == policy.Allow:
		return OutcomeOpen
	case c.Decision.Effect == policy.Confirm, c.Decision.Effect == policy.Hold:
		return OutcomeHeld
	default:
		return OutcomeRefused
	}
}

// digest is SHA-256 of tool and exact arguments, hex: what a person approves and what runs can be compared by it.
func digest(tool string, args json.RawMessage) string {
	h := sha256.New()
	h.Write([]byte(tool + "\x00")) // no tool's name has a zero byte
	h.Write(args)
	return hex.EncodeToString(h.Sum(nil))
}

// sameWrite is what identical writes are known by: what the arguments mean, not how they are spelt. Keyed, so that nobody
// without the key can try arguments out.
func (s *Store) sameWrite(company CompanyID, c NewCall) []byte {
	return s.seal.recognise("call.args", company, digest(c.Tool, canonical(c.Args)))
}

// callingRun is the run a call belongs to, as its rows say.
type callingRun struct {
	id           RunID
	company      CompanyID
	conversation ConversationID
	membership   MembershipID
}

// callingRun reads the run that makes a call, and keeps it running until commit: either the call is written before its run
// ends (and is seen as open), or it is refused. A machine that froze and woke up ends here.
func (s *Store) callingRun(ctx context.Context, tx *sql.Tx, r Run) (callingRun, error) {
	run := callingRun{id: r.ID, company: r.Principal.Company}
	err := s.row(ctx, tx, `SELECT conversation_id, membership_id FROM run WHERE run_id = $1 AND company_id = $2
		AND state = 'running' AND cancel_requested_ms = 0 AND expires_ms > $3`+s.d.forShare,
		run.id, run.company, s.now()).Scan(&run.conversation, &run.membership)
	if errors.Is(err, sql.ErrNoRows) {
		return callingRun{}, ErrRunOver
	}
	return run, err
}

// insertCall writes the call's row. fresh is false when its run made the identical write before: one that another
// transaction is just making is waited for.
func (s *Store) insertCall(ctx context.Context, tx *sql.Tx, begun BegunCall, c NewCall, run callingRun) (fresh bool, err error) {
	now, ended, code := s.now(), int64(0), c.Why
	if begun.Outcome == OutcomeRefused {
		ended = now
		if code == "" {
			code = "denied"
		}
	}
	var account []byte
	if c.Account != "" {
		account = []byte(c.Account)
	}
	same := []byte{} // a read is never looked for
	if c.Class != policy.ClassRead {
		same = s.sameWrite(run.company, c)
	}
	id := string(begun.ID)
	return one(s.exec(ctx, tx, `INSERT INTO call (call_id, company_id, run_id, conversation_id, membership_id, tool, app, class,
			args, args_hash, account, decision, rule, is_downgraded, why, outcome, code, begun_ms, ended_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
		ON CONFLICT (run_id, tool, args_hash) WHERE class <> 'read' AND why = '' AND outcome <> 'failed' DO NOTHING`,
		id, run.company, run.id, run.conversation, run.membership, c.Tool, c.App, c.Class,
		s.seal.seal("call.args", id, run.company, c.Args), same,
		s.seal.seal("call.account", id, run.company, account), c.Decision.Effect.String(), c.Decision.Rule,
		bit(c.Decision.Downgraded), c.Why, begun.Outcome, code, now, ended))
}

// firstCall reads what the identical write before came to, and audits that it was asked for again.
func (s *Store) firstCall(ctx context.Context, tx *sql.Tx, run callingRun, c NewCall) (BegunCall, error) {
	begun := BegunCall{Repeat: true}
	var sealed []byte
	var approval ApprovalID
	err := tx.QueryRowContext(ctx, `SELECT c.call_id, c.outcome, c.result, COALESCE(a.approval_id, '')
		FROM call c LEFT JOIN approval a ON a.call_id = c.call_id
		WHERE c.run_id = $1 AND c.tool = $2 AND c.args_hash = $3 AND c.company_id = $4
			AND c.class <> 'read' AND c.why = '' AND c.outcome <> 'failed'`,
		run.id, c.Tool, s.sameWrite(run.company, c), run.company).Scan(&begun.ID, &begun.Outcome, &sealed, &approval)
	if err != nil {
		return BegunCall{}, fmt.Errorf("reading the first call: %w", err)
	}
	if begun.Result, err = s.seal.open("call.result", string(begun.ID), run.company, sealed); err != nil {
		return BegunCall{}, err
	}
	if approval != "" {
		a, err := s.approval(ctx, tx, run.company, approval)
		if err != nil {
			return BegunCall{}, err
		}
		begun.Approval = &a
	}
	return begun, s.audit(ctx, tx, run.company, string(run.membership), "call.repeated", string(begun.ID), nil)
}

// EndCall commits what came of a call, before the agent hears of it. result is kept sealed for repeats. It needs no living
// run: an effect that happened is recorded whatever became of its run. The first outcome stands; another one that comes
// later is audited only. undo, unless nil, is how what was done can be taken back; it is offered with the run's answer.
func (s *Store) EndCall(ctx context.Context, company CompanyID, id CallID, outcome Outcome, code string, result json.RawMessage, undo *Undo) error {
	err := s.sharedTx(ctx, throughPowerLoss, func(ctx context.Context, tx *sql.Tx) error {
		first, err := s.endCall(ctx, tx, company, id, OutcomeOpen, endedCall{outcome, code}, result)
		if err != nil || !first || outcome != OutcomeDone || undo == nil {
			return err
		}
		return s.keepUndo(ctx, tx, company, id, *undo)
	})
	if err != nil {
		return fmt.Errorf("ending call %s: %w", id, err)
	}
	return nil
}

// EndRead is EndCall for a call that changed nothing. It waits for no disk: the outcome is written with what is committed
// next, and a process that dies first leaves the call open, to be found as failed. No result is kept, since the call may be
// made again.
func (s *Store) EndRead(ctx context.Context, company CompanyID, id CallID, outcome Outcome, code string) error {
	if s.pool != nil {
		return s.EndCall(ctx, company, id, outcome, code, nil, nil)
	}
	s.laterTx(func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.endCall(ctx, tx, company, id, OutcomeOpen, endedCall{outcome, code}, nil)
		return err
	})
	return nil
}

// endedCall is what came of a call, as the audit says it.
type endedCall struct {
	Outcome Outcome `json:"outcome"`
	Code    string  `json:"code,omitempty"`
}

// endCall ends a call that is open or held, as waiting says. first is false when it had ended before.
func (s *Store) endCall(ctx context.Context, tx *sql.Tx, company CompanyID, id CallID, waiting Outcome, end endedCall, result json.RawMessage) (first bool, err error) {
	if !end.Outcome.ends() {
		return false, fmt.Errorf("%q does not end a call", end.Outcome)
	}
	first, err = one(s.exec(ctx, tx, `UPDATE call SET outcome = $4, code = $5, result = $6, ended_ms = $7
		WHERE call_id = $1 AND company_id = $2 AND outcome = $3`,
		id, company, waiting, end.Outcome, end.Code, s.seal.seal("call.result", string(id), company, result), s.now()))
	if err != nil {
		return false, err
	}
	if first {
		return true, s.audit(ctx, tx, company, actorPilder, "call.ended", string(id), end)
	}
	var stands Outcome
	err = tx.QueryRowContext(ctx, `SELECT outcome FROM call WHERE call_id = $1 AND company_id = $2`, id, company).Scan(&stands)
	if errors.Is(err, sql.ErrNoRows) {
		return false, ErrNotFound
	}
	if err != nil || stands == end.Outcome {
		return false, err
	}
	return false, s.audit(ctx, tx, company, actorPilder, "call.late", string(id), end)
}

// ends tells whether a call can end so.
func (o Outcome) ends() bool {
	switch o {
	case OutcomeDone, OutcomeRefused, OutcomeFailed, OutcomeUnknown, OutcomeExpired:
		return true
	}
	return false
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
