package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Poller is the right to poll one bot, held by at most one process. Its fence rises with every change of owner; a verb
// with an old fence writes nothing.
type Poller struct {
	Bot    BotID
	Fence  int64
	Offset int64 // what to send as getUpdates offset: the last committed update id + 1, 0 at first
}

// ErrLost is returned to a holder whose lease or run has been taken over. Nothing was written.
var ErrLost = errors.New("ownership lost")

// HeldError says who polls the bot now.
type HeldError struct {
	Owner string // instance id of the holder
	Until time.Time
}

func (e *HeldError) Error() string { return "bot is polled by " + e.Owner }

// AcquirePoller takes or renews the lease of a bot's poller for ttl. *HeldError when another process holds it.
func (s *Store) AcquirePoller(ctx context.Context, bot BotID, ttl time.Duration) (Poller, error) {
	if s.guest {
		return Poller{}, ErrGuest
	}
	p := Poller{Bot: bot}
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		// No row comes back when somebody else holds it. Owners are compared by the database's clock.
		err := tx.QueryRowContext(ctx, `INSERT INTO lease (name, owner, until_ms, fence) VALUES ($1, $2, `+s.d.nowMS+` + $3, 1)
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until_ms = excluded.until_ms,
				fence = CASE WHEN lease.owner = excluded.owner THEN lease.fence ELSE lease.fence + 1 END
			WHERE lease.owner = excluded.owner OR lease.until_ms < `+s.d.nowMS+`
			RETURNING fence`, leaseName(bot), s.instance, ttl.Milliseconds()).Scan(&p.Fence)
		if errors.Is(err, sql.ErrNoRows) {
			held := &HeldError{}
			var until int64
			err := tx.QueryRowContext(ctx, `SELECT owner, until_ms FROM lease WHERE name = $1`, leaseName(bot)).Scan(&held.Owner, &until)
			held.Until = at(until)
			return cmp.Or(err, error(held))
		}
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `INSERT INTO bot (bot_id) VALUES ($1)
			ON CONFLICT (bot_id) DO UPDATE SET bot_id = excluded.bot_id RETURNING next_offset`, bot).Scan(&p.Offset)
	})
	if err != nil {
		return Poller{}, fmt.Errorf("acquiring the poller of bot %d: %w", bot, err)
	}
	return p, nil
}

func leaseName(bot BotID) string { return fmt.Sprintf("poller:%d", bot) }

// ReleasePoller gives the lease back, so that the next process takes over at once. ErrLost when it was taken over already.
func (s *Store) ReleasePoller(ctx context.Context, p Poller) error {
	return s.quietTx(ctx, func(tx *sql.Tx) error {
		ok, err := one(tx.ExecContext(ctx, `UPDATE lease SET until_ms = 0 WHERE name = $1 AND owner = $2 AND fence = $3`,
			leaseName(p.Bot), s.instance, p.Fence))
		if err != nil {
			return fmt.Errorf("releasing the poller of bot %d: %w", p.Bot, err)
		}
		if !ok {
			return ErrLost
		}
		return nil
	})
}

// holds checks in a verb's own transaction that the poller is still this process's. The shared lock lines it up with a
// takeover: either this commits before it, or it finds the fence raised.
func (s *Store) holds(ctx context.Context, tx *sql.Tx, p Poller) error {
	var yes int
	err := tx.QueryRowContext(ctx, `SELECT 1 FROM lease WHERE name = $1 AND owner = $2 AND fence = $3`+s.d.forShare,
		leaseName(p.Bot), s.instance, p.Fence).Scan(&yes)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrLost
	}
	return err
}
