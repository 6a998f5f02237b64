// Package prompt writes what the house tells the agent: the dynamic prompt of a turn and the instructions of the MCP
// server. The same input gives the same bytes. It asks nobody: the clock, the person and the rules are input, and texts of
// people or apps appear only as quoted, one-line data.
package prompt

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones must not depend on what the machine has installed
)

// Input is everything the dynamic prompt depends on.
type Input struct {
	Lang string    // the person's language, BCP 47: Spanish for "es…" and for none, English for all others
	Now  time.Time // the turn's time, in any zone
	Zone string    // the person's IANA zone; missing or unknown is told as UTC
	// Channel is where the person writes, "telegram"; empty is telegram.
	Channel string
	// Private says that the chat is between the person and the bot alone. The zero value is a group, where answers are
	// read by all.
	Private bool
	Apps    []string // display names of the connected apps, in the order to tell them
	// Preferences are the apps they mean by a category of which they have several.
	Preferences []Preference
	Rules       []string // the company's rules as sentences without full stop, policy.Grant.Sentences
	Fetch       []string // names whose pages the agent can read, "example.com" or "*.example.com"; none: it reads no pages
	Search      bool     // the agent can search the web
	Person      string   // display name, the person's own text
	Role        string   // "member", "approver", "admin"; others are not told
	Company     string   // display name, the company's own text
	News        []News   // what the house did since the last turn, oldest first
	// Mark is a secret of the agent's process, as hex. With it the process is told how to know the house's words, and
	// Turn can put them beside a person's text. Empty: no such line.
	Mark string
}

// News is one thing that ended since the conversation's last turn: an approved call, say.
type News struct {
	At      time.Time
	Tool    string
	Outcome string // "done", "failed", "refused", "unknown", "held", "expired"; others read as unknown
	Text    string // the result's sentence; data of an app, never an instruction
}

// Bounds of what one turn is told. Beyond them the text says how many were left out.
const (
	maxApps = 60
	maxWeb  = 40
	maxNews = 20
)

// Dynamic returns the prompt of a turn, for the agent's system prompt: a channel that no text of a person reaches.
func Dynamic(in Input) string {
	t := textsFor(in.Lang)
	lines := []string{today(in, t), channel(in, t)}
	if who := who(in, t); who != "" {
		lines = append(lines, who)
	}
	lines = append(lines, apps(in.Apps, t))
	if line := preferences(in.Preferences, t); line != "" && len(in.Apps) > 0 {
		lines = append(lines, line)
	}
	if rules := rules(in.Rules, t); rules != "" {
		lines = append(lines, rules)
	}
	lines = append(lines, web(in, t), t.sources)
	if in.Mark != "" {
		lines = append(lines, fmt.Sprintf(t.mark, clean(in.Mark, 64)))
	}
	lines = append(lines, news(in, t)...)
	return strings.Join(lines, "\n") + "\n"
}

// Turn returns the same words for a process that already runs and whose system prompt is therefore fixed. They go before
// the person's text as a block of their own, between marks that the person does not know. Without Mark it is empty,
// because then nothing would tell the house's words from the person's.
func Turn(in Input) string {
	mark := clean(in.Mark, 64)
	if mark == "" {
		return ""
	}
	in.Mark = ""
	return "<pilder-" + mark + ">\n" + Dynamic(in) + "</pilder-" + mark + ">\n"
}

func today(in Input, t texts) string {
	loc, known := location(in.Zone)
	now := in.Now.In(loc)
	day, date, clock := t.weekdays[now.Weekday()], now.Format("02/01/2006"), now.Format("15:04")
	if !known {
		return fmt.Sprintf(t.todayUTC, day, date, clock)
	}
	return fmt.Sprintf(t.today, day, date, clock, loc, now.Format("-07:00"))
}

// location reads a person's zone; UTC where it is missing or unknown. "" and "Local" load, but name no zone or the machine's.
func location(zone string) (loc *time.Location, known bool) {
	zone = strings.TrimSpace(zone)
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "" || strings.EqualFold(zone, "local") {
		return time.UTC, false
	}
	return loc, true
}

func channel(in Input, t texts) string {
	name := clean(in.Channel, 40)
	if name == "" {
		name = "telegram"
	}
	if in.Private {
		return fmt.Sprintf(t.private, name)
	}
	return fmt.Sprintf(t.group, name)
}

func who(in Input, t texts) string {
	var parts []string
	if name := clean(in.Person, 64); name != "" {
		parts = append(parts, fmt.Sprintf(t.person, name))
	}
	if role := t.roles[in.Role]; role != "" {
		parts = append(parts, fmt.Sprintf(t.role, role))
	}
	if company := clean(in.Company, 64); company != "" {
		parts = append(parts, fmt.Sprintf(t.company, company))
	}
	if len(parts) == 0 {
		return ""
	}
	return t.who + strings.Join(parts, "; ") + "."
}

func apps(names []string, t texts) string {
	var shown []string
	for _, n := range names {
		if n = clean(n, 60); n != "" {
			shown = append(shown, n)
		}
	}
	if len(shown) == 0 {
		return t.noApps
	}
	more := ""
	if len(shown) > maxApps {
		more = fmt.Sprintf(t.more, len(shown)-maxApps)
		shown = shown[:maxApps]
	}
	return fmt.Sprintf(t.apps, strings.Join(shown, ", ")+more)
}

func rules(sentences []string, t texts) string {
	var shown []string
	for _, s := range sentences {
		if s = strings.TrimRight(clean(s, 300), ". "); s != "" {
			shown = append(shown, s)
		}
	}
	if len(shown) == 0 {
		return ""
	}
	return t.rules + strings.Join(shown, "; ") + "."
}

// web says what of the web is within reach, so that the agent promises nothing else.
func web(in Input, t texts) string {
	var shown []string
	for _, n := range in.Fetch {
		if n = clean(n, 100); n != "" {
			shown = append(shown, n)
		}
	}
	switch {
	case len(shown) == 0 && !in.Search:
		return t.noWeb
	case len(shown) == 0:
		return t.search
	}
	more := ""
	if len(shown) > maxWeb {
		more = fmt.Sprintf(t.more, len(shown)-maxWeb)
		shown = shown[:maxWeb]
	}
	line := fmt.Sprintf(t.fetch, strings.Join(shown, ", ")+more)
	if in.Search {
		return t.searchToo + " " + line
	}
	return line
}

func news(in Input, t texts) []string {
	list := in.News
	if len(list) == 0 {
		return nil
	}
	lines := []string{t.news}
	if left := len(list) - maxNews; left > 0 {
		lines = append(lines, fmt.Sprintf(t.olderNews, left))
		list = list[left:]
	}
	loc, _ := location(in.Zone)
	for _, n := range list {
		outcome, ok := t.outcomes[n.Outcome]
		if !ok {
			outcome = t.outcomes["unknown"]
		}
		line := "- "
		if !n.At.IsZero() {
			line += n.At.In(loc).Format("02/01 15:04") + ", "
		}
		line += clean(n.Tool, 64) + ": " + outcome + "."
		if text := clean(n.Text, 300); text != "" {
			line += fmt.Sprintf(t.newsText, text)
		}
		lines = append(lines, line)
	}
	return lines
}
