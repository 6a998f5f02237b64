package telegram

import (
	"fmt"
	"strings"
)

// Reach is whether the bot can write to a person.
type Reach string

// The states of a private chat.
const (
	Reachable   Reach = ""
	Blocked     Reach = "blocked"     // the person has stopped the bot
	Deactivated Reach = "deactivated" // the account is gone
)

// mustKnow panics when nobody has the id: a test that speaks as somebody who
// does not exist is wrong. The caller holds mu.
func (s *Server) mustKnow(person int64) {
	if _, known := s.person(person); !known {
		panic(fmt.Sprintf("telegram: there is no person %d in Config.People", person))
	}
}

// Say is a person writing in their private chat. It returns the message's id;
// of the last one where the text is so long that the client sends several. A
// text of spaces is not sent: 0.
func (s *Server) Say(person int64, text string) int64 { return s.SayReply(person, 0, text) }

// SayReply is Say as a reply to another message of the chat.
func (s *Server) SayReply(person, replyTo int64, text string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustKnow(person)
	var last int64
	for _, part := range pieces(text) {
		clean, entities, refusal := s.fix(part, nil)
		if refusal != nil {
			continue
		}
		m := s.post(message{chat: person, from: person, text: clean, entities: entities, replyTo: replyTo})
		s.raise("message", s.wire(m))
		last = m.id
	}
	return last
}

// pieces cuts a text where a client does: at the limit, whatever stands there.
func pieces(text string) []string {
	runes := []rune(strings.TrimSpace(text))
	var parts []string
	for len(runes) > textLimit {
		parts, runes = append(parts, string(runes[:textLimit])), runes[textLimit:]
	}
	return append(parts, string(runes))
}

// Edit is a person changing what they wrote. It reports whether there was
// something to change.
func (s *Server) Edit(person, messageID int64, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(person, messageID)
	if m == nil || m.from != person {
		return false
	}
	clean, entities, refusal := s.fix(text, nil)
	if refusal != nil {
		return false
	}
	m.text, m.entities, m.edited = clean, entities, s.now()
	m.rev = s.bump()
	s.raise("edited_message", s.wire(m))
	return true
}

// Upload is a file somebody sends.
type Upload struct {
	Name    string
	MIME    string // "": by the name
	Content []byte
	Caption string
	// Size, where larger than the content, is what the message says: a file
	// too big to download need not be held in memory.
	Size int64
}

// Send is a person sending a file. It returns the message's id.
func (s *Server) Send(person int64, f Upload) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustKnow(person)
	d := s.newDocument(upload{name: f.Name, mime: f.MIME, content: f.Content})
	d.size = max(d.size, f.Size)
	s.keep(d)
	m := message{chat: person, from: person, document: d}
	if caption, entities, refusal := s.fix(f.Caption, nil); refusal == nil {
		m.text, m.entities = caption, entities
	}
	posted := s.post(m)
	s.raise("message", s.wire(posted))
	return posted.id
}

// SetReach blocks or unblocks the bot, or ends the account. The bot is told by
// my_chat_member, except that an account that ends says nothing.
func (s *Server) SetReach(person int64, reach Reach) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mustKnow(person)
	old := s.reach[person]
	s.reach[person] = reach
	if old == reach || old == Deactivated || reach == Deactivated {
		s.bump()
		return
	}
	p, _ := s.person(person)
	member := func(r Reach) map[string]any {
		if r == Reachable {
			return map[string]any{"user": s.bot, "status": "member"}
		}
		return map[string]any{"user": s.bot, "status": "kicked", "until_date": 0}
	}
	s.raise("my_chat_member", map[string]any{
		"chat": s.wireChat(person), "from": p.user(), "date": s.now().Unix(),
		"old_chat_member": member(old), "new_chat_member": member(reach),
	})
}
