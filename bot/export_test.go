package bot

import (
	"encoding/json"
	"time"

	"github.com/go-telegram/bot/models"

	"pilder/store"
)

// What the tests, which look from outside, need of the inside: the pure parts.

// Part is a rendered part.
type Part struct {
	Text     string
	Entities []models.MessageEntity
}

func public(r rich) Part { return Part{r.Text, r.Entities} }

// Render and Split are the rendering of an answer and its cutting.
func Render(markdown string) Part { return public(render(markdown)) }

func Split(p Part, limit int) []Part {
	parts, _ := split(rich{Text: p.Text, Entities: p.Entities, n: units(p.Text)}, limit, 0)
	var out []Part
	for _, r := range parts {
		out = append(out, public(r))
	}
	return out
}

// Units counts UTF-16 units.
func Units(s string) int { return units(s) }

// Redact is the secret scanner.
func Redact(s string) (string, int) { return redact(s) }

// Catalogues are all texts by language and key.
func Catalogues() (map[string]map[string]string, error) { return loadTexts() }

// Decoded is an update as it is filed, and what it asks for.
type Decoded struct {
	Kind   store.ArrivalKind
	Reason string
	Text   string
	Want   string
	Name   string
	Rest   string

	Foreign bool
}

// Decode is the decoder.
func Decode(raw string) Decoded {
	e := decode(1, json.RawMessage(raw), "pilder_demo_bot")
	return Decoded{e.Kind, e.Reason, e.Text, string(e.Want), e.Name, e.Rest, e.Foreign}
}

// Say is a text of the house.
func (b *Bot) Say(lang, key string, args map[string]string) string {
	s, _ := b.say(lang, key, args)
	return s
}

// Parts renders a reply.
func (b *Bot) Parts(r store.Reply) ([]Part, error) {
	raw, err := b.parts(r)
	var out []Part
	for _, p := range raw {
		var m part
		if err := json.Unmarshal(p, &m); err != nil {
			return nil, err
		}
		out = append(out, Part{m.Text + m.File, m.Entities})
	}
	return out, err
}

// Pace is the budget.
type Pace struct{ *pace }

func NewPace(now func() time.Time) Pace                     { return Pace{newPace(now, chatRate)} }
func (p Pace) Take(chat int64) (time.Time, bool, bool)      { return p.take(chat) }
func (p Pace) Free(chat int64) (time.Time, bool)            { return p.free(chat) }
func (p Pace) Block(chat int64, until time.Time) (all bool) { return p.block(chat, until) }
