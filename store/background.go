package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// Background is what a run's calls are judged before.
type Background struct {
	// Said are the person's own messages of the turn, in their order.
	Said []string
	// Taint are the apps whose words the conversation has taken in since /new: whatever was called may have answered with
	// what somebody else wrote. A message that was passed on makes it "forward".
	Taint []string
}

// Background reads it for a run that is running or has ended; a prepared one has said nothing yet.
func (s *Store) Background(ctx context.Context, company CompanyID, run RunID) (Background, error) {
	var b Background
	var c ConversationID
	err := s.reads.QueryRowContext(ctx, `SELECT conversation_id FROM run WHERE run_id = $1 AND company_id = $2`, run, company).Scan(&c)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err == nil {
		b.Said, err = s.said(ctx, company, run)
	}
	if err == nil {
		b.Taint, err = s.taint(ctx, company, c)
	}
	if err != nil {
		return Background{}, fmt.Errorf("reading the background of run %s: %w", run, err)
	}
	return b, nil
}

func (s *Store) said(ctx context.Context, company CompanyID, run RunID) (all []string, err error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT message_id, text FROM message WHERE run_id = $1 AND company_id = $2 AND is_foreign = 0 ORDER BY seq`, run, company)
	err = each(rows, err, func(scan func(...any) error) error {
		var id string
		var sealed []byte
		if err := scan(&id, &sealed); err != nil {
			return err
		}
		text, err := s.seal.open("message.text", id, company, sealed)
		all = append(all, string(text))
		return err
	})
	return all, err
}

func (s *Store) taint(ctx context.Context, company CompanyID, c ConversationID) ([]string, error) {
	all := []string{}
	rows, err := s.reads.QueryContext(ctx, `SELECT DISTINCT c.app FROM run r JOIN conversation v ON v.conversation_id = r.conversation_id
		JOIN call c ON c.run_id = r.run_id
		WHERE r.conversation_id = $1 AND r.company_id = $2 AND r.fence > v.forget_fence AND c.app <> ''
			AND (c.outcome NOT IN ('refused', 'held', 'expired') OR c.why NOT IN ('', 'unknown_tool', 'bad_arguments', 'limit', 'busy'))
		UNION SELECT 'forward' FROM run r JOIN conversation v ON v.conversation_id = r.conversation_id JOIN message m ON m.run_id = r.run_id
		WHERE r.conversation_id = $1 AND r.company_id = $2 AND r.fence > v.forget_fence AND m.is_foreign = 1`, c, company)
	err = each(rows, err, func(scan func(...any) error) error {
		var app string
		defer func() { all = append(all, app) }()
		return scan(&app)
	})
	slices.Sort(all)
	return all, err
}
