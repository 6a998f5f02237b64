package telegram

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Message is a message as a person sees it now: edits applied.
type Message struct {
	ID       int64
	Chat     int64
	From     int64  // a person's id, or the bot's
	Bot      bool   // the bot wrote it
	Text     string // or the caption
	Entities []Entity
	Buttons  [][]Button
	Document *Document // nil: text only
	ReplyTo  int64     // 0: to nothing
	Time     time.Time
	Edited   time.Time // zero: never
}

func (s *Server) seen(m *message) Message {
	buttons := slices.Clone(m.buttons)
	for i := range buttons {
		buttons[i] = slices.Clone(buttons[i])
	}
	return Message{
		ID: m.id, Chat: m.chat, From: m.from, Bot: m.from == s.bot.ID, Text: m.text, Entities: slices.Clone(m.entities),
		Buttons: buttons, Document: m.document.seen(), ReplyTo: m.replyTo, Time: m.sent, Edited: m.edited,
	}
}

// Transcript is what a person sees in a chat: edits applied, deleted messages
// gone, in the order they were sent.
func (s *Server) Transcript(chat int64) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.transcript(chat)
}

func (s *Server) transcript(chat int64) []Message {
	var out []Message
	for _, m := range s.chats[chat] {
		if !m.deleted {
			out = append(out, s.seen(m))
		}
	}
	return out
}

// WaitMessage returns the first message of the chat, by either side, for which
// want is true, waiting for one to arrive or to be edited so. A nil want takes
// any. want must not call the server.
func (s *Server) WaitMessage(ctx context.Context, chat int64, want func(Message) bool) (Message, error) {
	var found Message
	err := s.await(ctx, func() bool {
		for _, m := range s.transcript(chat) {
			if want == nil || want(m) {
				found = m
				return true
			}
		}
		return false
	})
	if err != nil {
		return Message{}, fmt.Errorf("waiting for a message in chat %d: %w", chat, err)
	}
	return found, nil
}

// WaitRequest returns the first call of the Bot API, already answered, for
// which want is true. want must not call the server.
func (s *Server) WaitRequest(ctx context.Context, want func(Request) bool) (Request, error) {
	var found Request
	err := s.await(ctx, func() bool {
		for _, r := range s.requests {
			if r.Verdict != "" && want(*r) {
				found = *r
				return true
			}
		}
		return false
	})
	if err != nil {
		return Request{}, fmt.Errorf("waiting for a request: %w", err)
	}
	return found, nil
}

// await looks again after every change until done is true.
func (s *Server) await(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		changed, ok := s.changed, done()
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
