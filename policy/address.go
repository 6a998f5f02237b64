package policy

import (
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// maxRecipients bounds one recipient text, in bytes; a longer one is not read and counts as outside.
const maxRecipients = 8 << 10

// plainLocal are the local parts that all mail software reads alike: no quotes, no routes ("%", "!"), ASCII only.
var plainLocal = regexp.MustCompile(`^[A-Za-z0-9_'+=~-]+(\.[A-Za-z0-9_'+=~-]+)*$`)

// Inside tells whether every address in a recipient text, one or several with commas, surely belongs to one of the
// domains (ASCII form, as in Grant.Domains). Whatever cannot be read, or could be read in two ways, is outside.
//
// Two readers must agree, since whoever sends the mail later may be either of them: the grammar of RFC 5322, and the naive
// one to which every "@" begins a domain, in a display name or a comment as well.
func Inside(text string, domains []string) bool {
	if len(text) > maxRecipients || strings.Contains(text, "=?") || strings.ContainsFunc(text, unseen) {
		return false
	}
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "@")
		if !found {
			break
		}
		end := strings.IndexFunc(after, endsDomain)
		if end < 0 {
			end = len(after)
		}
		if !own(after[:end], domains) {
			return false
		}
		rest = after
	}
	list, err := mail.ParseAddressList(text)
	if err != nil || len(list) == 0 {
		return false
	}
	return !slices.ContainsFunc(list, func(a *mail.Address) bool {
		at := strings.LastIndexByte(a.Address, '@')
		return at < 0 || !plainLocal.MatchString(a.Address[:at]) || !own(a.Address[at+1:], domains)
	})
}

// unseen tells whether a character steers rather than shows: controls, line ends, direction marks, zero-width ones.
func unseen(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || r == unicode.ReplacementChar
}

func endsDomain(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune(`<>(),;:"'[]\@`, r)
}

// own tells whether a domain is exactly one of the company's.
func own(domain string, domains []string) bool {
	ascii, ok := asciiDomain(domain)
	return ok && slices.Contains(domains, ascii)
}

// asciiDomain returns a domain as it is looked up. Spellings that only turn into a domain by mapping (full-width letters,
// ideographic full stops, invisible marks) are refused: not every mailer maps them alike.
func asciiDomain(domain string) (string, bool) {
	ascii, err := idna.Lookup.ToASCII(domain)
	if err != nil || ascii == "" || strings.HasSuffix(ascii, ".") {
		return "", false
	}
	shown, err := idna.Lookup.ToUnicode(ascii)
	lower := strings.ToLower(domain)
	return ascii, err == nil && (lower == ascii || lower == shown)
}

// Domain reads a company's domain as an operator may write it, in ASCII form: "@Empresa.com." is empresa.com.
func Domain(domain string) (string, bool) {
	domain = strings.TrimPrefix(strings.TrimSpace(domain), "@")
	return asciiDomain(strings.TrimSuffix(domain, "."))
}
