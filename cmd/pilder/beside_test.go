package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"pilder/sim/anthropic"
	"pilder/sim/telegram"
	"pilder/store"
)

// asOperator gives this process's commands the configuration of a world.
func (w *world) asOperator() {
	quiet(w.t)
	for _, kv := range w.environ {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PILDER_") {
			w.t.Setenv(name, value)
		}
	}
}

// TestCommandsWorkBesideAServingProcess: a SQLite file belongs to the process that serves it, and an operator's commands
// are its guests.
func TestCommandsWorkBesideAServingProcess(t *testing.T) {
	w := newWorld(t, "sqlite")
	w.asOperator()
	serving := w.start("")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.telegram.Say(anaID, meeting)
	answered := func(m telegram.Message) bool { return m.Bot && strings.Contains(m.Text, "10:00") }
	if _, err := w.telegram.WaitMessage(ctx, anaID, answered); err != nil {
		t.Fatal(err)
	}
	do := func(args string) string {
		t.Helper()
		got := pilder(t, "", strings.Split(args, " ")...)
		if got.code != exitOK || got.errs != "" {
			t.Fatalf("%s: exit code %d: %s", args, got.code, got.errs)
		}
		return got.out
	}
	match := func(args, shape string) []string {
		t.Helper()
		out := do(args)
		found := regexp.MustCompile(shape).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("%s printed %q, want %s", args, out, shape)
		}
		return found
	}

	match("company list", `^\S+\tEmpresa\tempresa\.com\tAmerica/Argentina/Buenos_Aires\n$`)
	second := match("company add Acme --domain acme.example --lang en --zone Europe/Madrid", `^(\S+)\n$`)[1]
	match("company list", `(?m)^`+second+`\tAcme\tacme\.example\tEurope/Madrid$`)
	match("person list Empresa", `(?m)^\S+\tadmin\t1001\tAna$`)

	run := match("runs list", `^\S+ \S+  (run_\S+)  succeeded +ok +cold calls=1 turns=\d+ tokens=\d+ cost=\$\d+\.\d{4} \d+ms\n$`)[1]
	var shown struct {
		Run   string
		State string
		Warm  *bool
		Calls []struct{ Tool string }
	}
	if err := json.Unmarshal([]byte(do("runs show "+run)), &shown); err != nil || shown.Run != run || shown.State != "succeeded" ||
		shown.Warm == nil || *shown.Warm ||
		len(shown.Calls) != 1 || shown.Calls[0].Tool != created {
		t.Errorf("runs show: %+v, %v", shown, err)
	}

	// The link works once: whoever has it is asked, and is in the company after their press.
	payload := match("invite "+second+" --role admin", `^https://t\.me/pilder_demo_bot\?start=(\S+)\n$`)[1]
	const eva = 1005
	w.telegram.Say(eva, "/start "+payload)
	offer, err := w.telegram.WaitMessage(ctx, eva, func(m telegram.Message) bool { return len(m.Buttons) > 0 })
	if err != nil {
		t.Fatal(err)
	}
	w.telegram.PressLabel(eva, offer.ID, offer.Buttons[0][0].Text)
	if _, err := w.telegram.WaitMessage(ctx, eva, func(m telegram.Message) bool { return m.Bot && m.ID > offer.ID }); err != nil {
		t.Fatal(err)
	}
	match("person list Acme", `^\S+\tadmin\t1005\tEva\n$`)

	actions := map[string]bool{}
	for line := range strings.Lines(do("audit list Empresa --limit 1000")) {
		var row struct{ Action string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("audit list: %v: %s", err, line)
		}
		if strings.Contains(line, "reunión") {
			t.Errorf("the audit tells what was said: %s", line)
		}
		actions[row.Action] = true
	}
	for _, action := range []string{"company.created", "run.started", "call.decided", "call.ended", "run.finished"} {
		if !actions[action] {
			t.Errorf("no %s in the audit: %v", action, actions)
		}
	}
	match("audit verify Empresa", `^\d+ rows hold\n$`)
	match("migrate", `^schema is up to date\n$`)
	match("doctor --only store", `2 companies`)

	select {
	case <-serving.ended:
		t.Errorf("the serving process ended: %s", serving.log)
	default:
	}
}

// TestWithoutTheBotsNameAnInvitationIsAWordToWrite: Telegram need not be there to invite somebody.
func TestWithoutTheBotsNameAnInvitationIsAWordToWrite(t *testing.T) {
	quiet(t)
	t.Setenv("PILDER_TELEGRAM_API_URL", "http://127.0.0.1:1")
	config := write(t, "data: "+t.TempDir()+"\ntelegram:\n  token: \""+telegram.DefaultToken+"\"\n")
	if got := pilder(t, "", "--config", config, "company", "add", "Acme"); got.code != exitOK {
		t.Fatal(got)
	}
	got := pilder(t, "", "--config", config, "invite", "Acme", "--role", "admin")
	if got.code != exitOK || !regexp.MustCompile(`^/start \S{20,64}\n$`).MatchString(got.out) || !strings.Contains(got.errs, "the bot's name is not known") {
		t.Errorf("got %+v", got)
	}
}

// TestServeEndsWithTheMachinesCodeWhenTheSandboxIsTooWeak, and so do agents without one that were accepted in one place only.
func TestServeEndsWithTheMachinesCodeWhenTheSandboxIsTooWeak(t *testing.T) {
	for name, c := range map[string]struct{ set, says string }{
		"a tier that is not to be had": {"PILDER_SANDBOX_REQUIRE=A", "sandbox is weaker than required: tier C, required A"},
		"none, said once":              {"PILDER_SANDBOX_MODE=none", "agents without a sandbox need sandbox.mode none and its acceptance"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "sqlite")
			w.environ = append(w.environ, c.set)
			w.asOperator()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got := pilderIn(ctx, "", "serve")
			last := got.errs[strings.LastIndex(strings.TrimSpace(got.errs), "\n")+1:]
			if got.code != exitMachine || !strings.HasPrefix(last, "pilder: ") || !strings.Contains(last, c.says) {
				t.Errorf("exit code %d, want %d; it said %q", got.code, exitMachine, got.errs)
			}
		})
	}
}

// TestServeStopsInPeace: what an operator's SIGTERM does ends the command well, also while an agent is at work. Its turn did
// nothing yet and is taken up again.
func TestServeStopsInPeace(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy %v", busy), func(t *testing.T) {
			w := newWorld(t, "sqlite")
			w.asOperator()
			hold := make(chan struct{})
			defer close(hold)
			if busy {
				w.anthropic.Fault(anthropic.Fault{Hold: hold})
			}
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			ended := make(chan ran, 1)
			go func() { ended <- pilderIn(ctx, "", "serve") }()
			w.telegram.Say(anaID, "hola")
			var err error
			if busy {
				err = w.anthropic.Wait(ctx, 1)
			} else {
				_, err = w.telegram.WaitMessage(ctx, anaID, func(m telegram.Message) bool { return m.Bot })
			}
			if err != nil {
				t.Fatal(err)
			}
			stop()
			got := <-ended
			if got.code != exitOK || !strings.Contains(got.errs, `"event":"pilder.stopped"`) || strings.Contains(got.errs, `"level":"error"`) {
				t.Errorf("exit code %d: %s", got.code, got.errs)
			}
			if left, err := os.ReadDir(w.data + "/runs"); err != nil || len(left) > 0 {
				t.Errorf("workspaces left: %v, %v", left, err)
			}
			want := store.FateAnswered
			if busy {
				want = store.FateQueued
			}
			s := w.guest(t.Context())
			defer s.Close()
			fates, err := s.MessageFates(t.Context(), demoBot, anaID, 10)
			if err != nil || len(fates) != 1 || fates[0].Fate != want {
				t.Errorf("the message is %+v, %v; want %s", fates, err, want)
			}
		})
	}
}
