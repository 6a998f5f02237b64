package store_test

import (
	"fmt"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
)

// reminding is as the tests have it: all day long, unless they say otherwise.
func reminding() store.Reminding {
	return store.Reminding{After: 6 * time.Hour, Last: time.Hour, From: 0, To: 24}
}

// remind sweeps and gives what people then hear.
func (w *town) remind(t *testing.T, r store.Reminding) []said {
	t.Helper()
	need(w.RemindApprovals(t.Context(), r, func(to store.Approver, all []store.Approval) store.Draft {
		return store.Draft{Kind: store.DraftNotice, Notice: fmt.Sprint("remember ", len(all))}
	}, card))(t)
	return byChat(w.said(t))
}

func TestWhoMayDecideIsRemindedTwiceAtMost(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.ask(t, w.member, private(w.member), policy.Hold)
		w.ask(t, w.member, private(w.member), policy.Hold)
		w.ask(t, w.member, private(w.member), policy.Confirm)
		w.said(t)
		same(t, []said(nil), w.remind(t, reminding()))
		w.clock.Advance(6 * time.Hour)
		same(t, []said{{101, "remember 2"}, {102, "remember 2"}, {103, "remember 1"}}, w.remind(t, reminding()))
		same(t, []said(nil), w.remind(t, reminding()))
		w.clock.Advance(10 * time.Hour)
		same(t, []said(nil), w.remind(t, reminding()))
		w.clock.Advance(7*time.Hour + time.Minute)
		same(t, 3, len(w.remind(t, reminding())))
		same(t, []said(nil), w.remind(t, reminding()))
		w.clock.Advance(time.Hour)
		same(t, []said(nil), w.remind(t, reminding())) // expired: there is nothing to decide
	})
}

func TestOneApprovalThatCannotBeReadSilencesNobody(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		spoilt := w.ask(t, w.rival, private(w.rival), policy.Confirm)
		w.ask(t, w.member, private(w.member), policy.Confirm)
		w.said(t)
		w.exec(t, `UPDATE call SET args = args_hash WHERE call_id = $1`, string(spoilt.Call))
		w.clock.Advance(6 * time.Hour)
		same(t, []said{{103, "remember 1"}}, w.remind(t, reminding()))
	})
}

func TestWhatWaitsForTheMorningKeepsNobodyElseWaiting(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		w.exec(t, `UPDATE company SET zone = 'Pacific/Auckland' WHERE company_id = $1`, string(w.rival.Company.ID))
		run := w.talk(t, w.rival, private(w.rival))
		for i := range 201 {
			w.begin(t, run.call(policy.Confirm, fmt.Sprintf(`{"i":%d}`, i)))
		}
		w.clock.Advance(time.Minute)
		w.ask(t, w.member, private(w.member), policy.Confirm)
		w.clock.Advance(6 * time.Hour) // 15 o'clock here, night there
		day := reminding()
		day.From, day.To = 8, 20
		same(t, 1, need(w.RemindApprovals(t.Context(), day, func(store.Approver, []store.Approval) store.Draft {
			return store.Draft{Kind: store.DraftNotice, Notice: "remember"}
		}, card))(t))
	})
}

func TestNobodyIsRemindedAtNight(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) { // it is 9 o'clock in the town's zone
		w.ask(t, w.member, private(w.member), policy.Confirm)
		w.said(t)
		day := reminding()
		day.From, day.To = 8, 20
		w.clock.Advance(12 * time.Hour)
		same(t, []said(nil), w.remind(t, day))
		w.clock.Advance(11*time.Hour + 10*time.Minute)
		same(t, []said{{103, "remember 1"}}, w.remind(t, day))
	})
}

func TestWhoIsAwayIsSparedAndTheirDeputyReadsWhosePlaceTheyTake(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		until := w.clock.Now().Add(72 * time.Hour)
		if err := w.SetAway(t.Context(), w.press(t, 102), w.approver.ID, until, w.admin.ID); err != nil {
			t.Fatal(err)
		}
		run := w.talk(t, w.member, private(w.member))
		instead := map[int64][]string{}
		begun := need(w.BeginCall(t.Context(), run.call(policy.Hold, `{}`), func(a store.Approval, to store.Approver) store.Draft {
			instead[to.Chat.ID] = to.For
			return card(a, to)
		}))(t)
		same(t, map[int64][]string{101: {"Abel"}, 102: nil}, instead)
		w.said(t)
		w.clock.Advance(6 * time.Hour)
		same(t, []said{{101, "remember 1"}}, w.remind(t, reminding()))
		need(w.decide(t, begun.Approval.ID, 102, false))(t) // who looks in may decide all the same
		if err := w.SetAway(t.Context(), w.press(t, 102), w.approver.ID, w.clock.Now(), ""); err != nil {
			t.Fatal(err)
		}
		run.end(store.RunSucceeded)
		w.ask(t, w.member, private(w.member), policy.Hold)
		w.said(t)
		w.clock.Advance(6 * time.Hour)
		same(t, []said{{101, "remember 1"}, {102, "remember 1"}}, w.remind(t, reminding()))
	})
}

// The attack: an admin has the approver away and themselves as the deputy, and decides their own wish.
func TestADeputyNeverDecidesWhatTheyAskedFor(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		if err := w.SetAway(t.Context(), w.press(t, 102), w.approver.ID, w.clock.Now().Add(72*time.Hour), w.admin.ID); err != nil {
			t.Fatal(err)
		}
		a := w.ask(t, w.admin, private(w.admin), policy.Hold)
		same(t, []said{{102, "card"}}, w.said(t))
		_, err := w.decide(t, a.ID, 101, true)
		wants(t, err, store.ErrNotYours)
		w.clock.Advance(6 * time.Hour)
		same(t, []said{{102, "remember 1"}}, w.remind(t, reminding())) // all who may decide are away: better than nobody
	})
}

func TestOnlyWhoDecidesIsAwayOrADeputy(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		until := w.clock.Now().Add(time.Hour)
		wants(t, w.SetAway(t.Context(), w.press(t, 103), w.member.ID, until, ""), store.ErrNotYours)
		for _, deputy := range []store.MembershipID{w.member.ID, w.approver.ID, w.rival.ID, "mem_nothere"} {
			u := w.press(t, 102)
			wants(t, w.SetAway(t.Context(), u, w.approver.ID, until, deputy), store.ErrNotFound)
			same(t, true, w.isOpen(t, u))
		}
		same(t, []store.Membership{w.admin}, need(w.Deputies(t.Context(), w.approver))(t))
	})
}

func TestWhereNobodyWithACardMayDecideAnyMoreSomebodyElseIsAsked(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		own := w.ask(t, w.admin, private(w.admin), policy.Hold) // the approver alone may decide
		same(t, []said{{102, "card"}}, w.said(t))
		same(t, []said(nil), w.remind(t, reminding()))
		w.exec(t, `UPDATE membership SET role = 'member' WHERE membership_id = $1`, string(w.approver.ID))
		// The admin is left alone, and so decides for themselves.
		same(t, []said{{101, "card"}}, w.remind(t, reminding()))
		same(t, []said(nil), w.remind(t, reminding()))
		need(w.decide(t, own.ID, 101, true))(t)
		w.said(t)

		theirs := w.ask(t, w.member, private(w.member), policy.Hold)
		same(t, 1, len(w.said(t)))
		w.exec(t, `UPDATE membership SET role = 'member' WHERE membership_id = $1`, string(w.admin.ID))
		w.exec(t, `UPDATE membership SET role = 'approver' WHERE membership_id = $1`, string(w.approver.ID))
		same(t, []said{{102, "card"}}, w.remind(t, reminding()))
		need(w.decide(t, theirs.ID, 102, true))(t)
	})
}
