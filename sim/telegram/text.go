package telegram

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
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

// Entity is a styled range of a text. Offset and Length are in UTF-16 units.
type Entity struct {
	Type          string `json:"type"`
	Offset        int    `json:"offset"`
	Length        int    `json:"length"`
	URL           string `json:"url,omitempty"`
	User          *User  `json:"user,omitempty"`
	Language      string `json:"language,omitempty"`
	CustomEmojiID string `json:"custom_emoji_id,omitempty"`
}

func (e Entity) end() int { return e.Offset + e.Length }

// kind groups the types by how they may overlap (MessageEntity.cpp).
type kind int

const (
	unknownKind kind = iota
	style            // may overlap anything but code
	quote
	code
	solid    // links and mentions: do not overlap each other or code
	detected // found by the server itself; ignored when a bot sends them
)

func (e Entity) kind() kind {
	switch e.Type {
	case "bold", "italic", "underline", "strikethrough", "spoiler":
		return style
	case "blockquote", "expandable_blockquote":
		return quote
	case "code", "pre":
		return code
	case "text_link", "text_mention", "custom_emoji", "date_time":
		return solid
	case "mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bank_card_number":
		return detected
	}
	return unknownKind
}

// formatted reads text and entities of a call, as they came
// (Client::get_formatted_text).
func (s *Server) formatted(c *call, textField, entitiesField string) (string, []Entity, *apiError) {
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
		e, err := s.readEntity(r)
		if err != nil {
			return "", nil, badRequest("Can't parse MessageEntity: %s", err.Error())
		}
		if e.kind() != detected {
			entities = append(entities, e)
		}
	}
	return text, entities, nil
}

func (s *Server) readEntity(raw json.RawMessage) (Entity, error) {
	var fields struct {
		Entity
		Type   *string `json:"type"`
		Offset *int    `json:"offset"`
		Length *int    `json:"length"`
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return Entity{}, fmt.Errorf("expected an Object")
	}
	switch {
	case fields.Offset == nil:
		return Entity{}, fmt.Errorf(`Can't find field "offset"`)
	case fields.Length == nil:
		return Entity{}, fmt.Errorf(`Can't find field "length"`)
	case fields.Type == nil:
		return Entity{}, fmt.Errorf(`Can't find field "type"`)
	}
	e := fields.Entity
	e.Type, e.Offset, e.Length = *fields.Type, *fields.Offset, *fields.Length
	switch {
	case e.kind() == unknownKind:
		return Entity{}, fmt.Errorf("Unsupported type specified")
	case e.Type == "text_link" && e.URL == "":
		return Entity{}, fmt.Errorf(`Can't find field "url"`)
	case e.Type == "text_mention" && e.User == nil:
		return Entity{}, fmt.Errorf(`Can't find field "user"`)
	}
	return e, nil
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

// link checks the target of a text_link. A link to a person becomes a mention.
func (s *Server) link(e Entity) (Entity, bool, *apiError) {
	if e.Type == "text_mention" {
		p, known := s.person(e.User.ID)
		u := p.user()
		e.User = &u
		return e, known, nil
	}
	if e.Type != "text_link" {
		return e, true, nil
	}
	if target, ok := strings.CutPrefix(e.URL, "tg://user?id="); ok {
		id, err := strconv.ParseInt(target, 10, 64)
		p, known := s.person(id)
		u := p.user()
		e.Type, e.URL, e.User = "text_mention", "", &u
		return e, known && err == nil, nil
	}
	fixed, ok := cleanLink(e.URL)
	if !ok {
		return e, false, badRequest("Entity URL '%s' is invalid: Wrong HTTP URL", e.URL)
	}
	e.URL = fixed
	return e, true, nil
}

// cleanLink is what the server accepts as a link (LinkManager::check_link):
// http, https, tg and ton; a bare name gets http://; a web host needs a dot, so
// that "http://localhost" is refused, here as there.
func cleanLink(link string) (string, bool) {
	link = strings.TrimSpace(link)
	if !strings.Contains(link, "://") {
		link = "http://" + link
	}
	u, err := url.Parse(link)
	if err != nil || u.Host == "" {
		return "", false
	}
	switch strings.ToLower(u.Scheme) {
	case "tg", "ton":
		return link, true
	case "http", "https":
	default:
		return "", false
	}
	if host := u.Hostname(); !strings.Contains(host, ".") && !strings.Contains(host, ":") {
		return "", false
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u.String(), true
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

// untangle makes the entities consistent: links, code and quotes that cross an
// earlier one of their kind go, styles of one type that touch are joined and
// stay out of code.
func untangle(entities []Entity) []Entity {
	slices.SortStableFunc(entities, order)
	var out, quotes, styles []Entity
	for _, e := range entities {
		switch e.kind() {
		case style:
			styles = append(styles, e)
		case quote:
			if len(quotes) == 0 || e.Offset >= quotes[len(quotes)-1].end() {
				quotes = append(quotes, e)
			}
		default:
			if len(out) == 0 || e.Offset >= out[len(out)-1].end() {
				out = append(out, e)
			}
		}
	}
	out = slices.DeleteFunc(out, func(e Entity) bool {
		return slices.ContainsFunc(quotes, func(q Entity) bool { return crosses(e, q) })
	})
	for _, e := range joined(styles) {
		out = append(out, outside(e, out)...)
	}
	out = append(out, quotes...)
	slices.SortStableFunc(out, order)
	return out
}

func order(a, b Entity) int {
	return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.Length, a.Length))
}

func crosses(a, b Entity) bool {
	overlap := a.Offset < b.end() && b.Offset < a.end()
	within := a.Offset >= b.Offset && a.end() <= b.end() || b.Offset >= a.Offset && b.end() <= a.end()
	return overlap && !within
}

// joined merges sorted styles of one type that overlap or touch.
func joined(styles []Entity) []Entity {
	var out []Entity
	last := map[string]int{}
	for _, e := range styles {
		if i, seen := last[e.Type]; seen && e.Offset <= out[i].end() {
			out[i].Length = max(out[i].end(), e.end()) - out[i].Offset
			continue
		}
		last[e.Type] = len(out)
		out = append(out, e)
	}
	return out
}

// outside returns the parts of a style that lie outside of code.
func outside(e Entity, others []Entity) []Entity {
	parts := []Entity{e}
	for _, c := range others {
		if c.kind() != code {
			continue
		}
		var next []Entity
		for _, p := range parts {
			before, after := p, p
			before.Length = min(p.end(), c.Offset) - p.Offset
			after.Offset = max(p.Offset, c.end())
			after.Length = p.end() - after.Offset
			for _, part := range []Entity{before, after} {
				if part.Length > 0 {
					next = append(next, part)
				}
			}
		}
		parts = next
	}
	return parts
}

// keepFirst drops what is above the limit; code, links and quotes are kept
// before styles.
func keepFirst(entities []Entity) []Entity {
	if len(entities) <= entityLimit {
		return entities
	}
	slices.SortStableFunc(entities, func(a, b Entity) int {
		return cmp.Compare(btoi(a.kind() == style), btoi(b.kind() == style))
	})
	entities = entities[:entityLimit]
	slices.SortStableFunc(entities, order)
	return entities
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
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
