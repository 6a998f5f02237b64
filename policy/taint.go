package policy

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
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
	found = slices.DeleteFunc(found, func(f string) bool { return strings.Contains(said, strings.ToLower(f)) })
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

// identifier is how apps name their things: no words fit into it.
var identifier = regexp.MustCompile(`^[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$`)

// unsaid tells whether the arguments have a text that is not among the person's own words. Arguments that cannot be read have.
func unsaid(a Action) bool {
	var args any
	if err := json.Unmarshal(a.Args, &args); err != nil && len(a.Args) > 0 {
		return true
	}
	said := words(a.Said)
	for _, text := range valuesIn(args) {
		if text = words(text); text != "" && !identifier.MatchString(text) && !strings.Contains(said, text) {
			return true
		}
	}
	return false
}

// words is a text without what does not tell it from another: case and spaces.
func words(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }

// valuesIn collects every text but the names of the arguments themselves, which a schema has checked.
func valuesIn(args any) []string {
	members, ok := args.(map[string]any)
	if !ok {
		return textsIn(args)
	}
	var found []string
	for _, name := range sorted(members) {
		found = append(found, textsIn(members[name])...)
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
