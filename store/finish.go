package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"pilder/policy"
)

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

// finishFor bounds how long FinishRun repeats itself over a database that does not answer: a finished run must not become
// an interrupted one over a hiccup.
const finishFor = time.Minute

// FinishRun ends the run, all or nothing: its messages, its token, the drafts, the audit, and the job; the next turn is
// enqueued if a message waits. A wish to stop turns any state but succeeded into cancelled, and then the drafts are
// dropped: /stop has told what was done. An interrupted run is not the runner's to explain either: the store takes it up
// once more when nothing but reads was begun, else tells the person, and f.Drafts are dropped. ErrLost when the run was
// taken over: nothing was written, and nothing may be told to anybody.
//
// It does not end with ctx, which is usually cancelled by what ended the run; it tries again for a minute.
func (s *Store) FinishRun(ctx context.Context, t Turn, r Run, f Finish) (RunState, error) {
	l, err := s.turn(t.Job)
	if err == nil && !f.State.ends() {
		err = fmt.Errorf("%q does not end a run", f.State)
	}
	if err != nil {
		return "", fmt.Errorf("finishing run %s: %w", r.ID, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishFor)
	defer cancel()
	var state RunState
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err = s.tx(ctx, func(tx *sql.Tx) (err error) {
			state, err = s.finishRun(ctx, tx, l, r, f)
			return err
		})
		if err == nil || errors.Is(err, ErrLost) || ctx.Err() != nil || s.isFenced() {
			break
		}
		s.log.Warn().Str("event", "run.finish_retried").Str("run", string(r.ID)).Err(err).Send()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	if err != nil {
		return "", fmt.Errorf("finishing run %s: %w", r.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.done = true
	return state, nil
}

// ends tells whether a run can end so.
func (r RunState) ends() bool {
	switch r {
	case RunSucceeded, RunFailed, RunCancelled, RunTimedOut, RunInterrupted:
		return true
	}
	return false
}

// fate is what becomes of the messages of a run that ended so.
func (r RunState) fate() Fate {
	switch r {
	case RunSucceeded:
		return FateAnswered
	case RunCancelled:
		return FateCancelled
	}
	return FateFailed
}

func (s *Store) finishRun(ctx context.Context, tx *sql.Tx, l *liveTurn, r Run, f Finish) (RunState, error) {
	var fence int64
	err := tx.QueryRowContext(ctx, `SELECT fence FROM conversation WHERE conversation_id = $1`+s.d.forUpdate, r.Conversation).Scan(&fence)
	if err == nil && fence != r.Fence || errors.Is(err, sql.ErrNoRows) {
		return "", ErrLost
	}
	if err != nil {
		return "", err
	}
	row, err := s.runRow(ctx, tx, `r.run_id = $1 AND r.fence = $2`, r.ID, r.Fence)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ErrLost
	}
	if err != nil {
		return "", err
	}
	if row.state != RunRunning {
		return row.state, nil // an earlier try was committed, though its answer was lost
	}
	state := f.State
	if row.wished && state != RunSucceeded {
		state, f.Drafts = RunCancelled, nil
	}
	if state == RunInterrupted {
		err = s.endInterrupted(ctx, tx, row, f)
	} else {
		err = s.endRun(ctx, tx, row, state, f)
	}
	if err != nil {
		return "", err
	}
	if err := s.resumeAfter(ctx, tx, r); err != nil {
		return "", err
	}
	if err := s.completeJob(tx, l); err != nil {
		return "", err
	}
	return state, s.wakeNext(ctx, tx, r.Conversation)
}

// wakeNext enqueues the next turn if a message waits. The conversation's row is locked and its job was completed in this
// transaction, so its key is free: either a message is seen here, or Receive's own insert comes after us and succeeds.
func (s *Store) wakeNext(ctx context.Context, tx *sql.Tx, c ConversationID) error {
	var waiting int
	if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM message WHERE conversation_id = $1 AND `+waits, c).Scan(&waiting); err != nil {
		return err
	}
	if waiting == 0 {
		return nil
	}
	added, err := s.enqueueTurn(ctx, tx, c)
	if err == nil && !added {
		err = fmt.Errorf("the next turn of %s was not enqueued beside a finished one", c)
	}
	return err
}

// runRow is what ending a run needs to know of it.
type runRow struct {
	id           RunID
	company      CompanyID
	conversation ConversationID
	membership   MembershipID
	bot          BotID
	chat         Chat
	fence        int64
	instance     string
	state        RunState
	attempt      int
	child        bool // the agent's process was started
	wished       bool // its person asked to stop
	started      int64
}

func (s *Store) runRow(ctx context.Context, tx *sql.Tx, where string, args ...any) (runRow, error) {
	var r runRow
	var child, wished, private int64
	err := tx.QueryRowContext(ctx, `SELECT r.run_id, r.company_id, r.conversation_id, r.membership_id, c.bot_id, c.chat_id, c.topic_id,
			c.is_private, r.fence, r.instance_id, r.state, r.attempt, r.started_child_ms, r.cancel_requested_ms, r.started_ms
		FROM run r JOIN conversation c ON c.conversation_id = r.conversation_id WHERE `+where, args...).
		Scan(&r.id, &r.company, &r.conversation, &r.membership, &r.bot, &r.chat.ID, &r.chat.Topic, &private, &r.fence, &r.instance,
			&r.state, &r.attempt, &child, &wished, &r.started)
	r.chat.Private, r.child, r.wished = private == 1, child > 0, wished > 0
	return r, err
}

// endRun writes a run's end, that of its messages, the drafts and the audit.
func (s *Store) endRun(ctx context.Context, tx *sql.Tx, r runRow, state RunState, f Finish) error {
	reason := f.Reason
	if state != f.State {
		reason = "stopped"
	}
	if err := s.closeRun(ctx, tx, r, state, reason, f); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE conversation SET state_version = $2, session = CASE WHEN forget_fence >= $2 THEN '' ELSE $3 END
		WHERE conversation_id = $1`, r.conversation, r.fence, f.Session); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE message SET state = $2, reason = $3, ended_ms = $4 WHERE run_id = $1 AND state = 'running'`,
		r.id, state.fate(), reason, s.now()); err != nil {
		return err
	}
	drafts, err := s.offerUndo(ctx, tx, r.company, r.id, "", f.Drafts)
	if err != nil {
		return err
	}
	if err := s.sayOf(ctx, tx, r, drafts); err != nil {
		return err
	}
	return s.askTogether(ctx, tx, r)
}

// closeRun writes the run's own row and audits it. Exactly one row: the caller saw it running and holds its conversation.
func (s *Store) closeRun(ctx context.Context, tx *sql.Tx, r runRow, state RunState, reason string, f Finish) error {
	now := s.now()
	ok, err := one(tx.ExecContext(ctx, `UPDATE run SET state = $2, reason = $3, ended_ms = $4, turns = $5, tokens_input = $6,
			tokens_output = $7, tokens_cache_read = $8, tokens_cache_write = $9, cost_usd = $10, ms_spawn = $11, ms_first_token = $12,
			ms_tools = $13, ms_delivery = $14, ms_total = $15
		WHERE run_id = $1 AND state = 'running'`,
		r.id, state, reason, now, f.Turns, f.Tokens.Input, f.Tokens.Output, f.Tokens.CacheRead, f.Tokens.CacheWrite, f.CostUSD,
		f.Stages.Spawn, f.Stages.FirstToken, f.Stages.Tools, f.Stages.Delivery, cmp.Or(f.Stages.Total, now-r.started)))
	if err != nil {
		return err
	}
	if !ok {
		return ErrLost
	}
	return s.audit(ctx, tx, r.company, actorPilder, "run.finished", string(r.id), map[string]any{"state": state, "reason": reason})
}

// sayOf queues drafts of a run. What they leave out is the run's own.
func (s *Store) sayOf(ctx context.Context, tx *sql.Tx, r runRow, drafts []Draft) error {
	out := make([]Draft, len(drafts))
	for i, d := range drafts {
		d.Company, d.Conversation = cmp.Or(d.Company, r.company), cmp.Or(d.Conversation, r.conversation)
		if d.Chat == (Chat{}) {
			d.Chat = r.chat
		}
		out[i] = d
	}
	return s.say(ctx, tx, origin{bot: r.bot, run: r.id}, out)
}

// endLeftover ends a run still running in a conversation that is taken over now: its worker is dead, or gave up.
func (s *Store) endLeftover(ctx context.Context, tx *sql.Tx, c ConversationID) error {
	row, err := s.runRow(ctx, tx, `r.conversation_id = $1 AND r.state = 'running'`, c)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if row.instance != s.instance {
		if err := s.loseCalls(ctx, tx, row); err != nil {
			return err
		}
	}
	if !row.wished {
		return s.endInterrupted(ctx, tx, row, Finish{Reason: "worker_died"})
	}
	if err := s.endRun(ctx, tx, row, RunCancelled, Finish{State: RunInterrupted}); err != nil {
		return err
	}
	effects, err := s.effects(ctx, tx, row.id)
	if err != nil {
		return err
	}
	return s.tellInterrupted(ctx, tx, row, "", effects)
}

// endInterrupted decides what becomes of a turn whose run did not come to its end. The turn is taken up once more if nothing
// but reads was begun in it; a poison turn must not kill worker after worker, and nothing that may have been done is
// repeated.
func (s *Store) endInterrupted(ctx context.Context, tx *sql.Tx, r runRow, f Finish) error {
	effects, err := s.effects(ctx, tx, r.id)
	if err != nil {
		return err
	}
	notice := "run.restarted"
	again := len(effects) == 0 && (r.attempt < 2 || s.isStopping())
	switch {
	case again && s.isStopping():
		// The turn did nothing wrong: the process is being stopped. Its attempt does not count.
		_, err = tx.ExecContext(ctx, `UPDATE message SET state = 'queued', run_id = '', attempts = attempts - 1
			WHERE run_id = $1 AND state = 'running'`, r.id)
	case again:
		_, err = tx.ExecContext(ctx, `UPDATE message SET state = 'queued', run_id = '' WHERE run_id = $1 AND state = 'running'`, r.id)
	default:
		notice = "run.interrupted"
		if len(effects) == 0 {
			notice = "run.failed_twice"
		}
		_, err = tx.ExecContext(ctx, `UPDATE message SET state = 'failed', reason = $2, ended_ms = $3
			WHERE run_id = $1 AND state = 'running'`, r.id, cmp.Or(f.Reason, "interrupted"), s.now())
	}
	if err != nil {
		return err
	}
	if again {
		if _, err := tx.ExecContext(ctx, `UPDATE news SET run_id = '' WHERE run_id = $1`, r.id); err != nil {
			return err
		}
	}
	if err := s.closeRun(ctx, tx, r, RunInterrupted, cmp.Or(f.Reason, "interrupted"), f); err != nil {
		return err
	}
	if again && !r.child {
		return nil // nobody saw anything
	}
	if err := s.tellInterrupted(ctx, tx, r, notice, effects); err != nil {
		return err
	}
	return s.askTogether(ctx, tx, r)
}

// tellInterrupted says what became of an interrupted run, unless notice is empty, and which calls nobody knows the outcome
// of.
func (s *Store) tellInterrupted(ctx context.Context, tx *sql.Tx, r runRow, notice string, effects []CallView) error {
	m, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, r.company, r.membership)
	if err != nil {
		return err
	}
	d := Draft{Lang: langOf(m), Kind: DraftNotice, Notice: notice} // as urgent as the answer, or it would come after it
	var drafts []Draft
	var done []string
	for _, c := range effects {
		switch c.Outcome {
		case OutcomeDone:
			done = append(done, c.Tool)
		case OutcomeUnknown:
			u := d
			u.Notice, u.Args = "call.unknown", map[string]string{"tool": c.Tool, "app": c.App}
			drafts = append(drafts, u)
		}
	}
	if notice != "" {
		d.Args = map[string]string{"done": strings.Join(done, ", ")}
		drafts = append([]Draft{d}, drafts...)
	}
	return s.sayOf(ctx, tx, r, drafts)
}

// effects are the calls of a run that changed something, may have, or may still once somebody presses a button.
func (s *Store) effects(ctx context.Context, q queryer, run RunID) ([]CallView, error) {
	return callViews(ctx, q, `run_id = $1 AND class <> $2 AND outcome NOT IN ('refused', 'failed')`, run, policy.ClassRead)
}

// loseCalls closes the calls that a dead worker left open: a write may have happened, a read is simply over.
func (s *Store) loseCalls(ctx context.Context, tx *sql.Tx, r runRow) error {
	rows, err := tx.QueryContext(ctx, `UPDATE call SET outcome = CASE WHEN class = 'read' THEN 'failed' ELSE 'unknown' END,
			code = 'worker_died', ended_ms = $2
		WHERE run_id = $1 AND outcome = '' RETURNING call_id, outcome`, r.id, s.now())
	lost := map[string]Outcome{}
	err = each(rows, err, func(scan func(...any) error) error {
		var id string
		var o Outcome
		if err := scan(&id, &o); err != nil {
			return err
		}
		lost[id] = o
		return nil
	})
	if err != nil {
		return fmt.Errorf("closing the calls of %s: %w", r.id, err)
	}
	for id, o := range lost {
		if err := s.audit(ctx, tx, r.company, actorPilder, "call.ended", id, map[string]any{"outcome": o, "code": "worker_died"}); err != nil {
			return err
		}
	}
	return nil
}

// langOf is the language a member is spoken to in.
func langOf(m Membership) string { return cmp.Or(m.Person.Lang, m.Company.Lang, "es") }
