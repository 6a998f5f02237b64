package bot

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-telegram/bot/models"

	"pilder/store"
)

// maxText bounds a person's message, in bytes. Telegram's own limit is 4096 characters.
const maxText = 64 << 10

// update is what pilder reads of an update. The library's models fail on a whole update when one union in it has a member
// they do not know (v1.24.0, tried), so only the fields that matter are decoded.
type update struct {
	ID            int64           `json:"update_id"`
	Message       *message        `json:"message"`
	Edited        *message        `json:"edited_message"`
	Tap           *tap            `json:"callback_query"`
	Member        json.RawMessage `json:"my_chat_member"`
	StopPressed   *stopPressed    `json:"stopped_message_generation"`
	TooLongMarked bool            `json:"pilder_text_cut"` // ours: the text was cut before it was stored
}

type message struct {
	ID       int64                  `json:"message_id"`
	Topic    int64                  `json:"message_thread_id,omitempty"`
	InTopic  bool                   `json:"is_topic_message,omitempty"`
	From     *models.User           `json:"from,omitempty"`
	Sender   *models.Chat           `json:"sender_chat,omitempty"`
	Chat     models.Chat            `json:"chat"`
	Text     string                 `json:"text,omitempty"`
	Caption  string                 `json:"caption,omitempty"`
	Entities []models.MessageEntity `json:"entities,omitempty"`
	Album    string                 `json:"media_group_id,omitempty"`
	Forward  json.RawMessage        `json:"forward_origin,omitempty"`

	Photo     json.RawMessage `json:"photo,omitempty"`
	Document  json.RawMessage `json:"document,omitempty"`
	Voice     json.RawMessage `json:"voice,omitempty"`
	Audio     json.RawMessage `json:"audio,omitempty"`
	Video     json.RawMessage `json:"video,omitempty"`
	VideoNote json.RawMessage `json:"video_note,omitempty"`
	Animation json.RawMessage `json:"animation,omitempty"`
	Sticker   json.RawMessage `json:"sticker,omitempty"`
	PaidMedia json.RawMessage `json:"paid_media,omitempty"`
	Location  json.RawMessage `json:"location,omitempty"`
	Contact   json.RawMessage `json:"contact,omitempty"`
	Poll      json.RawMessage `json:"poll,omitempty"`
	Checklist json.RawMessage `json:"checklist,omitempty"`
	Rich      json.RawMessage `json:"rich_message,omitempty"`
}

// document is a file as Telegram names it.
type document struct {
	ID   string `json:"file_id"`
	Size int64  `json:"file_size"` // bytes; may be missing
}

type tap struct {
	ID      string      `json:"id"`
	From    models.User `json:"from"`
	Data    string      `json:"data"`
	Message *struct {
		ID   int64       `json:"message_id"` // also of an inaccessible message
		Chat models.Chat `json:"chat"`
	} `json:"message"`
}

type stopPressed struct {
	Chat  models.Chat `json:"chat"`
	Topic int64       `json:"message_thread_id"`
}

// want is what an update of the control lane asks for.
type want string

const (
	wantNothing want = ""
	wantCommand want = "command" // Name and Rest are set
	wantTap     want = "tap"
	wantStop    want = "stop"     // Telegram's own stop button
	wantFiles   want = "files"    // a file without words
	wantTooLong want = "too_long" // more text than anybody types
	wantText    want = "text"     // words, seen in the control lane only when a stranger sent them
)

// event is a decoded update.
type event struct {
	store.Arrival
	Want  want
	Name  string // of the command, lower case, without slash and bot name
	Rest  string // what follows the command
	Tap   *tap
	File  *document // sent with the command as its caption
	Album string
	Files bool // a message with words whose files we cannot open
}

// updateID reads only the id: the one thing that must be known before an update can be filed.
func updateID(raw json.RawMessage) (int64, error) {
	var u struct {
		ID *int64 `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &u); err != nil {
		return 0, err
	}
	if u.ID == nil || *u.ID <= 0 {
		return 0, errors.New("no update_id")
	}
	return *u.ID, nil
}

// decode tells what an update is. It never fails: what cannot be read is set aside as broken, with its bytes.
func decode(id int64, raw json.RawMessage, me string) event {
	e := event{Arrival: store.Arrival{UpdateID: id, Raw: raw}}
	var u update
	if err := json.Unmarshal(raw, &u); err != nil {
		return e.broken("undecodable")
	}
	switch {
	case u.Message != nil:
		return e.message(u, me)
	case u.Edited != nil:
		e.place(u.Edited.Chat, u.Edited.From, 0)
		return e.ignored("edited") // a later issue: an edit corrects what waits and is never a command
	case u.Tap != nil:
		return e.tap(u.Tap)
	case u.StopPressed != nil:
		c := u.StopPressed.Chat
		if c.Type != models.ChatTypePrivate {
			return e.ignored("group")
		}
		e.place(c, &models.User{ID: c.ID, FirstName: c.FirstName}, 0)
		return e.control(wantStop)
	case u.Member != nil:
		return e.ignored("chat_member")
	}
	return e.ignored("kind")
}

func (e event) message(u update, me string) event {
	m := u.Message
	e.place(m.Chat, m.From, m.ID)
	switch {
	case m.Chat.Type != models.ChatTypePrivate:
		// Private chats only for now: in a group even a refusal would tell everybody that the bot listens.
		return e.ignored("group")
	case m.From == nil || m.From.ID == 0 || m.Sender != nil && m.Sender.ID != m.From.ID:
		return e.ignored("no_person")
	case m.From.IsBot:
		return e.ignored("from_bot")
	case m.Chat.ID != m.From.ID:
		// A private chat has its person's number. Anything else would answer one person in another's chat.
		return e.broken("foreign_chat")
	}
	e.Album = m.Album
	text := m.Text
	if text == "" {
		text = m.Caption
	}
	if len(text) > maxText || u.TooLongMarked {
		e.Raw = shorten(u)
		return e.control(wantTooLong)
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if name, rest, to, ok := command(m.Text); ok {
		if to != "" && !strings.EqualFold(to, me) {
			return e.ignored("other_bot")
		}
		e.Name, e.Rest = name, rest
		return e.control(wantCommand)
	}
	if name, _, to, ok := command(m.Caption); ok && name == "policy" && (to == "" || strings.EqualFold(to, me)) {
		if json.Unmarshal(m.Document, &e.File) == nil && e.File != nil {
			e.Name = name
			return e.control(wantCommand)
		}
	}
	if strings.TrimSpace(text) == "" {
		if m.hasFile() {
			return e.control(wantFiles)
		}
		return e.ignored("service") // joined, pinned, a dice, a kind that does not exist yet: nothing to answer
	}
	e.Files = m.hasFile()
	e.Kind, e.Want, e.Text = store.ArrivalMessage, wantText, text
	if len(m.Forward) > 0 {
		// Somebody else's words must not read like this person's wish.
		e.Foreign = true
		e.Text = "[forwarded, written by somebody else]\n> " + strings.ReplaceAll(text, "\n", "\n> ")
	}
	return e
}

func (e event) tap(t *tap) event {
	if t.ID == "" || t.From.ID == 0 {
		return e.broken("tap_without_sender")
	}
	e.Tap = t
	chat := models.Chat{ID: t.From.ID, Type: models.ChatTypePrivate}
	if t.Message != nil && t.Message.Chat.ID != 0 {
		chat = t.Message.Chat
	}
	e.place(chat, &t.From, 0)
	return e.control(wantTap)
}

// place files who and where. A username identifies nobody and is not read.
func (e *event) place(c models.Chat, from *models.User, id int64) {
	e.Chat = store.Chat{ID: c.ID, Private: c.Type == models.ChatTypePrivate}
	e.Telegram = id
	if from == nil {
		return
	}
	name := strings.TrimSpace(from.FirstName + " " + from.LastName)
	e.From = store.Person{Telegram: from.ID, Name: clip(clean(strings.Join(strings.Fields(name), " ")), 128), Lang: language(from.LanguageCode)}
}

func (e event) control(w want) event {
	e.Kind, e.Want = store.ArrivalControl, w
	return e
}

func (e event) ignored(reason string) event {
	e.Kind, e.Reason = store.ArrivalIgnored, reason
	return e
}

func (e event) broken(reason string) event {
	e.Kind, e.Reason = store.ArrivalBroken, reason
	return e
}

func (m *message) hasFile() bool {
	for _, f := range []json.RawMessage{m.Photo, m.Document, m.Voice, m.Audio, m.Video, m.VideoNote, m.Animation, m.Sticker,
		m.PaidMedia, m.Location, m.Contact, m.Poll, m.Checklist, m.Rich} {
		if len(f) > 0 && !bytes.Equal(f, []byte("null")) {
			return true
		}
	}
	return false
}

// shorten keeps of an update with an enormous text who sent it and where.
func shorten(u update) []byte {
	m := *u.Message
	raw, err := json.Marshal(map[string]any{
		"update_id":       u.ID,
		"pilder_text_cut": true,
		"message":         message{ID: m.ID, From: m.From, Chat: m.Chat, Text: "…"},
	})
	if err != nil {
		return []byte("{}")
	}
	return raw
}

// command reads "/name@bot rest" at the very beginning of a text; entities are not asked, since they can be forged and
// count in other units. "/ name" and "/1/2" are ordinary text, "/unknown" is a command that we do not have.
func command(text string) (name, rest, to string, ok bool) {
	word, after := text, ""
	if i := strings.IndexAny(text, " \n\t\r"); i >= 0 {
		word, after = text[:i], strings.TrimSpace(text[i:])
	}
	word, ok = strings.CutPrefix(word, "/")
	if !ok {
		return "", "", "", false
	}
	name, to, _ = strings.Cut(word, "@")
	if name == "" || len(name) > 32 {
		return "", "", "", false
	}
	for i := range len(name) {
		if c := name[i] | 0x20; !(c >= 'a' && c <= 'z') && name[i] != '_' && !(i > 0 && name[i] >= '0' && name[i] <= '9') {
			return "", "", "", false
		}
	}
	return strings.ToLower(name), after, to, true
}

// language maps a language code to one that we speak: "es", "en", or "" for none given.
func language(code string) string {
	tag, _, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(code, "_", "-")), "-")
	switch tag {
	case "":
		return ""
	case "es", "ca", "gl", "eu", "ast", "gn", "qu": // spoken where Spanish is
		return "es"
	}
	return "en"
}

// units counts UTF-16 code units: what Telegram's offsets and, safely, its limits are measured in.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// clean makes text that Telegram takes as it is: valid UTF-8, LF line ends, no controls, no marks that turn the direction
// of writing around. Telegram would take the last two out itself and shift our offsets.
func clean(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return '\uFFFD'
		case r == '\n' || r == '\t':
			return r
		case unseen(r), r == 0x0333, r == 0x033F, r == 0x030A: // the last three the server drops too (TDLib)
			return -1
		}
		return r
	}, s)
}

// unseen tells whether a character steers rather than shows: controls, direction overrides and isolates, invisible
// operators and tags. Joiners and variation selectors stay: emoji need them.
func unseen(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7F && r < 0xA0, r >= 0x202A && r <= 0x202E, r >= 0x2060 && r <= 0x206F, r == 0xFEFF,
		r >= 0xE0000 && r <= 0xE001F, r == 0x2028, r == 0x2029, r == 0xAD, r == 0x200B, r == 0x180E:
		return true
	}
	return false
}
