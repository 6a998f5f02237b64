package pipedream

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// moreFields is the house's own argument of an action whose fields depend on earlier values; no prop may be called so.
const moreFields = "more_fields"

// safeName makes any text a property name that every model API takes: accents dropped, everything else unusual an
// underscore. It may be empty.
func safeName(name string) string {
	var b strings.Builder
	for _, r := range norm.NFD.String(name) {
		switch {
		case unicode.Is(unicode.Mn, r): // the accent that NFD set apart
		case r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-'):
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	safe := strings.Trim(b.String(), "_")
	return strings.TrimRight(safe[:min(len(safe), 64)], "_")
}

// safeNames gives each name its safe one, in order: an empty one is named by its place, and of equal ones the later get
// _2, _3. taken are names that are not free.
func safeNames(names []string, taken ...string) []string {
	used := map[string]bool{moreFields: true}
	for _, t := range taken {
		used[t] = true
	}
	out := make([]string, len(names))
	for i, name := range names {
		safe := safeName(name)
		if safe == "" {
			safe = fmt.Sprintf("field_%d", i+1)
		}
		candidate := safe
		for n := 2; used[candidate]; n++ {
			tail := fmt.Sprintf("_%d", n)
			candidate = safe[:min(len(safe), 64-len(tail))] + tail
		}
		used[candidate] = true
		out[i] = candidate
	}
	return out
}

// providerID is what names things at the provider. None of it is for an agent.
var providerID = regexp.MustCompile(`\b(?:apn|dyp|exu|ctok|proj|oa)_[A-Za-z0-9]+`)

// presigned is an address that opens a file to whoever has it.
var presigned = regexp.MustCompile(`https?://[^\s"]*(?:[?&](?:X-Amz-Signature|Signature|signature)=)[^\s"]*`)

// clean makes text of the outside fit to be shown: no control or direction characters, white space collapsed, at most
// limit characters, no provider ids and no presigned addresses.
func clean(text string, limit int) string {
	text = scrub(text)
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

// scrub takes provider ids and presigned addresses out of text.
func scrub(text string) string {
	return presigned.ReplaceAllString(providerID.ReplaceAllString(text, "[id]"), "[link]")
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
