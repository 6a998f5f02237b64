// Package storetest gives tests a real store on both databases, SQLite in a folder of the test and PostgreSQL on a
// throw-away server of the test binary. It refuses to skip: without a PostgreSQL to start, a test fails and says what to
// install. It is the one place beside the runner that starts processes, and only tests import it.
package storetest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pilder/store"
)

// key seals what tests write. A test of keys brings its own databases by URL.
const key = "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed"

// Databases names the two databases, as Fresh takes them.
func Databases() []string { return []string{"sqlite", "postgres"} }

// Each runs f once on SQLite and once on PostgreSQL, on an empty, migrated database of its own. Each call of open opens
// that same database; the store is closed with the test, if not before. Only on PostgreSQL can it be open twice at once.
func Each(t *testing.T, f func(t *testing.T, open func(store.Config) *store.Store)) {
	t.Helper()
	for _, name := range Databases() {
		t.Run(name, func(t *testing.T) { f(t, Opener(t, name)) })
	}
}

// Opener makes an empty, migrated database of the named kind and gives what opens it: see Each.
func Opener(t *testing.T, database string) func(store.Config) *store.Store {
	t.Helper()
	url := Fresh(t, database)
	return func(cfg store.Config) *store.Store {
		t.Helper()
		cfg.URL = url
		if cfg.Key.IsZero() {
			cfg.Key = Key()
		}
		s, err := store.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
}

// Key is the key that databases of Fresh are sealed with.
func Key() store.Secret { return store.NewSecret(key) }

// Fresh makes an empty, migrated database of the named kind, sealed with Key, and gives its URL. It goes with the test.
func Fresh(t *testing.T, database string) (url string) {
	t.Helper()
	if database == "postgres" {
		return freshPostgres(t)
	}
	path := filepath.Join(t.TempDir(), "pilder.db")
	b, err := sqliteTemplate()
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

// sqliteTemplate migrates once per test binary: it takes 0.2 s, reading the file a millisecond.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "pilder-sqlite-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "t.db")
	if err := template("sqlite:" + path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func template(url string) error {
	s, err := store.Open(context.Background(), store.Config{URL: url, Key: Key()})
	if err != nil {
		return err
	}
	return s.Close()
}

// Clock is a clock that only moves when told, for Config.Now. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts at a fixed moment in whole milliseconds.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)} }

// Now gives the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves it.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
