package telegram_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/sim/telegram"
)

type entity = telegram.Entity

// Limits: Client.cpp (32 768 bytes, empty), the message limit of 4096 code
// points after cleaning; the words for an edit are those reported in
// teloxide/teloxide #430.
func TestTextLimitsCountCodePointsAfterCleaning(t *testing.T) {
	s := world(newClock())
	face := "😀" // four bytes, two UTF-16 units, one code point
	must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": strings.Repeat(face, 4096) + "\n  \n"})
	edited := must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": "x"}).ID
	for _, c := range []struct {
		name, method string
		p            params
		want         string
	}{
		{"4097 code points", "sendMessage", params{"text": strings.Repeat("é", 4097)}, "400 Bad Request: message is too long"},
		{"4097 in an edit", "editMessageText", params{"message_id": edited, "text": strings.Repeat("é", 4097)}, "400 Bad Request: MESSAGE_TOO_LONG"},
		{"32 769 bytes", "sendMessage", params{"text": strings.Repeat(" ", 32769)}, "400 Bad Request: text is too long"},
		{"no text", "sendMessage", params{}, "400 Bad Request: message text is empty"},
		{"only spaces", "sendMessage", params{"text": " \n\t\r "}, "400 Bad Request: text must be non-empty"},
		{"only invisible characters", "sendMessage", params{"text": "\u200b\ufeff\u2800"}, "400 Bad Request: text must be non-empty"},
		{"HTML", "sendMessage", params{"text": "<b>x</b>", "parse_mode": "HTML"}, "400 Bad Request: can't parse entities: this simulator takes entities only, not parse_mode html"},
		{"a null parse mode is the word null", "sendMessage", params{"text": "x", "parse_mode": nil}, "400 Bad Request: unsupported parse_mode"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.p["chat_id"] = ana
			if got := refusal(t, s, c.method, c.p); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// clean_input_string_with_entities and fix_formatted_text in TDLib's
// MessageEntity.cpp; the texts are its own.
func TestRangesThatDoNotFitTheTextAreRefused(t *testing.T) {
	s := world(newClock())
	bold := func(offset, length int) []entity { return []entity{{Type: "bold", Offset: offset, Length: length}} }
	for _, c := range []struct {
		name     string
		text     string
		entities any
		want     string
	}{
		{"begins inside a surrogate pair", "👉 👉", bold(1, 1), "entity begins in a middle of a UTF-16 symbol at byte offset 4"},
		{"ends inside a surrogate pair", "👉 👉", bold(0, 1), "entity beginning at UTF-16 offset 0 ends in a middle of a UTF-16 symbol at byte offset 4"},
		{"ends past the text", "aba caba", bold(3, 6), "entity beginning at UTF-16 offset 3 ends after the end of the text at UTF-16 offset 9"},
		{"begins past the text", "aba caba", bold(9, 1), "entity begins after the end of the text at UTF-16 offset 9"},
		{"negative offset", "aba", bold(-1, 1), "receive an entity with incorrect offset -1"},
		{"negative length", "aba", bold(0, -1), "receive an entity with incorrect length -1"},
		{"unknown type", "aba", []entity{{Type: "shout", Offset: 0, Length: 1}}, "can't parse MessageEntity: Unsupported type specified"},
		{"no type", "aba", []params{{"offset": 0, "length": 1}}, `can't parse MessageEntity: Can't find field "type"`},
		{"bad link", "aba", []entity{{Type: "text_link", Length: 3, URL: "javascript:alert(1)"}}, "entity URL 'javascript:alert(1)' is invalid: Wrong HTTP URL"},
		{"link to a host without a dot", "aba", []entity{{Type: "text_link", Length: 3, URL: "http://localhost:8080/x"}}, "entity URL 'http://localhost:8080/x' is invalid: Wrong HTTP URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := refusal(t, s, "sendMessage", params{"chat_id": ana, "text": c.text, "entities": c.entities})
			if want := "400 Bad Request: " + c.want; got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestTextAndEntitiesAreRepairedAsTheServerDoes(t *testing.T) {
	s := world(newClock())
	e := func(kind string, offset, length int) entity {
		return entity{Type: kind, Offset: offset, Length: length}
	}
	for _, c := range []struct {
		name     string
		text     string
		entities []entity
		wantText string
		want     []entity
	}{
		{"ends are trimmed and offsets follow", "  \n hola \n", []entity{e("bold", 4, 6)}, "hola", []entity{e("bold", 0, 4)}},
		{"the start is not trimmed into an entity", "  hola", []entity{e("code", 1, 5)}, " hola", []entity{e("code", 0, 5)}},
		{"carriage returns vanish, tabs become spaces", "a\r\n\tb", []entity{e("bold", 3, 2)}, "a\n b", []entity{e("bold", 2, 2)}},
		{"bidi overrides vanish", "a\u202eb", []entity{e("bold", 2, 1)}, "ab", []entity{e("bold", 1, 1)}},
		{"zero length goes", "hola", []entity{e("bold", 1, 0)}, "hola", nil},
		{"an entity in the trimmed end goes", "👉 👉  ", []entity{e("bold", 5, 1)}, "👉 👉", nil},
		{"touching styles join", "abcdef", []entity{e("bold", 0, 2), e("bold", 2, 2)}, "abcdef", []entity{e("bold", 0, 4)}},
		{"code swallows styles", "abcdef", []entity{e("bold", 0, 6), e("code", 2, 2)}, "abcdef",
			[]entity{e("bold", 0, 2), e("code", 2, 2), e("bold", 4, 2)}},
		{"the second of two crossing links goes", "abcdef",
			[]entity{{Type: "text_link", Offset: 0, Length: 3, URL: "https://a.example.com"}, {Type: "text_link", Offset: 2, Length: 3, URL: "https://b.example.com/x"}},
			"abcdef", []entity{{Type: "text_link", Offset: 0, Length: 3, URL: "https://a.example.com/"}}},
		{"a link to a person is a mention", "Bruno", []entity{{Type: "text_link", Length: 5, URL: "tg://user?id=7002"}}, "Bruno",
			[]entity{{Type: "text_mention", Length: 5, User: &telegram.User{ID: bruno, FirstName: "Bruno", LanguageCode: "en"}}}},
		{"types the server finds itself are ignored when sent", "hola", []entity{e("url", 0, 4)}, "hola", nil},
		{"file names become links, not inside code", "README.md main.go foo.py", []entity{e("code", 18, 6)}, "README.md main.go foo.py",
			[]entity{e("url", 0, 9), e("code", 18, 6)}},
		{"commands, mentions and hashtags are found", "/stop@pilder_demo_bot @ana #hoy a/b", nil, "/stop@pilder_demo_bot @ana #hoy a/b",
			[]entity{e("bot_command", 0, 21), e("mention", 22, 4), e("hashtag", 27, 4)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": c.text, "entities": c.entities})
			want := sent{ID: got.ID, Text: c.wantText, Entities: c.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Measured by others and in the documentation: 100 entities, the rest vanish
// without a word, code and links are kept before styles.
func TestOnlyAHundredEntitiesRemain(t *testing.T) {
	s := world(newClock())
	var entities []entity
	for i := range 105 {
		entities = append(entities, entity{Type: "bold", Offset: i * 2, Length: 1})
	}
	entities = append(entities, entity{Type: "code", Offset: 210, Length: 1})
	got := must[sent](t, s, "sendMessage", params{"chat_id": ana, "text": strings.Repeat("x ", 105) + "y", "entities": entities})
	if len(got.Entities) != 100 || got.Entities[99].Type != "code" {
		t.Errorf("%d entities remain, the last is %+v", len(got.Entities), got.Entities[len(got.Entities)-1])
	}
}
