package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// AppWait is a request that stopped for want of an app.
type AppWait struct {
	Member       Membership
	Conversation ConversationID
	Chat         Chat
	App          string
	Asked        string // what the person had asked for: their own words
	ReplyTo      int64  // the message they asked it with
}

// Resume words how a request goes on once its app is connected: the message for the agent, which stands where one of the
// person's would, and what the person is told.
type Resume func(AppWait) (message string, told Draft)

// AwaitApp notes that a running run's request waits for an app to be connected, for ttl at most. It goes on by itself when
// that happens: at once if the run is over by then, after it otherwise, unless it used the app itself. /stop and /new end
// the wait. One conversation waits for an app once, and a request that went on for an app does not wait for it again: an app
// that is there and refuses must not keep a request going round.
func (s *Store) AwaitApp(ctx context.Context, company CompanyID, run RunID, app string, ttl time.Duration) error {
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		var c ConversationID
		var m MembershipID
		var message MessageID
		err := tx.QueryRowContext(ctx, `SELECT r.conversation_id, r.membership_id, m.message_id FROM run r JOIN message m ON m.run_id = r.run_id
			WHERE r.run_id = $1 AND r.company_id = $2 AND r.state = 'running' ORDER BY m.seq DESC LIMIT 1`, run, company).Scan(&c, &m, &message)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrRunOver
		}
		if err != nil {
			return err
		}
		if err := s.lockConversation(ctx, tx, company, c); err != nil {
			return err
		}
		var before int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM app_wait w JOIN message m ON m.message_id = w.resume_id
			WHERE w.conversation_id = $1 AND w.app = $2 AND m.run_id = $3 AND w.company_id = $4`, c, app, run, company).Scan(&before); err != nil || before > 0 {
			return err
		}
		fresh, err := one(tx.ExecContext(ctx, `INSERT INTO app_wait (wait_id, company_id, membership_id, conversation_id, run_id, message_id, app,
				state, created_ms, expires_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 'waiting', $8, $9) ON CONFLICT DO NOTHING`,
			newID(prefixWait), company, m, c, run, message, app, s.now(), s.now()+ttl.Milliseconds()))
		if err != nil {
			return err
		}
		if !fresh { // an older request's wait becomes this one's
			_, err := tx.ExecContext(ctx, `UPDATE app_wait SET run_id = $4, message_id = $5, expires_ms = $6
				WHERE conversation_id = $1 AND membership_id = $2 AND app = $3 AND company_id = $7 AND state = 'waiting'`,
				c, m, app, run, message, s.now()+ttl.Milliseconds(), company)
			return err
		}
		return s.audit(ctx, tx, company, string(m), "app.awaited", string(run), ofApp{app})
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", app, err)
	}
	return nil
}

func (s *Store) lockConversation(ctx context.Context, tx *sql.Tx, company CompanyID, c ConversationID) error {
	var locked int64
	return tx.QueryRowContext(ctx, `SELECT fence FROM conversation WHERE conversation_id = $1 AND company_id = $2`+s.d.forUpdate,
		c, company).Scan(&locked)
}

// extendWaits keeps what waits for an app waiting as long as a way to connect it is open.
func (s *Store) extendWaits(ctx context.Context, tx *sql.Tx, m Membership, app string, until int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE app_wait SET expires_ms = $4 WHERE company_id = $1 AND membership_id = $2 AND app = $3
		AND state = 'waiting' AND expires_ms > $5 AND expires_ms < $4`, m.Company.ID, m.ID, app, until, s.now())
	return err
}

// cancelWaits ends what waits for apps in a member's conversation.
func (s *Store) cancelWaits(ctx context.Context, tx *sql.Tx, c ConversationID, m Membership) error {
	_, err := tx.ExecContext(ctx, `UPDATE app_wait SET state = 'cancelled', ended_ms = $4
		WHERE conversation_id = $1 AND membership_id = $2 AND company_id = $3 AND state IN ('waiting', 'connected')`,
		c, m.ID, m.Company.ID, s.now())
	return err
}

// wait is a row of app_wait.
type wait struct {
	id           string
	conversation ConversationID
	run          RunID
	message      MessageID // what the person asked
	app          string
	resume       MessageID // with which it goes on
	connected    int64
}

func (s *Store) appWaits(ctx context.Context, q queryer, where string, args ...any) (all []wait, err error) {
	rows, err := q.QueryContext(ctx, `SELECT wait_id, conversation_id, run_id, message_id, app, resume_id, connected_ms
		FROM app_wait WHERE `+where+` ORDER BY conversation_id, wait_id`, args...)
	err = each(rows, err, func(scan func(...any) error) error {
		var w wait
		err := scan(&w.id, &w.conversation, &w.run, &w.message, &w.app, &w.resume, &w.connected)
		all = append(all, w)
		return err
	})
	return all, err
}

// lockWaiting locks the conversations that wait for an account's app, before the account itself: BeginCall, in a run that holds
// its conversation up, comes from the other side.
func (s *Store) lockWaiting(ctx context.Context, tx *sql.Tx, company CompanyID, account AccountID) error {
	rows, err := tx.QueryContext(ctx, `SELECT fence FROM conversation WHERE company_id = $1 AND conversation_id IN (
			SELECT w.conversation_id FROM app_wait w JOIN account a ON a.company_id = w.company_id AND a.membership_id = w.membership_id
				AND a.app = w.app WHERE a.account_id = $2 AND a.company_id = $1 AND w.state = 'waiting')
		ORDER BY conversation_id`+s.d.forUpdate, company, account)
	err = each(rows, err, func(scan func(...any) error) error {
		var fence int64
		return scan(&fence)
	})
	if err != nil {
		return fmt.Errorf("locking what waits for %s: %w", account, err)
	}
	return nil
}

// resume lets a member's requests that wait for an app go on. lockWaiting came first.
func (s *Store) resume(ctx context.Context, tx *sql.Tx, m Membership, app string, say Resume) error {
	if say == nil {
		return nil
	}
	all, err := s.appWaits(ctx, tx, `company_id = $1 AND membership_id = $2 AND app = $3 AND state = 'waiting' AND expires_ms > $4`,
		m.Company.ID, m.ID, app, s.now())
	if err != nil {
		return fmt.Errorf("finding what waits for %s: %w", app, err)
	}
	for _, w := range all {
		if err := s.goOn(ctx, tx, w, m, say); err != nil {
			return fmt.Errorf("going on with what waits for %s: %w", app, err)
		}
	}
	return nil
}

// goOn lets one request go on, once: the state of its row, changed under the conversation's lock, is the token. The message
// is the conversation's next turn; while the run that waits still goes, its end may take the message back.
func (s *Store) goOn(ctx context.Context, tx *sql.Tx, w wait, m Membership, say Resume) error {
	if err := s.lockConversation(ctx, tx, m.Company.ID, w.conversation); err != nil {
		return err
	}
	id := MessageID(newID(prefixMessage))
	ok, err := one(tx.ExecContext(ctx, `UPDATE app_wait SET state = CASE WHEN EXISTS (
			SELECT 1 FROM run WHERE run_id = $2 AND company_id = $5 AND state = 'running')
			THEN 'connected' ELSE 'done' END, resume_id = $3, connected_ms = $4, ended_ms = $4
		WHERE wait_id = $1 AND company_id = $5 AND state = 'waiting'`, w.id, w.run, id, s.now(), m.Company.ID))
	if err != nil || !ok {
		return err
	}
	a, foreign, bot, err := s.asked(ctx, tx, w, m)
	if err != nil {
		return err
	}
	text, told := say(a)
	in := arrived{member: m, Admission: Admission{Conversation: w.conversation, Message: id, Company: m.Company.ID},
		arrival: Arrival{Text: text, Telegram: a.ReplyTo, Foreign: foreign}}
	if err := s.append(ctx, tx, bot, &in); err != nil {
		return err
	}
	if err := s.say(ctx, tx, origin{bot: bot}, []Draft{told}); err != nil {
		return err
	}
	return s.audit(ctx, tx, m.Company.ID, actorPilder, "request.resumed", string(id), ofApp{w.app})
}

// asked reads what the person had asked for in the run that waits. What others wrote, and they passed on, stays others'.
func (s *Store) asked(ctx context.Context, tx *sql.Tx, w wait, m Membership) (a AppWait, foreign bool, bot BotID, err error) {
	a = AppWait{Member: m, Conversation: w.conversation, App: w.app}
	var private int64
	if err = tx.QueryRowContext(ctx, `SELECT bot_id, chat_id, topic_id, is_private FROM conversation
		WHERE conversation_id = $1 AND company_id = $2`, w.conversation, m.Company.ID).Scan(&bot, &a.Chat.ID, &a.Chat.Topic, &private); err != nil {
		return a, false, 0, err
	}
	a.Chat.Private = private == 1
	var words []string
	rows, err := tx.QueryContext(ctx, `SELECT message_id, text, telegram_id, is_foreign FROM message
		WHERE company_id = $1 AND (run_id = $2 OR message_id = $3) ORDER BY seq`, m.Company.ID, w.run, w.message)
	err = each(rows, err, func(scan func(...any) error) error {
		var id string
		var sealed []byte
		var passed int64
		if err := scan(&id, &sealed, &a.ReplyTo, &passed); err != nil {
			return err
		}
		text, err := s.seal.open("message.text", id, m.Company.ID, sealed)
		words, foreign = append(words, string(text)), foreign || passed == 1
		return err
	})
	a.Asked = strings.Join(words, "\n")
	return a, foreign, bot, err
}

// resumeAfter settles what a run that ends now had waited for: where it used the app itself once it was there, the message
// that was to go on with it has nothing left to do.
func (s *Store) resumeAfter(ctx context.Context, tx *sql.Tx, r Run) error {
	company := r.Principal.Company
	all, err := s.appWaits(ctx, tx, `run_id = $1 AND company_id = $2 AND state = 'connected'`, r.ID, company)
	if err != nil {
		return err
	}
	for _, w := range all {
		var used int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM call WHERE run_id = $1 AND company_id = $4 AND begun_ms >= $2
			AND outcome <> 'refused' AND (app = $3 OR app = '' AND account IS NOT NULL)`, r.ID, w.connected, w.app, company).Scan(&used); err != nil {
			return err
		}
		if used > 0 {
			if _, err := tx.ExecContext(ctx, `UPDATE message SET state = 'cancelled', reason = 'done_meanwhile', ended_ms = $3
				WHERE message_id = $1 AND company_id = $2 AND `+waits, w.resume, company, s.now()); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE app_wait SET state = 'done' WHERE wait_id = $1 AND company_id = $2`, w.id, company); err != nil {
			return err
		}
	}
	return nil
}
