package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"
)

// ErrGuest is returned to a guest for what only an owner does: running, serving, polling, judging who is dead.
var ErrGuest = errors.New("the store is open as a guest")

// ErrSchema is returned by Open to a guest whose binary is not of the database's version, or who finds no database.
var ErrSchema = errors.New("the database is not prepared for this version of pilder; pilder migrate prepares it")

// findFiles is what a guest does in place of taking a database file: it makes none, and no key either.
func findFiles(path, keyFile string, cfg Config) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no %s", ErrSchema, path)
	}
	if _, err := os.Stat(keyFile); cfg.Key.IsZero() && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no %s", ErrKey, keyFile)
	}
	return nil
}

// prepare migrates for an owner and compares versions for a guest.
func prepare(ctx context.Context, cfg Config, db *sql.DB, d dialect, driver riverdriver.Driver[*sql.Tx]) error {
	if cfg.Guest {
		return checkSchema(ctx, db, d, driver)
	}
	return migrate(ctx, db, d, driver)
}

// checkSchema is ErrSchema unless both our tables and River's are of this binary's version. It changes nothing, which
// goose's own check would: it makes its table where there is none.
func checkSchema(ctx context.Context, db *sql.DB, d dialect, driver riverdriver.Driver[*sql.Tx]) error {
	want, err := newestMigration(d)
	if err != nil {
		return err
	}
	var got int64
	err = db.QueryRowContext(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version`).Scan(&got)
	if err != nil && !isMissing(err) {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if got != want {
		return fmt.Errorf("%w: it has version %d, not %d", ErrSchema, got, want)
	}
	rivers, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("preparing the queue's migrations: %w", err)
	}
	ok, err := rivers.Validate(ctx, nil)
	if err != nil {
		return fmt.Errorf("checking the queue's tables: %w", err)
	}
	if !ok.OK {
		return fmt.Errorf("%w: its queue is older", ErrSchema)
	}
	return nil
}

// newestMigration is the number of the last file, "0001_begin.sql".
func newestMigration(d dialect) (int64, error) {
	files, err := fs.ReadDir(migrations, "migrations/"+d.name)
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("finding migrations of %s: %w", d.name, err)
	}
	number, _, _ := strings.Cut(files[len(files)-1].Name(), "_") // in the order of their names
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the number of a migration: %w", err)
	}
	return n, nil
}
