package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// OAuthClient is what pilder is to one authorization server: the operator's, and no company's.
type OAuthClient struct {
	Issuer  string
	ID      string    // the client id
	Secret  Secret    // the registration, as who kept it wrote it; sealed at rest. Zero: it was not given by registering
	Refused time.Time // since when the server refuses it; zero: it does not
	Created time.Time
}

// OAuthClients gives what is known of an authorization server's clients, newest first.
func (s *Store) OAuthClients(ctx context.Context, issuer string) ([]OAuthClient, error) {
	return s.oauthClients(ctx, s.reads, issuer)
}

// KeepOAuthClient keeps a registration and gives the one that counts: of two processes that registered at once, the first
// one's. instead names a kept one that does not serve any more; empty for none.
func (s *Store) KeepOAuthClient(ctx context.Context, c OAuthClient, instead string) (OAuthClient, error) {
	var all []OAuthClient
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE oauth_client SET refused_ms = $3 WHERE issuer = $1 AND client_id = $2 AND refused_ms = 0`,
			c.Issuer, instead, s.now()); err != nil {
			return err
		}
		// A server may give the name it gave before.
		if _, err := tx.ExecContext(ctx, `DELETE FROM oauth_client WHERE issuer = $1 AND client_id = $2 AND refused_ms > 0`, c.Issuer, c.ID); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO oauth_client (issuer, client_id, secret, created_ms) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
			c.Issuer, c.ID, s.seal.seal("oauth_client.secret", c.Issuer+" "+c.ID, "", []byte(c.Secret.Reveal())), s.now())
		if err != nil {
			return err
		}
		all, err = s.oauthClients(ctx, tx, c.Issuer)
		return err
	})
	if err != nil {
		return OAuthClient{}, fmt.Errorf("keeping a client of %s: %w", c.Issuer, err)
	}
	for _, kept := range all {
		if !kept.Secret.IsZero() && kept.Refused.IsZero() {
			return kept, nil
		}
	}
	return OAuthClient{}, fmt.Errorf("keeping a client of %s: %w", c.Issuer, ErrNotFound)
}

// RefuseOAuthClient records that an authorization server does not know pilder any more. first is true once, for the
// operator's alarm, until AcceptOAuthClient.
func (s *Store) RefuseOAuthClient(ctx context.Context, issuer, client string) (first bool, err error) {
	err = s.quietTx(ctx, func(tx *sql.Tx) error {
		first, err = one(tx.ExecContext(ctx, `INSERT INTO oauth_client (issuer, client_id, refused_ms, created_ms) VALUES ($1, $2, $3, $3)
			ON CONFLICT (issuer, client_id) DO UPDATE SET refused_ms = excluded.refused_ms WHERE oauth_client.refused_ms = 0`,
			issuer, client, s.now()))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("refusing a client of %s: %w", issuer, err)
	}
	return first, nil
}

// AcceptOAuthClient records that an authorization server knows pilder after all. A registration that another one has replaced
// stays refused.
func (s *Store) AcceptOAuthClient(ctx context.Context, issuer, client string) error {
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE oauth_client SET refused_ms = 0 WHERE issuer = $1 AND client_id = $2 AND refused_ms > 0
			AND (secret IS NULL OR NOT EXISTS (SELECT 1 FROM oauth_client o WHERE o.issuer = $1 AND o.secret IS NOT NULL AND o.refused_ms = 0))`,
			issuer, client)
		return err
	})
	if err != nil {
		return fmt.Errorf("accepting a client of %s: %w", issuer, err)
	}
	return nil
}

func (s *Store) oauthClients(ctx context.Context, q queryer, issuer string) ([]OAuthClient, error) {
	rows, err := q.QueryContext(ctx, `SELECT client_id, secret, refused_ms, created_ms FROM oauth_client WHERE issuer = $1
		ORDER BY created_ms DESC, client_id`, issuer)
	var all []OAuthClient
	err = each(rows, err, func(scan func(...any) error) error {
		c := OAuthClient{Issuer: issuer}
		var sealed []byte
		var refused, created int64
		if err := scan(&c.ID, &sealed, &refused, &created); err != nil {
			return err
		}
		c.Refused, c.Created = at(refused), at(created)
		plain, err := s.seal.open("oauth_client.secret", issuer+" "+c.ID, "", sealed)
		if err != nil {
			return err
		}
		if plain != nil {
			c.Secret = NewSecret(string(plain))
		}
		all = append(all, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading clients of %s: %w", issuer, err)
	}
	return all, nil
}
