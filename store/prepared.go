package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"pilder/policy"
)

// ErrBusy is returned for a conversation in which a run is running.
var ErrBusy = errors.New("a run is running in the conversation")

// Prepare makes the run that the conversation's next turn becomes if it is this member's and nothing has changed by then:
// state prepared, this instance's, with a fence of its own, everything frozen as StartRun would freeze it now, and an
// expiry of one hour. Its token lists tools; BeginCall refuses it until StartRun adopts it. An earlier prepared run of the
// conversation is deleted. Nothing is audited, for nothing has happened.
//
// ErrBusy while a run is running there, ErrLost when the conversation's session is not session any more, ErrNotFound when
// what this member writes does not go to this conversation.
func (s *Store) Prepare(ctx context.Context, c ConversationID, m MembershipID, session string) (Run, error) {
	var r Run
	err := s.quietTx(ctx, func(tx *sql.Tx) (err error) {
		r, err = s.prepare(ctx, tx, c, m, session)
		return err
	})
	if err != nil {
		return Run{}, fmt.Errorf("preparing a run of %s: %w", c, err)
	}
	return r, nil
}

func (s *Store) prepare(ctx context.Context, tx *sql.Tx, c ConversationID, m MembershipID, session string) (Run, error) {
	if s.guest {
		return Run{}, ErrGuest
	}
	if s.isFenced() {
		return Run{}, ErrLost
	}
	r := Run{ID: RunID(newID(prefixRun)), Conversation: c, State: RunPrepared, Started: at(s.now())}
	r.Expires = r.Started.Add(tokenLife)
	of, err := s.claim(ctx, tx, &r, 1)
	if errors.Is(err, sql.ErrNoRows) || err == nil && r.Chat.Private && of.membership != m {
		return Run{}, ErrNotFound
	}
	if err != nil {
		return Run{}, err
	}
	var running int
	if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM run WHERE conversation_id = $1 AND state = 'running'`, c).Scan(&running); err != nil {
		return Run{}, err
	}
	if running > 0 {
		return Run{}, ErrBusy
	}
	if r.Session != session {
		return Run{}, ErrLost
	}
	r.Principal.Company = of.company
	if err := s.freeze(ctx, tx, &r, m); err != nil {
		return Run{}, err
	}
	if !r.Member.Current {
		return Run{}, ErrNotFound
	}
	if err := s.unprepare(ctx, tx, c); err != nil {
		return Run{}, err
	}
	return r, s.insertRun(ctx, tx, r, 0)
}

// Retire deletes a prepared run of this instance; one that was adopted, or is gone, it leaves alone.
func (s *Store) Retire(ctx context.Context, r Run) error {
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM run WHERE run_id = $1 AND instance_id = $2 AND state = 'prepared'`, r.ID, s.instance)
		return err
	})
	if err != nil {
		return fmt.Errorf("retiring run %s: %w", r.ID, err)
	}
	return nil
}

// unprepare deletes the prepared run of a conversation, whosever it is.
func (s *Store) unprepare(ctx context.Context, tx *sql.Tx, c ConversationID) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM run WHERE conversation_id = $1 AND state = 'prepared'`, c)
	return err
}

// readiness is what a prepared run is good for when its turn comes.
type readiness int

const (
	unfit readiness = iota
	ready           // it becomes the run
	early           // no message waits: it goes on waiting
)

// adopt looks whether the prepared run that t names is what this turn needs, and if so makes it r, not yet written. It must
// be this instance's, of this session, unforgotten, with t.Life left, the newest that holds this conversation (its fence),
// its member the sender, and what it froze what would be frozen now, byte for byte.
func (s *Store) adopt(ctx context.Context, tx *sql.Tx, t Turn, of claimed, r *Run) (readiness, error) {
	var m, sender MembershipID
	var expires int64
	var role policy.Role
	var frozen frozenTexts
	err := tx.QueryRowContext(ctx, `SELECT membership_id, role, scopes, policy_grant, accounts, expires_ms, COALESCE((
			SELECT membership_id FROM message WHERE conversation_id = $2 AND `+waits+` ORDER BY seq LIMIT 1), '')
		FROM run WHERE run_id = $1 AND conversation_id = $2 AND instance_id = $3 AND state = 'prepared'
			AND fence = $4 AND fence > $5 AND session = $6 AND expires_ms >= $7`,
		t.Prepared, t.Conversation, s.instance, r.Fence, of.forgotten, r.Session, ms(r.Started.Add(t.Life))).
		Scan(&m, &role, &frozen.scopes, &frozen.grant, &frozen.accounts, &expires, &sender)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return unfit, nil
	case err != nil:
		return unfit, err
	case sender == "":
		return early, nil
	case sender != m:
		return unfit, nil
	}
	warm := *r
	warm.ID, warm.Warm, warm.Expires = t.Prepared, true, at(expires)
	warm.Principal.Company = of.company
	if err := s.freeze(ctx, tx, &warm, m); err != nil {
		return unfit, err
	}
	now, err := warm.frozenTexts()
	if err != nil || now != frozen || warm.Member.Role != role {
		return unfit, err
	}
	*r = warm
	return ready, nil
}

// begin makes an adopted run running.
func (s *Store) begin(ctx context.Context, tx *sql.Tx, r Run, job int64) error {
	ok, err := one(tx.ExecContext(ctx, `UPDATE run SET state = 'running', warm = 1, job_id = $2, attempt = $3, messages = $4,
			started_ms = $5, ms_queue = $6
		WHERE run_id = $1 AND state = 'prepared'`, r.ID, job, r.Attempt, len(r.Messages), ms(r.Started), r.queued()))
	if err == nil && !ok {
		err = ErrLost // the reaper took this instance for dead
	}
	if err != nil {
		return fmt.Errorf("beginning run %s: %w", r.ID, err)
	}
	return nil
}

// reapPrepared deletes prepared runs that nobody will adopt: of dead instances, and expired ones.
func (s *Store) reapPrepared(ctx context.Context) error {
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM run WHERE state = 'prepared' AND (expires_ms <= $2 OR `+s.dead("run.instance_id")+`)`,
			s.instance, s.now())
		return err
	})
	if err != nil {
		return fmt.Errorf("reaping prepared runs: %w", err)
	}
	return nil
}

// Sign is something a person did in their private chat that no turn came of: a command, a button.
type Sign struct {
	Conversation ConversationID
	Membership   MembershipID
	Session      string // of the conversation, as Prepare wants it
	At           time.Time
}

// SignsOfLife gives the private conversations whose member showed since after that they are there, without writing
// anything for the agent: what they did last, oldest first. Conversations with a run running or prepared, or with a message
// waiting, are left out, and so is what the control lane has not settled yet. A sign may be committed a moment after its
// time, so ask with some overlap.
func (s *Store) SignsOfLife(ctx context.Context, after time.Time) ([]Sign, error) {
	// The member is looked up by who did it, and not taken from the update: a newcomer was none yet when they pressed.
	rows, err := s.reads.QueryContext(ctx, `SELECT c.conversation_id, c.membership_id, c.session, MAX(a.settled_ms) AS last_ms
		FROM arrival a JOIN person p ON p.telegram_id = a.from_id
			JOIN membership m ON m.person_id = p.person_id AND m.is_current = 1
			JOIN conversation c ON c.bot_id = a.bot_id AND c.company_id = m.company_id AND c.chat_id = a.chat_id
				AND c.topic_id = a.topic_id AND c.membership_id = m.membership_id
		WHERE a.kind = 'control' AND a.is_private = 1 AND a.settled_ms > $1
			AND NOT EXISTS (SELECT 1 FROM run r WHERE r.conversation_id = c.conversation_id AND r.state = 'running')
			AND NOT EXISTS (SELECT 1 FROM run r WHERE r.conversation_id = c.conversation_id AND r.state = 'prepared')
			AND NOT EXISTS (SELECT 1 FROM message w WHERE w.conversation_id = c.conversation_id AND w.state IN ('queued', 'running'))
		GROUP BY c.conversation_id, c.membership_id, c.session ORDER BY last_ms, c.conversation_id`, ms(after))
	var all []Sign
	err = each(rows, err, func(scan func(...any) error) error {
		var sign Sign
		var last int64
		if err := scan(&sign.Conversation, &sign.Membership, &sign.Session, &last); err != nil {
			return err
		}
		sign.At = at(last)
		all = append(all, sign)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for signs of life: %w", err)
	}
	return all, nil
}
