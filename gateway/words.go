package gateway

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Words of the outside (names, labels, what an app says) are data: they are cleaned before anybody reads them.

// maxName is how long the name of an account may be, in characters.
const maxName = 100

// OneLine makes such words one line: no control or direction characters, white space collapsed, at most limit characters.
func OneLine(text string, limit int) string {
	var b strings.Builder
	space := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			space = true
			continue
		case Unseen(r):
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return CutRunes(b.String(), limit)
}

// Unseen tells control, direction and other characters that change how text around them is read.
func Unseen(r rune) bool {
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp)
}

// CutRunes shortens to limit characters and says so.
func CutRunes(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:limit-1]), " ") + "…"
}
