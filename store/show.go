package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrShown is returned when everything has been shown already: nothing was changed.
var ErrShown = errors.New("what would be executed is already shown to this person")

// ShowAll sends somebody who may decide an approval what its short card left out, in their private chat. Where no such card
// reached them whole so far, they get one that holds everything. The update is settled, with more drafts if there are any.
// ErrShown when there is nothing more to show, ErrArriving while it is on its way, and the errors of Decide.
func (s *Store) ShowAll(ctx context.Context, from UpdateRef, approval ApprovalID, telegram int64, card func(Approval, Approver) Draft, more ...Draft) (Approval, error) {
	var a Approval
	err := s.tx(ctx, func(tx *sql.Tx) error {
		a = Approval{}
		if err := s.settle(ctx, tx, from, FateDone, "shown"); err != nil {
			return err
		}
		v := Verdict{Approval: approval, Telegram: telegram}
		found, by, err := s.judge(ctx, tx, v)
		if err != nil {
			return err
		}
		a = found
		if err := s.decidable(ctx, tx, a, v); err != nil {
			return err
		}
		if err := s.sayOfApproval(ctx, tx, a, more); err != nil {
			return err
		}
		unfolded, err := s.unfold(ctx, tx, a, telegram)
		if err != nil || unfolded {
			return err
		}
		switch err := s.shown(ctx, tx, a, v); {
		case err == nil:
			return ErrShown
		case !errors.Is(err, ErrNotShown):
			return err
		}
		to := Approver{Member: by, Chat: Chat{ID: telegram, Private: true}}
		d := card(a, to)
		d.Company, d.Kind, d.Approval, d.Chat, d.Whole = a.Company, DraftCard, a.ID, to.Chat, true
		return s.sayOfApproval(ctx, tx, a, []Draft{d})
	})
	if err != nil {
		return a, fmt.Errorf("showing an approval: %w", err)
	}
	return a, nil
}

// unfold queues the parts that the last card in somebody's chat kept back; false when it kept none, or one of them was lost
// before.
func (s *Store) unfold(ctx context.Context, tx *sql.Tx, a Approval, chat int64) (bool, error) {
	r, err := tx.ExecContext(ctx, `UPDATE reply SET state = 'queued', created_ms = $4 WHERE state = 'folded' AND company_id = $2 AND group_id = (
			SELECT c.group_id FROM reply c WHERE c.approval_id = $1 AND c.company_id = $2 AND c.kind = 'card' AND c.chat_id = $3 AND c.part = 1
				AND c.state IN ('sending', 'sent', 'uncertain') ORDER BY c.ordinal DESC LIMIT 1)
		AND NOT EXISTS (SELECT 1 FROM reply p WHERE p.group_id = reply.group_id AND p.part > 1 AND p.state IN ('failed', 'uncertain'))`,
		a.ID, a.Company, chat, s.now())
	if err != nil {
		return false, fmt.Errorf("unfolding the card of %s: %w", a.ID, err)
	}
	n, err := r.RowsAffected()
	return n > 0, err
}
