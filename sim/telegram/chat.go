package telegram

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
)

//go:embed page
var pageFiles embed.FS

// The chat page: a client in which one can be any of the people. Everything it
// does is one of the calls a test would make.
const (
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	sayLimit  = 256 << 10 // bytes of one POST without a file
	heartbeat = 15 * time.Second
)

func (s *Server) page() http.Handler {
	mux := http.NewServeMux()
	for path, file := range map[string]string{
		"GET /{$}": "page/index.html", "GET /page/chat.css": "page/chat.css",
		"GET /page/chat.js": "page/chat.js", "GET /page/words.js": "page/words.js", "GET /page/render.js": "page/render.js",
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, pageFiles, file)
		})
	}
	mux.HandleFunc("GET /chat/state", s.chatState)
	mux.HandleFunc("GET /chat/events", s.chatEvents)
	mux.HandleFunc("GET /chat/file", s.chatFile)
	mux.HandleFunc("POST /chat/say", s.chatSay)
	mux.HandleFunc("POST /chat/press", s.chatPress)
	mux.HandleFunc("POST /chat/send", s.chatSend)
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		// Another site may link to the page, but has no business with what
		// is behind it, not even by GET.
		site := r.Header.Get("Sec-Fetch-Site")
		if strings.HasPrefix(r.URL.Path, "/chat/") && (site == "cross-site" || site == "same-site") {
			http.Error(w, "the chat is for its own page", http.StatusForbidden)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

type pagePerson struct {
	ID       int64  `json:"id"`
	Name     string `json:"name"`
	Username string `json:"username"`
}

func (s *Server) chatState(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	people := []pagePerson{}
	for _, p := range s.people {
		people = append(people, pagePerson{ID: p.ID, Name: p.Name, Username: p.Username})
	}
	s.mu.Unlock()
	writeJSON(w, map[string]any{
		"bot":    map[string]string{"name": s.bot.FirstName, "username": s.bot.Username},
		"people": people,
	})
}

// pageMessage is a message as the page is told of it.
type pageMessage struct {
	ID       int64         `json:"id"`
	Mine     bool          `json:"mine"`
	Text     string        `json:"text"`
	Entities []Entity      `json:"entities,omitempty"`
	Buttons  [][]Button    `json:"buttons,omitempty"`
	Document *pageDocument `json:"document,omitempty"`
	ReplyTo  *pageReply    `json:"reply_to,omitempty"`
	Time     int64         `json:"time"` // milliseconds
	Edited   bool          `json:"edited,omitempty"`
	Deleted  bool          `json:"deleted,omitempty"`
}

type pageDocument struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Size int64  `json:"size"`
}

type pageReply struct {
	ID   int64  `json:"id"`
	Mine bool   `json:"mine"`
	Text string `json:"text"`
}

type pageToast struct {
	Text  string `json:"text"`
	Alert bool   `json:"alert"`
}

// pageEvent is what has changed since the event before.
type pageEvent struct {
	Reset    bool          `json:"reset,omitempty"` // forget everything first
	Messages []pageMessage `json:"messages,omitempty"`
	Typing   int64         `json:"typing"` // milliseconds left, 0: not typing
	Toasts   []pageToast   `json:"toasts,omitempty"`
	Menu     []Command     `json:"menu"`
}

// watcher is one page's view of one person's chat.
type watcher struct {
	person Person
	since  int64 // the last change told; -1: none
	last   pageEvent
	acted  time.Time // of the chat action told last
}

// next returns what is new, if anything. The caller holds mu.
func (s *Server) next(v *watcher) (pageEvent, bool) {
	e := pageEvent{Reset: v.since < 0, Menu: s.menuFor(v.person), Typing: s.typing(v.person.ID).Milliseconds()}
	for _, m := range s.chats[v.person.ID] {
		if m.rev > v.since && (!m.deleted || !e.Reset) {
			e.Messages = append(e.Messages, s.pageMessage(m))
		}
	}
	for _, t := range s.taps {
		if !e.Reset && t.person == v.person.ID && t.rev > v.since && t.answer != nil && t.answer.Text != "" {
			e.Toasts = append(e.Toasts, pageToast{Text: t.answer.Text, Alert: t.answer.Alert})
		}
	}
	var acted time.Time
	if all := s.actions[v.person.ID]; len(all) > 0 {
		acted = all[len(all)-1].Time
	}
	news := e.Reset || len(e.Messages) > 0 || len(e.Toasts) > 0 || !acted.Equal(v.acted) || !reflect.DeepEqual(e.Menu, v.last.Menu)
	v.since, v.last, v.acted = s.rev, e, acted
	return e, news
}

func (s *Server) pageMessage(m *message) pageMessage {
	out := pageMessage{
		ID: m.id, Mine: m.from != s.bot.ID, Text: m.text, Entities: m.entities, Buttons: m.buttons,
		Time: m.sent.UnixMilli(), Edited: !m.edited.IsZero(), Deleted: m.deleted,
	}
	if d := m.document; d != nil {
		out.Document = &pageDocument{ID: d.id, Name: d.name, Size: d.size}
	}
	if target := s.find(m.chat, m.replyTo); target != nil {
		out.ReplyTo = &pageReply{ID: target.id, Mine: target.from != s.bot.ID, Text: target.text}
		if target.text == "" && target.document != nil {
			out.ReplyTo.Text = target.document.name
		}
	}
	return out
}

// chatEvents streams one person's chat: first all of it, then every change.
func (s *Server) chatEvents(w http.ResponseWriter, r *http.Request) {
	person, ok := s.who(w, r.FormValue("who"))
	if !ok {
		return
	}
	v := &watcher{person: person, since: s.resumed(r)}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		e, news := s.next(v)
		frame, err := []byte(nil), error(nil)
		if news {
			frame, err = json.Marshal(e)
		}
		s.mu.Unlock()
		if err != nil {
			return // nothing sensible can be told; the page asks again
		}
		if news {
			_, err = fmt.Fprintf(w, "id: %s-%d\ndata: %s\n\n", s.epoch, v.since, frame)
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return
		}
		select {
		case <-changed:
		case <-alive.C:
			if _, err := io.WriteString(w, ":\n\n"); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}

// resumed is the last change a returning page has seen, -1 for a new page or
// one that remembers another run of the simulator.
func (s *Server) resumed(r *http.Request) int64 {
	epoch, rev, _ := strings.Cut(r.Header.Get("Last-Event-ID"), "-")
	since, err := strconv.ParseInt(rev, 10, 64)
	if epoch != s.epoch || err != nil {
		return -1
	}
	return since
}

func (s *Server) chatSay(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Who     int64  `json:"who"`
		Text    string `json:"text"`
		ReplyTo int64  `json:"reply_to"`
	}
	if !readJSONBody(w, r, &body) {
		return
	}
	if _, ok := s.who(w, strconv.FormatInt(body.Who, 10)); ok {
		writeJSON(w, map[string]int64{"id": s.SayReply(body.Who, body.ReplyTo, body.Text)})
	}
}

func (s *Server) chatPress(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Who     int64  `json:"who"`
		Message int64  `json:"message"`
		Data    string `json:"data"`
	}
	if !readJSONBody(w, r, &body) {
		return
	}
	if _, ok := s.who(w, strconv.FormatInt(body.Who, 10)); ok {
		writeJSON(w, map[string]string{"query": s.Press(body.Who, body.Message, body.Data)})
	}
}

// chatSend takes a file as the bare body: a kind of request no foreign form
// can make.
func (s *Server) chatSend(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Content-Type") != plainMIME {
		http.Error(w, "send the file as "+plainMIME, http.StatusUnsupportedMediaType)
		return
	}
	query := r.URL.Query()
	person, ok := s.who(w, query.Get("who"))
	if !ok {
		return
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, uploadLimit))
	if err != nil || len(content) == 0 || query.Get("name") == "" {
		http.Error(w, "no file, or one over 50 MB", http.StatusBadRequest)
		return
	}
	id := s.Send(person.ID, Upload{Name: query.Get("name"), Content: content, Caption: query.Get("caption")})
	writeJSON(w, map[string]int64{"id": id})
}

// chatFile downloads a file shown in a chat. It is never shown in place: its
// content may be anything.
func (s *Server) chatFile(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	d := s.documents[r.FormValue("id")]
	s.mu.Unlock()
	if d == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", plainMIME)
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.name}))
	_, _ = w.Write(d.content) // the reader may leave early
}

// who finds the person a page speaks as, or answers that there is none.
func (s *Server) who(w http.ResponseWriter, id string) (Person, bool) {
	n, err := strconv.ParseInt(id, 10, 64)
	s.mu.Lock()
	p, known := s.person(n)
	s.mu.Unlock()
	if err != nil || !known {
		http.Error(w, "nobody has this id", http.StatusNotFound)
		return Person{}, false
	}
	return p, true
}

func readJSONBody(w http.ResponseWriter, r *http.Request, into any) bool {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "send application/json", http.StatusUnsupportedMediaType)
		return false
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, sayLimit)).Decode(into); err != nil {
		http.Error(w, "not understood", http.StatusBadRequest)
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	// A page that has left does not need the answer.
	_ = json.NewEncoder(w).Encode(value)
}
