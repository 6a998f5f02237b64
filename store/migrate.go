package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// migrationLock is the PostgreSQL advisory lock held while migrating. Without it three of four processes started at once
// failed (measured); goose locks itself, rivermigrate does not.
const migrationLock = 0x70696c646572 // "pilder"

// migrate brings our tables and then River's to this binary's version. The caller holds SQLite's file lock; on PostgreSQL
// db has room for two connections and no time limits.
func migrate(ctx context.Context, db *sql.DB, d dialect, driver riverdriver.Driver[*sql.Tx]) error {
	kind := goose.DialectSQLite3
	if d.name == "postgres" {
		kind = goose.DialectPostgres
		conn, err := db.Conn(ctx)
		if err != nil {
			return fmt.Errorf("connecting to migrate: %w", err)
		}
		defer conn.Close() // after the unlock below
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
			return fmt.Errorf("locking migrations: %w", err)
		}
		defer conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrationLock))
	}
	files, err := fs.Sub(migrations, "migrations/"+d.name)
	if err != nil {
		return fmt.Errorf("finding migrations: %w", err)
	}
	ours, err := goose.NewProvider(kind, db, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("preparing migrations: %w", err)
	}
	if _, err := ours.Up(ctx); err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	rivers, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("preparing the queue's migrations: %w", err)
	}
	if _, err := rivers.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrating the queue: %w", err)
	}
	return nil
}
