package anthropic

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Script is one part the stand-in can play. It is asked anew for every request of a turn, and answers with the next
// blocks: tool calls, whose results the next request brings, or text, which ends the turn.
type Script struct {
	Name  string
	Match func(Turn) bool
	Play  func(Turn) []Block
}

// Sequence is a script of fixed steps, one per answer: step n is played when n answers of this turn have called tools. Loading
// of deferred tools is put in between and does not count. A step sees the results so far in Turn.Calls; all but the last
// should call a tool. An agent that has gone over to the enemy is a Sequence.
func Sequence(name string, match func(Turn) bool, steps ...func(Turn) []Block) Script {
	return Script{Name: name, Match: match, Play: func(t Turn) []Block {
		if t.Rounds >= len(steps) {
			return []Block{Text(t.say("Hecho.", "Done."))}
		}
		return steps[t.Rounds](t)
	}}
}

// Says matches a turn whose text contains the words, without regard to case and accents.
func Says(words string) func(Turn) bool {
	return func(t Turn) bool { return strings.Contains(fold(t.Text).text, fold(words).text) }
}

// play chooses the script for a request and plays it.
func (s *Server) play(req request) (name string, blocks []Block) {
	t := s.turn(req)
	if compacting.MatchString(req.Messages[len(req.Messages)-1].Content.text()) {
		return "compact", t.compact()
	}
	for _, script := range s.cfg.Scripts {
		if script.Match(t) {
			return script.Name, t.loadFirst(script.Play(t))
		}
	}
	scripts := demo()
	var names, texts []string
	for _, wish := range wishes(t, scripts) {
		script := choose(wish, scripts)
		names = append(names, script.Name)
		answer := script.Play(wish)
		if slices.ContainsFunc(answer, func(b Block) bool { return b.Tool != "" }) {
			return strings.Join(names, "+"), t.loadFirst(answer)
		}
		for _, b := range answer {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(names, "+"), []Block{Text(strings.Join(texts, "\n\n"))}
}

// compacting is the CLI's own request to sum a conversation up. It stands beside the latest tool results, if there are any
// (measured).
var compacting = regexp.MustCompile(`Your task is to create a detailed summary of the conversation`)

// compact sums up with the person's words, which is all that is certain.
func (t Turn) compact() []Block {
	var b strings.Builder
	b.WriteString("<summary>\nThe person wrote:")
	for _, m := range t.Messages {
		if m.Role == "user" && !hasResult(m.Content) {
			for _, text := range personText(m.Content) {
				if !compacting.MatchString(text) {
					fmt.Fprintf(&b, "\n- %.200q", text)
				}
			}
		}
	}
	return []Block{Text(b.String() + "\n</summary>")}
}

// wishes parts what a person wrote into what they want, since several messages may come as one turn: each line that is a
// wish for an action by itself begins one, and other lines belong to the wish before. The same wish twice is one: after a
// failed turn the CLI puts the unanswered text before the next one, which is often the same again (measured).
func wishes(t Turn, scripts []demoScript) []Turn {
	var parts []string
	begun := false
	for line := range strings.SplitSeq(t.Text, "\n") {
		one := t.with(line)
		action := choose(one, scripts).action
		if len(parts) == 0 || action && begun {
			parts = append(parts, line)
		} else {
			parts[len(parts)-1] += "\n" + line
		}
		begun = begun || action
	}
	out := make([]Turn, 0, len(parts))
	seen := map[string]bool{}
	for _, p := range parts {
		if key := fold(strings.TrimSpace(p)).text; !seen[key] {
			seen[key] = true
			out = append(out, t.with(p))
		}
	}
	return out
}

// with is the turn for one wish. What scripts have read of the calls stays shared between them.
func (t Turn) with(text string) Turn {
	t.Text = strings.TrimSpace(text)
	t.Lang = language(text)
	return t
}
