package telegram

import (
	"regexp"
	"slices"
	"strings"
)

// What the server marks in a text by itself. A rough copy of its finder
// (find_entities in MessageEntity.cpp): commands, mentions, hashtags, links
// and addresses; bare names count as links for the endings people meet, file
// endings among them ("README.md").
var (
	linkShape    = regexp.MustCompile(`(?i)\bhttps?://[^\s<>"'\x60]+|\bt\.me/[^\s<>"'\x60]+|\b(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|app|me|md|py|sh|rs|pl|es|ar|mx|cl|co|uk|de|ru|ai)\b(?:/[^\s<>"'\x60]*)?`)
	addressShape = regexp.MustCompile(`(?i)[a-z0-9._%+-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}`)
	commandShape = regexp.MustCompile(`/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?`)
	mentionShape = regexp.MustCompile(`@[A-Za-z0-9_]{3,32}`)
	hashtagShape = regexp.MustCompile(`#[\p{L}\p{N}_]*[\p{L}_][\p{L}\p{N}_]*`)
)

func detect(text string) []Entity {
	var found []Entity
	mark := func(kind string, shape *regexp.Regexp, alone bool) {
		for _, span := range shape.FindAllStringIndex(text, -1) {
			from, to := span[0], span[1]
			if kind == "url" {
				to = from + len(strings.TrimRight(text[from:to], ".,;:!?)]}'"))
			}
			if alone && (partOfWord(text, from-1) || partOfWord(text, to)) {
				continue
			}
			e := Entity{Type: kind, Offset: units(text[:from]), Length: units(text[from:to])}
			if !slices.ContainsFunc(found, func(f Entity) bool { return e.Offset < f.end() && f.Offset < e.end() }) {
				found = append(found, e)
			}
		}
	}
	mark("email", addressShape, false)
	mark("url", linkShape, false)
	mark("bot_command", commandShape, true)
	mark("mention", mentionShape, true)
	mark("hashtag", hashtagShape, true)
	return found
}

// partOfWord tells whether the byte at i keeps a command, mention or hashtag
// beside it from being one.
func partOfWord(text string, i int) bool {
	if i < 0 || i >= len(text) {
		return false
	}
	b := text[i]
	return b == '_' || b == '/' || b == '<' || b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b >= 0x80
}

// merge adds what was detected where no link, mention or code stands already.
func merge(entities, found []Entity) []Entity {
	for _, f := range found {
		if !slices.ContainsFunc(entities, func(e Entity) bool {
			return (e.kind() == code || e.kind() == solid) && e.Offset < f.end() && f.Offset < e.end()
		}) {
			entities = append(entities, f)
		}
	}
	slices.SortStableFunc(entities, order)
	return entities
}
