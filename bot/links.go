package bot

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-telegram/bot/models"
)

// link gives words a target. Only web addresses become links; of others the words stay. What a link leads to is said beside
// it, since an agent may have been talked into it: the host, or the whole address where the words name another place.
func link(words rich, target string) rich {
	target, ok := webAddress(target)
	if !ok {
		return words
	}
	label := strings.TrimSpace(words.Text)
	if label == "" {
		return plain(target)
	}
	if label == target {
		return words
	}
	if shown, looks := webAddress(label); looks && host(shown) != host(target) {
		words.write(" (" + target + ")")
		return words
	}
	if shown, looks := webAddress("https://" + label); looks && strings.Contains(host(shown), ".") && !strings.ContainsAny(label, " \n") && host(shown) != host(target) && hostShape.MatchString(label) {
		words.write(" (" + target + ")")
		return words
	}
	words = words.as(models.MessageEntity{Type: models.MessageEntityTypeTextLink, URL: target})
	if !strings.Contains(strings.ToLower(label), host(target)) {
		words.write(" (" + host(target) + ")")
	}
	return words
}

var hostShape = regexp.MustCompile(`^[\p{L}\p{N}]([\p{L}\p{N}_-]*[\p{L}\p{N}])?(\.[\p{L}\p{N}]([\p{L}\p{N}_-]*[\p{L}\p{N}])?)+$`)

// webAddress checks an address as strictly as Telegram, which refuses the whole message for one bad link entity.
func webAddress(s string) (string, bool) {
	s = strings.TrimSpace(s)
	if len(s) > 2000 || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unseen(r) }) {
		return "", false
	}
	u, err := url.Parse(s)
	if err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || !hostShape.MatchString(u.Hostname()) {
		return "", false
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return "", false
		}
	}
	return s, true
}

func host(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.ToLower(u.Hostname()), "www.")
}

// Names that Telegram would take for a web address: files whose ending is also a country's or a registrar's, and numbers
// with dots.
var (
	fileName = regexp.MustCompile(`(?i)^[\p{L}\p{N}_./~-]*[\p{L}\p{N}_-]\.(md|py|sh|rs|pl|ps|cc|so|mk|am|pm|tf|ml|mm|zip|mov|app|vi|cat|st|in)$`)
	numbers  = regexp.MustCompile(`^\d{1,3}(\.\d{1,3}){3}(:\d{1,5})?(/\d{1,2})?$`)
)

// nameCodes gives code entities for such names where they stand bare.
func nameCodes(r rich) []models.MessageEntity {
	var out []models.MessageEntity
	at := 0
	for _, word := range splitKeep(r.Text) {
		n := units(word)
		core := strings.TrimRight(strings.TrimLeft(word, `("'«“[{`), `)"'»”]},;:!?.…`)
		lead := units(word[:strings.Index(word, core)])
		if core != "" && (fileName.MatchString(core) && !startsWithHost(core) || numbers.MatchString(core)) {
			from, to := at+lead, at+lead+units(core)
			if !slices.ContainsFunc(r.Entities, func(e models.MessageEntity) bool {
				return solid(e.Type) && e.Offset < to && from < e.Offset+e.Length
			}) {
				out = append(out, models.MessageEntity{Type: models.MessageEntityTypeCode, Offset: from, Length: to - from})
			}
		}
		at += n
	}
	return out
}

// startsWithHost tells whether a path begins with what may be a real host: github.com/x/README.md.
func startsWithHost(s string) bool {
	first, _, found := strings.Cut(s, "/")
	return found && strings.Contains(strings.Trim(first, "."), ".")
}

// splitKeep cuts text into words and the space between them, losing nothing.
func splitKeep(s string) []string {
	var out []string
	start, space := 0, false
	for i, r := range s {
		if sp := unicode.IsSpace(r) || r == '│'; i > start && sp != space {
			out = append(out, s[start:i])
			start, space = i, sp
		} else {
			space = sp
		}
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// solid entities neither hold others nor break.
func solid(t models.MessageEntityType) bool {
	return t == models.MessageEntityTypeCode || t == models.MessageEntityTypePre || t == models.MessageEntityTypeTextLink
}
