package telegram

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// tap is one press of a button.
type tap struct {
	id      string
	person  int64
	message int64
	data    string
	at      time.Time
	answer  *TapAnswer
	rev     int64
}

// TapAnswer is what the bot showed to the person who pressed.
type TapAnswer struct {
	Text  string // "": only the button's clock stopped
	Alert bool   // a window instead of a passing notice
	URL   string
	Time  time.Time
}

// Press is a person tapping a button, known by its callback data, of a message
// in their private chat. It returns the query's id. The data is sent as given:
// neither a stale card nor a forged button is stopped here, as a client would
// not be.
func (s *Server) Press(person, messageID int64, data string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustKnow(person)
	t := &tap{
		id: strconv.FormatInt(1<<60+s.random.Int64N(1<<61), 10), person: person, message: messageID, data: data, at: s.now(),
	}
	s.taps[t.id] = t
	p, _ := s.person(person)
	// A message the bot can no longer see: only its id, date 0.
	shown := map[string]any{"chat": s.wireChat(person), "message_id": messageID, "date": 0}
	if m := s.find(person, messageID); m != nil {
		shown = s.wire(m)
	}
	s.raise("callback_query", map[string]any{
		"id": t.id, "from": p.user(), "message": shown, "data": data,
		"chat_instance": strconv.FormatInt(person*7919+s.bot.ID, 10),
	})
	return t.id
}

// PressLabel taps the button with this label. It returns "" and does nothing
// when the message shows no such button.
func (s *Server) PressLabel(person, messageID int64, label string) string {
	s.mu.Lock()
	data, found := "", false
	if m := s.find(person, messageID); m != nil {
		for _, row := range m.buttons {
			for _, b := range row {
				if b.Text == label && b.Data != "" && !found {
					data, found = b.Data, true
				}
			}
		}
	}
	s.mu.Unlock()
	if !found {
		return ""
	}
	return s.Press(person, messageID, data)
}

// TapAnswer returns how the bot answered a tap, if it has.
func (s *Server) TapAnswer(queryID string) (TapAnswer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.taps[queryID]
	if t == nil || t.answer == nil {
		return TapAnswer{}, false
	}
	return *t.answer, true
}

// answerCallbackQuery accepts one answer to each tap, within AnswerWithin.
func (s *Server) answerCallbackQuery(c *call) (any, string, *apiError) {
	text := c.params["text"]
	if utf8.RuneCountInString(text) > toastLimit {
		return nil, "", badRequest("MESSAGE_TOO_LONG")
	}
	t := s.taps[c.params["callback_query_id"]]
	if t != nil && t.answer != nil {
		s.violate("the tap %s on message %d was answered twice", t.id, t.message)
	}
	if t == nil || t.answer != nil || s.now().Sub(t.at) > s.answerWithin {
		return nil, "", badRequest("query is too old and response timeout expired or query ID is invalid")
	}
	t.answer = &TapAnswer{Text: text, Alert: c.flag("show_alert"), URL: c.params["url"], Time: s.now()}
	t.rev = s.bump()
	return true, "", nil
}

// ChatAction is one sign of life in a chat: "typing" and the like.
type ChatAction struct {
	Action string
	Time   time.Time
}

// actionLife is how long a client shows a chat action.
const actionLife = 5 * time.Second

// actionNames as documented, and "cancel", which the server knows too.
const actionNames = "typing upload_photo record_video upload_video record_voice upload_voice record_audio " +
	"upload_audio upload_document choose_sticker find_location pick_up_location record_video_note " +
	"upload_video_note cancel"

func (s *Server) sendChatAction(c *call) (any, string, *apiError) {
	name := strings.ToLower(c.params["action"])
	known := false
	for _, a := range strings.Fields(actionNames) {
		known = known || a == name
	}
	if !known {
		return nil, "", badRequest("wrong parameter action in request")
	}
	chat, refusal := s.chat(c)
	if refusal != nil {
		return nil, "", refusal
	}
	s.actions[chat] = append(s.actions[chat], ChatAction{Action: name, Time: s.now()})
	s.bump()
	return true, "", nil
}

// ChatActions returns the chat actions sent to a chat, in order.
func (s *Server) ChatActions(chat int64) []ChatAction {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sent []ChatAction
	for _, a := range s.actions[chat] {
		if a.Action != "" {
			sent = append(sent, a)
		}
	}
	return sent
}

// stopTyping ends what the people see without touching the record: an entry
// without a name. The caller holds mu.
func (s *Server) stopTyping(chat int64) {
	if s.typing(chat) > 0 {
		s.actions[chat] = append(s.actions[chat], ChatAction{Time: s.now()})
	}
}

// typing is how much longer the chat shows that the bot is busy. The caller
// holds mu.
func (s *Server) typing(chat int64) time.Duration {
	all := s.actions[chat]
	if len(all) == 0 {
		return 0
	}
	last := all[len(all)-1]
	if last.Action == "" || last.Action == "cancel" {
		return 0
	}
	return max(0, last.Time.Add(actionLife).Sub(s.now()))
}
