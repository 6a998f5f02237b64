package telegram

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on text; characters are Unicode code points, counted after cleaning.
const (
	textLimit     = 4096
	captionLimit  = 1024
	toastLimit    = 200
	sourceLimit   = 1 << 15 // bytes of text before anything is done to it
	entityLimit   = 100     // more are dropped without a word
	entityFarAway = 1_000_000
)

// formatted reads text and entities of a call, as they came
// (Client::get_formatted_text).
func formatted(c *call, textField, entitiesField string) (string, []Entity, *apiError) {
	text := c.params[textField]
	if len(text) > sourceLimit {
		return "", nil, badRequest("Text is too long")
	}
	switch mode := strings.ToLower(c.params["parse_mode"]); {
	case text == "" || mode == "" || mode == "none":
	case mode == "html" || mode == "markdown" || mode == "markdownv2":
		return "", nil, badRequest("can't parse entities: this simulator takes entities only, not parse_mode %s", mode)
	default:
		return "", nil, badRequest("Unsupported parse_mode")
	}
	var raw []json.RawMessage
	if json.Unmarshal([]byte(c.params[entitiesField]), &raw) != nil {
		raw = nil // the server ignores what is not an array
	}
	var entities []Entity
	for _, r := range raw {
		e, wrong := readEntity(r)
		if wrong != "" {
			return "", nil, badRequest("Can't parse MessageEntity: %s", wrong)
		}
		if e.kind() != detected {
			entities = append(entities, e)
		}
	}
	return text, entities, nil
}

// fix cleans text and entities the way the server does before a message exists
// (get_message_entities and fix_formatted_text in MessageEntity.cpp), then adds
// what it finds by itself. One thing is left undone: styles that cross are not
// cut into nested pieces, which nobody can see. The caller holds mu.
func (s *Server) fix(text string, entities []Entity) (string, []Entity, *apiError) {
	if !utf8.ValidString(text) {
		return "", nil, badRequest("Strings must be encoded in UTF-8")
	}
	kept := make([]Entity, 0, len(entities))
	for _, e := range entities {
		if e.Offset < 0 || e.Offset > entityFarAway {
			return "", nil, badRequest("Receive an entity with incorrect offset %d", e.Offset)
		}
		if e.Length < 0 || e.Length > entityFarAway {
			return "", nil, badRequest("Receive an entity with incorrect length %d", e.Length)
		}
		e, keep, refusal := s.link(e)
		if refusal != nil {
			return "", nil, refusal
		}
		if keep && e.Length > 0 {
			kept = append(kept, e)
		}
	}
	entities = untangle(kept)
	text, entities, refusal := clean(text, entities)
	if refusal != nil {
		return "", nil, refusal
	}
	text, entities = trim(text, entities)
	if strings.TrimFunc(text, looksEmpty) == "" {
		return "", nil, badRequest("Text must be non-empty")
	}
	return text, keepFirst(merge(entities, detect(text))), nil
}

// clean replaces control characters by spaces, drops carriage returns and what
// turns text around, and moves the entities along. Ranges that do not fit the
// text are errors here, in the server's words.
func clean(text string, entities []Entity) (string, []Entity, *apiError) {
	var out strings.Builder
	moved := []int{0}       // old UTF-16 offset → new; -1 inside a surrogate pair
	byteAt := []int{0}      // old UTF-16 offset → byte offset of the next character
	length, skipped := 0, 0 // UTF-16 units read, units dropped
	for at, r := range text {
		units := 1
		if r > 0xFFFF {
			units = 2
			moved, byteAt = append(moved, -1), append(byteAt, at+utf8.RuneLen(r))
		}
		length += units
		switch {
		case r < 32 && r != '\n' && r != '\r':
			out.WriteByte(' ')
		case r == '\r', r >= 0x2028 && r <= 0x202E, r == 0x0333, r == 0x033F, r == 0x030A:
			skipped += units
		default:
			out.WriteRune(r)
		}
		moved, byteAt = append(moved, length-skipped), append(byteAt, at+utf8.RuneLen(r))
	}
	if refusal := misfit(entities, moved, byteAt); refusal != nil {
		return "", nil, refusal
	}
	for i, e := range entities {
		begin, end := moved[e.Offset], moved[e.end()]
		entities[i].Offset, entities[i].Length = begin, end-begin
	}
	return out.String(), slices.DeleteFunc(entities, func(e Entity) bool { return e.Length == 0 }), nil
}

// misfit finds the first range that begins or ends where no character does.
func misfit(entities []Entity, moved, byteAt []int) *apiError {
	first, text := -1, ""
	note := func(at int, format string, args ...any) {
		if first < 0 || at < first {
			first, text = at, fmt.Sprintf(format, args...)
		}
	}
	inside := func(offset int) bool { return offset < len(moved) && moved[offset] < 0 }
	for _, e := range entities {
		if inside(e.end()) {
			note(byteAt[e.end()], "Entity beginning at UTF-16 offset %d ends in a middle of a UTF-16 symbol at byte offset %d",
				e.Offset, byteAt[e.end()])
		}
		if inside(e.Offset) {
			note(byteAt[e.Offset], "Entity begins in a middle of a UTF-16 symbol at byte offset %d", byteAt[e.Offset])
		}
	}
	if first >= 0 {
		return badRequest("%s", text)
	}
	last := len(moved) - 1
	for _, e := range entities {
		if e.Offset > last {
			return badRequest("Entity begins after the end of the text at UTF-16 offset %d", e.Offset)
		}
	}
	for _, e := range entities {
		if e.end() > last {
			return badRequest("Entity beginning at UTF-16 offset %d ends after the end of the text at UTF-16 offset %d",
				e.Offset, e.end())
		}
	}
	return nil
}

// trim cuts spaces and line breaks at both ends; at the start never into an
// entity.
func trim(text string, entities []Entity) (string, []Entity) {
	text = strings.TrimRight(text, " \n")
	end := units(text)
	entities = slices.DeleteFunc(entities, func(e Entity) bool { return e.Offset >= end })
	first := end
	for i, e := range entities {
		entities[i].Length = min(e.Length, end-e.Offset)
		first = min(first, e.Offset)
	}
	cut := 0
	for cut < first && cut < len(text) && (text[cut] == ' ' || text[cut] == '\n') {
		cut++
	}
	for i := range entities {
		entities[i].Offset -= cut
	}
	return text[cut:], entities
}

// looksEmpty: a text of only these counts as empty (strip_empty_characters in
// TDLib's misc.cpp).
func looksEmpty(r rune) bool {
	switch {
	case r == ' ', r == '\n', r == 0xA0, r == 0x1680, r == 0x180E, r >= 0x2000 && r <= 0x200F, r == 0x202E,
		r == 0x202F, r == 0x205F, r == 0x2800, r == 0x3000, r == 0xFEFF, r == 0xFFFC, r >= 0xE0000 && r <= 0xE007F:
		return true
	}
	return false
}

// units is the length of a text in UTF-16 units.
func units(text string) int {
	n := 0
	for _, r := range text {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
