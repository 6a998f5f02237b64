package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/rs/zerolog"
)

// Config says where the store is and how it keeps time and secrets.
type Config struct {
	// URL is sqlite:PATH (a file; its folder is created 0700) or postgres://….
	URL string
	// Key seals message texts, arguments, results and account ids (AES-256-GCM). 32 bytes as 64 hex digits. With SQLite an
	// empty key means: the file "seal.key" beside the database, made 0600 at first use. With PostgreSQL it is required.
	Key Secret
	// Now is the clock for what people see; ownership uses the database's own clock. Default time.Now.
	Now func() time.Time
	// Log gets events of the store itself. Default: none.
	Log zerolog.Logger
	// BeatTTL is how long an instance may be silent before its work is taken over. Default 10 s. Tests use less.
	BeatTTL time.Duration
}

// Store remembers everything. It is safe for concurrent use.
type Store struct {
	db *sql.DB
	// the store's own file layout is its author's
}

// Open connects, takes the lock of a SQLite file (one process per file; the error names the holder) and runs the
// migrations under a lock. It starts no goroutine; Run does.
func Open(ctx context.Context, cfg Config) (*Store, error) { panic("being built") }

// Run beats, reaps the work of dead instances, sweeps lost wake-ups, chains the audit and returns when ctx ends.
func (s *Store) Run(ctx context.Context) error { panic("being built") }

// Close releases the lock and the connections. Run and the Serve verbs must have returned.
func (s *Store) Close() error { panic("being built") }

// Instance names this process in leases and runs.
func (s *Store) Instance() string { panic("being built") }
