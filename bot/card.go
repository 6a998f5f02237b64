package bot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/go-telegram/bot/models"

	"pilder/policy"
	"pilder/store"
)

// What a card shows of its arguments in its first part. A longer value begins there and follows in full.
const (
	shownValue = 500  // units of one value
	shownAll   = 2800 // units of all values
)

// field is one argument as it would be executed.
type field struct {
	name    string
	label   string
	value   string
	outside bool // holds an address outside the company
}

// card shows a held call: who asks, what it does, every argument that will be executed, the code and the time. The first
// part carries the buttons; what does not fit there stands in full in the others, which go out once their person asks to see
// all (or at once, when the draft says Whole): the store counts no yes before. Values are literal: nothing in them is markup,
// and what would be invisible is made visible.
func (b *Bot) card(d store.Draft, a store.Approval) []rich {
	lang := b.langOr(d.Lang)
	say := func(key string, args map[string]string) string { s, _ := b.say(lang, key, args); return s }
	head := b.cardHead(lang, d, a)
	more, lower := "card.more_folded", "card.below_folded"
	if d.Whole {
		more, lower = "card.more", "card.below"
	}
	head.write("\n")
	var full rich
	room := shownAll
	fields := b.fields(lang, a)
	if len(fields) == 0 {
		head.write("\n" + say("card.none", nil))
	}
	below := false
	for _, f := range fields {
		shown, whole := f, true
		if n := units(f.value); n > shownValue || n > room {
			whole = false
			shown.value = cutUnits(f.value, min(shownValue, max(room, 0))/2)
			shown.value += " " + say(more, nil)
			full.write("\n")
			full.add(f.show(say("card.outside", nil)))
		}
		one := shown.show(say("card.outside", nil))
		if name, known := b.named(lang, a, f); known {
			one.write("\n   " + name)
		}
		if room -= one.n; room < 0 {
			below = true
			if whole {
				full.write("\n")
				full.add(f.show(say("card.outside", nil)))
			}
			continue
		}
		head.write("\n")
		head.add(one)
	}
	if below {
		head.write("\n" + say(lower, nil))
	}
	head.write("\n\n" + say("card.code", map[string]string{"code": a.Code, "expires": b.timeIn(d.Args, "expires")}))
	if full.n == 0 {
		return []rich{tidy(head)}
	}
	head.write("\n" + say("card.digest", map[string]string{"digest": clip(a.Digest, 16)}))
	rest := plain(say("card.full", map[string]string{"code": a.Code})).styled(models.MessageEntityTypeBold)
	rest.write("\n")
	rest.add(full)
	parts, _ := split(tidy(rest), maxUnits, 0)
	return append([]rich{tidy(head)}, parts...)
}

// cardHead is what stands above the arguments: the question, who asks for what, with which app and account, in whose place.
func (b *Bot) cardHead(lang string, d store.Draft, a store.Approval) (head rich) {
	say := func(key string, args map[string]string) string { s, _ := b.say(lang, key, args); return s }
	head.add(plain(say(d.Notice, nil)).styled(models.MessageEntityTypeBold))
	what := map[string]string{"tool": a.Tool, "who": line(a.Requester.Person.Name, 60), "app": a.App}
	if a.Kind == policy.Confirm {
		head.write("\n" + say("card.does", what))
	} else {
		head.write("\n" + say("card.asks", what))
	}
	if a.App != "" && a.App != houseApp {
		head.write("\n" + say("card.app", what))
	}
	for _, fact := range a.Facts {
		if fact.Arg == "" {
			head.write("\n" + say("card.account", map[string]string{"name": line(visible(fact.Text), 100)}))
		}
	}
	if who := d.Args["for"]; who != "" {
		head.write("\n" + say("card.deputy", map[string]string{"for": who}))
	}
	return head
}

// named says what an id of the call stands for, as it was read when it was asked for; known is false for what is no such id.
// The words are the app's: one line, literal.
func (b *Bot) named(lang string, a store.Approval, f field) (name string, known bool) {
	for _, fact := range a.Facts {
		if fact.Arg == "" || fact.Arg != f.name {
			continue
		}
		if text := line(visible(fact.Text), 200); text != "" {
			name, _ = b.say(lang, "card.named", map[string]string{"name": text})
		} else {
			name, _ = b.say(lang, "card.unnamed", nil)
		}
		return name, true
	}
	return "", false
}

// tidy readies composed text for sending.
func tidy(r rich) rich {
	r = trim(r)
	r.Entities = fewer(settle(r.Entities))
	return r
}

// show sets one argument: its label, and its value as code, in which Telegram makes no links, names or commands.
func (f field) show(outside string) rich {
	out := plain(f.label).styled(models.MessageEntityTypeBold)
	out.write(": ")
	if f.outside {
		out.write("⚠️ ")
	}
	kind := models.MessageEntityTypeCode
	if strings.Contains(f.value, "\n") {
		kind = models.MessageEntityTypePre
		out.write("\n")
	}
	if strings.TrimSpace(f.value) == "" {
		out.write("“" + f.value + "”")
	} else {
		out.add(plain(f.value).styled(kind))
	}
	if f.outside {
		out.write(" (" + outside + ")")
	}
	return out
}

// order is what people look for in a call, in the order in which they read it: to whom and about what; or what, when, with
// whom and where. The rest follows as it stands in the call, where models mostly keep to the alphabet.
func order() []string {
	return []string{
		"para", "to", "cc", "cco", "bcc", "asunto", "subject", "cuerpo", "texto", "body",
		"summary", "title", "text", "eventStartDate", "eventEndDate", "timeZone", "recurrence", "attendees", "sendUpdates",
		"location", "description", "calendarId", "eventId",
	}
}

// fields reads the frozen arguments, doubled names included, into the order people read. What is no JSON object is shown as
// it is.
func (b *Bot) fields(lang string, a store.Approval) []field {
	dec := json.NewDecoder(bytes.NewReader(a.Args))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		if len(bytes.TrimSpace(a.Args)) == 0 {
			return nil
		}
		return []field{{name: "?", label: "?", value: visible(string(a.Args)), outside: true}}
	}
	var out []field
	labels := map[string]string{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		var raw json.RawMessage
		if err != nil || !ok || dec.Decode(&raw) != nil {
			return []field{{name: "?", label: "?", value: visible(string(a.Args)), outside: true}}
		}
		f := field{name: name, label: visible(name), value: value(raw)}
		if l, ok := b.texts[lang]["field."+name]; ok {
			if other, taken := labels[l]; !taken || other == name {
				labels[l] = name
				f.label = l
			}
		}
		f.outside = recipient(name) && leaves(raw, a.Requester.Company.Domains)
		out = append(out, f)
	}
	known := order()
	rank := func(f field) int {
		if i := slices.Index(known, f.name); i >= 0 {
			return i
		}
		return len(known)
	}
	slices.SortStableFunc(out, func(a, b field) int { return rank(a) - rank(b) })
	return out
}

// value writes an argument for people: text as it is, a list of one-line texts one below the other, all else as JSON.
func value(raw json.RawMessage) string {
	if null := bytes.TrimSpace(raw); string(null) == "null" {
		return "null"
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return visible(s)
	}
	var list []any
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		var lines []string
		for _, v := range list {
			s, ok := v.(string)
			if !ok || s == "" || strings.ContainsAny(s, "\n\r") {
				lines = nil
				break
			}
			lines = append(lines, visible(s))
		}
		if lines != nil {
			return strings.Join(lines, "\n")
		}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	var plain bytes.Buffer // without the escapes in which a text can be spelt
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if dec.Decode(&value) != nil || dec.More() || enc.Encode(value) != nil {
		return visible(string(raw))
	}
	return visible(strings.TrimSuffix(plain.String(), "\n"))
}

// visible makes whatever steers or hides in a text readable, so that nothing executed is unseen: a mark that turns the
// direction of writing around shows as ⟦U+202E⟧.
func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == '\r':
			b.WriteString("⟦CR⟧")
		case unseen(r), r >= 0x200C && r <= 0x200F, r >= 0xE0020 && r <= 0xE007F, unprinted(r), r == 0x34F, r == 0x61C:
			fmt.Fprintf(&b, "⟦U+%04X⟧", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// houseApp is the app of the house's own tools.
const houseApp = "pilder"

// recipient tells whether an argument names people whom the call would reach.
func recipient(name string) bool {
	switch strings.ToLower(name) {
	case "para", "to", "cc", "cco", "bcc", "attendees":
		return true
	}
	return false
}

// leaves tells whether recipients are not all surely of the company.
func leaves(raw json.RawMessage, domains []string) bool {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return strings.TrimSpace(one) != "" && !policy.Inside(one, domains)
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return !bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
	}
	for _, s := range list {
		if strings.TrimSpace(s) != "" && !policy.Inside(s, domains) {
			return true
		}
	}
	return false
}

// cutUnits cuts text to at most n units, between characters.
func cutUnits(s string, n int) string {
	used := 0
	for i, r := range s {
		if used += utf16.RuneLen(r); used > n {
			return s[:character(s, i)]
		}
	}
	return s
}
