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

// ask lets somebody's run ask for an approval, and ends the run.
func (w *town) ask(t *testing.T, from store.Membership, chat store.Chat, kind policy.Effect) store.Approval {
	t.Helper()
	run := w.talk(t, from, chat)
	begun := w.begin(t, run.call(kind, `{"to" : "x"}`))
	run.end(store.RunSucceeded)
	if begun.Outcome != store.OutcomeHeld || begun.Approval == nil {
		t.Fatalf("not held: %+v", begun)
	}
	return *begun.Approval
}

// verdict is what the tests say of a decision: the cards change and the chat hears.
func verdict(a store.Approval) []store.Draft {
	return []store.Draft{
		{Company: a.Company, Kind: store.DraftEdit, Approval: a.ID, Notice: "card " + string(a.State)},
		{Company: a.Company, Kind: store.DraftNotice, Chat: a.Chat, Notice: "chat " + string(a.State)},
	}
}

func (w *town) decide(t *testing.T, a store.ApprovalID, telegram int64, approve bool) (store.Approval, error) {
	t.Helper()
	return w.Decide(t.Context(), w.press(t, telegram), store.Verdict{Approval: a, Approve: approve, Telegram: telegram}, verdict)
}

func TestCardsGoToExactlyThoseWhoMayDecide(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		for _, tt := range []struct {
			claim string
			from  store.Membership
			chat  store.Chat
			kind  policy.Effect
			to    []int64
		}{
			{"a confirm goes to whoever asked", w.member, private(w.member), policy.Confirm, []int64{103}},
			{"a confirm from a group is asked in private", w.member, group, policy.Confirm, []int64{103}},
			{"an admin's confirm goes to no other admin", w.admin, private(w.admin), policy.Confirm, []int64{101}},
			{"a member's hold goes to admin and approver", w.member, private(w.member), policy.Hold, []int64{101, 102}},
			{"an admin's hold goes to the others", w.admin, private(w.admin), policy.Hold, []int64{102}},
			{"a hold of somebody left alone as admin goes to themselves", w.rival, private(w.rival), policy.Hold, []int64{201}},
		} {
			a := w.ask(t, tt.from, tt.chat, tt.kind)
			var to []int64
			for _, s := range w.said(t) {
				if s.Notice == "card" {
					to = append(to, s.Chat)
				}
			}
			slices.Sort(to)
			if !slices.Equal(tt.to, to) {
				t.Errorf("%s: cards to %v", tt.claim, to)
			}
			same(t, tt.chat, a.Chat)
		}
	})
}

func TestAnApprovalFreezesItsArguments(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, group)
		exact := "{ \"b\":1,\n\"a\" : 1e3 , \"a\":2}"
		held := run.call(policy.Hold, exact)
		held.Facts = []store.Fact{{Arg: "a", Text: "Comité"}, {Arg: "b"}}
		begun := w.begin(t, held)
		a := *begun.Approval
		same(t, store.Approval{
			ID: a.ID, Call: begun.ID, Company: w.acme.ID, Code: a.Code, Kind: policy.Hold, Rule: "rule.of.test", State: store.ApprovalPending,
			Requester: w.member, Run: run.ID, Chat: group, Tool: "gmail-write", App: "gmail", Args: json.RawMessage(exact), Account: "provider-account-1", Digest: a.Digest,
			Asked: w.clock.Now(), Expires: w.clock.Now().Add(24 * time.Hour), Outcome: store.OutcomeHeld,
			Facts: []store.Fact{{Arg: "a", Text: "Comité"}, {Arg: "b"}}, Message: run.Messages[0].Telegram,
		}, a)
		if len(a.Code) != 6 || strings.ContainsAny(a.Code, "01OILU") || len(a.Digest) != 64 {
			t.Errorf("code %q, digest %q", a.Code, a.Digest)
		}
		a.Deciders = []string{"Ana", "Abel"}
		same(t, []store.Approval{a}, need(w.PendingApprovals(t.Context(), w.approver.Principal()))(t))
	})
}

func TestAnApprovedCallIsPerformedOnceWithItsFrozenArguments(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Hold)
		w.said(t)
		got := need(w.decide(t, a.ID, 102, true))(t)
		a.State, a.DecidedBy, a.Decided = store.ApprovalApproved, w.approver.ID, w.clock.Now()
		same(t, a, got)
		same(t, []said{{101, "card approved"}, {102, "card approved"}, {103, "chat approved"}}, byChat(w.said(t)))

		performed := w.perform(t, 1)
		same(t, []store.Approval{a}, performed)
		same(t, []store.Outcome{store.OutcomeDone}, w.outcomes(t, a.Run))
		same(t, []said{{103, "performed"}}, w.said(t))
		got2 := w.actions(t, w.acme.ID)
		same(t, []string{"approval.asked", "call.decided", "run.finished", "approval.approved", "approval.begun", "call.ended"}, got2[len(got2)-6:])

		run := w.talk(t, w.member, private(w.member))
		same(t, []store.News{{At: run.Started.Add(-time.Second), Tool: "gmail-write", Outcome: store.OutcomeDone, Text: "result"}}, run.News)
	})
}

func byChat(all []said) []said {
	slices.SortStableFunc(all, func(a, b said) int { return int(a.Chat - b.Chat) })
	return all
}

// perform serves approved calls until n of them were performed, and gives what each was.
func (w *town) perform(t *testing.T, n int) []store.Approval {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan store.Approval, 100)
	served := make(chan error, 1)
	s := w.Store
	go func() {
		served <- s.ServeApproved(ctx, 4, func(ctx context.Context, a store.Approval) error {
			ok, err := s.BeginApproved(ctx, a)
			if err != nil || !ok {
				return err
			}
			err = s.EndApproved(ctx, a, store.Ended{Outcome: store.OutcomeDone, Code: "ok", Text: "result"}, store.Draft{Company: a.Company, Chat: a.Chat, Kind: store.DraftNotice, Notice: "performed"})
			done <- a
			return err
		})
	}()
	var all []store.Approval
	for range n {
		all = append(all, next(t, done))
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	close(done)
	for a := range done {
		all = append(all, a)
	}
	return all
}

func TestADeniedCallIsNeverPerformed(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		w.said(t)
		got := need(w.decide(t, a.ID, 103, false))(t)
		same(t, store.ApprovalDenied, got.State)
		same(t, []said{{103, "card denied"}, {103, "chat denied"}}, w.said(t))
		same(t, []store.Outcome{store.OutcomeRefused}, w.outcomes(t, a.Run))
		same(t, false, need(w.BeginApproved(t.Context(), a))(t))
		same(t, []store.Approval(nil), need(w.PendingApprovals(t.Context(), w.member.Principal()))(t))
		same(t, store.OutcomeRefused, w.talk(t, w.member, private(w.member)).News[0].Outcome)
	})
}

func TestOfManyVerdictsTheFirstWins(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Hold)
		const n = 100
		pressed, errs := make([]store.UpdateRef, n), make([]error, n)
		for i := range n {
			pressed[i] = w.press(t, int64(101+i%2))
		}
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				v := store.Verdict{Approval: a.ID, Approve: i%3 > 0, Telegram: int64(101 + i%2)}
				_, errs[i] = w.Decide(context.Background(), pressed[i], v, verdict)
			})
		}
		all.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
			} else {
				wants(t, err, store.ErrDecided)
			}
			same(t, err != nil, w.isOpen(t, pressed[i]))
		}
		same(t, 1, won)
		verdicts := slices.DeleteFunc(w.actions(t, w.acme.ID), func(a string) bool {
			return a != "approval.approved" && a != "approval.denied"
		})
		same(t, 1, len(verdicts))
	})
}

func TestWhoMayNotDecide(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		hold, confirm := w.ask(t, w.member, private(w.member), policy.Hold), w.ask(t, w.member, private(w.member), policy.Confirm)
		other := w.add(t, w.acme.ID, 104, "Otto", policy.RoleMember)
		for _, tt := range []struct {
			claim    string
			approval store.ApprovalID
			who      int64
			want     error
		}{
			{"the requester of a hold", hold.ID, 103, store.ErrNotYours},
			{"another member", hold.ID, other.Person.Telegram, store.ErrNotYours},
			{"an admin, of somebody's confirm", confirm.ID, 101, store.ErrNotYours},
			{"the admin of another company", hold.ID, 201, store.ErrNotFound},
			{"a stranger", hold.ID, 999, store.ErrNotFound},
			{"nobody, what is not there", "apr_nothere", 101, store.ErrNotFound},
			{"nobody, nothing", "", 101, store.ErrNotFound},
		} {
			u := w.press(t, tt.who)
			got, err := w.Decide(t.Context(), u, store.Verdict{Approval: tt.approval, Approve: true, Telegram: tt.who}, verdict)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", tt.claim, err)
			}
			same(t, store.Approval{}, got)
			if !w.isOpen(t, u) {
				t.Errorf("%s: the update was settled", tt.claim)
			}
		}
		same(t, 2, len(need(w.PendingApprovals(t.Context(), w.member.Principal()))(t)))
	})
}

func TestTheRoleAtThePressDecides(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Hold)
		w.exec(t, `UPDATE membership SET role = 'member' WHERE membership_id = $1`, string(w.approver.ID))
		_, err := w.decide(t, a.ID, 102, true)
		wants(t, err, store.ErrNotYours)
		later := w.add(t, w.acme.ID, 105, "Nina", policy.RoleApprover) // got no card
		got, err := w.decide(t, a.ID, later.Person.Telegram, true)
		wants(t, err, store.ErrNotShown)
		same(t, a.ID, got.ID)
		again := card(a, store.Approver{Member: later, Chat: private(later)})
		again.Company, again.Kind, again.Approval, again.Chat = a.Company, store.DraftCard, a.ID, private(later)
		if err := w.Say(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		need(w.decide(t, a.ID, later.Person.Telegram, true))(t)
	})
}

// The attack: the requester's agent knows the code, and somebody who was never shown the arguments types it.
func TestNobodySaysYesToWhatTheyWereNotShown(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Hold)
		by := map[string]store.Verdict{
			"a code": {Code: a.Code, Approve: true, Telegram: 102}, "a press": {Approval: a.ID, Approve: true, Telegram: 102},
		}
		try := func(how string, cards string) error {
			u := w.press(t, 102)
			w.exec(t, `UPDATE reply SET state = 'failed' WHERE kind = 'card' AND chat_id = 102`)
			if cards != "" {
				w.exec(t, cards)
			}
			_, err := w.Decide(t.Context(), u, by[how], verdict)
			return err
		}
		for how := range by {
			wants(t, try(how, ""), store.ErrNotShown)
		}
		// The buttons arrived, the part with the rest of the text did not.
		const rest = `INSERT INTO reply (reply_id, company_id, bot_id, chat_id, group_id, part, parts, priority, kind, approval_id, state, created_ms)
			SELECT 'rep_rest', company_id, bot_id, chat_id, group_id, 2, 2, priority, kind, approval_id, 'failed', created_ms
			FROM reply WHERE kind = 'card' AND chat_id = 102`
		w.exec(t, rest)
		for how := range by {
			wants(t, try(how, `UPDATE reply SET state = 'sent' WHERE chat_id = 102 AND part = 1 AND reply_id <> 'rep_rest'`), store.ErrNotShown)
		}
		// And while it is still on its way, nobody is asked to wait for another one.
		for how := range by {
			wants(t, try(how, `UPDATE reply SET state = CASE WHEN part = 1 THEN 'sent' ELSE 'queued' END WHERE kind = 'card' AND chat_id = 102`), store.ErrArriving)
		}
		no := store.Verdict{Approval: a.ID, Telegram: 102} // a no needs nothing
		need(w.Decide(t.Context(), w.press(t, 102), no, verdict))(t)
	})
}

func TestAVerdictCanBeTyped(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Hold)
		typed := func(code string, telegram int64) (store.Approval, error) {
			return w.Decide(t.Context(), w.press(t, telegram), store.Verdict{Code: code, Approve: true, Telegram: telegram}, verdict)
		}
		_, err := typed(a.Code, 201) // a code opens nothing in another company
		wants(t, err, store.ErrNotFound)
		_, err = typed("AAAAAA", 102)
		wants(t, err, store.ErrNotFound)
		_, err = typed(a.Code, 103)
		wants(t, err, store.ErrNotYours)
		same(t, a.ID, need(typed(" "+strings.ToLower(a.Code)+" ", 102))(t).ID)
		got, err := typed(a.Code, 101)
		wants(t, err, store.ErrDecided)
		same(t, w.approver.ID, got.DecidedBy)
	})
}

func TestAReplayedPressChangesNothing(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		w.said(t)
		u, v := w.press(t, 103), store.Verdict{Approval: a.ID, Approve: true, Telegram: 103}
		need(w.Decide(t.Context(), u, v, verdict))(t)
		w.said(t)
		v.Approve = false
		_, err := w.Decide(t.Context(), u, v, verdict)
		wants(t, err, store.ErrSettled)
		same(t, []said(nil), w.said(t))
		same(t, 1, len(w.perform(t, 1)))
	})
}

func TestAnApprovalExpires(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		w.said(t)
		same(t, 0, need(w.ExpireApprovals(t.Context(), verdict))(t))
		w.clock.Advance(24 * time.Hour)
		_, err := w.decide(t, a.ID, 103, true) // too late, swept or not
		wants(t, err, store.ErrExpired)
		same(t, []store.Approval(nil), need(w.PendingApprovals(t.Context(), w.member.Principal()))(t))
		same(t, 1, need(w.ExpireApprovals(t.Context(), verdict))(t))
		same(t, 0, need(w.ExpireApprovals(t.Context(), verdict))(t))
		same(t, []said{{103, "card expired"}, {103, "chat expired"}}, w.said(t))
		same(t, []store.Outcome{store.OutcomeExpired}, w.outcomes(t, a.Run))
		_, err = w.decide(t, a.ID, 103, true)
		wants(t, err, store.ErrExpired)
		same(t, false, need(w.BeginApproved(t.Context(), a))(t))
	})
}

func TestPendingApprovalsAreThoseOfOneselfAndThoseToDecide(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		confirm, hold := w.ask(t, w.member, private(w.member), policy.Confirm), w.ask(t, w.member, private(w.member), policy.Hold)
		own := w.ask(t, w.admin, private(w.admin), policy.Hold)
		w.ask(t, w.rival, private(w.rival), policy.Confirm)
		for _, tt := range []struct {
			who  store.Membership
			want []store.ApprovalID
		}{
			{w.member, []store.ApprovalID{confirm.ID, hold.ID}},
			{w.approver, []store.ApprovalID{hold.ID, own.ID}},
			{w.admin, []store.ApprovalID{hold.ID, own.ID}},
		} {
			var got []store.ApprovalID
			for _, a := range need(w.PendingApprovals(t.Context(), tt.who.Principal()))(t) {
				got = append(got, a.ID)
			}
			same(t, tt.want, got)
		}
		foreign := w.member.Principal()
		foreign.Company = w.rival.Company.ID
		_, err := w.PendingApprovals(t.Context(), foreign)
		wants(t, err, store.ErrNotFound)
	})
}

func TestApprovedCallsAreKeptApartByCompany(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		need(w.decide(t, a.ID, 103, true))(t)
		foreign := a
		foreign.Company = w.rival.Company.ID
		_, err := w.BeginApproved(t.Context(), foreign)
		wants(t, err, store.ErrNotFound)
		same(t, true, need(w.BeginApproved(t.Context(), a))(t))
		wants(t, w.EndApproved(t.Context(), foreign, store.Ended{Outcome: store.OutcomeDone, Code: "ok"}), store.ErrNotFound)
		same(t, []store.Outcome{store.OutcomeHeld}, w.outcomes(t, a.Run))
	})
}

// The fault pair of an approved call: the process dies before its effect, or after it.
func TestAProcessDiesBeforeItBeginsAnApprovedCall(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		need(w.decide(t, a.ID, 103, true))(t)
		w.restart(t)
		same(t, 0, need(w.RecoverCalls(t.Context(), lost))(t))
		same(t, 1, len(w.perform(t, 1)))
		same(t, []store.Outcome{store.OutcomeDone}, w.outcomes(t, a.Run))
	})
}

func TestAProcessDiesWithAnApprovedCallUnderWay(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		need(w.decide(t, a.ID, 103, true))(t)
		w.said(t)
		same(t, true, need(w.BeginApproved(t.Context(), a))(t))
		same(t, false, need(w.BeginApproved(t.Context(), a))(t))
		same(t, 0, need(w.RecoverCalls(t.Context(), lost))(t)) // its process lives

		w.restart(t)
		same(t, false, need(w.BeginApproved(t.Context(), a))(t))
		same(t, 1, need(w.RecoverCalls(t.Context(), lost))(t))
		same(t, 0, need(w.RecoverCalls(t.Context(), lost))(t))
		same(t, []said{{103, "lost gmail-write"}}, w.said(t))
		same(t, false, need(w.BeginApproved(t.Context(), a))(t))
		// The dead one was only frozen, and tells now.
		late := store.Draft{Company: a.Company, Chat: a.Chat, Kind: store.DraftNotice, Notice: "late"}
		if err := w.EndApproved(t.Context(), a, store.Ended{Outcome: store.OutcomeDone, Code: "ok", Text: "result"}, late); err != nil {
			t.Error(err)
		}
		same(t, []store.Outcome{store.OutcomeUnknown}, w.outcomes(t, a.Run))
		same(t, []said(nil), w.said(t))
		got := w.actions(t, w.acme.ID)
		same(t, []string{"call.ended", "call.late"}, got[len(got)-2:])
		news := w.talk(t, w.member, private(w.member)).News
		if len(news) != 1 || news[0].Outcome != store.OutcomeUnknown {
			t.Errorf("news: %+v", news)
		}
	})
}

func TestAnApprovedCallIsNotEndedBeforeItBegins(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		need(w.decide(t, a.ID, 103, true))(t)
		if err := w.EndApproved(t.Context(), a, store.Ended{Outcome: store.OutcomeDone, Code: "ok"}); err == nil {
			t.Error("ended")
		}
		same(t, []store.Outcome{store.OutcomeHeld}, w.outcomes(t, a.Run))
	})
}

func TestManyBeginAnApprovedCallOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		a := w.ask(t, w.member, private(w.member), policy.Confirm)
		need(w.decide(t, a.ID, 103, true))(t)
		var mu sync.Mutex
		var all sync.WaitGroup
		began := 0
		for range 20 {
			all.Go(func() {
				ok, err := w.BeginApproved(context.Background(), a)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if ok {
					began++
				}
			})
		}
		all.Wait()
		same(t, 1, began)
	})
}

// Where several processes serve one database, an approved call whose process died is found by the others.
func TestTheJobOfADeadProcessIsTakenOver(t *testing.T) {
	w := townOn(t, storetest.Fresh(t, "postgres"))
	a := w.ask(t, w.member, private(w.member), policy.Confirm)
	need(w.decide(t, a.ID, 103, true))(t)
	same(t, true, need(w.BeginApproved(t.Context(), a))(t))
	w.exec(t, `UPDATE instance SET beat_ms = 0`)
	other := w.start(store.Config{Now: w.clock.Now})
	same(t, 1, need(other.RecoverCalls(t.Context(), lost))(t))
	same(t, false, need(other.BeginApproved(t.Context(), a))(t))
	same(t, []store.Outcome{store.OutcomeUnknown}, w.outcomes(t, a.Run))
}
