package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// tidy forgets what serves nobody any more. Updates go after six days: Telegram keeps none longer than one, and after a
// quiet week it may begin anywhere with its ids, so an old row must not make a new update look like a duplicate.
func (s *Store) tidy(ctx context.Context) error {
	now := s.now()
	for _, q := range []struct {
		text string
		arg  int64
	}{
		{`DELETE FROM arrival WHERE fate <> 'received' AND received_ms < $1 AND NOT EXISTS (
			SELECT 1 FROM message m WHERE m.message_id = arrival.message_id AND m.state IN ('queued', 'running'))`, now - arrivalKept.Milliseconds()},
		{`DELETE FROM button WHERE expires_ms < $1`, now},
		{`DELETE FROM undo WHERE kept_ms < $1`, now - buttonTTL.Milliseconds()},
		{`DELETE FROM away WHERE until_ms < $1`, now - buttonTTL.Milliseconds()},
		{`DELETE FROM chat_pause WHERE until_ms < $1`, now},
		{`DELETE FROM errand WHERE expires_ms < $1`, now},
		{`DELETE FROM credential WHERE created_ms < $1 AND ` + credentialOfNobody, now - credentialKept.Milliseconds()}, // unrevoked
		{`DELETE FROM instance WHERE beat_ms < ` + s.d.nowMS + ` - $1`, (24 * time.Hour).Milliseconds()},
	} {
		err := s.quietTx(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, q.text, q.arg)
			return err
		})
		if err != nil {
			return fmt.Errorf("tidying: %w", err)
		}
	}
	return nil
}
