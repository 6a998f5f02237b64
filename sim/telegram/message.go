package telegram

import (
	"slices"
	"time"
)

// message is one message of a chat with its history flattened.
type message struct {
	id       int64
	chat     int64
	from     int64 // a person's id or the bot's
	text     string
	entities []Entity // of the text, or of the caption where there is a document
	buttons  [][]Button
	document *document
	replyTo  int64
	sent     time.Time
	edited   time.Time // zero: never
	deleted  bool
	rev      int64 // the change that last touched it
}

// post puts a message into a chat. The caller holds mu.
func (s *Server) post(m message) *message {
	s.lastID++
	m.id, m.sent = s.lastID, s.now()
	s.chats[m.chat] = append(s.chats[m.chat], &m)
	if m.from == s.bot.ID {
		// What arrives ends the "typing…" of its sender.
		s.stopTyping(m.chat)
	}
	m.rev = s.bump()
	return &m
}

// find returns a message that has not been deleted. The caller holds mu.
func (s *Server) find(chat, id int64) *message {
	for _, m := range s.chats[chat] {
		if m.id == id && !m.deleted {
			return m
		}
	}
	return nil
}

// wire is a message as the Bot API writes it. The caller holds mu.
func (s *Server) wire(m *message) map[string]any {
	out := s.wireAlone(m)
	if m.replyTo != 0 {
		if target := s.find(m.chat, m.replyTo); target != nil {
			out["reply_to_message"] = s.wireAlone(target)
		}
	}
	return out
}

func (s *Server) wireAlone(m *message) map[string]any {
	out := map[string]any{
		"message_id": m.id, "date": m.sent.Unix(), "chat": s.wireChat(m.chat), "from": s.bot,
	}
	if p, human := s.person(m.from); human {
		out["from"] = p.user()
	}
	if !m.edited.IsZero() {
		out["edit_date"] = m.edited.Unix()
	}
	text, entities := "text", "entities"
	if m.document != nil {
		out["document"] = m.document.wire()
		text, entities = "caption", "caption_entities"
	}
	if m.text != "" {
		out[text] = m.text
	}
	if len(m.entities) > 0 {
		out[entities] = m.entities
	}
	if len(m.buttons) > 0 {
		out["reply_markup"] = map[string]any{"inline_keyboard": m.buttons}
	}
	return out
}

func (s *Server) wireChat(id int64) map[string]any {
	out := map[string]any{"id": id, "type": "private"}
	if p, known := s.person(id); known {
		u := p.user()
		out["first_name"] = u.FirstName
		if u.LastName != "" {
			out["last_name"] = u.LastName
		}
		if u.Username != "" {
			out["username"] = u.Username
		}
	}
	return out
}

func sameEntities(a, b []Entity) bool {
	return slices.EqualFunc(a, b, func(x, y Entity) bool {
		if (x.User == nil) != (y.User == nil) || x.User != nil && x.User.ID != y.User.ID {
			return false
		}
		x.User, y.User = nil, nil
		return x == y
	})
}
