package prompt

import (
	"strings"
	"unicode"
)

// clean makes a text of somebody else fit to stand as data inside one line of the house: no line ends, controls, direction
// marks or invisible characters, no quotes or brackets that would close the house's own, white space collapsed, at most
// max characters.
func clean(text string, max int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == unicode.ReplacementChar: // also what invalid bytes decode to
			return -1
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp):
			return -1
		case strings.ContainsRune("«»<>`\"“”", r):
			return '\''
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	runes := []rune(text)
	if len(runes) <= max {
		return text
	}
	return strings.TrimSpace(string(runes[:max-1])) + "…"
}
