package telegram_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pilder/sim/telegram"
)

// HttpReader: query string, urlencoded, JSON and multipart without a length
// carry the same parameters; Client: method names have no case.
func TestParametersArriveInEveryForm(t *testing.T) {
	s := world(newClock())
	at := "http://127.0.0.1/bot" + telegram.DefaultToken + "/"
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	for name, value := range map[string]string{"chat_id": "7001", "text": "multipart"} {
		if err := parts.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := parts.Close(); err != nil {
		t.Fatal(err)
	}
	requests := map[string]*http.Request{
		"query":      httptest.NewRequest(http.MethodGet, at+"SENDMESSAGE?chat_id=7001&text=query", nil),
		"urlencoded": httptest.NewRequest(http.MethodPost, at+"sendMessage", strings.NewReader(url.Values{"chat_id": {"7001"}, "text": {"urlencoded"}}.Encode())),
		"json":       httptest.NewRequest(http.MethodPost, at+"sendmessage", strings.NewReader(`{"chat_id":7001,"text":"json"}`)),
		"multipart":  httptest.NewRequest(http.MethodPost, at+"sendMessage", io.MultiReader(&form)),
	}
	requests["urlencoded"].Header.Set("Content-Type", "application/x-www-form-urlencoded")
	requests["json"].Header.Set("Content-Type", "application/json; charset=utf-8")
	requests["multipart"].Header.Set("Content-Type", parts.FormDataContentType())
	for name, r := range requests {
		if r.ContentLength = -1; name == "query" {
			r.ContentLength = 0
		}
		if got := do(t, s, r); !got.OK {
			t.Errorf("%s: %s", name, got.Text)
		}
	}
	seen := map[string]bool{}
	for _, m := range s.Transcript(ana) {
		seen[m.Text] = true
	}
	if len(seen) != 4 {
		t.Errorf("arrived: %v", seen)
	}
}

// HttpConnection, ClientManager and Client::on_cmd.
func TestTokensAndMethodsThatDoNotExist(t *testing.T) {
	s := world(newClock())
	for path, want := range map[string]string{
		"/bot" + telegram.DefaultToken + "/sendRichMessage": "404 Not Found: method not found",
		"/bot" + telegram.DefaultToken + "x/getMe":          "401 Unauthorized",
		"/bot1/getMe":                  "401 Unauthorized: invalid token specified",
		"/bot" + telegram.DefaultToken: "404 Not Found",
		"/bot" + telegram.DefaultToken + "/sendMessage?text=x":   "400 Bad Request: chat_id is empty",
		"/file/bot" + telegram.DefaultToken + "/documents/other": "404 Not Found",
		"/file/bot1/documents/file_0":                            "401 Unauthorized",
	} {
		got := do(t, s, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil))
		if have := fmt.Sprintf("%d %s", got.Status, got.Text); have != want {
			t.Errorf("%s: got %q, want %q", path, have, want)
		}
	}
}

func TestSendingShowsThePersonExactlyTheMessage(t *testing.T) {
	c := newClock()
	s := world(c)
	asked := s.Say(ana, "¿qué hay?")
	keys := [][]telegram.Button{{{Text: "Sí", Data: "y"}, {Text: "Web", URL: "https://acme.example.com/x"}}}
	got := must[sent](t, s, "sendMessage", params{
		"chat_id": ana, "text": "mira", "entities": []entity{{Type: "bold", Length: 4}},
		"reply_markup":     params{"inline_keyboard": keys},
		"reply_parameters": params{"message_id": asked, "quote": "qué"},
	})
	if got.ReplyTo == nil || got.ReplyTo.ID != asked || got.ID <= asked {
		t.Errorf("answered with %+v", got)
	}
	want := []telegram.Message{
		{ID: asked, Chat: ana, From: ana, Text: "¿qué hay?", Time: c.at},
		{ID: got.ID, Chat: ana, From: 100001, Bot: true, Text: "mira", Entities: []entity{{Type: "bold", Length: 4}},
			Buttons: keys, ReplyTo: asked, Time: c.at},
	}
	if diff := cmp.Diff(want, s.Transcript(ana), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Client::check_chat, check_message, check_reply_parameters, get_reply_markup;
// 403 texts from Client::fail_query_with_error.
func TestRefusalsUseTheServersWords(t *testing.T) {
	s := world(newClock())
	hers := s.Say(ana, "hola")
	mine := must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "hola, Ana"}).ID
	key := func(b params) params { return params{"inline_keyboard": [][]params{{b}}} }
	for _, c := range []struct {
		name, method string
		p            params
		want         string
	}{
		{"no chat", "sendMessage", params{"text": "x"}, "chat_id is empty"},
		{"unknown chat", "sendMessage", params{"chat_id": 5, "text": "x"}, "chat not found"},
		{"username", "sendMessage", params{"chat_id": "@ana", "text": "x"}, "chat not found"},
		{"reply target", "sendMessage", params{"chat_id": ana, "text": "x", "reply_parameters": params{"message_id": 1}}, "message to be replied not found"},
		{"quote", "sendMessage", params{"chat_id": ana, "text": "x", "reply_parameters": params{"message_id": hers, "quote": "adiós"}}, "QUOTE_TEXT_INVALID"},
		{"thread", "sendMessage", params{"chat_id": ana, "text": "x", "message_thread_id": 4}, "message thread not found"},
		{"65 bytes of data", "sendMessage", params{"chat_id": ana, "text": "x", "reply_markup": key(params{"text": "b", "callback_data": strings.Repeat("ñ", 32) + "."})}, "BUTTON_DATA_INVALID"},
		{"button without purpose", "sendMessage", params{"chat_id": ana, "text": "x", "reply_markup": key(params{"text": "b"})}, "can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"},
		{"button without text", "sendMessage", params{"chat_id": ana, "text": "x", "reply_markup": key(params{"callback_data": "b"})}, `can't parse inline keyboard button: Can't find field "text"`},
		{"button to localhost", "sendMessage", params{"chat_id": ana, "text": "x", "reply_markup": key(params{"text": "b", "url": "http://localhost/x"})}, "inline keyboard button URL 'http://localhost/x' is invalid: Wrong HTTP URL"},
		{"null markup", "sendMessage", params{"chat_id": ana, "text": "x", "reply_markup": nil}, "object expected as reply markup"},
		{"edit of another's", "editMessageText", params{"chat_id": ana, "message_id": hers, "text": "x"}, "message can't be edited"},
		{"edit of nothing", "editMessageText", params{"chat_id": ana, "message_id": 1, "text": "x"}, "message to edit not found"},
		{"edit without change", "editMessageText", params{"chat_id": ana, "message_id": mine, "text": " hola, Ana "}, "message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message"},
		{"markup without change", "editMessageReplyMarkup", params{"chat_id": ana, "message_id": mine}, "message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message"},
		{"delete of nothing", "deleteMessage", params{"chat_id": ana, "message_id": 1}, "message to delete not found"},
		{"delete without id", "deleteMessage", params{"chat_id": ana}, "message identifier is not specified"},
		{"action", "sendChatAction", params{"chat_id": ana, "action": "dancing"}, "wrong parameter action in request"},
		{"unknown query", "answerCallbackQuery", params{"callback_query_id": "1"}, "query is too old and response timeout expired or query ID is invalid"},
		{"201 characters of toast", "answerCallbackQuery", params{"callback_query_id": "1", "text": strings.Repeat("x", 201)}, "MESSAGE_TOO_LONG"},
		{"unknown file", "getFile", params{"file_id": "x"}, "invalid file_id"},
		{"no document", "sendDocument", params{"chat_id": ana}, "there is no document in the request"},
		{"command in capitals", "setMyCommands", params{"commands": []params{{"command": "Start", "description": "x"}}}, "BOT_COMMAND_INVALID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, want := refusal(t, s, c.method, c.p), "400 Bad Request: "+c.want; got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
	if got := len(s.Transcript(ana)); got != 2 {
		t.Errorf("%d messages after refusals only, want 2", got)
	}
	must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "x", "reply_parameters": params{"message_id": 1, "allow_sending_without_reply": true}})
	must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "y", "reply_markup": key(params{"text": "b", "callback_data": strings.Repeat("ñ", 32)})})
}

func TestPeopleWhoCannotBeReached(t *testing.T) {
	s := world(newClock())
	for _, c := range []struct {
		reach telegram.Reach
		want  string
	}{
		{telegram.Blocked, "403 Forbidden: bot was blocked by the user"},
		{telegram.Deactivated, "403 Forbidden: user is deactivated"},
	} {
		s.SetReach(ana, c.reach)
		if got := refusal(t, s, "sendMessage", params{"chat_id": ana, "text": "x"}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		s.SetReach(ana, telegram.Reachable)
	}
	must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "x"})
	if got := texts(updates(t, s, nil)); got != "member:kicked member:member" {
		t.Errorf("the bot was told %q", got)
	}
}

func TestEditsAndDeletionsChangeWhatIsSeen(t *testing.T) {
	s := world(newClock())
	keys := params{"inline_keyboard": [][]telegram.Button{{{Text: "Sí", Data: "y"}}}}
	id := must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "uno", "reply_markup": keys}).ID
	// An edit without markup takes the buttons away.
	got := must[sent](t, s, "editMessageText", params{"chat_id": ana, "message_id": id, "text": "dos"})
	if got.Text != "dos" || got.Edited == 0 || got.Markup.Keyboard != nil {
		t.Errorf("edited to %+v", got)
	}
	must[sent](t, s, "editMessageReplyMarkup", params{"chat_id": ana, "message_id": id, "reply_markup": keys})
	if m := s.Transcript(ana); len(m) != 1 || m[0].Text != "dos" || len(m[0].Buttons) != 1 || m[0].Edited.IsZero() {
		t.Errorf("seen %+v", m)
	}
	must[bool](t, s, "deleteMessage", params{"chat_id": ana, "message_id": id})
	if m := s.Transcript(ana); len(m) != 0 {
		t.Errorf("seen after deletion %+v", m)
	}
	hers := s.Say(ana, "typo")
	if !s.Edit(ana, hers, "fixed") || s.Edit(ana, id, "x") {
		t.Error("Edit changed what it should not, or not what it should")
	}
	if got := texts(updates(t, s, nil)); got != "typo edited:fixed" {
		t.Errorf("the bot was told %q", got)
	}
}

func TestATapIsAnsweredOnceAndInTime(t *testing.T) {
	c := newClock()
	s := telegram.New(telegram.Config{Now: c.Now, People: people, AnswerWithin: time.Minute})
	id := must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "?", "reply_markup": params{
		"inline_keyboard": [][]telegram.Button{{{Text: "Sí", Data: "y"}}}}}).ID
	if s.PressLabel(ana, id, "No") != "" {
		t.Error("a button that is not there was pressed")
	}
	query := s.PressLabel(ana, id, "Sí")
	got := updates(t, s, nil)
	if len(got) != 1 || got[0].Callback == nil || got[0].Callback.ID != query || got[0].Callback.Message.MessageID != id || got[0].Callback.Message.Date == 0 {
		t.Fatalf("the bot was told %+v", got)
	}
	must[bool](t, s, "answerCallbackQuery", params{"callback_query_id": query, "text": "Hecho", "show_alert": true})
	const tooOld = "400 Bad Request: query is too old and response timeout expired or query ID is invalid"
	if got := refusal(t, s, "answerCallbackQuery", params{"callback_query_id": query}); got != tooOld {
		t.Errorf("second answer: %q", got)
	}
	if a, ok := s.TapAnswer(query); !ok || a.Text != "Hecho" || !a.Alert {
		t.Errorf("shown %+v", a)
	}
	if got := s.Violations(); len(got) != 1 || !strings.Contains(got[0], "answered twice") {
		t.Errorf("violations %q", got)
	}
	late := s.Press(ana, id, "y")
	c.add(61 * time.Second)
	if got := refusal(t, s, "answerCallbackQuery", params{"callback_query_id": late}); got != tooOld {
		t.Errorf("late answer: %q", got)
	}
	// A message that is gone arrives with date 0.
	must[bool](t, s, "deleteMessage", params{"chat_id": ana, "message_id": id})
	s.Press(ana, id, "y")
	all := updates(t, s, params{"offset": 1})
	if last := all[len(all)-1].Callback; last == nil || last.Message.Date != 0 {
		t.Errorf("a tap on a deleted message came as %+v", last)
	}
}

func TestFilesGoBothWays(t *testing.T) {
	c := newClock()
	s := world(c)
	s.Send(ana, telegram.Upload{Name: "notas.md", Content: []byte("# hola"), Caption: "mis notas"})
	s.Send(ana, telegram.Upload{Name: "film.mp4", Content: []byte("x"), Size: 20<<20 + 1})
	got := must[[]struct{ Message sent }](t, s, "getUpdates", nil)
	if len(got) != 2 || got[0].Message.Document.Name != "notas.md" || got[0].Message.Caption != "mis notas" {
		t.Fatalf("told %+v", got)
	}
	if have := refusal(t, s, "getFile", params{"file_id": got[1].Message.Document.FileID}); have != "400 Bad Request: file is too big" {
		t.Errorf("20 MB and one byte: %q", have)
	}
	path := must[struct {
		Path string `json:"file_path"`
	}](t, s, "getFile", params{"file_id": got[0].Message.Document.FileID}).Path
	download := func() (int, string) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/file/bot"+telegram.DefaultToken+"/"+path, nil))
		return w.Code, w.Body.String()
	}
	if code, body := download(); code != 200 || body != "# hola" {
		t.Errorf("downloaded %d %q", code, body)
	}
	c.add(time.Hour)
	if code, _ := download(); code != 404 {
		t.Errorf("an hour later the link answered %d", code)
	}
	again := must[sent](t, s, "sendDocument", params{"chat_id": ana, "document": got[0].Message.Document.FileID, "caption": " "})
	if again.Document == nil || again.Document.Name != "notas.md" || again.Caption != "" {
		t.Errorf("sent again as %+v", again)
	}
}

func TestAnUploadOverTheLimitGetsAnHTMLPage(t *testing.T) {
	s := world(newClock())
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/bot"+telegram.DefaultToken+"/sendDocument", io.LimitReader(zeros{}, 60<<20))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if w.Code != 413 || !strings.HasPrefix(w.Body.String(), "<html>") {
		t.Errorf("got %d %.60q", w.Code, w.Body)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestChatActionsAndMenusAreRemembered(t *testing.T) {
	c := newClock()
	s := world(c)
	must[bool](t, s, "sendChatAction", params{"chat_id": ana, "action": "typing"})
	must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "x"})
	c.add(4 * time.Second)
	must[bool](t, s, "sendChatAction", params{"chat_id": ana, "action": "upload_document"})
	want := []telegram.ChatAction{{Action: "typing", Time: c.at.Add(-4 * time.Second)}, {Action: "upload_document", Time: c.at}}
	if diff := cmp.Diff(want, s.ChatActions(ana)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	menu := []telegram.Command{{Command: "stop", Description: "Parar"}}
	must[bool](t, s, "setMyCommands", params{"commands": menu, "language_code": "es"})
	if got := must[[]telegram.Command](t, s, "getMyCommands", params{"language_code": "es"}); !cmp.Equal(got, menu) {
		t.Errorf("menu %v", got)
	}
	if got := must[[]telegram.Command](t, s, "getMyCommands", nil); len(got) != 0 {
		t.Errorf("default menu %v", got)
	}
}

func TestALongTextIsSentInPiecesAsAClientDoes(t *testing.T) {
	s := world(newClock())
	s.Say(ana, strings.Repeat("ñ", 5000))
	if got := s.Transcript(ana); len(got) != 2 || len([]rune(got[0].Text)) != 4096 {
		t.Errorf("%d messages", len(got))
	}
	if s.Say(ana, "  ") != 0 {
		t.Error("spaces were sent")
	}
}
