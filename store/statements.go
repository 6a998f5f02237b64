package store

import (
	"context"
	"database/sql"
	"sync"
)

// maxStatements bounds the statements kept; each holds some KB of its connection.
const maxStatements = 64

// statements are those of every call, kept compiled with SQLite, where compiling one costs as much as running it (0.03 ms,
// measured). PostgreSQL's driver keeps its own. The zero value keeps none until it is asked for some.
type statements struct {
	mu     sync.Mutex
	ready  map[string]*sql.Stmt
	wanted map[string]bool
}

// find gives a statement if it is ready, and notes that it is wanted otherwise: within a transaction, which holds the only
// connection, none can be made.
func (s *statements) find(query string) *sql.Stmt {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.ready[query]
	if found == nil && len(s.ready)+len(s.wanted) < maxStatements {
		if s.wanted == nil {
			s.wanted = map[string]bool{}
		}
		s.wanted[query] = true
	}
	return found
}

// prepare makes what is wanted. One that cannot be made is left alone: running it will say why.
func (s *statements) prepare(ctx context.Context, db *sql.DB) {
	s.mu.Lock()
	wanted := s.wanted
	s.wanted = nil
	s.mu.Unlock()
	for query := range wanted {
		stmt, err := db.PrepareContext(ctx, query)
		if err != nil {
			continue
		}
		s.mu.Lock()
		if s.ready == nil {
			s.ready = map[string]*sql.Stmt{}
		}
		s.ready[query] = stmt // closed with the database
		s.mu.Unlock()
	}
}

// exec is tx.ExecContext for statements that run with every call.
func (s *Store) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (sql.Result, error) {
	if s.pool == nil {
		if stmt := s.statements.find(query); stmt != nil {
			return tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
		}
	}
	return tx.ExecContext(ctx, query, args...)
}

// row is tx.QueryRowContext for them.
func (s *Store) row(ctx context.Context, tx *sql.Tx, query string, args ...any) *sql.Row {
	if s.pool == nil {
		if stmt := s.statements.find(query); stmt != nil {
			return tx.StmtContext(ctx, stmt).QueryRowContext(ctx, args...)
		}
	}
	return tx.QueryRowContext(ctx, query, args...)
}
