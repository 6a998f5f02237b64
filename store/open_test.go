package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pilder/store"
	"pilder/store/storetest"
)

func TestASQLiteFileHasOneProcess(t *testing.T) {
	url := storetest.Fresh(t, "sqlite")
	first := need(store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key()}))(t)
	_, err := store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key()})
	var locked *store.LockedError
	if !errors.As(err, &locked) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{fmt.Sprint("pid ", os.Getpid()), first.Instance()} {
		if !strings.Contains(locked.Holder, want) {
			t.Errorf("%q does not name %q", locked.Holder, want)
		}
	}
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	if err := need(store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key()}))(t).Close(); err != nil {
		t.Error(err)
	}
}

func TestASQLiteStoreMakesItsFolderAndKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg := store.Config{URL: "sqlite:" + filepath.Join(dir, "pilder.db")}
	open := func() error {
		s, err := store.Open(t.Context(), cfg)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, "pilder.db": 0o600, "seal.key": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		same(t, mode, info.Mode().Perm())
	}
	if err := open(); err != nil { // with the same key
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "seal.key")); err != nil {
		t.Fatal(err)
	}
	wants(t, open(), store.ErrKey) // a new one opens nothing
}

func TestAWrongKeyIsToldAtStart(t *testing.T) {
	for _, kind := range storetest.Databases() {
		t.Run(kind, func(t *testing.T) {
			url := storetest.Fresh(t, kind)
			for _, key := range []string{strings.Repeat("0", 64), "123", strings.Repeat("x", 64)} {
				_, err := store.Open(t.Context(), store.Config{URL: url, Key: store.NewSecret(key)})
				wants(t, err, store.ErrKey)
				if err != nil && strings.Contains(err.Error(), key) {
					t.Errorf("the error tells the key: %v", err)
				}
			}
		})
	}
	_, err := store.Open(t.Context(), store.Config{URL: storetest.Fresh(t, "postgres")})
	wants(t, err, store.ErrKey)
}

func TestAnUnknownURLIsRefused(t *testing.T) {
	for _, url := range []string{"", "mysql://user:hunter2@host/db", "postgres://user:hunter2@127.0.0.1:1/db?connect_timeout=1"} {
		s, err := store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key()})
		if err == nil {
			s.Close()
			t.Errorf("%q was opened", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

// TestManyProcessesMigrateOneDatabase: without the lock three of four failed.
func TestManyProcessesMigrateOneDatabase(t *testing.T) {
	url := storetest.Fresh(t, "postgres")
	if _, err := behind(t, url).ExecContext(t.Context(), `DROP SCHEMA public CASCADE; CREATE SCHEMA public`); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key()})
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := next(t, errs); err != nil {
			t.Error(err)
		}
	}
}

// TestWhatCannotBeatGivesUp holds the beat up from outside, as a database that does not answer would.
func TestWhatCannotBeatGivesUp(t *testing.T) {
	url := storetest.Fresh(t, "postgres")
	w := newTown(t, func(cfg store.Config) *store.Store {
		cfg.URL, cfg.Key, cfg.BeatTTL = url, storetest.Key(), 2*time.Second
		s := need(store.Open(t.Context(), cfg))(t)
		t.Cleanup(func() { s.Close() })
		return s
	})
	w.write(t, w.member, private(w.member), "x")
	begun, cause, ran := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- w.ServeTurns(ctx, 1, patience, func(ctx context.Context, turn store.Turn) error {
			if _, ok, err := w.StartRun(ctx, turn); err != nil || !ok {
				return err
			}
			close(begun)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		})
	}()
	go func() { ran <- w.Run(t.Context()) }()
	next(t, begun)
	until(t, w.Store, func() bool { return len(ask(t, url, `SELECT 1 FROM instance`, 1)) == 1 })
	tx := need(behind(t, url).BeginTx(t.Context(), nil))(t)
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM instance FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	wants(t, next(t, ran), store.ErrFenced)
	wants(t, next(t, cause), store.ErrFenced)
	cancel()
	if err := next(t, served); err != nil {
		t.Error(err)
	}
}
