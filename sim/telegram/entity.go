package telegram

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
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

// readEntity returns the entity, or what is wrong with it.
func readEntity(raw json.RawMessage) (e Entity, wrong string) {
	var fields struct {
		Entity
		Type   *string `json:"type"`
		Offset *int    `json:"offset"`
		Length *int    `json:"length"`
	}
	if json.Unmarshal(raw, &fields) != nil {
		return Entity{}, "expected an Object"
	}
	switch {
	case fields.Offset == nil:
		return Entity{}, `Can't find field "offset"`
	case fields.Length == nil:
		return Entity{}, `Can't find field "length"`
	case fields.Type == nil:
		return Entity{}, `Can't find field "type"`
	}
	e = fields.Entity
	e.Type, e.Offset, e.Length = *fields.Type, *fields.Offset, *fields.Length
	switch {
	case e.kind() == unknownKind:
		return Entity{}, "Unsupported type specified"
	case e.Type == "text_link" && e.URL == "":
		return Entity{}, `Can't find field "url"`
	case e.Type == "text_mention" && e.User == nil:
		return Entity{}, `Can't find field "user"`
	}
	return e, ""
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
