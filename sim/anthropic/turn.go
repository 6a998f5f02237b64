package anthropic

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Turn is what a script knows: the person's words, and what has happened since they were written. It is read from one
// request and nothing else.
type Turn struct {
	Text string // what the person wrote; for a demo script the one of several wishes that is its own
	Lang string // "es" or "en", the language of Text
	// Now is the moment of the prompt's date line, in its zone; without such a line, the stand-in's clock in Config.Zone.
	Now      time.Time
	System   string    // the system prompt
	Messages []Message // the whole conversation
	Tools    []Tool    // may be called at once
	Deferred []string  // known by name only: to be loaded with ToolSearch first
	Calls    []Call    // this turn's calls in order, but for those that only loaded a tool
	Rounds   int       // how many of this turn's answers made such calls

	tried map[string]bool // tools that this turn has asked ToolSearch for
	used  *int            // how many of Calls the playing script has read
}

// Tool is a tool as the model sees it.
type Tool struct {
	Name   string // in full
	Schema Schema
}

// Schema is the part of an input schema that a script adapts to.
type Schema struct {
	Properties map[string]Property `json:"properties"`
	Required   []string            `json:"required"`
}

// Property is one input of a tool.
type Property struct {
	Type        any    `json:"type"` // a string, or a list of them
	Description string `json:"description"`
	Enum        []any  `json:"enum"`
}

// Has tells whether the tool takes the input.
func (s Schema) Has(name string) bool {
	_, ok := s.Properties[name]
	return ok
}

// First returns the first of the names that the tool takes, or "".
func (s Schema) First(names ...string) string {
	for _, n := range names {
		if s.Has(n) {
			return n
		}
	}
	return ""
}

// Takes tells whether the input may have the value, as far as the schema lists its values.
func (s Schema) Takes(name string, value any) bool {
	values := s.Properties[name].Enum
	return len(values) == 0 || slices.Contains(values, value)
}

// IsList tells whether the input is an array.
func (s Schema) IsList(name string) bool {
	return s.Properties[name].Type == "array"
}

// Call is one tool call of this turn with its result.
type Call struct {
	Name   string
	Input  json.RawMessage
	Result Result
}

// The CLI's own words in a conversation, measured with 2.1.332.
var (
	reminder    = regexp.MustCompile(`(?s)<system-reminder>.*?</system-reminder>\s*`)
	deferredNow = regexp.MustCompile(`(?s)deferred tools are (now )?available via ToolSearch.*?:\n(.*?)(\n\s*\n|$)`)
	deferredOff = regexp.MustCompile(`(?s)deferred tools are no longer available.*?:\n(.*?)(\n\s*\n|$)`)
	midTurn     = regexp.MustCompile(`(?s)The user sent a new message while you were working:\n(.*?)\n\nThis is how Claude Code surfaces`)
)

// turn reads a request. A malformed one gives an empty turn.
func (s *Server) turn(req request) Turn {
	t := Turn{System: req.System.text(), Messages: req.Messages, tried: map[string]bool{}, used: new(int)}
	begin := turnBegins(req.Messages)
	var words []string
	if begin < len(req.Messages) {
		words = personText(req.Messages[begin].Content)
		for _, m := range req.Messages[begin+1:] {
			for _, found := range midTurn.FindAllStringSubmatch(m.Content.text(), -1) {
				if m.Role != "assistant" {
					words = append(words, found[1])
				}
			}
		}
		t.readCalls(req.Messages[begin:])
	}
	t.Text = strings.Join(words, "\n")
	t.Lang = language(t.Text)
	t.readTools(req)
	t.Now = dated(t.System, req.Messages)
	if t.Now.IsZero() {
		t.Now = s.cfg.Now().In(s.cfg.Zone)
	}
	return t
}

// turnBegins finds the last message in which the person says something.
func turnBegins(messages []Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if m.Role == "user" && !hasResult(m.Content) && len(personText(m.Content)) > 0 {
			return i
		}
	}
	return len(messages)
}

func hasResult(c contents) bool {
	return slices.ContainsFunc(c, func(b Content) bool { return b.Type == "tool_result" })
}

// readCalls pairs the turn's tool uses with their results.
func (t *Turn) readCalls(messages []Message) {
	results := map[string]Result{}
	for _, m := range messages {
		for _, c := range m.Content {
			if c.Type == "tool_result" {
				results[c.ToolUseID] = newResult(c)
			}
		}
	}
	for _, m := range messages {
		round := false
		for _, c := range m.Content {
			if c.Type != "tool_use" {
				continue
			}
			if strings.HasPrefix(c.ID, loadingPrefix) {
				t.noteTried(c.Input)
				continue
			}
			round = true
			t.Calls = append(t.Calls, Call{c.Name, c.Input, results[c.ID]})
		}
		if round {
			t.Rounds++
		}
	}
}

func (t *Turn) noteTried(input json.RawMessage) {
	var search struct {
		Query string `json:"query"`
	}
	if json.Unmarshal(input, &search) != nil {
		return
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(search.Query, "select:"), ",") {
		t.tried[name] = true
	}
}

// readTools works out what may be called. A tool whose definition is deferred may be called once ToolSearch has given a
// reference to it, or the CLI has added it in mid-conversation, and until it is said to be gone.
func (t *Turn) readTools(req request) {
	loaded, named := map[string]bool{}, []string{}
	announce := func(text string) {
		for _, m := range deferredNow.FindAllStringSubmatch(text, -1) {
			for _, name := range toolNames(m[2]) {
				delete(loaded, name)
				named = append(named, name)
			}
		}
		for _, m := range deferredOff.FindAllStringSubmatch(text, -1) {
			for _, name := range toolNames(m[1]) {
				delete(loaded, name)
				named = slices.DeleteFunc(named, func(n string) bool { return n == name })
			}
		}
	}
	announce(t.System)
	for _, m := range req.Messages {
		for _, c := range m.Content {
			switch {
			case c.Type == "tool_addition" && c.Tool != nil:
				loaded[c.Tool.Name] = true
			case c.Type == "tool_result":
				for _, inner := range c.Content {
					if inner.Type == "tool_reference" {
						loaded[inner.ToolName] = true
					}
				}
			case c.Type == "text" && m.Role == "system":
				announce(c.Text)
			case c.Type == "text" && m.Role == "user":
				announce(strings.Join(reminder.FindAllString(c.Text, -1), "\n"))
			}
		}
	}
	for _, w := range req.Tools {
		if w.Defer && !loaded[w.Name] || w.Type != "" && w.Type != "custom" {
			continue
		}
		tool := Tool{Name: w.Name}
		if json.Unmarshal(w.Schema, &tool.Schema) != nil {
			tool.Schema = Schema{}
		}
		t.Tools = append(t.Tools, tool)
	}
	slices.Sort(named)
	for _, name := range slices.Compact(named) {
		if _, ok := t.tool(name); !ok {
			t.Deferred = append(t.Deferred, name)
		}
	}
}

func toolNames(list string) []string {
	return slices.DeleteFunc(strings.Fields(list), func(n string) bool { return !toolName.MatchString(n) })
}

// sameTool tells whether full is the tool called name: its full name, or the part behind the server's prefix.
func sameTool(full, name string) bool {
	return full == name || strings.HasPrefix(full, "mcp__") && strings.HasSuffix(full, "__"+name)
}

func (t Turn) tool(name string) (Tool, bool) {
	for _, tool := range t.Tools {
		if sameTool(tool.Name, name) {
			return tool, true
		}
	}
	return Tool{}, false
}

func (t Turn) deferred(name string) (string, bool) {
	for _, full := range t.Deferred {
		if sameTool(full, name) && !t.tried[full] {
			return full, true
		}
	}
	return "", false
}

// knowsApp tells whether any tool of the app is within reach.
func (t Turn) knowsApp(app string) bool {
	mark := "__" + app + "-"
	return slices.ContainsFunc(t.Deferred, func(n string) bool { return strings.Contains(n, mark) }) ||
		slices.ContainsFunc(t.Tools, func(tool Tool) bool { return strings.Contains(tool.Name, mark) })
}

// Use is the heart of a script that is played anew for every request: it gives the result of the tool's next call in this
// turn, or else the blocks to answer with so that there will be one. Loading comes first where it is needed, and input is
// asked only when the schema is known. A tool that is out of reach gives a Result that is Missing.
func (t Turn) Use(tool string, input func(Tool) any) (Result, []Block) {
	if i := *t.used; i < len(t.Calls) && sameTool(t.Calls[i].Name, tool) {
		*t.used++
		return t.Calls[i].Result, nil
	}
	if known, ok := t.tool(tool); ok {
		return Result{}, []Block{Use(known.Name, input(known))}
	}
	if full, ok := t.deferred(tool); ok {
		return Result{}, []Block{load(full)}
	}
	return Result{Missing: true}, nil
}

func load(names ...string) Block {
	return Block{
		Tool: "ToolSearch", Input: object{"query": "select:" + strings.Join(names, ","), "max_results": len(names)}, loading: true,
	}
}

// loadFirst puts the loading of tools before an answer that calls tools known by name only.
func (t Turn) loadFirst(blocks []Block) []Block {
	var names []string
	for _, b := range blocks {
		if b.Tool == "" || b.Direct {
			continue
		}
		if _, ok := t.tool(b.Tool); ok {
			continue
		}
		if full, ok := t.deferred(b.Tool); ok && !slices.Contains(names, full) {
			names = append(names, full)
		}
	}
	if len(names) == 0 {
		return blocks
	}
	return []Block{load(names...)}
}
