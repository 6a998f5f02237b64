package telegram_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pilder/sim/telegram"
)

func TestAPenaltyHoldsForItsChatAndEarlyCallsAreViolations(t *testing.T) {
	c := newClock()
	s := world(c)
	s.Fault(telegram.Fault{Kind: telegram.TooManyRequests, Method: "sendMessage", Chat: ana, RetryAfter: 30})
	send := func(chat int) reply { return ask(t, s, "sendMessage", params{"chat_id": chat, "text": "x"}) }
	got := send(ana)
	if got.Status != 429 || got.Text != "Too Many Requests: retry after 30" || got.Params.RetryAfter != 30 || got.Header.Get("Retry-After") != "30" {
		t.Errorf("got %+v", got)
	}
	if got := send(bruno); !got.OK {
		t.Errorf("another chat: %s", got.Text)
	}
	if got := s.Violations(); len(got) != 0 {
		t.Errorf("violations before any: %q", got)
	}
	c.add(29 * time.Second)
	if got := ask(t, s, "sendChatAction", params{"chat_id": ana, "action": "typing"}); got.Params.RetryAfter != 1 {
		t.Errorf("early call: %+v", got)
	}
	if got := s.Violations(); len(got) != 1 || !strings.Contains(got[0], "sendChatAction to chat 7001 came 1 s before") {
		t.Errorf("violations %q", got)
	}
	c.add(time.Second)
	if got := send(ana); !got.OK {
		t.Errorf("after the penalty: %s", got.Text)
	}
}

func TestAPenaltyOnPollsAndOnTheWholeBot(t *testing.T) {
	c := newClock()
	s := world(c)
	s.Fault(telegram.Fault{Kind: telegram.TooManyRequests, Method: "getUpdates", RetryAfter: 5})
	if got := ask(t, s, "getUpdates", nil); got.Status != 429 {
		t.Fatalf("got %+v", got)
	}
	if got := ask(t, s, "sendMessage", params{"chat_id": ana, "text": "x"}); !got.OK {
		t.Errorf("a penalty on polls hit a send: %s", got.Text)
	}
	c.add(5 * time.Second)
	s.Fault(telegram.Fault{Kind: telegram.TooManyRequests, Method: "sendMessage", RetryAfter: 5, BotWide: true})
	for method, p := range map[string]params{"sendMessage": {"chat_id": ana, "text": "y"}} {
		if got := ask(t, s, method, p); got.Status != 429 {
			t.Errorf("%s: %+v", method, got)
		}
	}
	if got := ask(t, s, "getMe", nil); got.Status != 429 {
		t.Errorf("getMe in a bot-wide penalty: %+v", got)
	}
}

// Faults that need a real connection, in pairs: failed and not done, failed
// but done.
func TestFaultsOnTheWire(t *testing.T) {
	for _, c := range []struct {
		kind   telegram.FaultKind
		done   bool
		status int // 0: no answer
		body   string
	}{
		{telegram.ServerError, false, 500, `{"ok":false,"error_code":500,"description":"Internal Server Error: restart"}`},
		{telegram.BadGateway, false, 502, "<html>"},
		{telegram.GatewayTimeout, false, 504, "<html>"},
		{telegram.LateGateway, true, 504, "<html>"},
		{telegram.CutBefore, false, 0, ""},
		{telegram.CutAfter, true, 0, ""},
		{telegram.CutBody, true, 200, ""},
		{telegram.Hang, false, 0, ""},
		{telegram.HangAfter, true, 0, ""},
		{telegram.Unauthorized, false, 401, `{"ok":false,"error_code":401,"description":"Unauthorized"}`},
		{telegram.Refuse, false, 403, `{"ok":false,"error_code":403,"description":"Forbidden: user is deactivated"}`},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			s := world(newClock())
			web := httptest.NewServer(s.Handler())
			defer web.Close()
			defer s.Close()
			s.Fault(telegram.Fault{Kind: c.kind, Method: "SENDMESSAGE", Nth: 2, Code: 403, Description: "Forbidden: user is deactivated"})
			send := func(ctx context.Context, text string) (int, string, error) {
				body, err := json.Marshal(params{"chat_id": ana, "text": text})
				if err != nil {
					return 0, "", err
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, web.URL+"/bot"+telegram.DefaultToken+"/sendMessage", bytes.NewReader(body))
				if err != nil {
					return 0, "", err
				}
				r.Header.Set("Content-Type", "application/json")
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					return 0, "", err
				}
				defer answer.Body.Close()
				got, err := io.ReadAll(answer.Body)
				return answer.StatusCode, string(got), err
			}
			if status, _, err := send(t.Context(), "first"); status != 200 || err != nil {
				t.Fatalf("the first call, before the fault: %d %v", status, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.kind == telegram.Hang || c.kind == telegram.HangAfter {
				go func() { // the client gives up once the server has the call
					_, err := s.WaitRequest(ctx, func(r telegram.Request) bool { return strings.HasPrefix(r.Verdict, "fault: hang") })
					if err == nil {
						cancel()
					}
				}()
			}
			status, body, err := send(ctx, "second")
			if status != c.status || !strings.HasPrefix(body, c.body) {
				t.Errorf("got %d %q, want %d %q", status, body, c.status, c.body)
			}
			if lost := c.status == 0 || c.kind == telegram.CutBody; lost != (err != nil) {
				t.Errorf("error %v", err)
			}
			if c.kind == telegram.CutBody && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the cut body ended with %v", err)
			}
			if status, _, err := send(t.Context(), "third"); status != 200 || err != nil {
				t.Errorf("the call after the fault: %d %v", status, err)
			}
			want := "first third"
			if c.done {
				want = "first second third"
			}
			var seen []string
			for _, m := range s.Transcript(ana) {
				seen = append(seen, m.Text)
			}
			if got := strings.Join(seen, " "); got != want {
				t.Errorf("seen %q, want %q", got, want)
			}
			if got := s.Requests()[1].Verdict; got != "fault: "+string(c.kind) {
				t.Errorf("recorded as %q", got)
			}
		})
	}
}

func TestASlowAnswerIsPerformedAfterItsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := world(newClock())
		s.Fault(telegram.Fault{Kind: telegram.Slow, Delay: 20 * time.Second})
		start := time.Now()
		must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "x"})
		if got := time.Since(start); got != 20*time.Second {
			t.Errorf("answered after %v", got)
		}
	})
}

func TestFaultsAreChosenByMethodChatPredicateAndCount(t *testing.T) {
	s := world(newClock())
	outcome := func(chat int, text string) int {
		return ask(t, s, "sendMessage", params{"chat_id": chat, "text": text}).Status
	}
	s.Fault(telegram.Fault{Kind: telegram.ServerError, Chat: bruno, Count: 2})
	undo := s.Fault(telegram.Fault{Kind: telegram.Unauthorized, Count: -1, Match: func(r telegram.Request) bool { return r.Params["text"] == "secret" }})
	got := []int{
		outcome(ana, "a"), outcome(bruno, "a"), outcome(bruno, "b"), outcome(bruno, "c"),
		outcome(ana, "secret"), outcome(ana, "secret"),
	}
	undo()
	got = append(got, outcome(ana, "secret"))
	want := []int{200, 500, 500, 200, 401, 401, 200}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func TestRepeatedTextsAndLeakedTokensAreNoted(t *testing.T) {
	s := world(newClock())
	for _, text := range []string{"una vez", "otra", "una vez"} {
		must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": text})
	}
	must[sent](t, s, "sendMessage", params{"chat_id": bruno, "text": "una vez"})
	if got := s.Duplicates(); len(got) != 1 || !strings.Contains(got[0], "una vez") {
		t.Errorf("duplicates %q", got)
	}
	if got := s.Violations(); len(got) != 0 {
		t.Errorf("violations %q", got)
	}
	must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "el token es " + telegram.DefaultToken})
	if got := s.Violations(); len(got) != 1 || strings.Contains(got[0], telegram.DefaultToken) {
		t.Errorf("violations %q", got)
	}
}

func TestWaitingForAMessageSeesEditsToo(t *testing.T) {
	s := world(newClock())
	id := must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "trabajando…"}).ID
	found := make(chan telegram.Message, 1)
	go func() {
		m, err := s.WaitMessage(t.Context(), ana, func(m telegram.Message) bool { return m.Text == "listo" })
		if err != nil {
			t.Error(err)
		}
		found <- m
	}()
	must[sent](t, s, "editMessageText", params{"chat_id": ana, "message_id": id, "text": "listo"})
	if m := <-found; m.ID != id {
		t.Errorf("found %+v", m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.WaitMessage(ctx, bruno, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait for nothing ended with %v", err)
	}
}
