package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	Grant        policy.Grant // frozen in StartRun or Prepare
	Accounts     []Account    // in use when the run began
	Preferences  []Preference // of its member, as frozen
	State        RunState
	Fence        int64
	Messages     []RunMessage // the turn, in order
	News         []News       // what happened since the last turn
	Session      string       // the CLI's session id to resume; empty: start a new one
	Attempt      int          // 1, or 2 when the first worker died before anything was begun
	Warm         bool         // it was prepared before its turn came
	Started      time.Time    // of a prepared run: when it was prepared
	Expires      time.Time    // when its token dies: an hour after the run was prepared, or else started
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

	// Prepared is the run that the caller keeps ready for the conversation, if any, and Life how much of its hour must be
	// left for it to become this turn's run. Both are the caller's to set before StartRun.
	Prepared RunID
	Life     time.Duration
}

// tokenLife is how long a run's token is good for.
const tokenLife = time.Hour

// turnCap bounds one turn, so that a flood of one sender becomes several.
const turnCap = 50

// StartRun takes the conversation's turn: raises the fence, ends a run left running by a dead worker, takes the waiting
// messages of one sender in order (at most 50), freezes the grant, and makes the run `running` with an expiry of one
// hour. ok is false when there is nothing to do, and then the job is completed.
//
// A prepared run that the turn names becomes the run, with its own fence and expiry, if it still is what would be made now;
// otherwise the run is another one, and the prepared run of the conversation is deleted. With nothing to do it stays.
func (s *Store) StartRun(ctx context.Context, t Turn) (run Run, ok bool, err error) {
	l, err := s.turn(t.Job)
	if err != nil {
		return Run{}, false, fmt.Errorf("starting a run of %s: %w", t.Conversation, err)
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		run, ok, err = s.startRun(ctx, tx, t)
		if err != nil || ok {
			return err
		}
		return s.completeJob(tx, l)
	})
	if err != nil {
		return Run{}, false, fmt.Errorf("starting a run of %s: %w", t.Conversation, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.run, l.done = run.ID, !ok
	return run, ok, nil
}

func (s *Store) startRun(ctx context.Context, tx *sql.Tx, t Turn) (Run, bool, error) {
	r := Run{ID: RunID(newID(prefixRun)), Conversation: t.Conversation, State: RunRunning, Started: at(s.now())}
	r.Expires = r.Started.Add(tokenLife)
	raise := int64(1)
	if t.Prepared != "" {
		raise = 0 // a prepared run has raised it already
	}
	of, err := s.claim(ctx, tx, &r, raise)
	if errors.Is(err, sql.ErrNoRows) {
		return r, false, nil // a job of nothing
	}
	if err != nil {
		return r, false, err
	}
	if err := s.holdJob(ctx, tx, t.Job); err != nil {
		return r, false, err
	}
	if err := s.endLeftover(ctx, tx, t.Conversation); err != nil {
		return r, false, err
	}
	if t.Prepared != "" {
		switch fit, err := s.adopt(ctx, tx, t, of, &r); {
		case err != nil || fit == early:
			return r, false, err
		case fit == unfit:
			if _, err := s.claim(ctx, tx, &r, 1); err != nil {
				return r, false, err
			}
		}
	}
	if err := s.fill(ctx, tx, t, &r); err != nil || len(r.Messages) == 0 {
		return r, false, err
	}
	if r.News, err = s.takeNews(ctx, tx, r); err != nil {
		return r, false, err
	}
	detail := map[string]any{"messages": len(r.Messages), "attempt": r.Attempt, "policy": r.Grant.Version, "warm": r.Warm}
	return r, true, s.audit(ctx, tx, r.Principal.Company, string(r.Principal.Membership), "run.started", string(r.ID), detail)
}

// claimed is what only the store needs of a conversation's row.
type claimed struct {
	company    CompanyID
	membership MembershipID // empty in a group
	forgotten  int64        // sessions of runs with a fence up to this are not resumed
}

// claim locks the run's conversation until commit, raises its fence and reads it.
func (s *Store) claim(ctx context.Context, tx *sql.Tx, r *Run, raise int64) (of claimed, err error) {
	var private int64
	err = tx.QueryRowContext(ctx, `UPDATE conversation SET fence = fence + $3, owner = $2 WHERE conversation_id = $1
		RETURNING fence, session, chat_id, topic_id, is_private, company_id, membership_id, forget_fence`, r.Conversation, s.instance, raise).
		Scan(&r.Fence, &r.Session, &r.Chat.ID, &r.Chat.Topic, &private, &of.company, &of.membership, &of.forgotten)
	r.Chat.Private = private == 1
	return of, err
}

// fill takes the turn's messages and writes the run: the prepared one when it is warm, or a new one.
func (s *Store) fill(ctx context.Context, tx *sql.Tx, t Turn, r *Run) error {
	if !r.Warm {
		if err := s.unprepare(ctx, tx, t.Conversation); err != nil {
			return err
		}
	}
	m, err := s.takeTurn(ctx, tx, r)
	if err != nil || len(r.Messages) == 0 {
		return err
	}
	if r.Warm {
		return s.begin(ctx, tx, *r, t.Job)
	}
	if err := s.freeze(ctx, tx, r, m); err != nil {
		return err
	}
	return s.insertRun(ctx, tx, *r, t.Job)
}

// waits is the condition of a message that waits. Its first half is that of the index message_open, without which SQLite
// would walk through all that was ever written in the conversation.
const waits = `state IN ('queued', 'running') AND state = 'queued'`

// takeTurn takes the unbroken row of waiting messages at the head that have the head's sender: A A B A gives three runs,
// never A A A and then B, which would break the order.
func (s *Store) takeTurn(ctx context.Context, tx *sql.Tx, r *Run) (m MembershipID, err error) {
	type taken struct {
		RunMessage
		seq int64
	}
	var all []taken
	var company CompanyID
	rows, err := tx.QueryContext(ctx, `UPDATE message SET state = 'running', run_id = $2, attempts = attempts + 1
		WHERE message_id IN (SELECT message_id FROM message WHERE conversation_id = $1 AND `+waits+`
			AND seq < COALESCE((SELECT MIN(seq) FROM message WHERE conversation_id = $1 AND `+waits+` AND person_id <> (
				SELECT person_id FROM message WHERE conversation_id = $1 AND `+waits+` ORDER BY seq LIMIT 1)), 9223372036854775807)
			ORDER BY seq LIMIT $3)
		RETURNING message_id, seq, company_id, membership_id, telegram_id, attempts, text, received_ms`, r.Conversation, r.ID, turnCap)
	err = each(rows, err, func(scan func(...any) error) error {
		var t taken
		var attempts int
		var sealed []byte
		var received int64
		if err := scan(&t.ID, &t.seq, &company, &m, &t.Telegram, &attempts, &sealed, &received); err != nil {
			return err
		}
		text, err := s.seal.open("message.text", string(t.ID), company, sealed)
		if err != nil {
			return err
		}
		t.Text, t.Received = string(text), at(received)
		r.Attempt = max(r.Attempt, attempts)
		all = append(all, t)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("taking the turn: %w", err)
	}
	slices.SortFunc(all, func(a, b taken) int { return cmp.Compare(a.seq, b.seq) }) // RETURNING promises no order
	for _, t := range all {
		r.Messages = append(r.Messages, t.RunMessage)
	}
	r.Principal.Company = company
	return m, nil
}

// queued is how long the first message waited, in ms.
func (r Run) queued() int64 {
	if len(r.Messages) == 0 {
		return 0
	}
	return max(0, r.Started.Sub(r.Messages[0].Received).Milliseconds())
}

func (s *Store) insertRun(ctx context.Context, tx *sql.Tx, r Run, job int64) error {
	frozen, err := r.frozenTexts()
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO run (run_id, company_id, conversation_id, membership_id, person_id, fence, instance_id,
				job_id, state, attempt, messages, role, scopes, policy_grant, accounts, session, started_ms, expires_ms, ms_queue)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
			r.ID, r.Principal.Company, r.Conversation, r.Member.ID, r.Member.Person.ID, r.Fence, s.instance, job, r.State, r.Attempt,
			len(r.Messages), r.Member.Role, frozen.scopes, frozen.grant, frozen.accounts, r.Session, ms(r.Started), ms(r.Expires), r.queued())
	}
	if err != nil {
		return fmt.Errorf("writing run %s: %w", r.ID, err)
	}
	return nil
}

// takeNews gives the run what happened for its member since their last turn here. In a group others' news stay theirs.
func (s *Store) takeNews(ctx context.Context, tx *sql.Tx, r Run) ([]News, error) {
	var all []News
	rows, err := tx.QueryContext(ctx, `UPDATE news SET run_id = $1 WHERE conversation_id = $2 AND membership_id = $3 AND run_id = ''
		RETURNING news_id, tool, outcome, text, at_ms`, r.ID, r.Conversation, r.Member.ID)
	err = each(rows, err, func(scan func(...any) error) error {
		var n News
		var id string
		var sealed []byte
		var happened int64
		if err := scan(&id, &n.Tool, &n.Outcome, &sealed, &happened); err != nil {
			return err
		}
		text, err := s.seal.open("news.text", id, r.Principal.Company, sealed)
		if err != nil {
			return err
		}
		n.Text, n.At = string(text), at(happened)
		all = append(all, n)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("taking news: %w", err)
	}
	slices.SortStableFunc(all, func(a, b News) int { return a.At.Compare(b.At) })
	return all, nil
}

// ChildStarted records that the agent's process exists: from here on a crash is told to the person. ErrLost as FinishRun.
func (s *Store) ChildStarted(ctx context.Context, r Run) error {
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		ok, err := one(tx.ExecContext(ctx, `UPDATE run SET started_child_ms = $4 WHERE run_id = $1 AND fence = $2 AND instance_id = $3
			AND state = 'running'`, r.ID, r.Fence, s.instance, s.now()))
		if err == nil && !ok {
			return ErrLost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("recording the child of %s: %w", r.ID, err)
	}
	return nil
}

// LiveRun gives a run that is running now, as a door asks for it, without its messages and news; ErrNotFound when it is
// not, or no more.
func (s *Store) LiveRun(ctx context.Context, id RunID) (Run, error) {
	r := Run{ID: id, State: RunRunning}
	var m MembershipID
	var company CompanyID
	var private, warm, started, expires int64
	var role policy.Role
	var scopes, grant, accounts string
	err := s.reads.QueryRowContext(ctx, `SELECT r.company_id, r.membership_id, r.conversation_id, c.chat_id, c.topic_id, c.is_private,
			r.fence, r.attempt, r.role, r.scopes, r.policy_grant, r.accounts, r.session, r.warm, r.started_ms, r.expires_ms
		FROM run r JOIN conversation c ON c.conversation_id = r.conversation_id WHERE r.run_id = $1 AND r.state = 'running'`, id).
		Scan(&company, &m, &r.Conversation, &r.Chat.ID, &r.Chat.Topic, &private, &r.Fence, &r.Attempt, &role, &scopes, &grant,
			&accounts, &r.Session, &warm, &started, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return Run{}, ErrNotFound
	}
	if err != nil {
		return Run{}, fmt.Errorf("reading run %s: %w", id, err)
	}
	r.Chat.Private, r.Warm, r.Started, r.Expires = private == 1, warm == 1, at(started), at(expires)
	if r.Member, err = membership(ctx, s.reads, `m.company_id = $1 AND m.membership_id = $2`, company, m); err != nil {
		return Run{}, err
	}
	r.Principal = r.Member.Principal()
	r.Principal.Role, r.Principal.Run = role, id // as frozen, whatever the role is now
	var ids []string
	for _, column := range []struct {
		text string
		into any
	}{{scopes, &r.Principal.Scopes}, {grant, &r.Grant}, {accounts, &ids}} {
		if err := json.Unmarshal([]byte(column.text), column.into); err != nil {
			return Run{}, fmt.Errorf("reading run %s: %w", id, err)
		}
	}
	if len(ids) > 0 {
		r.Accounts, err = s.accountsWhere(ctx, s.reads, `company_id = $1 AND `+s.d.in("account_id", 2)+` AND `+inUse, company, s.d.list(ids))
	}
	return r, err
}
