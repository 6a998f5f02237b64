package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Link is a personal invitation to connect one app: it leads to pilder's own page.
type Link struct {
	Membership Membership
	App        string
	Chat       Chat
	Expires    time.Time
	State      LinkState
}

// LinkState is how far a connect link has come.
type LinkState string

const (
	LinkNew    LinkState = "new"
	LinkOpened LinkState = "opened" // its person pressed the button and went to the provider
	LinkUsed   LinkState = "used"   // an account was bound; nobody sets off with it again
)

// CreateLink makes a link for a membership and app, valid for ttl, and queues the draft made with its secret: the agent
// never sees it. from may be zero (asked by a tool, not by an update).
func (s *Store) CreateLink(ctx context.Context, from UpdateRef, m Membership, app string, chat Chat, ttl time.Duration, draft func(Secret) Draft) error {
	secret, id := RandomSecret(""), newID(prefixLink)
	hash := secret.Hash()
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.settle(ctx, tx, from, FateDone, "link_made"); err != nil {
			return err
		}
		if _, err := membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, m.Company.ID, m.ID); err != nil {
			return err
		}
		d := draft(secret)
		bot, err := s.botFor(ctx, tx, origin{bot: from.Bot}, d)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO link (link_id, secret_hash, company_id, membership_id, app, bot_id, chat_id, topic_id,
				is_private, state, created_ms, expires_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			id, hash[:], m.Company.ID, m.ID, app, bot, chat.ID, chat.Topic, bit(chat.Private), LinkNew, s.now(), s.now()+ttl.Milliseconds()); err != nil {
			return err
		}
		if err := s.extendWaits(ctx, tx, m, app, s.now()+ttl.Milliseconds()); err != nil {
			return err
		}
		if err := s.say(ctx, tx, origin{bot: bot}, []Draft{d}); err != nil {
			return err
		}
		return s.audit(ctx, tx, m.Company.ID, string(m.ID), "link.made", id, ofApp{app})
	})
	if err != nil {
		return fmt.Errorf("making a link for %s: %w", app, err)
	}
	return nil
}

// Link looks a link up by its secret. ErrNotFound: unknown or expired.
func (s *Store) Link(ctx context.Context, secret Secret) (Link, error) {
	hash := secret.Hash()
	l, err := s.link(ctx, s.reads, `secret_hash = $1 AND expires_ms > $2`, hash[:], s.now())
	if err != nil {
		return Link{}, fmt.Errorf("reading a link: %w", err)
	}
	return l.Link, nil
}

// OpenLink records that the person set off, with the provider's connect token (kept hashed) and the provider's account
// ids of the app as they were before, so that the new one can be told from them. Opened again, the ids of the first time
// stand: what appeared since is new. ErrNotFound: unknown, expired or used.
func (s *Store) OpenLink(ctx context.Context, secret Secret, connectToken Secret, before []string) error {
	hash, connect := secret.Hash(), connectToken.Hash()
	err := s.quietTx(ctx, func(tx *sql.Tx) error {
		l, err := s.link(ctx, tx, `secret_hash = $1 AND expires_ms > $2`+s.d.forUpdate, hash[:], s.now())
		if err != nil {
			return err
		}
		if l.State == LinkUsed {
			return ErrNotFound
		}
		company := l.Membership.Company.ID
		if l.State == LinkOpened {
			_, err := tx.ExecContext(ctx, `UPDATE link SET connect_hash = $3 WHERE link_id = $1 AND company_id = $2`, l.id, company, connect[:])
			return err
		}
		text, err := json.Marshal(append([]string{}, before...))
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE link SET state = $3, connect_hash = $4, accounts_before = $5, opened_ms = $6
			WHERE link_id = $1 AND company_id = $2`, l.id, company, LinkOpened, connect[:], s.seal.seal("link.accounts_before", l.id, company, text), s.now()); err != nil {
			return err
		}
		return s.audit(ctx, tx, company, string(l.Membership.ID), "link.opened", l.id, ofApp{l.App})
	})
	if err != nil {
		return fmt.Errorf("opening a link: %w", err)
	}
	return nil
}

// OpenedLink is a link on its way.
type OpenedLink struct {
	Link   Link
	ID     string // the link's row
	Before []string
}

// linkGrace is how long an opened link is still watched after its end: whoever set off in time may take a while at the
// provider, whose own token lives a little longer.
const linkGrace = 5 * time.Minute

// OpenedLinks gives the opened links that wait for their account, with the account ids known before: what the poller of
// connections walks, also for a little while after their end or their first account, since one link can bring two.
func (s *Store) OpenedLinks(ctx context.Context) ([]OpenedLink, error) {
	all, err := s.links(ctx, s.reads, `state IN ('opened', 'used') AND expires_ms > $1
		AND (state = 'opened' OR used_ms > $1) ORDER BY opened_ms, link_id`, s.now()-linkGrace.Milliseconds())
	if err != nil {
		return nil, err
	}
	var opened []OpenedLink
	for _, l := range all {
		opened = append(opened, OpenedLink{Link: l.Link, ID: l.id, Before: l.before})
	}
	return opened, nil
}

// LinkByHash finds a link by its secret's hash, also one that was used, until a little while after its end. ErrNotFound:
// unknown or over.
func (s *Store) LinkByHash(ctx context.Context, hash [32]byte) (OpenedLink, error) {
	l, err := s.link(ctx, s.reads, `secret_hash = $1 AND expires_ms > $2`, hash[:], s.now()-linkGrace.Milliseconds())
	if err != nil {
		return OpenedLink{}, fmt.Errorf("reading a link: %w", err)
	}
	return OpenedLink{Link: l.Link, ID: l.id, Before: l.before}, nil
}

// AccountsOfLink gives the accounts that a link brought and its person has not refused.
func (s *Store) AccountsOfLink(ctx context.Context, l OpenedLink) ([]Account, error) {
	return s.accountsWhere(ctx, s.reads, `company_id = $1 AND link_id = $2 AND state <> 'gone'`, l.Link.Membership.Company.ID, l.ID)
}

// linkRow is a link with what only the store needs of it.
type linkRow struct {
	Link
	id       string
	bot      BotID
	before   []string
	accounts int
}

// link reads one link; ErrNotFound when there is none.
func (s *Store) link(ctx context.Context, q queryer, where string, args ...any) (linkRow, error) {
	all, err := s.links(ctx, q, where, args...)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return linkRow{}, err
	}
	return all[0], nil
}

// links reads links with their memberships; where is a condition on link.
func (s *Store) links(ctx context.Context, q queryer, where string, args ...any) ([]linkRow, error) {
	rows, err := q.QueryContext(ctx, `SELECT link_id, company_id, membership_id, app, bot_id, chat_id, topic_id, is_private, state,
			accounts_before, accounts, expires_ms
		FROM link WHERE `+where, args...)
	var all []linkRow
	err = each(rows, err, func(scan func(...any) error) error {
		var l linkRow
		var private, expires int64
		var sealed []byte
		err := scan(&l.id, &l.Membership.Company.ID, &l.Membership.ID, &l.App, &l.bot, &l.Chat.ID, &l.Chat.Topic, &private, &l.State, &sealed, &l.accounts, &expires)
		if err != nil {
			return err
		}
		l.Chat.Private, l.Expires = private == 1, at(expires)
		before, err := s.seal.open("link.accounts_before", l.id, l.Membership.Company.ID, sealed)
		if err == nil && before != nil {
			err = json.Unmarshal(before, &l.before)
		}
		all = append(all, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading links: %w", err)
	}
	for i := range all {
		m := all[i].Membership
		if all[i].Membership, err = membership(ctx, q, `m.company_id = $1 AND m.membership_id = $2`, m.Company.ID, m.ID); err != nil {
			return nil, fmt.Errorf("reading the membership of link %s: %w", all[i].id, err)
		}
	}
	return all, nil
}
