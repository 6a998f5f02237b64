package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/riverdriver/riversqlite"
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
	// Guest opens the database beside the process that serves it, for an operator's command: it takes no lock, migrates
	// nothing (ErrSchema unless the schema is this binary's) and may read and write, but not Run, serve or poll (ErrGuest).
	// Default: the owner.
	Guest bool
}

// Store remembers everything. It is safe for concurrent use.
type Store struct {
	db         *sql.DB // writes; with SQLite one connection
	reads      *sql.DB // reads outside transactions; with PostgreSQL the same pool
	d          dialect
	seal       sealer
	log        zerolog.Logger
	wake       *bell
	group      group      // with SQLite
	statements statements // with SQLite
	guest      bool

	clock    func() time.Time
	ttl      time.Duration
	instance string

	driver riverdriver.Driver[*sql.Tx]
	queue  *river.Client[*sql.Tx] // inserts and cancels only; it is never started
	pool   *pgxpool.Pool          // nil with SQLite
	lock   *os.File               // nil with PostgreSQL

	closing  sync.Once
	closeErr error

	mu       sync.Mutex
	live     map[int64]*liveTurn // the jobs this process works on, by job id
	serving  int                 // Serve verbs that have not returned
	quiet    chan struct{}       // closed when serving falls to zero; nil while it is zero
	stopping bool                // a Serve verb is being ended
	fenced   bool                // no beat for too long: nothing may be finished any more

	turns   atomic.Int64 // ServeTurns that have not returned
	chained atomic.Int64 // up to this audit row nothing is looked for any more
}

// Open connects, takes the lock of a SQLite file (one process per file; *LockedError names the holder) and runs the
// migrations under a lock. It starts no goroutine; Run does. A guest does neither of the two.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{
		log:      cfg.Log,
		wake:     newBell(),
		guest:    cfg.Guest,
		clock:    cfg.Now,
		ttl:      cmp.Or(cfg.BeatTTL, 10*time.Second),
		instance: newID(prefixInstance),
		live:     map[int64]*liveTurn{},
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	var err error
	switch scheme, rest, _ := strings.Cut(cfg.URL, ":"); scheme {
	case "sqlite":
		err = s.openSQLite(ctx, cfg, rest)
	case "postgres", "postgresql":
		err = s.openPostgres(ctx, cfg)
	default:
		err = errors.New("store url must be sqlite:PATH or postgres://…") // not quoted: it may hold a password
	}
	if err == nil {
		err = s.checkKey(ctx)
	}
	if err == nil {
		// The cooldown is also how long an inserting client announces no further insert: with the default of 100 ms the
		// second of two quick turns waited a whole poll, 1.05 s (river 0.51.2, measured).
		s.queue, err = river.NewClient(s.driver, &river.Config{ID: s.instance, FetchCooldown: river.FetchCooldownMin, Logger: s.riverLog()})
	}
	if err == nil && s.lock != nil {
		err = s.takeOverFile(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) openSQLite(ctx context.Context, cfg Config, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("finding %s: %w", path, err)
	}
	keyFile := filepath.Join(filepath.Dir(path), "seal.key")
	if cfg.Guest {
		err = findFiles(path, keyFile, cfg)
	} else {
		err = s.ownFile(path)
	}
	if err != nil {
		return err
	}
	key, err := keyFor(cfg, keyFile)
	if err != nil {
		return err
	}
	if s.seal, err = newSealer(key); err != nil {
		return err
	}
	s.d = sqliteDialect()
	// Immediate: a deferred transaction that reads and then writes fails with BUSY whatever the timeout (348 of 400,
	// measured). FULL: with NORMAL a power loss could take an update back that Telegram was already told we have.
	s.db, err = openLite(path, "mode=rw&_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)", 1)
	if err != nil {
		return err
	}
	s.driver = riversqlite.New(s.db)
	if err := prepare(ctx, cfg, s.db, s.d, s.driver); err != nil {
		return err
	}
	s.reads, err = openLite(path, "mode=ro&_pragma=query_only(1)", 4)
	return err
}

// ownFile takes the lock of a database file and makes the file if there is none.
func (s *Store) ownFile(path string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the store's folder: %w", err)
	}
	host, _ := os.Hostname() // only to be read by people
	holder := fmt.Sprintf("pid %d on host %s, instance %s", os.Getpid(), host, s.instance)
	if s.lock, err = lockFile(path+".lock", holder); err != nil {
		return err
	}
	return touch(path)
}

// touch makes the database file with the mode it is to have; SQLite gives its side files the same.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("making the database: %w", err)
	}
	return f.Close()
}

func openLite(path, options string, connections int) (*sql.DB, error) {
	dsn := (&url.URL{Scheme: "file", Path: path}).String() + "?" + options + "&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	db.SetMaxOpenConns(connections)
	return db, nil
}

// Limits of one statement, one wait for a lock and one forgotten transaction, where the URL does not set them. They bound
// what a stuck peer can hold up; nothing of ours comes near.
var pgLimits = [][2]string{
	{"statement_timeout", "30s"}, {"lock_timeout", "10s"}, {"idle_in_transaction_session_timeout", "30s"},
	{"application_name", "pilder"},
}

func (s *Store) openPostgres(ctx context.Context, cfg Config) error {
	key, err := keyFor(cfg, "")
	if err != nil {
		return err
	}
	if s.seal, err = newSealer(key); err != nil {
		return err
	}
	c, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return fmt.Errorf("reading the store url: %w", err) // pgx leaves the password out of it
	}
	s.d = postgresDialect()
	if err := preparePostgres(ctx, cfg, c.ConnConfig, s.d); err != nil {
		return err
	}
	for _, p := range pgLimits {
		if _, set := c.ConnConfig.RuntimeParams[p[0]]; !set {
			c.ConnConfig.RuntimeParams[p[0]] = p[1]
		}
	}
	if !strings.Contains(cfg.URL, "pool_max_conns") {
		c.MaxConns = 16
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	s.db = stdlib.OpenDBFromPool(s.pool)
	s.reads = s.db
	s.driver = riverdatabasesql.New(s.db)
	return nil
}

// preparePostgres migrates over connections of its own, without the limits of the pool.
func preparePostgres(ctx context.Context, cfg Config, c *pgx.ConnConfig, d dialect) error {
	db := stdlib.OpenDB(*c.Copy())
	defer db.Close()
	db.SetMaxOpenConns(2)
	return prepare(ctx, cfg, db, d, riverdatabasesql.New(db))
}

// Close releases the lock and the connections; again, it does nothing. Run and the Serve verbs must have returned.
func (s *Store) Close() error {
	s.closing.Do(func() {
		var errs []error
		if s.db != nil {
			s.catchUpForGood()
		}
		if s.reads != nil && s.reads != s.db {
			errs = append(errs, s.reads.Close())
		}
		if s.db != nil {
			errs = append(errs, s.db.Close())
		}
		if s.pool != nil {
			s.pool.Close()
		}
		if s.lock != nil {
			errs = append(errs, s.lock.Close()) // which frees it
		}
		if err := errors.Join(errs...); err != nil {
			s.closeErr = fmt.Errorf("closing the store: %w", err)
		}
	})
	return s.closeErr
}

// Instance names this process in leases and runs.
func (s *Store) Instance() string { return s.instance }

// now is the time that people see, in unix ms.
func (s *Store) now() int64 { return s.clock().UnixMilli() }
