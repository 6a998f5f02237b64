package telegram_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pilder/sim/telegram"
)

// pageEvent is what the page reads from its stream.
type pageEvent struct {
	Reset    bool
	Messages []struct {
		ID      int64
		Mine    bool
		Text    string
		Deleted bool
	}
	Typing int64
	Toasts []struct{ Text string }
	Menu   []telegram.Command
}

// stream opens a person's chat as the page does.
func stream(t *testing.T, url string) func() pageEvent {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewReader(answer.Body)
	return func() pageEvent {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				var e pageEvent
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatal(err)
				}
				return e
			}
		}
	}
}

func TestThePageShowsTheChatAsItChanges(t *testing.T) {
	s := world(newClock())
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	defer s.Close()
	s.Say(ana, "hola")
	next := stream(t, web.URL+"/chat/events?who=7001")
	if e := next(); !e.Reset || len(e.Messages) != 1 || !e.Messages[0].Mine || e.Messages[0].Text != "hola" {
		t.Fatalf("first %+v", e)
	}
	must[bool](t, s, "sendChatAction", params{"chat_id": ana, "action": "typing"})
	if e := next(); e.Typing != 5000 || e.Reset {
		t.Errorf("typing %+v", e)
	}
	id := must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "¿qué tal?"}).ID
	if e := next(); e.Typing != 0 || len(e.Messages) != 1 || e.Messages[0].Mine {
		t.Errorf("answer %+v", e)
	}
	must[sent](t, s, "sendMessage", params{"chat_id": bruno, "text": "secreto"})
	must[bool](t, s, "deleteMessage", params{"chat_id": ana, "message_id": id})
	if e := next(); len(e.Messages) != 1 || !e.Messages[0].Deleted {
		t.Errorf("deletion %+v; another's chat must not show", e)
	}
	query := s.Press(ana, id, "y")
	must[bool](t, s, "answerCallbackQuery", params{"callback_query_id": query, "text": "Hecho"})
	if e := next(); len(e.Toasts) != 1 || e.Toasts[0].Text != "Hecho" {
		t.Errorf("toast %+v", e)
	}
	must[bool](t, s, "setMyCommands", params{"commands": []telegram.Command{{Command: "stop", Description: "Parar"}}})
	if e := next(); len(e.Menu) != 1 {
		t.Errorf("menu %+v", e)
	}
}

func TestThePageActsAsAPerson(t *testing.T) {
	s := world(newClock())
	post := func(path, kind, body string) int {
		r := httptest.NewRequest(http.MethodPost, "http://localhost:8081"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		path, kind, body string
		want             int
	}{
		{"/chat/say", "application/json", `{"who":7001,"text":"hola"}`, 200},
		{"/chat/press", "application/json", `{"who":7001,"message":1,"data":"y"}`, 200},
		{"/chat/send?who=7001&name=a.txt&caption=mira", "application/octet-stream", "x", 200},
		{"/chat/say", "application/json", `{"who":5,"text":"hola"}`, 404},
		{"/chat/say", "text/plain", `{"who":7001,"text":"hola"}`, 415},
		{"/chat/say", "application/json", `{`, 400},
		{"/chat/send?who=7001&name=a.txt", "text/plain", "x", 415},
		{"/chat/send?who=7001&name=a.txt", "application/octet-stream", "", 400},
	} {
		if got := post(c.path, c.kind, c.body); got != c.want {
			t.Errorf("%s %s %s: %d, want %d", c.path, c.kind, c.body, got, c.want)
		}
	}
	if got := texts(updates(t, s, nil)); got != "hola tap:y " {
		t.Errorf("the bot was told %q", got)
	}
}

// Any page open in a developer's browser can send requests to a local server:
// it must not be able to drive the demo.
func TestForeignPagesCannotReachTheSimulator(t *testing.T) {
	s := world(newClock())
	for _, c := range []struct {
		name, method, url string
		header            map[string]string
		want              int
	}{
		{"the page itself", "GET", "http://127.0.0.1:8081/", nil, 200},
		{"by name", "GET", "http://localhost/", nil, 200},
		{"by IPv6", "GET", "http://[::1]:8081/", nil, 200},
		{"a link from elsewhere to the page", "GET", "http://localhost/", map[string]string{"Sec-Fetch-Site": "cross-site"}, 200},
		{"a name that resolves to loopback", "GET", "http://evil.example.com:8081/chat/state", nil, 421},
		{"such a name at the Bot API", "POST", "http://evil.example.com/bot" + telegram.DefaultToken + "/getMe", nil, 421},
		{"a name that begins like ours", "GET", "http://localhost.evil.example.com/", nil, 421},
		{"cross-site POST", "POST", "http://localhost/chat/say", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"another port on this machine", "POST", "http://localhost:8081/chat/say", map[string]string{"Origin": "http://localhost:3000"}, 403},
		{"no origin at all", "POST", "http://localhost:8081/chat/say", map[string]string{"Origin": "null"}, 403},
		{"cross-site read", "GET", "http://localhost/chat/state", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"the Bot API from a page", "POST", "http://localhost/bot" + telegram.DefaultToken + "/sendMessage?chat_id=7001&text=x", map[string]string{"Origin": "https://evil.example.com"}, 403},
		{"own origin", "POST", "http://localhost:8081/chat/say", map[string]string{"Origin": "http://localhost:8081", "Sec-Fetch-Site": "same-origin"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, c.url, strings.NewReader(`{"who":7001,"text":"x"}`))
			r.Header.Set("Content-Type", "application/json")
			for name, value := range c.header {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("answered %d %s, want %d", w.Code, w.Body, c.want)
			}
		})
	}
	if got := len(s.Transcript(ana)); got != 1 {
		t.Errorf("%d messages, want the one of our own page", got)
	}
}

func TestThePageIsSelfContainedAndLockedDown(t *testing.T) {
	s := world(newClock())
	for _, path := range []string{"/", "/page/chat.css", "/page/chat.js", "/page/render.js", "/page/words.js"} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		body := w.Body.String()
		if w.Code != 200 || body == "" {
			t.Errorf("%s: %d", path, w.Code)
		}
		for _, banned := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://"} {
			if strings.Contains(body, banned) {
				t.Errorf("%s contains %q", path, banned)
			}
		}
		h := w.Header()
		if !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

func TestRunServesUntilItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	log, lines := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- telegram.Run(ctx, "127.0.0.1:0", telegram.Config{People: people}, lines)
	}()
	line, err := bufio.NewReader(log).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	base := line[strings.Index(line, "http://"):]
	base = strings.TrimSpace(base)
	// A poll and a page that wait must not hold up the end.
	next := stream(t, base+"chat/events?who=7001")
	next()
	polled := make(chan error, 1)
	go func() {
		answer, err := http.Post(base+"bot"+telegram.DefaultToken+"/getUpdates", "application/json", bytes.NewReader([]byte(`{"timeout":50}`)))
		if err == nil {
			err = answer.Body.Close()
		}
		polled <- err
	}()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run ended with %v", err)
	}
	<-polled // answered or cut, but over
}

func TestRunRefusesToListenBeyondLoopback(t *testing.T) {
	err := telegram.Run(t.Context(), "0.0.0.0:0", telegram.Config{}, io.Discard)
	if !errors.Is(err, telegram.ErrNotLoopback) {
		t.Errorf("got %v", err)
	}
	var op *net.OpError
	if err := telegram.Run(t.Context(), "127.0.0.1:-1", telegram.Config{}, io.Discard); !errors.As(err, &op) {
		t.Errorf("a port that does not exist: %v", err)
	}
}
