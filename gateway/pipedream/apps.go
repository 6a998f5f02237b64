package pipedream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"pilder/policy"
)

// App is one app of the house table: what can be connected, and which of its actions are offered.
type App struct {
	Slug  string `yaml:"slug"`  // as the provider names it; look-alikes exist
	Order int    `yaml:"order"` // in offers, smallest first
	Name  Text   `yaml:"name"`
	// Category is what a preference between apps is about: "agenda". Its English word is also its name in the store.
	Category Text `yaml:"category"`
	// Instruction is when to use it, one line for the server's instructions.
	Instruction Text `yaml:"instruction"`
	// Actions are the offered actions by key; what is not here is neither listed nor called.
	Actions map[string]Action `yaml:"actions"`
}

// Text is a text in the two languages of the house.
type Text struct {
	ES string `yaml:"es"`
	EN string `yaml:"en"`
}

// In gives the text in a language.
func (t Text) In(lang string) string { return policy.Text{ES: t.ES, EN: t.EN}.In(lang) }

// Action is one row of the house table.
type Action struct {
	Version    string       `yaml:"version"` // pinned; no other is offered
	Class      policy.Class `yaml:"class"`   // decides annotations and retries; empty: unknown, which counts as destructive
	Scope      policy.Scope `yaml:"scope"`   // default apps:read for reads, apps:write for the rest
	AlwaysLoad bool         `yaml:"always_load"`
	Hint       Text         `yaml:"hint"`
	// Keep lists the fields of a result (of each item, when it is a list) that are passed on; empty: all. "a.b" goes into
	// objects, "a.b:X,Y" keeps of a list of {name, value} those with these names.
	Keep []string `yaml:"keep"`
	// Omit lists optional props that are not offered.
	Omit []string `yaml:"omit"`
	// Defaults replace the registry's defaults.
	Defaults map[string]any `yaml:"defaults"`
	// Types narrows props whose registry type is "any".
	Types map[string]string `yaml:"types"`
	Rules []Rule            `yaml:"rules"`
	// Undo is the action that takes back what this one did; nil: none does.
	Undo *Undo `yaml:"undo"`
	// Describe is the read that tells people what an id of this one stands for; nil: the id is all they see.
	Describe *Describe `yaml:"describe"`
}

// Undo names an action of the same app and where its arguments come from: "args.NAME" of the call that is taken back,
// "ret.PATH" of what the app answered to it. What is not there is left out.
type Undo struct {
	Action string            `yaml:"action"`
	With   map[string]string `yaml:"with"`
}

// Describe names a read of the same app, where its arguments come from, and what of its return names the thing: texts, and
// points in time as the app writes them.
type Describe struct {
	Arg    string            `yaml:"arg"`
	Action string            `yaml:"action"`
	With   map[string]string `yaml:"with"`
	Show   []string          `yaml:"show"`
}

// Rule is something the app refuses that the registry's definition does not say. Each names props; exactly one kind is set.
type Rule struct {
	AtMostOne  []string       `yaml:"at_most_one"`
	AtLeastOne []string       `yaml:"at_least_one"`
	ExactlyOne []string       `yaml:"exactly_one"`
	SameLength []string       `yaml:"same_length"`
	If         map[string]any `yaml:"if"` // when these props have these values …
	Then       map[string]any `yaml:"then"`
}

// offer is a row with its place in the table.
type offer struct {
	Action
	app  App
	key  string
	tool string // name as listed
}

// ReadApps reads a house table: one YAML file per app, in the order of the apps. Unknown keys are errors.
func ReadApps(files fs.FS) ([]App, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the table of apps: %w", err)
	}
	var apps []App
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("reading the table of apps: %w", err)
		}
		var a App
		dec := yaml.NewDecoder(bytes.NewReader(raw))
		dec.KnownFields(true)
		if err := dec.Decode(&a); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading app table %s: %w", name, err)
		}
		if err := a.check(); err != nil {
			return nil, fmt.Errorf("app table %s: %w", name, err)
		}
		apps = append(apps, a)
	}
	slices.SortStableFunc(apps, func(a, b App) int { return a.Order - b.Order })
	return apps, nil
}

var slugForm = regexp.MustCompile(`^[a-z0-9_]+$`)

// check refuses a table that would fail later, at a call.
func (a App) check() error {
	if !slugForm.MatchString(a.Slug) || a.Name.ES == "" || a.Name.EN == "" {
		return errors.New("slug and name (es, en) are required")
	}
	if (a.Category.ES == "") != (a.Category.EN == "") {
		return errors.New("category is there in one language only")
	}
	for key, act := range a.Actions {
		switch {
		case !strings.HasPrefix(key, a.Slug+"-"):
			return fmt.Errorf("action %s is not of this app", key)
		case act.Version == "":
			return fmt.Errorf("action %s has no pinned version", key)
		case !slices.Contains([]policy.Class{policy.ClassUnknown, policy.ClassRead, policy.ClassWrite, policy.ClassDestructive}, act.Class):
			return fmt.Errorf("action %s has the unknown class %q", key, act.Class)
		case (act.Hint.ES == "") != (act.Hint.EN == ""):
			return fmt.Errorf("action %s has a hint in one language only", key)
		}
		if u := act.Undo; u != nil && a.Actions[u.Action].Version == "" {
			return fmt.Errorf("action %s is undone by %q, which is not in the table", key, u.Action)
		}
		if d := act.Describe; d != nil && (a.Actions[d.Action].Class != policy.ClassRead || d.Arg == "" || len(d.Show) == 0) {
			return fmt.Errorf("action %s is described by %q, which is no read of the table, or shows nothing", key, d.Action)
		}
		for _, r := range act.Rules {
			if r.kinds() != 1 || (r.If == nil) != (r.Then == nil) {
				return fmt.Errorf("action %s has a rule that is not of exactly one kind", key)
			}
		}
	}
	return nil
}

func (r Rule) kinds() int {
	n := 0
	for _, set := range []bool{r.AtMostOne != nil, r.AtLeastOne != nil, r.ExactlyOne != nil, r.SameLength != nil, r.If != nil} {
		if set {
			n++
		}
	}
	return n
}

// scope is what a principal needs for the action.
func (o *offer) scope() policy.Scope {
	switch {
	case o.Scope != "":
		return o.Scope
	case o.Class == policy.ClassRead:
		return policy.ScopeAppsRead
	}
	return policy.ScopeAppsWrite
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// toolName is an action's key, unchanged where every MCP host takes it; else its safe beginning and a piece of its hash.
func toolName(key string) string {
	if plainName.MatchString(key) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	safe := safeName(key)
	return safe[:min(len(safe), 50)] + "-" + hex.EncodeToString(sum[:4])
}
