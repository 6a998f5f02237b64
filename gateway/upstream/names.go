package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest name of a tool: with "mcp__pilder__" before it it has 63 characters, of the 64 that model APIs
// take; with "pilder" 56, of the 60 that Cursor takes.
const maxName = 50

// hashed is how many hex digits keep shortened names apart.
const hashed = 8

// toolName is how an upstream's tool is listed: the slug before it, so that no two apps' tools are alike. It depends on
// nothing but the two, so that it is the same after a restart and whatever else is listed. A name that is not kept as it is
// ends in a hash of the whole.
func toolName(slug, tool string) string {
	safe := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_') {
			return r
		}
		return '_'
	}, tool)
	name := slug + "-" + safe
	if safe == tool && tool != "" && len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(slug + "\x00" + tool))
	return name[:min(len(name), maxName-1-hashed)] + "-" + hex.EncodeToString(sum[:])[:hashed]
}

// clean makes text of the outside fit to be shown on one line: no control or direction characters, white space collapsed, at
// most limit characters.
func clean(text string, limit int) string {
	var b strings.Builder
	space := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			space = true
			continue
		case unseen(r):
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return cutRunes(b.String(), limit)
}

// cleanLines is clean for text whose lines matter.
func cleanLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\r' || r != '\n' && r != '\t' && r != '\u200d' && unseen(r) {
			return -1
		}
		return r
	}, text)
}

// unseen tells control, direction and other characters that change how text around them is read.
func unseen(r rune) bool {
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp)
}

// cutRunes shortens to limit characters and says so.
func cutRunes(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:limit-1]), " ") + "…"
}

// cutBytes shortens to limit bytes of whole characters.
func cutBytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
