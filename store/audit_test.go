package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// running runs a store until the test ends.
func running(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// chained waits until all of a company's audit is linked, and gives it.
func (w *town) chained(t *testing.T, c store.CompanyID) []store.AuditRow {
	t.Helper()
	var all []store.AuditRow
	until(t, w.Store, func() bool {
		all = need(w.Audit(t.Context(), c, 10_000))(t)
		return !slices.ContainsFunc(all, func(r store.AuditRow) bool { return r.Seq == 0 })
	})
	return all
}

func TestTheAuditSaysWhoDidWhat(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		got := need(w.Audit(t.Context(), w.acme.ID, 2))(t) // the newest, oldest first
		at := w.clock.Now()
		same(t, []store.AuditRow{
			{At: at.Add(-2 * time.Second), Actor: "operator", Action: "member.added", Subject: string(w.approver.ID), Detail: json.RawMessage(`{"role":"approver"}`)},
			{At: at.Add(-time.Second), Actor: "operator", Action: "member.added", Subject: string(w.member.ID), Detail: json.RawMessage(`{"role":"member"}`)},
		}, got)
		_, err := w.Audit(t.Context(), "com_nothere", 2)
		wants(t, err, store.ErrNotFound)
		_, err = w.VerifyAudit(t.Context(), "com_nothere")
		wants(t, err, store.ErrNotFound)
	})
}

func TestTheAuditHoldsNoText(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		c := w.begin(t, run.call(policy.Allow, `{"to":"private words"}`))
		if err := w.EndCall(t.Context(), w.acme.ID, c.ID, store.OutcomeDone, "ok", json.RawMessage(`"private words"`), nil); err != nil {
			t.Fatal(err)
		}
		for _, r := range need(w.Audit(t.Context(), w.acme.ID, 1000))(t) {
			for _, text := range []string{"private", "do it", "Mia"} {
				if strings.Contains(r.Actor+r.Action+r.Subject+string(r.Detail), text) {
					t.Errorf("%s: %s", r.Action, r.Detail)
				}
			}
		}
	})
}

func TestTheAuditIsChainedAndHolds(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		for range 450 { // more than two batches
			need(w.Invite(t.Context(), w.acme.ID, policy.RoleMember, "", time.Hour))(t)
		}
		same(t, int64(0), need(w.VerifyAudit(t.Context(), w.acme.ID))(t))
		running(t, w.Store)
		rows := w.chained(t, w.acme.ID)
		for i, r := range rows {
			if r.Seq != int64(i+1) {
				t.Fatalf("row %d is number %d of the chain", i, r.Seq)
			}
		}
		same(t, int64(len(rows)), need(w.VerifyAudit(t.Context(), w.acme.ID))(t))
		same(t, int64(2), need(w.VerifyAudit(t.Context(), w.rival.Company.ID))(t))
	})
}

func TestChainersAtOnceLinkEachRowOnce(t *testing.T) {
	w := townOn(t, storetest.Fresh(t, "postgres"))
	for range 3 {
		running(t, w.start(store.Config{Now: w.clock.Now}))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 150 {
				if _, err := w.Invite(t.Context(), w.acme.ID, policy.RoleMember, "", time.Hour); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	rows := w.chained(t, w.acme.ID)
	same(t, 604, len(rows))
	same(t, int64(604), need(w.VerifyAudit(t.Context(), w.acme.ID))(t))
}

func TestTamperingShowsAtTheFirstBrokenRow(t *testing.T) {
	const of = ` WHERE audit_id = (SELECT audit_id FROM audit_link WHERE company_id = $1 AND seq = 3)`
	swap := []string{
		`UPDATE audit_link SET audit_id = -audit_id WHERE company_id = $1 AND seq IN (3, 4)`,
		`UPDATE audit_link SET audit_id = (SELECT -o.audit_id FROM audit_link o WHERE o.company_id = $1 AND o.seq = 7 - audit_link.seq)
			WHERE company_id = $1 AND seq IN (3, 4)`,
	}
	for _, tt := range []struct {
		claim  string
		change []string
		want   store.BrokenReason
		seq    int64
	}{
		{"an edited detail", []string{`UPDATE audit SET detail = '{"role":"admin"}'` + of}, store.BrokenEdited, 3},
		{"another actor", []string{`UPDATE audit SET actor = 'pilder'` + of}, store.BrokenEdited, 3},
		{"another time", []string{`UPDATE audit SET at_ms = at_ms + 1` + of}, store.BrokenEdited, 3},
		{"words moved to the next part", []string{`UPDATE audit SET actor = actor || action, action = ''` + of}, store.BrokenEdited, 3},
		{"a row given to another company", []string{`UPDATE audit SET company_id = 'com_other'` + of}, store.BrokenDeleted, 3},
		{"a deleted row", []string{`DELETE FROM audit` + of}, store.BrokenDeleted, 3},
		{"a deleted link", []string{`DELETE FROM audit_link WHERE company_id = $1 AND seq = 3`}, store.BrokenDeleted, 3},
		{"a cut tail", []string{`DELETE FROM audit_link WHERE company_id = $1 AND seq >= 4`}, store.BrokenDeleted, 4},
		{"two rows in another order", swap, store.BrokenEdited, 3},
		{"another head", []string{`UPDATE audit_head SET hash = (SELECT hash FROM audit_link WHERE company_id = $1 AND seq = 2) WHERE company_id = $1`}, store.BrokenEdited, 4},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			eachTown(t, func(t *testing.T, w *town) {
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				rows := w.chained(t, w.acme.ID)
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				same(t, 4, len(rows))
				same(t, int64(4), need(w.VerifyAudit(t.Context(), w.acme.ID))(t))
				if strings.HasPrefix(w.url, "postgres") { // who owns the database can do that too
					w.exec(t, `ALTER TABLE audit_link DROP CONSTRAINT audit_link_audit_id_fkey`)
				}
				for _, q := range tt.change {
					w.exec(t, q, string(w.acme.ID))
				}
				n, err := w.VerifyAudit(t.Context(), w.acme.ID)
				var broken *store.BrokenChainError
				if !errors.As(err, &broken) {
					t.Fatalf("%d rows hold: %v", n, err)
				}
				same(t, store.BrokenChainError{Company: w.acme.ID, Seq: tt.seq, Reason: tt.want}, *broken)
				same(t, tt.seq-1, n)
				need(w.VerifyAudit(t.Context(), w.rival.Company.ID))(t) // theirs holds
			})
		})
	}
}
