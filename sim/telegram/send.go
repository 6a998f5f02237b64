package telegram

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// chat finds the chat a call is for and whether the bot may write there.
func (s *Server) chat(c *call) (int64, *apiError) {
	text := strings.TrimSpace(c.params["chat_id"])
	if text == "" {
		return 0, badRequest("chat_id is empty")
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if _, known := s.person(id); err != nil || !known {
		return 0, badRequest("chat not found")
	}
	switch s.reach[id] {
	case Blocked:
		return 0, refuse(403, "bot was blocked by the user")
	case Deactivated:
		return 0, refuse(403, "user is deactivated")
	}
	return id, nil
}

// own finds the message an edit or deletion is for. what is "edit" or "delete".
func (s *Server) own(c *call, what string) (*message, *apiError) {
	if c.params["chat_id"] == "" && c.params["message_id"] == "" {
		return nil, badRequest("message identifier is not specified")
	}
	chat, refusal := s.chat(c)
	if refusal != nil {
		return nil, refusal
	}
	m := s.find(chat, c.number("message_id", 0, 0, math.MaxInt32))
	if m == nil {
		return nil, badRequest("message to %s not found", what)
	}
	if what == "edit" && m.from != s.bot.ID {
		return nil, badRequest("message can't be edited")
	}
	return m, nil
}

// reply finds what a message answers to; 0 for nothing.
func (s *Server) reply(c *call, chat int64) (int64, *apiError) {
	p := struct {
		MessageID *int64 `json:"message_id"`
		Allow     bool   `json:"allow_sending_without_reply"`
		Quote     string `json:"quote"`
	}{Allow: c.flag("allow_sending_without_reply")}
	if text := c.params["reply_parameters"]; text != "" {
		if !json.Valid([]byte(text)) {
			return 0, badRequest("Can't parse reply parameters JSON object")
		}
		if text == "{}" {
			return 0, nil
		}
		if json.Unmarshal([]byte(text), &p) != nil {
			return 0, badRequest("Object expected as reply parameters")
		}
		if p.MessageID == nil {
			return 0, badRequest(`Can't find field "message_id"`)
		}
	} else if id := c.number("reply_to_message_id", 0, 0, math.MaxInt32); id > 0 {
		p.MessageID = &id
	}
	if p.MessageID == nil || *p.MessageID <= 0 {
		return 0, nil
	}
	target := s.find(chat, *p.MessageID)
	switch {
	case target == nil && p.Allow:
		return 0, nil
	case target == nil:
		return 0, badRequest("message to be replied not found")
	case p.Quote != "" && !strings.Contains(target.text, p.Quote):
		return 0, badRequest("QUOTE_TEXT_INVALID")
	}
	return target.id, nil
}

func (s *Server) sendMessage(c *call) (any, string, *apiError) {
	if c.params["text"] == "" {
		return nil, "", badRequest("Message text is empty")
	}
	m, refusal := s.compose(c, "text", "entities")
	if refusal != nil {
		return nil, "", refusal
	}
	if utf8.RuneCountInString(m.text) > textLimit {
		return nil, "", badRequest("message is too long")
	}
	return s.sent(m), "", nil
}

// compose reads what every new message has, in the server's order: form first,
// then the chat, then the content.
func (s *Server) compose(c *call, textField, entitiesField string) (message, *apiError) {
	text, entities, refusal := formatted(c, textField, entitiesField)
	if refusal != nil {
		return message{}, refusal
	}
	buttons, refusal := readMarkup(c)
	if refusal != nil {
		return message{}, refusal
	}
	chat, refusal := s.chat(c)
	if refusal != nil {
		return message{}, refusal
	}
	if c.number("message_thread_id", 0, 0, math.MaxInt32) != 0 {
		return message{}, badRequest("message thread not found")
	}
	replyTo, refusal := s.reply(c, chat)
	if refusal != nil {
		return message{}, refusal
	}
	if textField == "caption" && strings.TrimFunc(text, looksEmpty) == "" {
		text, entities = "", nil // a file needs no words
	} else if text, entities, refusal = s.fix(text, entities); refusal != nil {
		return message{}, refusal
	}
	if refusal := checkMarkup(buttons); refusal != nil {
		return message{}, refusal
	}
	return message{
		chat: chat, from: s.bot.ID, text: text, entities: entities, buttons: buttons, replyTo: replyTo,
	}, nil
}

// sent posts a message of the bot and notes whether it repeats a visible one.
func (s *Server) sent(m message) map[string]any {
	for _, old := range s.chats[m.chat] {
		if !old.deleted && old.from == s.bot.ID && old.text == m.text && old.document == m.document && m.text != "" {
			s.duplicates = append(s.duplicates, fmt.Sprintf("chat %d: message %d is repeated: %.60q", m.chat, old.id, m.text))
			break
		}
	}
	return s.wire(s.post(m))
}

func (s *Server) editMessageText(c *call) (any, string, *apiError) {
	if c.params["text"] == "" {
		return nil, "", badRequest("Message text is empty")
	}
	text, entities, refusal := formatted(c, "text", "entities")
	if refusal != nil {
		return nil, "", refusal
	}
	buttons, refusal := readMarkup(c)
	if refusal != nil {
		return nil, "", refusal
	}
	m, refusal := s.own(c, "edit")
	if refusal != nil {
		return nil, "", refusal
	}
	if m.document != nil {
		return nil, "", badRequest("there is no text in the message to edit")
	}
	if text, entities, refusal = s.fix(text, entities); refusal != nil {
		return nil, "", refusal
	}
	if utf8.RuneCountInString(text) > textLimit {
		// Not the words of sendMessage: edits reach Telegram's servers
		// unchecked (teloxide/teloxide #430).
		return nil, "", badRequest("MESSAGE_TOO_LONG")
	}
	return s.edit(m, text, entities, buttons)
}

func (s *Server) editMessageCaption(c *call) (any, string, *apiError) {
	text, entities, refusal := formatted(c, "caption", "caption_entities")
	if refusal != nil {
		return nil, "", refusal
	}
	buttons, refusal := readMarkup(c)
	if refusal != nil {
		return nil, "", refusal
	}
	m, refusal := s.own(c, "edit")
	if refusal != nil {
		return nil, "", refusal
	}
	if m.document == nil {
		return nil, "", badRequest("there is no caption in the message to edit")
	}
	if text, entities, refusal = s.fix(text, entities); refusal != nil {
		return nil, "", refusal
	}
	if utf8.RuneCountInString(text) > captionLimit {
		return nil, "", badRequest("MEDIA_CAPTION_TOO_LONG")
	}
	return s.edit(m, text, entities, buttons)
}

func (s *Server) editMessageReplyMarkup(c *call) (any, string, *apiError) {
	buttons, refusal := readMarkup(c)
	if refusal != nil {
		return nil, "", refusal
	}
	m, refusal := s.own(c, "edit")
	if refusal != nil {
		return nil, "", refusal
	}
	return s.edit(m, m.text, m.entities, buttons)
}

// edit changes a message of the bot. Buttons that are not sent along are gone.
func (s *Server) edit(m *message, text string, entities []Entity, buttons [][]Button) (any, string, *apiError) {
	if refusal := checkMarkup(buttons); refusal != nil {
		return nil, "", refusal
	}
	if m.text == text && sameEntities(m.entities, entities) && sameKeyboard(m.buttons, buttons) {
		return nil, "", badRequest("message is not modified: specified new message content and reply markup are " +
			"exactly the same as a current content and reply markup of the message")
	}
	m.text, m.entities, m.buttons, m.edited = text, entities, buttons, s.now()
	m.rev = s.bump()
	return s.wire(m), "", nil
}

func (s *Server) deleteMessage(c *call) (any, string, *apiError) {
	if c.params["chat_id"] == "" {
		return nil, "", badRequest("Chat identifier is not specified")
	}
	if c.number("message_id", 0, 0, math.MaxInt32) == 0 {
		return nil, "", badRequest("Message identifier is not specified")
	}
	m, refusal := s.own(c, "delete")
	if refusal != nil {
		return nil, "", refusal
	}
	m.deleted = true
	m.rev = s.bump()
	return true, "", nil
}

func (s *Server) sendDocument(c *call) (any, string, *apiError) {
	d, refusal := s.givenDocument(c)
	if refusal != nil {
		return nil, "", refusal
	}
	m, refusal := s.compose(c, "caption", "caption_entities")
	if refusal != nil {
		return nil, "", refusal
	}
	if utf8.RuneCountInString(m.text) > captionLimit {
		return nil, "", badRequest("message caption is too long")
	}
	s.keep(d)
	m.document = d
	return s.sent(m), "", nil
}
