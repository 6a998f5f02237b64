package pipedream

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"pilder/gateway"
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

// clean makes text of the outside fit to be shown: one line, without provider ids and presigned addresses.
func clean(text string, limit int) string { return gateway.OneLine(scrub(text), limit) }

// scrub takes provider ids and presigned addresses out of text.
func scrub(text string) string {
	return presigned.ReplaceAllString(providerID.ReplaceAllString(text, "[id]"), "[link]")
}
