package bot

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"pilder/store"
)

//go:embed texts/*.yaml
var catalogues embed.FS

// texts are the house's words by language ("es", "en") and key.
type texts map[string]map[string]string

func loadTexts() (texts, error) {
	t := texts{}
	for _, lang := range []string{"es", "en"} {
		data, err := catalogues.ReadFile("texts/" + lang + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("reading texts: %w", err)
		}
		var m map[string]string
		if err := yaml.Unmarshal(data, &m); err != nil {
			return nil, fmt.Errorf("reading texts of %s: %w", lang, err)
		}
		t[lang] = m
	}
	return t, nil
}

var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// say gives a text with its values in place; ok is false when the key is unknown, and then the text is the generic one.
// Values are put in once and never read as text of ours again. "tool", "app", "role" and "fate" are told by name.
func (b *Bot) say(lang, key string, args map[string]string) (text string, ok bool) {
	lang = b.langOr(lang)
	text, ok = b.texts[lang][key]
	if !ok {
		b.cfg.Log.Error().Str("event", "text.missing").Str("key", clip(key, 64)).Send()
		text = b.texts[lang]["generic"]
	}
	text = placeholder.ReplaceAllStringFunc(text, func(p string) string {
		name := p[1 : len(p)-1]
		v := args[name]
		switch name {
		case "tool":
			return b.toolName(lang, v)
		case "app":
			return b.appName(lang, v)
		case "role":
			if r, ok := b.texts[lang]["role."+v]; ok {
				return r
			}
		case "fate":
			if f, ok := b.texts[lang]["fate."+v]; ok {
				return f
			}
		case "by", "who", "for":
			if v == "" {
				return b.texts[lang]["someone"]
			}
		}
		return clean(v)
	})
	return strings.TrimSpace(text), ok
}

func (b *Bot) langOr(lang string) string {
	if lang = language(lang); lang == "" {
		return b.cfg.Lang
	}
	return lang
}

// toolName says a tool the way people would: "send a mail"; one we have no words for by its app and its own name.
func (b *Bot) toolName(lang, tool string) string {
	if t, ok := b.texts[lang]["tool."+tool]; ok {
		return t
	}
	app, action, found := strings.Cut(tool, "-")
	words := func(s string) string {
		return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '-' || r == '_' }), " ")
	}
	if !found {
		return line(words(tool), 80)
	}
	return line(b.appName(lang, app)+": "+words(action), 80)
}

func (b *Bot) appName(lang, slug string) string {
	for _, a := range slices.Concat(b.cfg.Apps, b.cfg.Open) {
		if name := a.Name.In(lang); a.Slug == slug && name != "" {
			return name
		}
	}
	if t, ok := b.texts[lang]["app."+slug]; ok {
		return t
	}
	name := line(strings.ReplaceAll(slug, "_", " "), 60)
	r, n := utf8.DecodeRuneInString(name)
	return string(unicode.ToUpper(r)) + name[n:]
}

// line makes untrusted text one short line.
func line(s string, most int) string {
	s = clean(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == 0x2028 || r == 0x2029 }), " "))
	if r := []rune(s); len(r) > most {
		return strings.TrimSpace(string(r[:most-1])) + "…"
	}
	return s
}

// langOf is the language to speak to a member: their own, else their company's.
func langOf(m store.Membership) string {
	if l := language(m.Person.Lang); l != "" {
		return l
	}
	return language(m.Company.Lang)
}

// zoneName is the zone in which a member is told times: their own, else their company's; empty for neither.
func zoneName(m store.Membership) string {
	if m.Person.Zone != "" {
		return m.Person.Zone
	}
	return m.Company.Zone
}

// clock writes a time as people read it; where nobody chose a zone, UTC is named.
func (b *Bot) clock(t time.Time, zone string) string {
	for _, name := range []string{zone, b.cfg.DefaultZone} {
		if z, err := time.LoadLocation(name); name != "" && err == nil {
			return t.In(z).Format("02/01 15:04")
		}
	}
	return t.UTC().Format("02/01 15:04 UTC")
}

// timeIn reads a time that a draft carries, in the zone it carries as "zone".
func (b *Bot) timeIn(args map[string]string, name string) string {
	t, err := time.Parse(time.RFC3339, args[name])
	if err != nil {
		return "—"
	}
	return b.clock(t, args["zone"])
}
