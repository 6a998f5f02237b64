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
