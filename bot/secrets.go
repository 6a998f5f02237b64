package bot

import (
	"regexp"
	"strings"

	"github.com/go-telegram/bot/models"
)

// secretShapes are what no text to a person may hold, whoever wrote it: run tokens (JWT), model keys, process keys, bot
// tokens. They are narrow on purpose: a long address is no secret, and a person would miss it.
var secretShapes = []*regexp.Regexp{
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`),
	regexp.MustCompile(`sk-ant-[A-Za-z0-9_-]{8,}`),
	regexp.MustCompile(`\bpk-[A-Za-z0-9_-]{43}`), // a process key, as runner makes it
	regexp.MustCompile(`\b[0-9]{6,12}:[A-Za-z0-9_-]{30,}`),
}

// secretMark stands for each character of a secret: one UTF-16 unit like those it replaces, so that no offset moves.
const secretMark = "•"

// redact takes secrets out of a text and tells how many there were.
func redact(s string) (string, int) {
	n := 0
	for _, re := range secretShapes {
		s = re.ReplaceAllStringFunc(s, func(m string) string {
			n++
			return strings.Repeat(secretMark, len(m))
		})
	}
	return s, n
}

// redactRich does so for a part, including where its links lead.
func redactRich(r rich) (rich, int) {
	text, n := redact(r.Text)
	out := rich{Text: text, n: r.n}
	for _, e := range r.Entities {
		if e.Type == models.MessageEntityTypeTextLink {
			if _, bad := redact(e.URL); bad > 0 {
				n += bad
				continue
			}
		}
		out.Entities = append(out.Entities, e)
	}
	return out, n
}
