package policy

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// leads are texts that take whoever reads them somewhere, or reach somebody: links with or without a scheme, and addresses.
var leads = regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://[^\s<>"']+|[^\s<>"'(),;:]+@[^\s<>"'(),;:]+|\b(?:[\pL0-9](?:[\pL0-9-]*[\pL0-9])?\.)+[a-z]{2,}\b(?:/[^\s<>"']*)?`)

// unnamed are links, addresses and recipients among the arguments that the person's own words do not have. Arguments that
// cannot be read have one.
func unnamed(a Action) []string {
	var args any
	if err := json.Unmarshal(a.Args, &args); err != nil && len(a.Args) > 0 {
		return []string{"?"}
	}
	said := strings.ToLower(a.Said)
	found := recipientsIn(args)
	for _, text := range textsIn(args) {
		for _, lead := range leads.FindAllString(text, -1) {
			found = append(found, strings.TrimRight(lead, ".,;:!?)]}"))
		}
	}
	found = slices.DeleteFunc(found, func(f string) bool { return hasWhole(said, strings.ToLower(f)) })
	slices.Sort(found)
	return slices.Compact(found)
}

// tainted tells whether the conversation has taken in words from anywhere but an app.
func tainted(a Action, but string) bool {
	return slices.ContainsFunc(a.Taint, func(from string) bool { return from != but })
}

// othersSee tells whether what a change leaves behind can be seen by others than its person. A calendar of one's own and a
// mailbox are private, as long as nobody is invited or written to: that has rules of its own. Everything else counts as shared.
func othersSee(a Action) bool {
	switch a.App {
	case "", "gmail":
		return false
	case "google_calendar":
		var args struct {
			Calendar   any `json:"calendarId"`
			Visibility any `json:"visibility"`
		}
		if len(a.Args) > 0 && json.Unmarshal(a.Args, &args) != nil {
			return true
		}
		own := args.Calendar == nil || args.Calendar == "" || args.Calendar == "primary"
		return !own || args.Visibility == "public"
	}
	return true
}

// identifier is how apps name their things: no words fit into it. Elsewhere sixteen bytes of somebody else's choice are words.
var identifier = regexp.MustCompile(`^[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$`)

// unsaid tells whether the arguments have a text that is not among the person's own words, exactly: spaces and capitals can
// carry a secret too. Arguments that cannot be read have.
func unsaid(a Action) bool {
	var args any
	dec := json.NewDecoder(bytes.NewReader(a.Args))
	dec.UseNumber()
	if err := dec.Decode(&args); err != nil && len(a.Args) > 0 {
		return true
	}
	for _, text := range valuesIn(args, a.Open) {
		if text != "" && !isSaid(text, a.Said) && (a.Elsewhere || !identifier.MatchString(text)) {
			return true
		}
	}
	return false
}

// isSaid tells whether the person wrote a text; its first letter may have become a capital, or have ceased to be one.
func isSaid(text, said string) bool {
	if hasWhole(said, text) {
		return true
	}
	first, size := utf8.DecodeRuneInString(text)
	other := unicode.ToUpper(first)
	if other == first {
		other = unicode.ToLower(first)
	}
	return hasWhole(said, string(other)+text[size:])
}

// hasWhole tells whether a text stands in another as a whole: an address that is the beginning or the end of one that was
// written is another address.
func hasWhole(said, text string) bool {
	for at := 0; text != ""; at++ {
		i := strings.Index(said[at:], text)
		if i < 0 {
			return false
		}
		at += i
		before, _ := utf8.DecodeLastRuneInString(said[:at])
		rest := said[at+len(text):]
		after, _ := utf8.DecodeRuneInString(rest)
		stop, _ := utf8.DecodeRuneInString(strings.TrimLeft(rest, ".,;:!?")) // a full stop ends a sentence, or goes on in a name
		ends := rest == "" || !joins(after) || stop == utf8.RuneError || unicode.IsSpace(stop)
		if (at == 0 || !joins(before)) && ends {
			return true
		}
	}
	return false
}

// joins tells whether a character goes on with a word, an address or a link.
func joins(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || strings.ContainsRune("@._-+/:#%&=~", r)
}

// smallNumber is one that carries little: a page, a count, a day.
var smallNumber = regexp.MustCompile(`^-?\d{1,3}$`)

// valuesIn collects every text and every number that is not small, and the names of members, but for those of the arguments
// themselves where a schema names them all.
func valuesIn(args any, open bool) []string {
	var found []string
	if members, ok := args.(map[string]any); ok && !open {
		for _, name := range sorted(members) {
			found = append(found, valuesIn(members[name], true)...)
		}
		return found
	}
	switch v := args.(type) {
	case map[string]any:
		for _, name := range sorted(v) {
			found = append(append(found, name), valuesIn(v[name], true)...)
		}
	case []any:
		for _, e := range v {
			found = append(found, valuesIn(e, true)...)
		}
	case string:
		found = append(found, v)
	case json.Number:
		if !smallNumber.MatchString(v.String()) {
			found = append(found, v.String())
		}
	}
	return found
}

// textsIn collects every text, names of members too: some apps take tables.
func textsIn(value any) []string {
	var found []string
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sorted(v) {
			found = append(append(found, name), textsIn(v[name])...)
		}
	case []any:
		for _, e := range v {
			found = append(found, textsIn(e)...)
		}
	case string:
		found = append(found, v)
	}
	return found
}
