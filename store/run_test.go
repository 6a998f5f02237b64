package store_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

func TestATurnIsTheUnbrokenRowOfOneSender(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		for _, m := range []struct {
			from store.Membership
			text string
		}{{w.member, "a1"}, {w.member, "a2"}, {w.approver, "b1"}, {w.member, "a3"}} {
			w.write(t, m.from, group, m.text)
		}
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		var got []string
		for range 3 {
			got = append(got, texts(next(t, heard)))
		}
		same(t, []string{"a1 a2", "b1", "a3"}, got)
		answered := slices.Repeat([]store.Fate{store.FateAnswered}, 4)
		until(t, w.Store, func() bool { return slices.Equal(answered, w.fates(t, group.ID)) })
		same(t, []string{"-500:answer to a1 a2/1", "-500:answer to b1/1", "-500:answer to a3/1"}, w.sendAll(t))
	})
}

func TestALongTurnIsCut(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		var texts []string
		for i := range 53 {
			texts = append(texts, strconv.Itoa(i))
			w.write(t, w.member, private(w.member), texts[i])
		}
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		for _, want := range [][]string{texts[:50], texts[50:]} {
			var got []string
			for _, m := range next(t, heard).Messages {
				got = append(got, m.Text)
			}
			same(t, want, got)
		}
	})
}

func TestARunIsFrozenAsItsPersonIs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		in := w.write(t, w.member, private(w.member), "hello")
		w.clock.Advance(3 * time.Second)
		begun := w.clock.Now()
		heard := make(chan store.Run, 9)
		live := make(chan store.Run, 9)
		work := serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			l, err := w.LiveRun(ctx, r.ID)
			if err != nil {
				return err
			}
			live <- l
			_, err = w.FinishRun(ctx, turn, r, store.Finish{State: store.RunSucceeded, Reason: "ok", Session: "ses-1", Turns: 2,
				Tokens: store.Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, CostUSD: 0.25, Stages: store.Stages{Spawn: 5, Total: 9}})
			heard <- r
			return err
		})
		r := next(t, heard)
		p := policy.Principal{Company: w.acme.ID, Membership: w.member.ID, Person: w.member.Person.ID, Role: policy.RoleMember, Run: r.ID,
			Scopes: []policy.Scope{policy.ScopeAppsRead, policy.ScopeAppsWrite, policy.ScopeMailSend, policy.ScopeApprovalsRead, policy.ScopeAccountsWrite}}
		want := store.Run{
			ID: r.ID, Principal: p, Member: w.member, Conversation: in.Conversation, Chat: private(w.member), State: store.RunRunning,
			Grant: policy.NewGrant(policy.GrantInput{Principal: p, Domains: []string{"acme.example"}}),
			Fence: 1, Attempt: 1, Started: begun, Expires: begun.Add(time.Hour),
			Messages: []store.RunMessage{{ID: in.Message, Text: "hello", Telegram: 1000 + in.UpdateID, Received: begun.Add(-3 * time.Second)}},
		}
		same(t, want, r)
		want.Messages = nil
		same(t, want, next(t, live))

		until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateAnswered })
		_, err := w.LiveRun(t.Context(), r.ID)
		wants(t, err, store.ErrNotFound)
		same(t, store.RunView{
			ID: r.ID, Company: w.acme.ID, Person: w.member.Person.ID, Conversation: in.Conversation, State: store.RunSucceeded, Reason: "ok",
			Messages: 1, Turns: 2, Tokens: store.Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}, CostUSD: 0.25,
			Stages: store.Stages{Queue: 3000, Spawn: 5, Total: 9}, Started: begun, Ended: begun,
		}, need(w.RunByID(t.Context(), r.ID))(t))
		same(t, 1, len(need(w.Runs(t.Context(), w.acme.ID, 9))(t)))
		same(t, 0, len(need(w.Runs(t.Context(), w.rival.Company.ID, 9))(t)))

		w.write(t, w.member, private(w.member), "more")
		same(t, "ses-1", next(t, heard).Session)
		work.stop()
	})
}

func TestASoleAdminIsKnownAsSuch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		w.write(t, w.admin, private(w.admin), "x")
		same(t, false, next(t, heard).Grant.SoleAdmin)
		w.write(t, w.rival, private(w.rival), "x")
		same(t, true, next(t, heard).Grant.SoleAdmin)
	})
}

func TestMessagesOfABusyTimeBecomeTheNextTurn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		begun, goOn := make(chan string, 9), make(chan struct{})
		serve(t, w.Store, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			begun <- texts(r)
			<-goOn
			_, err = w.FinishRun(ctx, turn, r, succeeded(r))
			return err
		})
		same(t, false, w.write(t, w.member, private(w.member), "one").Waits)
		same(t, "one", next(t, begun))
		same(t, []store.Chat{private(w.member)}, need(w.BusyChats(t.Context(), townBot))(t))
		same(t, true, w.write(t, w.member, private(w.member), "two").Waits)
		same(t, true, w.write(t, w.member, private(w.member), "three").Waits)
		close(goOn)
		same(t, "two three", next(t, begun))
		until(t, w.Store, func() bool { return len(need(w.BusyChats(t.Context(), townBot))(t)) == 0 })
	})
}

func TestRunsAreAudited(t *testing.T) {
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		w := newTown(t, open)
		heard := make(chan store.Run, 9)
		serve(t, w.Store, answer(w.Store, heard))
		w.write(t, w.member, private(w.member), "x")
		r := next(t, heard)
		until(t, w.Store, func() bool { return w.fates(t, w.member.Person.Telegram)[0] == store.FateAnswered })
		var got []store.AuditRow
		for _, row := range need(w.Audit(t.Context(), w.acme.ID, 1000))(t) {
			if row.Subject == string(r.ID) {
				got = append(got, row)
			}
		}
		want := []store.AuditRow{
			{Actor: string(w.member.ID), Action: "run.started", Subject: string(r.ID), Detail: []byte(`{"attempt":1,"messages":1,"policy":"` + policy.Version + `","warm":false}`)},
			{Actor: "pilder", Action: "run.finished", Subject: string(r.ID), Detail: []byte(`{"reason":"ok","state":"succeeded"}`)},
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(store.AuditRow{}, "Seq", "At")); d != "" {
			t.Error(d)
		}
	})
}
