package store

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// dialect is everything in which the two databases differ. All other SQL is one text with $N for both.
type dialect struct {
	name      string
	forUpdate string // locks the rows read; SQLite's transactions already hold the only write lock
	forShare  string
	nowMS     string // the database's clock in unix ms: owners are compared by it, so workers' clocks do not matter
	// in is a condition "col is one of the n-th argument", whose value list makes.
	in   func(col string, n int) string
	list func([]string) any
	// jobs of River that run now, as id, kind, args (JSON text) and the client that attempted last.
	runningJobs string
	// discardJob ends a job row that still runs: never put back to available, since its dead owner might wake up and
	// complete it, and River completes by id alone (0.51.2, measured).
	discardJob string
}

func sqliteDialect() dialect {
	return dialect{
		name:  "sqlite",
		nowMS: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
		in:    func(col string, n int) string { return fmt.Sprintf("%s IN (SELECT value FROM json_each($%d))", col, n) },
		list: func(texts []string) any {
			b, _ := json.Marshal(texts) // strings always marshal
			return string(b)
		},
		runningJobs: `SELECT id, kind, json(args), json_extract(json(attempted_by), '$[#-1]') FROM river_job
			WHERE state = 'running' AND kind IN ('turn', 'approved')`,
		discardJob: `UPDATE river_job SET state = 'discarded', finalized_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
			WHERE id = $1 AND state = 'running'`,
	}
}

func postgresDialect() dialect {
	return dialect{
		name:      "postgres",
		forUpdate: " FOR UPDATE",
		forShare:  " FOR SHARE",
		nowMS:     "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint",
		in:        func(col string, n int) string { return fmt.Sprintf("%s = ANY($%d)", col, n) },
		list:      func(texts []string) any { return texts },
		runningJobs: `SELECT id, kind, args::text, attempted_by[array_length(attempted_by, 1)] FROM river_job
			WHERE state = 'running' AND kind IN ('turn', 'approved')`,
		discardJob: `UPDATE river_job SET state = 'discarded', finalized_at = now() WHERE id = $1 AND state = 'running'`,
	}
}

// isContention tells whether a transaction lost against another one and was certainly rolled back: trying it again is
// right.
func isContention(err error) bool {
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return lite.Code()&0xff == sqlite3.SQLITE_BUSY // extended codes carry the kind in the low byte
	}
	switch pgCode(err) {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock timeout
		return true
	}
	return false
}

// isMissing tells whether a statement named a table that is not there. SQLite has no code of its own for that.
func isMissing(err error) bool {
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return lite.Code() == sqlite3.SQLITE_ERROR
	}
	return pgCode(err) == "42P01"
}

func pgCode(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
