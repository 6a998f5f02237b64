package prompt

import (
	"fmt"
	"slices"
	"strings"
)

// MaxInstructions is the longest text Instructions returns, in bytes: what clients show the model of a server's
// instructions before they cut.
const MaxInstructions = 2048

// InstructionsInput is everything the server's instructions depend on.
type InstructionsInput struct {
	Lang        string // as Input.Lang
	Apps        []App  // connected apps, the important ones first
	Preferences []Preference
	// Empty says why there is no tool at all, one line in the person's language: an agent that is not told takes it for
	// success. Empty when there are tools.
	Empty string
}

// App is a connected app as the instructions name it.
type App struct {
	Name   string // "Google Calendar"
	Prefix string // of its tools: "google_calendar" is shown as google_calendar-*
	Hint   string // when to use it, one line in the person's language; may be empty
}

// Preference is the app a person prefers for a category.
type Preference struct {
	Category string // in the person's language: "agenda"
	App      string // display name: "Google Calendar"; empty: they have several and have not said
}

// Instructions returns the instructions of the MCP server for one person, at most MaxInstructions bytes: what protects
// third parties first, then preferences, then one line per app. When room runs out hints go first, from the last app on,
// then apps; a client that cuts earlier loses the least important.
func Instructions(in InstructionsInput) string {
	t := textsFor(in.Lang)
	head := []string{t.noThirdParties, t.pending, t.content, t.connectOther + " " + t.both}
	if empty := clean(in.Empty, 300); empty != "" {
		head = append([]string{empty}, head...)
	}
	var short, full []string
	for _, a := range in.Apps {
		name := clean(a.Name, 40)
		if name == "" {
			continue
		}
		line := name
		if prefix := toolPrefix(a.Prefix); prefix != "" {
			line += " (" + prefix + "-*)"
		}
		short = append(short, line)
		if hint := clean(a.Hint, 240); hint != "" {
			line += ": " + hint
		}
		full = append(full, line)
	}
	if len(short) == 0 {
		return fit(append(head, t.noApps), MaxInstructions)
	}
	if line := preferences(in.Preferences, t); line != "" {
		head = append(head, line)
	}
	head = append(head, t.connected)
	for hints := len(full); hints >= 0; hints-- {
		lines := slices.Concat(head, full[:hints], short[hints:])
		if size(lines) <= MaxInstructions {
			return strings.Join(lines, "\n")
		}
	}
	for n := len(short) - 1; n >= 0; n-- {
		lines := slices.Concat(head, short[:n], []string{fmt.Sprintf(t.moreApps, len(short)-n)})
		if size(lines) <= MaxInstructions {
			return strings.Join(lines, "\n")
		}
	}
	return fit(head, MaxInstructions)
}

// preferences stops at 500 bytes, so that the apps keep their room.
func preferences(list []Preference, t texts) string {
	var parts []string
	room := 500
	for _, p := range list {
		category, app := clean(p.Category, 24), clean(p.App, 40)
		if category == "" {
			continue
		}
		part := fmt.Sprintf(t.preferred, category, app)
		if app == "" {
			part = fmt.Sprintf(t.undecided, category)
		}
		if room -= len(part); room < 0 {
			break
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return t.preferences + strings.Join(parts, "; ") + "."
}

// toolPrefix keeps what a tool's name may hold.
func toolPrefix(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s)
}

func size(lines []string) int {
	n := len(lines) - 1
	for _, l := range lines {
		n += len(l)
	}
	return n
}

// fit joins as many whole lines as there is room for.
func fit(lines []string, room int) string {
	for size(lines) > room {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines, "\n")
}
