package store

import (
	"context"
	"fmt"
)

// OutboxWaiting counts the replies of a chat that are queued or being sent: 0 means that all was said.
func (s *Store) OutboxWaiting(ctx context.Context, bot BotID, chat int64) (int, error) {
	var n int
	err := s.reads.QueryRowContext(ctx, `SELECT COUNT(*) FROM reply WHERE bot_id IN ($1, 0) AND chat_id = $2
		AND state IN ('queued', 'sending')`, bot, chat).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("counting what waits for a chat: %w", err)
	}
	return n, nil
}
