package store_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/store"
	"pilder/store/storetest"
)

// column is a column as both databases describe it, in SQLite's words.
type column struct {
	Table, Name, Type string
	Required          bool
}

func TestBothDialectsHaveTheSameTablesAndColumns(t *testing.T) {
	lite := columns(t, "sqlite", `SELECT m.name, c.name, c.type, CASE WHEN c."notnull" = 1 OR c.pk > 0 THEN 1 ELSE 0 END
		FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'river%' AND m.name NOT LIKE 'goose%' AND m.name NOT LIKE 'sqlite%'
		ORDER BY m.name, c.cid`)
	pg := columns(t, "pgx", `SELECT table_name, column_name, data_type, CASE WHEN is_nullable = 'NO' THEN 1 ELSE 0 END
		FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name NOT LIKE 'river%' AND table_name NOT LIKE 'goose%'
		ORDER BY table_name COLLATE "C", ordinal_position`)
	if len(lite) < 100 {
		t.Fatalf("only %d columns found", len(lite))
	}
	if d := cmp.Diff(lite, pg); d != "" {
		t.Errorf("sqlite, postgres:\n%s", d)
	}
}

func TestBothDialectsHaveTheSameUniqueIndexes(t *testing.T) {
	lite := names(t, "sqlite", `SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE 'CREATE UNIQUE INDEX%'
		AND name NOT LIKE 'river%' ORDER BY name`)
	pg := names(t, "pgx", `SELECT i.indexname FROM pg_indexes i WHERE i.schemaname = 'public' AND i.indexdef LIKE 'CREATE UNIQUE%'
		AND i.indexname NOT LIKE '%_key' AND i.indexname NOT LIKE '%_pkey' AND i.indexname NOT LIKE 'river%' ORDER BY i.indexname COLLATE "C"`)
	if d := cmp.Diff(lite, pg); d != "" {
		t.Errorf("sqlite, postgres:\n%s", d)
	}
}

// TestTablesOfACompanyNameIt: a table that holds a company's data and does not say whose cannot be kept apart later.
func TestTablesOfACompanyNameIt(t *testing.T) {
	house := map[string]bool{"setting": true, "person": true, "bot": true, "chat_pause": true, "stranger_line": true,
		"instance": true, "lease": true, "definition": true, "upstream_secret": true, "oauth_client": true}
	missing := names(t, "sqlite", `SELECT m.name FROM sqlite_master m WHERE m.type = 'table' AND m.name NOT LIKE 'river%'
		AND m.name NOT LIKE 'goose%' AND m.name NOT LIKE 'sqlite%'
		AND NOT EXISTS (SELECT 1 FROM pragma_table_info(m.name) c WHERE c.name = 'company_id')`)
	for _, table := range missing {
		if !house[table] {
			t.Errorf("table %s has no company_id", table)
		}
	}
}

func columns(t *testing.T, driver, query string) []column {
	t.Helper()
	words := strings.NewReplacer("bigint", "INTEGER", "bytea", "BLOB", "text", "TEXT", "double precision", "REAL")
	var all []column
	for _, row := range rows(t, driver, query, 4) {
		all = append(all, column{Table: row[0], Name: row[1], Type: words.Replace(row[2]), Required: row[3] == "1"})
	}
	return all
}

func names(t *testing.T, driver, query string) []string {
	t.Helper()
	var all []string
	for _, row := range rows(t, driver, query, 1) {
		all = append(all, row[0])
	}
	return all
}

// rows asks a fresh database and gives its answer as text.
func rows(t *testing.T, driver, query string, n int) [][]string {
	t.Helper()
	kind := map[string]string{"sqlite": "sqlite", "pgx": "postgres"}[driver]
	return ask(t, storetest.Fresh(t, kind), query, n)
}

// ask reads from the database behind the store's back.
func ask(t *testing.T, url, query string, n int, args ...any) [][]string {
	t.Helper()
	db := behind(t, url)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all [][]string
	for rows.Next() {
		row, into := make([]any, n), make([]any, n)
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		text := make([]string, n)
		for i := range row {
			text[i] = fmt.Sprint(row[i])
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// behind opens the database without the store.
func behind(t *testing.T, url string) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", url
	if path, lite := strings.CutPrefix(url, "sqlite:"); lite {
		driver, dsn = "sqlite", "file:"+path+"?_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestOpenTwice(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		if err := open(store.Config{}).Close(); err != nil {
			t.Fatal(err)
		}
		open(store.Config{})
	})
}
