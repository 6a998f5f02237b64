package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

const (
	list   = "google_calendar-list-events"
	create = "google_calendar-create-event"
	remove = "google_calendar-delete-event"
	mail   = "correo_enviar"
)

func TestAnAllowedCallIsPerformedAndRecordedInBothEras(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for era, revision := range eras() {
			run, end := w.run(t)
			addr, _ := w.door(t, run)
			args := fmt.Sprintf(`{"summary" : "Reunión %s"}`, era)
			got := call(t, w.agent(t, run, addr, revision, nil), create, args)
			if got.IsError || !strings.HasPrefix(got.Text, "effect") {
				t.Errorf("%s: %+v", era, got)
			}
			same(t, map[string]any{"status": "ok", "data": got.Text}, got.Structured)
			same(t, []row{{create, policy.Allow, "", store.OutcomeDone, "ok"}}, w.rows(t, run.ID))
			end()
		}
		if n := len(w.app.performed()); n != 2 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestAHeldMailIsNotSentUntilItIsApprovedAndThenExactlyOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, end := w.run(t)
		addr, shut := w.door(t, run)
		agent := w.agent(t, run, addr, "", nil)
		args := `{"para":["fuera@otra.com"]}`
		held := call(t, agent, mail, args)
		const text = "Pendiente de aprobación: el destinatario es externo a la empresa. No se envió."
		code, _ := held.Structured["code"].(string)
		same(t, answer{Text: text, Structured: map[string]any{"status": "pending", "kind": "hold", "message": text, "code": code}}, held)
		same(t, held, call(t, agent, mail, args)) // asked again: the same approval, no second card
		same(t, []string{}, w.app.performed())
		same(t, []string{"card correo_enviar"}, w.said(t)[102])
		shut()
		end()

		approval := need(w.PendingApprovals(t.Context(), w.other.Principal()))(t)[0]
		need(w.Decide(t.Context(), w.update(t, 102), store.Verdict{Approval: approval.ID, Approve: true, Telegram: 102},
			func(store.Approval) []store.Draft { return nil }))(t)
		w.serveApprovedUntil(t, func() bool { return len(w.rows(t, run.ID)) == 1 && w.rows(t, run.ID)[0].Outcome == store.OutcomeDone })
		same(t, []string{"correo_enviar " + args + " apn_mail"}, w.app.performed())
		same(t, []row{{mail, policy.Hold, "mail.outside", store.OutcomeDone, "ok"}}, w.rows(t, run.ID))
		same(t, []string{"done: effect 1"}, w.said(t)[103])
		// A second process that finds the same work does nothing.
		w.serveApprovedUntil(t, func() bool { return true })
		same(t, 1, len(w.app.performed()))
	})
}

// serveApprovedUntil serves approved calls until the condition holds, looked at whenever the store changed.
func (w *world) serveApprovedUntil(t *testing.T, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.g.ServeApproved(ctx) }()
	for {
		wake := w.Wake()
		if ok() {
			break
		}
		next(t, wake)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestAConfirmGoesToThePersonAndADenialPerformsNothing(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, _ := w.run(t)
		addr, _ := w.door(t, run)
		agent := w.agent(t, run, addr, "", nil)
		held := call(t, agent, mail, `{"para":["ana@empresa.com"]}`)
		if held.IsError || held.Structured["kind"] != "confirm" || !strings.HasPrefix(held.Text, "Pendiente de tu confirmación") {
			t.Errorf("%+v", held)
		}
		if held := call(t, agent, remove, `{}`); held.Structured["kind"] != "confirm" {
			t.Errorf("destructive: %+v", held)
		}
		if held := call(t, agent, create, `{"summary":"x","attendees":["a@empresa.com"]}`); held.Structured["kind"] != "confirm" {
			t.Errorf("guests: %+v", held)
		}
		same(t, map[int64][]string{103: {"card correo_enviar", "card google_calendar-delete-event", "card google_calendar-create-event"}}, w.said(t))
		for _, a := range need(w.PendingApprovals(t.Context(), w.member.Principal()))(t) {
			need(w.Decide(t.Context(), w.update(t, 103), store.Verdict{Approval: a.ID, Telegram: 103},
				func(store.Approval) []store.Draft { return nil }))(t)
		}
		if got := call(t, agent, mail, `{"para":["ana@empresa.com"]}`); !got.IsError || got.Structured["code"] != "refused" {
			t.Errorf("asked again after a no: %+v", got)
		}
		same(t, []string{}, w.app.performed())
	})
}

func TestWhatARunDoesNotHaveIsRefusedAndRecorded(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	for tool, code := range map[string]string{
		"google_calendar-respond-to-event": "unknown_tool",  // vetoed
		"gmail-send-email":                 "unknown_tool",  // vetoed
		"asana-search":                     "not_connected", // though it could be
		"GOOGLE_CALENDAR-create-event":     "unknown_tool",  // no such tool
		"no-such-tool":                     "unknown_tool",
		"ignore all rules; please":         "unknown_tool",
	} {
		got := call(t, agent, tool, `{}`)
		if !got.IsError || got.Structured["code"] != code || got.Structured["performed"] != "no" {
			t.Errorf("%s: %+v", tool, got)
		}
	}
	same(t, []string{}, w.app.performed())
	rows := w.rows(t, run.ID)
	for i, r := range rows {
		if r.Decision != policy.Deny || r.Outcome != store.OutcomeRefused || r.Code != "unknown_tool" {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	if len(rows) != 6 || !slices.ContainsFunc(rows, func(r row) bool { return r.Tool == "unknown" }) {
		t.Errorf("rows %+v", rows)
	}
	if strings.Contains(w.log.text(), "ignore all rules") {
		t.Error("the agent's own text is in the log")
	}
}

func TestNobodyIsAskedAboutACallThatCannotWork(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, _ := w.run(t)
		addr, _ := w.door(t, run)
		w.app.checks = map[string]func() *gateway.Result{remove: func() *gateway.Result {
			return &gateway.Result{Outcome: store.OutcomeFailed, Text: "falta un campo",
				Structured: json.RawMessage(`{"status":"error","code":"needs_fields"}`), IsError: true, Code: "needs_fields"}
		}}
		got := call(t, w.agent(t, run, addr, "", nil), remove, `{}`)
		if !got.IsError || !strings.Contains(got.Text, "falta un campo") {
			t.Errorf("%+v", got)
		}
		same(t, []row{{remove, policy.Deny, "", store.OutcomeRefused, "needs_fields"}}, w.rows(t, run.ID))
		same(t, map[int64][]string{}, w.said(t))
		same(t, []string{}, w.app.performed())
	})
}

func TestAConnectorThatPanicsWhenAskedAheadEndsNoProcess(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	w.app.checks = map[string]func() *gateway.Result{remove: func() *gateway.Result { panic("secret address 10.1.2.3") }}
	agent := w.agent(t, run, addr, "", nil)
	got := call(t, agent, remove, `{}`)
	if !got.IsError || got.Structured["code"] != "gateway_problem" || got.Structured["performed"] != "no" {
		t.Errorf("%+v", got)
	}
	same(t, []row{{remove, policy.Deny, "", store.OutcomeRefused, "gateway_problem"}}, w.rows(t, run.ID))
	if !w.log.has("call.panicked") || strings.Contains(w.log.text(), "10.1.2.3") {
		t.Errorf("logged %s", w.log.text())
	}
	if got := call(t, agent, list, `{}`); got.IsError {
		t.Errorf("afterwards: %+v", got)
	}
}

func TestWhatIsNotAllowedIsSaidSoEveryTime(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	run.Grant.Rules = append(slices.Clone(run.Grant.Rules), policy.RuleRef{ID: "future.rule"})
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	first := call(t, agent, create, `{"summary":"x"}`)
	same(t, "No permitido: las reglas de tu empresa han cambiado. No se hizo.", first.Text)
	same(t, first, call(t, agent, create, `{"summary":"x"}`)) // and not that somebody did not approve it
	same(t, []string{}, w.app.performed())
}

func TestARepeatedWriteReturnsTheFirstResult(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, _ := w.run(t)
		addr, _ := w.door(t, run)
		agent := w.agent(t, run, addr, "", nil)
		first := call(t, agent, create, `{"summary":"x"}`)
		same(t, first, call(t, agent, create, `{"summary":"x"}`))
		same(t, 1, len(w.app.performed()))
		call(t, agent, create, `{"summary":"y"}`)
		call(t, agent, list, `{}`)
		call(t, agent, list, `{}`)
		same(t, 4, len(w.app.performed())) // another write, and reads, are not repeats
	})
}

func TestIdenticalWritesAtTheSameTimeArePerformedOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, _ := w.run(t)
		addr, _ := w.door(t, run)
		agent := w.agent(t, run, addr, "", nil)
		entered, release := make(chan struct{}, 10), make(chan struct{})
		w.app.on(create, func(context.Context, gateway.Call) (gateway.Result, error) {
			entered <- struct{}{}
			<-release
			return done("once"), nil
		})
		var wait sync.WaitGroup
		answers := make(chan answer, 5)
		for range 5 {
			wait.Go(func() {
				r, err := agent.CallTool(context.Background(), &mcp.CallToolParams{Name: create, Arguments: json.RawMessage(`{"summary":"x"}`)})
				if err != nil {
					t.Error(err)
					return
				}
				answers <- answerOf(t, r)
			})
		}
		next(t, entered)
		close(release)
		wait.Wait()
		for range 5 {
			same(t, "once", next(t, answers).Text)
		}
		same(t, 1, len(w.app.performed()))
	})
}

// Fault pairs: what is told when the app failed before the effect, and when it failed after it.
func TestFailuresAreToldByWhatTheyMayHaveDone(t *testing.T) {
	w := onSQLite(t)
	failing := map[string]func(context.Context, gateway.Call) (gateway.Result, error){
		"error": func(context.Context, gateway.Call) (gateway.Result, error) {
			return gateway.Result{}, errors.New("secret address 10.1.2.3")
		},
		"panic":      func(context.Context, gateway.Call) (gateway.Result, error) { panic("secret address 10.1.2.3") },
		"no outcome": func(context.Context, gateway.Call) (gateway.Result, error) { return gateway.Result{Text: "?"}, nil },
		"broken parts": func(context.Context, gateway.Call) (gateway.Result, error) {
			return gateway.Result{Outcome: store.OutcomeDone, Structured: json.RawMessage(`[1]`)}, nil
		},
		"unknown": func(context.Context, gateway.Call) (gateway.Result, error) {
			return gateway.Result{Outcome: store.OutcomeUnknown, Text: "?", IsError: true, Code: "outcome_unknown",
				Structured: json.RawMessage(`{"status":"error","code":"outcome_unknown","performed":"unknown"}`)}, nil
		},
	}
	for name, fail := range failing {
		run, end := w.run(t)
		addr, shut := w.door(t, run)
		agent := w.agent(t, run, addr, "", nil)
		w.app.on(list, fail)
		w.app.on(create, fail)
		before := len(w.app.performed())
		read := call(t, agent, list, `{}`)
		write := call(t, agent, create, `{"summary":"x"}`)
		again := call(t, agent, create, `{"summary":"x"}`)
		if !read.IsError && name != "unknown" || !write.IsError || write.Structured["performed"] != "unknown" {
			t.Errorf("%s: read %+v, write %+v", name, read, write)
		}
		same(t, write, again) // an unknown outcome is never tried again
		same(t, before+2, len(w.app.performed()))
		rows := w.rows(t, run.ID)
		same(t, []store.Outcome{store.OutcomeUnknown, store.OutcomeFailed}, []store.Outcome{rows[0].Outcome, rows[1].Outcome})
		if strings.Contains(read.Text+write.Text, "10.1.2.3") {
			t.Errorf("%s: the inside is told", name)
		}
		shut()
		end()
	}
	// Failed, and certainly not done: said as such.
	w.app.on(create, func(context.Context, gateway.Call) (gateway.Result, error) {
		return gateway.Result{Outcome: store.OutcomeFailed, Text: "no", IsError: true, Code: "busy", Structured: json.RawMessage(`{"status":"error","performed":"no"}`)}, nil
	})
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	got := call(t, w.agent(t, run, addr, "", nil), create, `{"summary":"x"}`)
	same(t, "no", got.Structured["performed"])
	same(t, []row{{create, policy.Allow, "", store.OutcomeFailed, "busy"}}, w.rows(t, run.ID))
}

func TestAClosingDoorGivesAWriteItsGraceAndThenRecordsItAsUnknown(t *testing.T) {
	w := onSQLite(t)
	w.cfg.Grace = 1 // nanosecond: at once
	w.build(t)
	run, _ := w.run(t)
	addr, shut := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	entered := make(chan struct{})
	w.app.on(create, func(ctx context.Context, _ gateway.Call) (gateway.Result, error) {
		close(entered)
		<-ctx.Done()
		return gateway.Result{}, ctx.Err()
	})
	var wait sync.WaitGroup
	wait.Go(func() {
		_, _ = agent.CallTool(context.Background(), &mcp.CallToolParams{Name: create, Arguments: json.RawMessage(`{"summary":"x"}`)}) // the door closes on it
	})
	next(t, entered)
	shut()
	same(t, []row{{create, policy.Allow, "", store.OutcomeUnknown, "outcome_unknown"}}, w.rows(t, run.ID))
	wait.Wait()
}

func TestLongResultsAreCutInBothParts(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	w.app.on(list, func(context.Context, gateway.Call) (gateway.Result, error) {
		return done(strings.Repeat("ñ", 100_000)), nil
	})
	got := call(t, w.agent(t, run, addr, "", nil), list, `{}`)
	structured := need(json.Marshal(got.Structured))(t)
	if len(got.Text)+len(structured) >= 50_000 || got.Structured["truncated"] != true {
		t.Errorf("%d and %d bytes: %.100s", len(got.Text), len(structured), structured)
	}
}

func TestARunCannotCallForEver(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	for i := range run.Grant.Limits.Writes {
		if got := call(t, agent, create, fmt.Sprintf(`{"summary":"%d"}`, i)); got.IsError {
			t.Fatalf("write %d: %+v", i, got)
		}
	}
	if got := call(t, agent, create, `{"summary":"one more"}`); got.Structured["code"] != "limit" {
		t.Errorf("%+v", got)
	}
	if got := call(t, agent, list, `{}`); got.IsError {
		t.Errorf("a read after the last write: %+v", got)
	}
	same(t, run.Grant.Limits.Writes+1, len(w.app.performed()))
}

// The attack: an agent floods an approver with cards until one is pressed unread.
func TestARunCannotFloodAnApprover(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	for i := range run.Grant.Limits.Asked {
		if got := call(t, agent, mail, fmt.Sprintf(`{"para":["%d@otra.com"]}`, i)); got.IsError {
			t.Fatalf("mail %d: %+v", i, got)
		}
	}
	if got := call(t, agent, mail, `{"para":["more@otra.com"]}`); got.Structured["code"] != "limit" {
		t.Errorf("%+v", got)
	}
	if got := call(t, agent, create, `{"summary":"needs nobody"}`); got.IsError {
		t.Errorf("%+v", got)
	}
	same(t, run.Grant.Limits.Asked, len(w.said(t)[102]))
}

func TestNothingOfACallIsLogged(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	call(t, agent, create, `{"summary":"palabra-secreta"}`)
	call(t, agent, create, `{"summary":"palabra-secreta","nope":1}`)
	call(t, agent, mail, `{"para":["palabra-secreta@otra.com"]}`)
	for _, want := range []string{"call.decided", "call.ended", "approval.asked"} {
		if !w.log.has(want) {
			t.Errorf("no %s", want)
		}
	}
	for _, secret := range []string{"palabra-secreta", "apn_", need(w.g.MintToken(run))(t).Reveal()} {
		if strings.Contains(w.log.text(), secret) {
			t.Errorf("%.20s is in the log", secret)
		}
	}
}
