package policy

import (
	"path"
	"slices"
	"strings"
)

// Own is a rule that a company has added to the house's. It holds for the actions that its lists name, an empty list naming
// all, and of them for those that fulfil the condition.
type Own struct {
	ID     string `json:"id"`
	Effect Effect `json:"effect"`
	// Apps, Tools and Classes are slugs, names with "*" for any characters, and "read", "write", "destructive" or "unknown".
	Apps    []string `json:"apps,omitempty"`
	Tools   []string `json:"tools,omitempty"`
	Classes []string `json:"classes,omitempty"`
	// When is a condition in CEL over the variables of Variables; empty: always.
	When string `json:"when,omitempty"`
	// Told is the rule in the agent's prompt, without a full stop; Reason says to a person why a call was stopped.
	Told   Text `json:"told"`
	Reason Text `json:"reason"`
}

// names tells whether the lists name an action.
func (o Own) names(a Action) bool {
	return (len(o.Apps) == 0 || slices.ContainsFunc(o.Apps, func(app string) bool { return strings.EqualFold(app, a.App) })) &&
		(len(o.Tools) == 0 || slices.ContainsFunc(o.Tools, func(pattern string) bool { return matches(pattern, a.Tool) })) &&
		(len(o.Classes) == 0 || slices.Contains(o.Classes, a.Class.String()))
}

// String is the class's word; "unknown" for all that is none of the others.
func (c Class) String() string {
	switch c {
	case ClassRead, ClassWrite, ClassDestructive:
		return string(c)
	}
	return "unknown"
}

// matches compares a tool's name with a pattern, whatever the case of either. A pattern was checked when it was read; what
// cannot be read matches, so that a rule is rather too strict.
func matches(pattern, tool string) bool {
	ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(tool))
	return ok || err != nil
}
