package telegram_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"pilder/sim/telegram"
)

const (
	ana   = 7001
	bruno = 7002
)

var people = []telegram.Person{
	{ID: ana, Name: "Ana Torres", Username: "ana", Language: "es"},
	{ID: bruno, Name: "Bruno", Language: "en"},
}

// clock is a wall clock that moves when told to.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func world(c *clock) *telegram.Server {
	return telegram.New(telegram.Config{Now: c.Now, People: people, Seed: 1})
}

// reply is an answer of the Bot API.
type reply struct {
	Status int `json:"-"`
	Header http.Header
	OK     bool
	Result json.RawMessage
	Code   int    `json:"error_code"`
	Text   string `json:"description"`
	Params struct {
		RetryAfter int `json:"retry_after"`
	} `json:"parameters"`
}

type params map[string]any

// ask calls a method without a network, so that it works on a fake clock too.
func ask(t *testing.T, s *telegram.Server, method string, p params) reply {
	t.Helper()
	if p == nil {
		p = params{}
	}
	body, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/bot"+telegram.DefaultToken+"/"+method, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return do(t, s, r)
}

func do(t *testing.T, s *telegram.Server, r *http.Request) reply {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	out := reply{Status: w.Code, Header: w.Header()}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("answer %d is not JSON: %s", w.Code, w.Body)
	}
	return out
}

// must calls a method that has to succeed and decodes its result.
func must[T any](t *testing.T, s *telegram.Server, method string, p params) T {
	t.Helper()
	got := ask(t, s, method, p)
	if !got.OK {
		t.Fatalf("%s: %s", method, got.Text)
	}
	var out T
	if err := json.Unmarshal(got.Result, &out); err != nil {
		t.Fatalf("%s: result %s: %v", method, got.Result, err)
	}
	return out
}

// refusal calls a method that has to fail and returns "code text".
func refusal(t *testing.T, s *telegram.Server, method string, p params) string {
	t.Helper()
	got := ask(t, s, method, p)
	if got.OK {
		t.Fatalf("%s succeeded: %s", method, got.Result)
	}
	if got.Status != got.Code {
		t.Errorf("%s: HTTP status %d, error_code %d", method, got.Status, got.Code)
	}
	return fmt.Sprintf("%d %s", got.Code, got.Text)
}

type update struct {
	ID      int64 `json:"update_id"`
	Message *struct {
		MessageID int64             `json:"message_id"`
		Text      string            `json:"text"`
		Entities  []telegram.Entity `json:"entities"`
	}
	Edited *struct {
		Text string `json:"text"`
	} `json:"edited_message"`
	Callback *struct {
		ID      string `json:"id"`
		Data    string `json:"data"`
		Message struct {
			MessageID int64 `json:"message_id"`
			Date      int64 `json:"date"`
		}
	} `json:"callback_query"`
	Member *struct {
		New struct {
			Status string `json:"status"`
		} `json:"new_chat_member"`
	} `json:"my_chat_member"`
}

func updates(t *testing.T, s *telegram.Server, p params) []update {
	t.Helper()
	return must[[]update](t, s, "getUpdates", p)
}

func texts(us []update) string {
	var out []string
	for _, u := range us {
		switch {
		case u.Message != nil:
			out = append(out, u.Message.Text)
		case u.Edited != nil:
			out = append(out, "edited:"+u.Edited.Text)
		case u.Callback != nil:
			out = append(out, "tap:"+u.Callback.Data)
		case u.Member != nil:
			out = append(out, "member:"+u.Member.New.Status)
		default:
			out = append(out, "?")
		}
	}
	return strings.Join(out, " ")
}

type sent struct {
	ID       int64             `json:"message_id"`
	Text     string            `json:"text"`
	Entities []telegram.Entity `json:"entities"`
	Edited   int64             `json:"edit_date"`
	ReplyTo  *sent             `json:"reply_to_message"`
	Markup   struct {
		Keyboard [][]telegram.Button `json:"inline_keyboard"`
	} `json:"reply_markup"`
	Document *struct {
		FileID string `json:"file_id"`
		Name   string `json:"file_name"`
		Size   int64  `json:"file_size"`
	} `json:"document"`
	Caption string `json:"caption"`
}
