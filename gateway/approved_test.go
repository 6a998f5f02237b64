package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// approve makes the member ask for a mail to the outside, ends the run and lets the approver say yes.
func (w *world) approve(t *testing.T) store.RunID {
	t.Helper()
	run, end := w.run(t)
	addr, shut := w.door(t, run)
	call(t, w.agent(t, run, addr, "", nil), mail, `{"para":["fuera@otra.com"]}`)
	shut()
	end()
	a := need(w.PendingApprovals(t.Context(), w.other.Principal()))(t)[0]
	w.said(t) // the card goes out
	need(w.Decide(t.Context(), w.update(t, 102), store.Verdict{Approval: a.ID, Approve: true, Telegram: 102},
		func(store.Approval) []store.Draft { return nil }))(t)
	w.said(t)
	return run.ID
}

// carriedOut serves approved calls until the run's one call has ended.
func (w *world) carriedOut(t *testing.T, run store.RunID) row {
	t.Helper()
	w.serveApprovedUntil(t, func() bool { return w.rows(t, run)[0].Outcome != store.OutcomeHeld })
	return w.rows(t, run)[0]
}

func TestWhatWasApprovedActsInTheAccountItWasShownWith(t *testing.T) {
	w := onSQLite(t)
	run := w.approve(t)
	w.connect(t, "gmail", "apn_another_mail")
	same(t, store.OutcomeDone, w.carriedOut(t, run).Outcome)
	same(t, []string{`correo_enviar {"para":["fuera@otra.com"]} apn_mail`}, w.app.performed())
}

func TestOfTwoAccountsTheChosenOneActsAlsoWhenAnotherIsChosenBeforeTheApproval(t *testing.T) {
	w := onSQLite(t)
	w.clock.Advance(time.Minute)
	w.connect(t, "gmail", "apn_second_mail")
	w.choose(t, "apn_second_mail")
	run := w.approve(t)
	w.choose(t, "apn_mail")
	same(t, store.OutcomeDone, w.carriedOut(t, run).Outcome)
	same(t, []string{`correo_enviar {"para":["fuera@otra.com"]} apn_second_mail`}, w.app.performed())
}

func TestWhatWasApprovedIsNotDoneWithAnAccountDisconnectedSince(t *testing.T) {
	w := onSQLite(t)
	w.connect(t, "gmail", "apn_second_mail")
	run := w.approve(t)
	w.remove(t, "apn_mail") // at the provider it may still be there
	same(t, row{mail, policy.Hold, "mail.outside", store.OutcomeFailed, "account_gone"}, w.carriedOut(t, run))
	same(t, []string{}, w.app.performed())
}

func TestAnApprovedCallThatCannotBePerformedAnyMoreIsSaid(t *testing.T) {
	w := onSQLite(t)
	run := w.approve(t)
	delete(w.app.tools, "gmail") // the tool is gone
	same(t, row{mail, policy.Hold, "mail.outside", store.OutcomeFailed, "unknown_tool"}, w.carriedOut(t, run))
	same(t, []string{}, w.app.performed())
	same(t, 1, len(w.said(t)[103]))
}

func TestAnApprovedCallIsCheckedAgainstTodaysSchema(t *testing.T) {
	w := onSQLite(t)
	run := w.approve(t)
	w.app.tools["gmail"][0].InputSchema = json.RawMessage(`{"type":"object","required":["asunto"]}`)
	same(t, row{mail, policy.Hold, "mail.outside", store.OutcomeFailed, "bad_arguments"}, w.carriedOut(t, run))
	same(t, []string{}, w.app.performed())
}

// The fault pair of the effect: it broke off and nobody knows, so it is unknown and stays so.
func TestAnApprovedCallThatBreaksOffIsUnknownAndNotRepeated(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run := w.approve(t)
		w.app.on(mail, func(context.Context, gateway.Call) (gateway.Result, error) {
			return gateway.Result{}, errors.New("cut")
		})
		same(t, row{mail, policy.Hold, "mail.outside", store.OutcomeUnknown, "outcome_unknown"}, w.carriedOut(t, run))
		w.serveApprovedUntil(t, func() bool { return true })
		same(t, 1, len(w.app.performed()))
		said := w.said(t)[103]
		if len(said) != 1 || said[0] != "unknown: No se sabe si llegó a hacerse. Míralo en la app antes de repetirlo." {
			t.Errorf("%v", said)
		}
	})
}

func TestWhatNobodyDecidesExpiresAndIsSaid(t *testing.T) {
	w := onSQLite(t)
	run, end := w.run(t)
	addr, shut := w.door(t, run)
	call(t, w.agent(t, run, addr, "", nil), mail, `{"para":["fuera@otra.com"]}`)
	shut()
	end()
	w.said(t)
	w.clock.Advance(25 * time.Hour)
	w.serveApprovedUntil(t, func() bool { return w.rows(t, run.ID)[0].Outcome == store.OutcomeExpired })
	if said := w.said(t)[103]; !slices.Contains(said, "expired: Nadie lo aprobó a tiempo. No se hizo.") {
		t.Errorf("%v", said)
	}
	same(t, []string{}, w.app.performed())
}

func TestAShutdownWaitsForAnApprovedCall(t *testing.T) {
	w := onSQLite(t)
	run := w.approve(t)
	entered, release := make(chan struct{}), make(chan struct{})
	w.app.on(mail, func(ctx context.Context, _ gateway.Call) (gateway.Result, error) {
		close(entered)
		<-release
		return done("sent"), ctx.Err()
	})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.g.ServeApproved(ctx) }()
	next(t, entered)
	cancel()
	close(release)
	if err := next(t, served); err != nil {
		t.Error(err)
	}
	same(t, []row{{mail, policy.Hold, "mail.outside", store.OutcomeDone, "ok"}}, w.rows(t, run))
}
