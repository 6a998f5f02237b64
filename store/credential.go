package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Credential is one person's own way into an upstream server, in one company. It serves once an account that has its id as
// the provider's is active: that is, once its person said that it is theirs.
type Credential struct {
	ID         CredentialID
	Company    CompanyID
	Membership MembershipID
	App        string // slug
	Name       string // for its person; partly the server's words: untrusted data
	Secret     Secret // tokens and what goes with them, as who filed it wrote them; sealed at rest
	Version    int64  // rises with each new pair of tokens
	Issued     time.Time
	Expires    time.Time // zero: not known
	Refused    time.Time // when the server refused these very tokens; zero: it did not
	PutOff     time.Time // until when no new pair is asked for
	Broken     string    // why its person has to connect again; empty: they have not
}

const (
	// credentialWaits is how long a credential that nobody was asked about, or that nobody wanted, waits for its account; then
	// it is there to be revoked.
	credentialWaits = 24 * time.Hour
	// credentialKept is when it is forgotten though nobody came to revoke it.
	credentialKept = 7 * 24 * time.Hour
)

// credentialOfNobody is a condition on credential.
const credentialOfNobody = `NOT EXISTS (SELECT 1 FROM account a WHERE a.company_id = credential.company_id
	AND a.provider_mac = credential.provider_mac AND a.state <> 'gone')`

// FileCredential files what an errand brought back. It serves nobody until its account is offered and confirmed.
func (s *Store) FileCredential(ctx context.Context, e Errand, name string, secret Secret, expires time.Time) (CredentialID, error) {
	id := CredentialID(newID(prefixCredential))
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, e.Company, e.Membership); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO credential (credential_id, company_id, membership_id, app, provider_mac, name, secret,
				issued_ms, expires_ms, created_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, id, e.Company, e.Membership, e.App, s.sameProvider(e.Company, string(id)),
			s.seal.seal("credential.name", string(id), e.Company, []byte(name)),
			s.seal.seal("credential.secret", string(id), e.Company, []byte(secret.Reveal())), s.now(), ms(expires), s.now())
		if err != nil {
			return err
		}
		return s.audit(ctx, tx, e.Company, string(e.Membership), "credential.filed", string(id), ofApp{e.App})
	})
	if err != nil {
		return "", fmt.Errorf("filing a credential for %s: %w", e.App, err)
	}
	return id, nil
}

// Credentials gives an external user's credentials for an app, offered or not, oldest first.
func (s *Store) Credentials(ctx context.Context, externalUser, app string) ([]Credential, error) {
	return s.credentials(ctx, s.reads, `app = $2 AND EXISTS (SELECT 1 FROM membership m WHERE m.membership_id = credential.membership_id
		AND m.company_id = credential.company_id AND m.external_user = $1) ORDER BY created_ms, credential_id`, externalUser, app)
}

// Credential gives the credential behind a membership's active account: the one named or, with no name, that of the newest
// account. ErrNotFound when there is none.
func (s *Store) Credential(ctx context.Context, company CompanyID, m MembershipID, app string, id CredentialID) (Credential, error) {
	const active = ` FROM account a WHERE a.company_id = credential.company_id AND a.membership_id = credential.membership_id
		AND a.app = credential.app AND a.provider_mac = credential.provider_mac AND a.state = 'active'`
	c, err := s.credential(ctx, s.reads, `company_id = $1 AND membership_id = $2 AND app = $3 AND ($4 = '' OR credential_id = $4)
		AND EXISTS (SELECT 1`+active+`) ORDER BY (SELECT a.created_ms`+active+`) DESC, credential_id LIMIT 1`, company, m, app, id)
	if err != nil {
		return Credential{}, fmt.Errorf("reading the credential for %s of %s: %w", app, m, err)
	}
	return c, nil
}

// RenewalID names one attempt at getting a new pair of tokens.
type RenewalID string

// LeaseCredential gives the caller alone the right to ask for a new pair of tokens, for ttl. ok is false when somebody else
// has it, or c is no longer how things are: look again.
func (s *Store) LeaseCredential(ctx context.Context, c Credential, ttl time.Duration) (r RenewalID, ok bool, err error) {
	r = RenewalID(newID(prefixRenewal))
	err = s.quietTx(ctx, func(tx *sql.Tx) error {
		ok, err = one(tx.ExecContext(ctx, `UPDATE credential SET lease = $4, lease_ms = `+s.d.nowMS+` + $5
			WHERE credential_id = $1 AND company_id = $2 AND version = $3 AND broken = '' AND lease_ms < `+s.d.nowMS,
			c.ID, c.Company, c.Version, r, ttl.Milliseconds()))
		return err
	})
	if err != nil {
		return "", false, fmt.Errorf("leasing credential %s: %w", c.ID, err)
	}
	return r, ok, nil
}

// RenewCredential files a new pair of tokens over c and ends the lease. It counts even when the lease has run out, since the
// server may have ended the old pair with it. ErrLost: somebody else filed one before, and that stands. ErrNotFound: the
// credential was taken away meanwhile.
func (s *Store) RenewCredential(ctx context.Context, c Credential, secret Secret, expires time.Time) (Credential, error) {
	renewed := Credential{}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE credential SET secret = $4, version = version + 1, issued_ms = $5, expires_ms = $6,
				refused_ms = 0, put_off_ms = 0, lease = '', lease_ms = 0
			WHERE credential_id = $1 AND company_id = $2 AND version = $3`, c.ID, c.Company, c.Version,
			s.seal.seal("credential.secret", string(c.ID), c.Company, []byte(secret.Reveal())), s.now(), ms(expires))
		if err != nil {
			return err
		}
		renewed, err = s.credential(ctx, tx, `credential_id = $1 AND company_id = $2`, c.ID, c.Company)
		if err == nil && !renewed.Secret.Equal(secret) {
			err = ErrLost
		}
		return err
	})
	if err != nil {
		return Credential{}, fmt.Errorf("renewing credential %s: %w", c.ID, err)
	}
	return renewed, nil
}

// PutOffCredential ends a lease without a new pair: until then nobody asks for one again.
func (s *Store) PutOffCredential(ctx context.Context, c Credential, r RenewalID, until time.Time) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE credential SET put_off_ms = $4, lease = '', lease_ms = 0
			WHERE credential_id = $1 AND company_id = $2 AND lease = $3`, c.ID, c.Company, r, ms(until))
		return err
	})
	if err != nil {
		return fmt.Errorf("putting off credential %s: %w", c.ID, err)
	}
	return nil
}

// RefuseCredential records that the server refused c's tokens, if they are still the ones in use: they are used no more.
func (s *Store) RefuseCredential(ctx context.Context, c Credential) error {
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE credential SET refused_ms = $4, put_off_ms = 0 WHERE credential_id = $1 AND company_id = $2 AND version = $3
			AND refused_ms = 0`, c.ID, c.Company, c.Version, s.now())
		return err
	})
	if err != nil {
		return fmt.Errorf("refusing credential %s: %w", c.ID, err)
	}
	return nil
}

// BreakCredential records that c is good no more until its person connects again. why is content-free. first is false, and
// nothing changed, when somebody else renewed or broke it before.
func (s *Store) BreakCredential(ctx context.Context, c Credential, why string) (first bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		first, err = one(tx.ExecContext(ctx, `UPDATE credential SET broken = $4, lease = '', lease_ms = 0
			WHERE credential_id = $1 AND company_id = $2 AND version = $3 AND broken = ''`, c.ID, c.Company, c.Version, why))
		if err != nil || !first {
			return err
		}
		return s.audit(ctx, tx, c.Company, actorPilder, "credential.broken", string(c.ID), brokenCredential{c.App, why})
	})
	if err != nil {
		return false, fmt.Errorf("breaking credential %s: %w", c.ID, err)
	}
	return first, nil
}

// brokenCredential is what the audit says of one.
type brokenCredential struct {
	App string `json:"app"`
	Why string `json:"why"`
}

// TakeCredential removes an external user's credential and gives it a last time, to be revoked at its server. ErrNotFound
// when it is gone, or another's.
func (s *Store) TakeCredential(ctx context.Context, externalUser string, id CredentialID) (Credential, error) {
	var c Credential
	err := s.tx(ctx, func(tx *sql.Tx) error {
		m, err := membership(ctx, tx, `m.external_user = $1`, externalUser)
		if err != nil {
			return err
		}
		if c, err = s.credential(ctx, tx, `credential_id = $1 AND company_id = $2 AND membership_id = $3`+s.d.forUpdate, id, m.Company.ID, m.ID); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM credential WHERE credential_id = $1 AND company_id = $2`, id, c.Company); err != nil {
			return err
		}
		return s.audit(ctx, tx, c.Company, actorPilder, "credential.taken", string(id), ofApp{c.App})
	})
	if err != nil {
		return Credential{}, fmt.Errorf("taking credential %s: %w", id, err)
	}
	return c, nil
}

// TakeCredentialOfNobody removes a credential that waited in vain for its person's word, or whose removal was cut off, and
// gives it a last time, to be revoked at its server: the one that waited longest. ErrNotFound when there is none.
func (s *Store) TakeCredentialOfNobody(ctx context.Context) (Credential, error) {
	var c Credential
	err := s.tx(ctx, func(tx *sql.Tx) (err error) {
		if c, err = s.credential(ctx, tx, `created_ms < $1 AND `+credentialOfNobody+` ORDER BY created_ms, credential_id LIMIT 1`+s.d.forUpdate,
			s.now()-credentialWaits.Milliseconds()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM credential WHERE credential_id = $1 AND company_id = $2`, c.ID, c.Company); err != nil {
			return err
		}
		return s.audit(ctx, tx, c.Company, actorPilder, "credential.taken", string(c.ID), ofApp{c.App})
	})
	if err != nil {
		return Credential{}, fmt.Errorf("taking a credential of nobody: %w", err)
	}
	return c, nil
}

// credential reads one; ErrNotFound when there is none.
func (s *Store) credential(ctx context.Context, q queryer, where string, args ...any) (Credential, error) {
	all, err := s.credentials(ctx, q, where, args...)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Credential{}, err
	}
	return all[0], nil
}

func (s *Store) credentials(ctx context.Context, q queryer, where string, args ...any) ([]Credential, error) {
	rows, err := q.QueryContext(ctx, `SELECT credential_id, company_id, membership_id, app, name, secret, version, issued_ms, expires_ms,
			refused_ms, put_off_ms, broken
		FROM credential WHERE `+where, args...)
	var all []Credential
	err = each(rows, err, func(scan func(...any) error) error {
		var c Credential
		var name, secret []byte
		var issued, expires, refused, putOff int64
		if err := scan(&c.ID, &c.Company, &c.Membership, &c.App, &name, &secret, &c.Version, &issued, &expires, &refused, &putOff, &c.Broken); err != nil {
			return err
		}
		c.Issued, c.Expires, c.Refused, c.PutOff = at(issued), at(expires), at(refused), at(putOff)
		name, err := s.seal.open("credential.name", string(c.ID), c.Company, name)
		if err != nil {
			return err
		}
		if secret, err = s.seal.open("credential.secret", string(c.ID), c.Company, secret); err != nil {
			return err
		}
		c.Name, c.Secret = string(name), NewSecret(string(secret))
		all = append(all, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}
	return all, nil
}
