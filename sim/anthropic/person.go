package anthropic

import (
	"regexp"
	"strings"
	"time"
)

// Lines that the CLI or pilder put beside the person's words.
var (
	notPerson = regexp.MustCompile(`^(Tool loaded\.|\[Request interrupted by user.*\]|Continue from where you left off\.)$`)
	dateLine  = regexp.MustCompile(`(?:Hoy es|Today is) (\pL+),? (\d{1,4})[/-](\d{1,2})[/-](\d{1,4})(?: \(day/month/year\))?, ` +
		`(\d{1,2}):(\d{2}) \((?:([^,():]+), UTC([+\x{2212}-]\d{2}:\d{2})?|UTC)[:)]`)
	continued = regexp.MustCompile(`^This session is being continued from a previous conversation`) // after a compaction
	header    = regexp.MustCompile(`^(\[[^\]]*\]|[-=]{3,}|[\pL ]{2,20}: .*)$`)
	element   = regexp.MustCompile(`(?s)<(mensaje|message|person|persona)(?:\s[^<>]*)?>\n?(.*?)\n?</(?:mensaje|message|person|persona)>`)
	wrapper   = regexp.MustCompile(`^<([a-z][\w-]*)(?:\s[^<>]*)?>`)
)

// personText gives the texts a person wrote in one user message: what is left of its text blocks without reminders,
// envelope and the CLI's own lines.
func personText(c contents) []string {
	var out []string
	for _, b := range c {
		if b.Type != "text" {
			continue
		}
		if text := strings.TrimSpace(reminder.ReplaceAllString(b.Text, "")); !continued.MatchString(text) {
			out = append(out, unwrap(text)...)
		}
	}
	return out
}

// unwrap takes the envelope off. Where the words stand in <message> elements, they are the whole of it; otherwise elements
// and header lines before the words are dropped.
func unwrap(text string) []string {
	var out []string
	if found := element.FindAllStringSubmatch(text, -1); found != nil {
		for _, f := range found {
			if words := strings.TrimSpace(f[2]); words != "" {
				out = append(out, words)
			}
		}
		return out
	}
	for m := wrapper.FindStringSubmatch(text); m != nil; m = wrapper.FindStringSubmatch(text) {
		_, rest, closed := strings.Cut(text, "</"+m[1]+">")
		if !closed {
			break
		}
		text = strings.TrimSpace(rest)
	}
	lines := strings.Split(text, "\n")
	dated := dateLine.MatchString(lines[0])
	for len(lines) > 0 {
		line := strings.TrimSpace(lines[0])
		if line != "" && !notPerson.MatchString(line) && !dateLine.MatchString(line) && !(dated && header.MatchString(line)) {
			break
		}
		lines = lines[1:]
	}
	if words := strings.TrimSpace(strings.Join(lines, "\n")); words != "" {
		out = append(out, words)
	}
	return out
}

// dated is the moment of the last date line in what pilder wrote: the system prompt, then the conversation, since a process
// that waited hears of the time with each turn. Zero if there is none.
func dated(system string, messages []Message) time.Time {
	at := lastDate(system)
	for _, m := range messages {
		if m.Role == "assistant" {
			continue
		}
		if later := lastDate(m.Content.text()); !later.IsZero() {
			at = later
		}
	}
	return at
}

func lastDate(text string) time.Time {
	all := dateLine.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return time.Time{}
	}
	m := all[len(all)-1]
	day, month, year := number(m[2]), number(m[3]), number(m[4])
	if len(m[2]) == 4 {
		day, year = year, day
	}
	read := func(month, day int) time.Time {
		return inZone(time.Date(year, time.Month(month), day, number(m[5]), number(m[6]), 0, 0, time.UTC), m[7], m[8])
	}
	at := read(month, day)
	if weekday, ok := weekdays()[fold(m[1]).text]; ok && weekday != at.Weekday() {
		if other := read(day, month); other.Weekday() == weekday {
			return other // an English line may have the month first
		}
	}
	return at
}

// inZone is the wall clock time in the named zone if its offset there is the given one, otherwise at that offset for good.
func inZone(wall time.Time, name, offset string) time.Time {
	offset = strings.Replace(offset, "\u2212", "-", 1)
	if offset == "" {
		offset = "+00:00"
	}
	parsed, err := time.Parse("-07:00", offset)
	if err != nil {
		return wall
	}
	_, seconds := parsed.Zone()
	at := wall.Add(-time.Duration(seconds) * time.Second)
	if zone, err := time.LoadLocation(name); err == nil {
		if _, there := at.In(zone).Zone(); there == seconds {
			return at.In(zone)
		}
	}
	return at.In(time.FixedZone(name, seconds))
}
