package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"pilder/gateway"
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

// cleanLines is gateway.OneLine for text whose lines matter.
func cleanLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\r' || r != '\n' && r != '\t' && r != '\u200d' && gateway.Unseen(r) {
			return -1
		}
		return r
	}, text)
}

// cutBytes shortens to limit bytes of whole characters.
func cutBytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
