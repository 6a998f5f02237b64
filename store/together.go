package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Several calls that one run has to have decided are summed up in one message, beside the card that each of them has: its
// buttons decide all that still waits, within what that one run asked for and no further.

// askTogether sums up what a run that has ended asks of each person who may decide two of its approvals or more.
func (s *Store) askTogether(ctx context.Context, tx *sql.Tx, r runRow) error {
	waiting, err := s.approvals(ctx, tx, `a.run_id = $1 AND a.company_id = $2 AND a.state = 'pending' ORDER BY a.asked_ms, a.approval_id`,
		r.id, r.company)
	if err != nil || len(waiting) < 2 {
		return err
	}
	theirs := map[MembershipID][]Approval{}
	who := map[MembershipID]Approver{}
	for _, a := range waiting {
		deciders, err := s.deciders(ctx, tx, a)
		if err != nil {
			return err
		}
		for _, d := range deciders {
			who[d.Member.ID] = d
			theirs[d.Member.ID] = append(theirs[d.Member.ID], a)
		}
	}
	var drafts []Draft
	for id, mine := range theirs {
		if len(mine) < 2 {
			continue
		}
		var list []string
		for _, a := range mine {
			list = append(list, a.Tool+" "+a.Code)
		}
		count := map[string]string{"count": strconv.Itoa(len(mine))}
		button := func(label string, action ButtonAction) Button {
			return Button{Label: label, Args: count, Action: action, Ref: string(r.id)}
		}
		drafts = append(drafts, Draft{
			Company: r.company, Chat: who[id].Chat, Lang: langOf(who[id].Member), Kind: DraftTogether, Notice: "together.ask",
			Args: map[string]string{"count": count["count"], "who": mine[0].Requester.Person.Name, "list": strings.Join(list, "\n")},
			Buttons: [][]Button{{button("button.approve_all", ButtonApproveAll), button("button.deny_all", ButtonDenyAll)},
				{button("button.one_by_one", ButtonOneByOne)}},
		})
	}
	slices.SortFunc(drafts, func(a, b Draft) int { return cmp.Compare(a.Chat.ID, b.Chat.ID) })
	return s.say(ctx, tx, origin{bot: r.bot, run: r.id}, drafts)
}

// DecideTogether gives one verdict on everything that still waits of what a run asked for and this person may decide: each
// with its own row, audit and execution, all in one transaction. A yes needs every one of them shown to this person: with
// ErrNotShown and ErrArriving those that were not are returned and nothing is decided. ErrDecided when nothing waits any
// more, ErrExpired when that is why, ErrNotFound for a run of a company the person is not in.
func (s *Store) DecideTogether(ctx context.Context, from UpdateRef, run RunID, yes bool, telegram int64, say func(Approval) []Draft) ([]Approval, error) {
	var done []Approval
	err := s.tx(ctx, func(tx *sql.Tx) error {
		done = nil
		if err := s.settle(ctx, tx, from, FateDone, string(Verdict{Approve: yes}.state())); err != nil {
			return err
		}
		waiting, by, err := s.judgeTogether(ctx, tx, run, telegram)
		if err != nil {
			return err
		}
		if yes {
			if missing, err := s.unseen(ctx, tx, waiting, telegram); err != nil {
				done = missing
				return err
			}
		}
		for _, a := range waiting {
			if err := s.decide(ctx, tx, &a, by, yes, say); err != nil {
				return fmt.Errorf("approval %s: %w", a.ID, err)
			}
			done = append(done, a)
		}
		return nil
	})
	if err != nil {
		return done, fmt.Errorf("deciding together: %w", err)
	}
	return done, nil
}

// unseen gives those of the approvals that a person has not been shown whole, with the error of the first. A press on the
// summary proves nothing about the cards.
func (s *Store) unseen(ctx context.Context, tx *sql.Tx, waiting []Approval, telegram int64) (missing []Approval, why error) {
	for _, a := range waiting {
		err := s.decidable(ctx, tx, a, Verdict{Approve: true, Telegram: telegram})
		if err == nil {
			continue
		}
		missing, why = append(missing, a), cmp.Or(why, err)
	}
	return missing, why
}

// judgeTogether finds and locks what of a run's approvals waits and this person may decide, always in the same order.
func (s *Store) judgeTogether(ctx context.Context, tx *sql.Tx, run RunID, telegram int64) (waiting []Approval, by Membership, err error) {
	var company CompanyID
	var ids []ApprovalID
	late := false
	rows, err := tx.QueryContext(ctx, `SELECT approval_id, company_id, state, expires_ms FROM approval WHERE run_id = $1 AND `+oneOfTheirs+`
		ORDER BY approval_id`+s.d.forUpdate, run, telegram)
	err = each(rows, err, func(scan func(...any) error) error {
		var id ApprovalID
		var state ApprovalState
		var expires int64
		if err := scan(&id, &company, &state, &expires); err != nil {
			return err
		}
		open := state == ApprovalPending && s.now() < expires
		late = late || state == ApprovalExpired || state == ApprovalPending && !open
		if open {
			ids = append(ids, id)
		}
		return nil
	})
	if err == nil && company == "" {
		err = ErrNotFound
	}
	if err == nil {
		by, err = membership(ctx, tx, `m.company_id = $1 AND p.telegram_id = $2`, company, telegram)
	}
	if err != nil {
		return nil, Membership{}, err
	}
	all, err := members(ctx, tx, company)
	if err != nil {
		return nil, Membership{}, err
	}
	for _, id := range ids {
		a, err := s.approval(ctx, tx, company, id)
		if err != nil {
			return nil, Membership{}, err
		}
		if mayDecide(a, by, all) {
			waiting = append(waiting, a)
		}
	}
	switch {
	case len(waiting) > 0:
		return waiting, by, nil
	case len(ids) > 0:
		return nil, by, ErrNotYours
	case late:
		return nil, by, ErrExpired
	}
	return nil, by, ErrDecided
}

// closeTogether takes the buttons off a run's summaries once nothing of it waits any more.
func (s *Store) closeTogether(ctx context.Context, tx *sql.Tx, company CompanyID, run RunID) error {
	var waiting int
	if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM approval WHERE run_id = $1 AND company_id = $2 AND state = 'pending'`, run, company).
		Scan(&waiting); err != nil {
		return err
	}
	if waiting > 0 {
		return nil
	}
	type summary struct {
		edit Draft
		bot  BotID
	}
	var all []summary
	rows, err := tx.QueryContext(ctx, `SELECT reply_id, bot_id, chat_id, body FROM reply WHERE run_id = $1 AND kind = 'together' AND company_id = $2
		ORDER BY ordinal`, run, company)
	err = each(rows, err, func(scan func(...any) error) error {
		v := summary{edit: Draft{Company: company, Kind: DraftEdit, Notice: "together.closed", Priority: 2, Chat: Chat{Private: true}}}
		var sealed []byte
		if err := scan(&v.edit.EditOf, &v.bot, &v.edit.Chat.ID, &sealed); err != nil {
			return err
		}
		if body, err := s.openReplyBody(v.edit.EditOf, company, sealed); err == nil {
			v.edit.Lang, v.edit.Args = body.Lang, body.Args
		}
		all = append(all, v)
		return nil
	})
	if err != nil {
		return fmt.Errorf("finding the summaries of %s: %w", run, err)
	}
	for _, v := range all {
		if err := s.sayOne(ctx, tx, origin{bot: v.bot, run: run}, v.edit); err != nil {
			return err
		}
	}
	return nil
}
