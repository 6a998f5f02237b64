package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Reminding says when those who may decide are reminded of what waits: twice in an approval's life at most.
type Reminding struct {
	After    time.Duration // since it was asked, for the first reminder
	Last     time.Duration // before it expires, for the second
	From, To int           // hours of the day, in each person's zone, between which anybody is reminded
}

// remindAtOnce bounds one transaction of RemindApprovals.
const remindAtOnce = 200

// RemindApprovals reminds those who may decide of what has waited long or expires soon, and gives a card to somebody where
// nobody who may decide has one any more, because roles changed. Whoever is away is spared as long as anybody is not. All
// that one person is reminded of comes in one message (by say), so that ten approvals are no ten reminders. It returns how
// many messages and cards were queued. Called every minute.
func (s *Store) RemindApprovals(ctx context.Context, r Reminding, say func(Approver, []Approval) Draft, card func(Approval, Approver) Draft) (int, error) {
	n := 0
	var failed error
	// To the end, however many wait for their morning: they must not stand in the way of those behind them.
	for last, more := (dueReminder{}), true; more; {
		var due []dueReminder
		var queued int
		err := s.tx(ctx, func(tx *sql.Tx) (err error) {
			if due, err = s.dueReminders(ctx, tx, r, last); err != nil {
				return err
			}
			queued, err = s.remindOf(ctx, tx, r, due, say, card)
			return err
		})
		if err != nil {
			failed = errors.Join(failed, err)
		} else {
			n += queued
		}
		if more = len(due) == remindAtOnce && ctx.Err() == nil; more {
			last = due[len(due)-1]
		}
	}
	if failed != nil {
		return n, fmt.Errorf("reminding of approvals: %w", failed)
	}
	return n, nil
}

// remindOf reminds of some approvals, of all together that one person may decide.
func (s *Store) remindOf(ctx context.Context, tx *sql.Tx, r Reminding, due []dueReminder, say func(Approver, []Approval) Draft, card func(Approval, Approver) Draft) (int, error) {
	n := 0
	theirs := map[MembershipID][]Approval{}
	who := map[MembershipID]Approver{}
	for _, d := range due {
		a, err := s.approval(ctx, tx, d.company, d.id)
		if errors.Is(err, errSealed) {
			s.log.Error().Str("event", "approval.unreadable").Str("approval", string(d.id)).Err(err).Send()
			continue // it must not silence the others
		}
		if err != nil {
			return 0, fmt.Errorf("approval %s: %w", d.id, err)
		}
		asked, to, err := s.remind(ctx, tx, r, d, a, card)
		if err != nil {
			return 0, fmt.Errorf("approval %s: %w", d.id, err)
		}
		n += asked
		for _, t := range to {
			who[t.Member.ID], theirs[t.Member.ID] = t, append(theirs[t.Member.ID], a)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(who)) {
		from, err := s.originOf(ctx, tx, theirs[id][0])
		if err != nil {
			return 0, err
		}
		d := say(who[id], theirs[id])
		d.Company, d.Chat = who[id].Member.Company.ID, who[id].Chat
		if err := s.say(ctx, tx, origin{bot: from.bot}, []Draft{d}); err != nil { // of no run: it is about several
			return 0, err
		}
	}
	return n + len(who), nil
}

// dueReminder is an approval that may be worth a reminder, or a card for somebody else.
type dueReminder struct {
	id       ApprovalID
	company  CompanyID
	reminded int64
	asked    int64
	expires  int64
}

// dueReminders are the next pending approvals after last of which a reminder is due, and those whose cards may have gone to
// nobody who still counts.
func (s *Store) dueReminders(ctx context.Context, tx *sql.Tx, r Reminding, last dueReminder) ([]dueReminder, error) {
	var all []dueReminder
	rows, err := tx.QueryContext(ctx, `SELECT a.approval_id, a.company_id, a.reminded, a.asked_ms, a.expires_ms FROM approval a
		WHERE a.state = 'pending' AND a.expires_ms > $1 AND (
			a.reminded = 0 AND a.asked_ms <= $1 - $2 OR a.reminded < 2 AND a.expires_ms <= $1 + $3
			OR NOT EXISTS (SELECT 1 FROM reply c JOIN person p ON p.telegram_id = c.chat_id
				JOIN membership m ON m.person_id = p.person_id AND m.company_id = a.company_id
				WHERE c.approval_id = a.approval_id AND c.kind = 'card'
					AND (m.membership_id = a.membership_id OR a.kind = 'hold' AND m.role IN ('approver', 'admin'))))
			AND (a.asked_ms > $5 OR a.asked_ms = $5 AND a.approval_id > $6)
		ORDER BY a.asked_ms, a.approval_id LIMIT $4`+s.d.forUpdate, s.now(), r.After.Milliseconds(), r.Last.Milliseconds(), remindAtOnce,
		last.asked, last.id)
	err = each(rows, err, func(scan func(...any) error) error {
		var d dueReminder
		defer func() { all = append(all, d) }()
		return scan(&d.id, &d.company, &d.reminded, &d.asked, &d.expires)
	})
	if err != nil {
		return nil, fmt.Errorf("looking what is due: %w", err)
	}
	return all, nil
}

// remind deals cards anew where nobody who may decide has one, else tells whom to remind now. A reminder that comes at night
// waits for the morning, and is left out if the approval does not live that long.
func (s *Store) remind(ctx context.Context, tx *sql.Tx, r Reminding, d dueReminder, a Approval, card func(Approval, Approver) Draft) (asked int, to []Approver, err error) {
	deciders, err := s.deciders(ctx, tx, a)
	if err != nil || len(deciders) == 0 {
		return 0, nil, err
	}
	have, err := s.cardholders(ctx, tx, a)
	if err != nil {
		return 0, nil, err
	}
	if !slices.ContainsFunc(deciders, func(a Approver) bool { return have[a.Chat.ID] }) {
		from, err := s.originOf(ctx, tx, a)
		if err != nil {
			return 0, nil, err
		}
		if asked, err = s.deal(ctx, tx, a, from, card); err != nil {
			return 0, nil, err
		}
		return asked, nil, s.audit(ctx, tx, d.company, actorPilder, "approval.asked_again", string(d.id), cardsOut{asked})
	}
	step := int64(1)
	if s.now() >= d.expires-r.Last.Milliseconds() {
		step = 2
	} else if d.reminded > 0 || s.now() < d.asked+r.After.Milliseconds() {
		return 0, nil, nil
	}
	if to, err = s.awake(ctx, tx, r, d.company, deciders); err != nil || len(to) == 0 {
		return 0, nil, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE approval SET reminded = $3 WHERE approval_id = $1 AND company_id = $2`,
		d.id, d.company, step); err != nil {
		return 0, nil, err
	}
	return 0, to, s.audit(ctx, tx, d.company, actorPilder, "approval.reminded", string(d.id), cardsOut{len(to)})
}

// cardsOut is to how many people a reminder or a new card went.
type cardsOut struct {
	Cards int `json:"cards"`
}

// awake leaves out whoever is away, unless all are, and those where it is night.
func (s *Store) awake(ctx context.Context, tx *sql.Tx, r Reminding, company CompanyID, deciders []Approver) ([]Approver, error) {
	away, err := s.awayNow(ctx, tx, company)
	if err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(slices.Clone(deciders), func(a Approver) bool { _, gone := away[a.Member.ID]; return gone })
	if len(there) == 0 {
		there = deciders
	}
	return slices.DeleteFunc(there, func(a Approver) bool {
		hour := at(s.now()).In(zoneOf(a.Member)).Hour()
		return hour < r.From || hour >= r.To
	}), nil
}

// zoneOf is where a member's clock hangs; UTC when nobody said.
func zoneOf(m Membership) *time.Location {
	z, err := time.LoadLocation(cmp.Or(m.Person.Zone, m.Company.Zone, "UTC"))
	if err != nil {
		return time.UTC
	}
	return z
}

// cardholders are the chats to which a card of an approval went.
func (s *Store) cardholders(ctx context.Context, tx *sql.Tx, a Approval) (map[int64]bool, error) {
	all := map[int64]bool{}
	rows, err := tx.QueryContext(ctx, `SELECT chat_id FROM reply WHERE approval_id = $1 AND company_id = $2 AND kind = 'card' AND part = 1`, a.ID, a.Company)
	err = each(rows, err, func(scan func(...any) error) error {
		var chat int64
		defer func() { all[chat] = true }()
		return scan(&chat)
	})
	if err != nil {
		return nil, fmt.Errorf("finding the cards of %s: %w", a.ID, err)
	}
	return all, nil
}
