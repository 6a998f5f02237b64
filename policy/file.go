package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Policy is what a company says over the house's rules, as its policy file has it. The zero value says nothing.
type Policy struct {
	// House are rules of the house, by id, with the effect they have in this company.
	House map[string]Effect
	// Rules are the company's own. They can only make a decision stricter.
	Rules []Own
	// Vetoes are tools that no agent of the company sees or calls.
	Vetoes []string
	// Limits of a run; those that are zero or larger than the house's are the house's.
	Limits Limits
	// Cases are what the company expects of its policy.
	Cases []Case
}

// Bounds of a policy file.
const (
	maxPolicy      = 64 << 10 // bytes
	maxPolicyRules = 100
	maxRuleText    = 300 // bytes of a sentence
)

// ErrPolicy says that a text is no policy. FileError tells what is wrong with it.
var ErrPolicy = errors.New("not a policy")

// FileError is what is wrong with a policy file, all of it that could be seen.
type FileError struct{ Problems []Problem }

// Problem is one place of a policy file and what is wrong there.
type Problem struct {
	Line   int // from 1; 0: the whole file
	Reason string
}

func (e *FileError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		if p.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", p.Line)
		}
		b.WriteString(p.Reason)
	}
	return b.String()
}

// Is makes a FileError an ErrPolicy.
func (e *FileError) Is(target error) bool { return target == ErrPolicy }

// Parse reads a policy file: YAML with the keys version, house, rules, vetoes, limits and cases; docs/policy.md has all of
// them. Unknown keys, rules and effects are errors. Every error is a *FileError.
func Parse(text []byte) (Policy, error) {
	if len(text) > maxPolicy {
		return Policy{}, &FileError{[]Problem{{0, fmt.Sprintf("the file has %d bytes, more than %d", len(text), maxPolicy)}}}
	}
	var f policyFile
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return Policy{}, yamlError(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Policy{}, &FileError{[]Problem{{0, "the file has more than one document"}}}
	}
	r := reading{ids: map[string]bool{}}
	p := r.policy(f)
	if len(r.problems) > 0 {
		return Policy{}, &FileError{r.problems}
	}
	return p, nil
}

// yamlLine is how the YAML library begins what it says of a line.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)

// yamlError takes the YAML library's errors apart.
func yamlError(err error) *FileError {
	var types *yaml.TypeError
	said := []string{err.Error()}
	if errors.As(err, &types) {
		said = types.Errors
	}
	e := &FileError{}
	for _, s := range said {
		p := Problem{Reason: strings.TrimPrefix(s, "yaml: ")}
		if found := yamlLine.FindStringSubmatch(s); found != nil {
			_, _ = fmt.Sscan(found[1], &p.Line) // digits
			p.Reason = found[2]
		}
		p.Reason = strings.NewReplacer("policy.policyFile", "the file", "policy.ruleFile", "a rule", "policy.caseFile", "a case",
			"policy.limitsFile", "limits", "policy.Text", "a sentence").Replace(p.Reason)
		e.Problems = append(e.Problems, p)
	}
	return e
}

// The file as it is written. Places are kept where something may be wrong that YAML does not see.
type (
	policyFile struct {
		Version yaml.Node          `yaml:"version"`
		House   yaml.Node          `yaml:"house"`
		Rules   []placed[ruleFile] `yaml:"rules"`
		Vetoes  []yaml.Node        `yaml:"vetoes"`
		Limits  limitsFile         `yaml:"limits"`
		Cases   []placed[caseFile] `yaml:"cases"`
	}
	ruleFile struct {
		ID      string   `yaml:"id"`
		Effect  string   `yaml:"effect"`
		Apps    []string `yaml:"apps"`
		Tools   []string `yaml:"tools"`
		Actions []string `yaml:"actions"`
		When    string   `yaml:"when"`
		Told    Text     `yaml:"told"`
		Reason  Text     `yaml:"reason"`
	}
	limitsFile struct {
		Calls  int `yaml:"calls"`
		Writes int `yaml:"writes"`
		Asked  int `yaml:"asked"`
	}
	caseFile struct {
		Name   string         `yaml:"name"`
		Role   string         `yaml:"role"`
		Tool   string         `yaml:"tool"`
		App    string         `yaml:"app"`
		Action string         `yaml:"action"`
		Args   map[string]any `yaml:"args"`
		Taint  []string       `yaml:"taint"`
		Said   string         `yaml:"said"`
		At     string         `yaml:"at"`
		Expect string         `yaml:"expect"`
	}
)

// placed is a part of the file and the line on which it begins.
type placed[T any] struct {
	line int
	is   T
}

func (p *placed[T]) UnmarshalYAML(n *yaml.Node) error {
	p.line = n.Line
	return strict(n, &p.is)
}

// strict decodes a node with its unknown keys refused: the library forgets that below an Unmarshaler.
func strict(n *yaml.Node, into any) error {
	known := map[string]bool{}
	for f := range reflect.TypeOf(into).Elem().Fields() {
		known[f.Tag.Get("yaml")] = true
	}
	if n.Kind != yaml.MappingNode {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: keys and values are expected here", n.Line)}}
	}
	for i := 0; i < len(n.Content); i += 2 {
		if key := n.Content[i]; !known[key.Value] {
			return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: key %.40q is not known here", key.Line, key.Value)}}
		}
	}
	return n.Decode(into)
}

// reading collects what is wrong with a file.
type reading struct {
	ids      map[string]bool
	problems []Problem
}

func (r *reading) wrong(line int, format string, args ...any) {
	r.problems = append(r.problems, Problem{line, fmt.Sprintf(format, args...)})
}

func (r *reading) policy(f policyFile) Policy {
	p := Policy{House: map[string]Effect{}}
	if f.Version.Kind != 0 && f.Version.Value != "1" {
		r.wrong(f.Version.Line, "version %.20q is not 1", f.Version.Value)
	}
	r.house(f.House, p.House)
	if len(f.Rules) > maxPolicyRules {
		r.wrong(f.Rules[maxPolicyRules].line, "more than %d rules", maxPolicyRules)
		return Policy{}
	}
	for _, rule := range f.Rules {
		p.Rules = append(p.Rules, r.rule(rule.line, rule.is))
	}
	for _, v := range f.Vetoes {
		if v.Kind != yaml.ScalarNode || !toolName.MatchString(v.Value) {
			r.wrong(v.Line, "%.70q is not the name of a tool", v.Value)
		}
		p.Vetoes = append(p.Vetoes, v.Value)
	}
	p.Limits = Limits(f.Limits)
	if f.Limits.Calls < 0 || f.Limits.Writes < 0 || f.Limits.Asked < 0 {
		r.wrong(0, "limits must not be negative")
	}
	for _, c := range f.Cases {
		p.Cases = append(p.Cases, r.oneCase(c.line, c.is))
	}
	return p
}

var (
	ruleID   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,30}(\.[a-z0-9_-]{1,30})*$`)
	toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	appSlug  = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
)

// house reads the rules of the house that have another effect. One that decides about what nobody knows can only be made
// stricter.
func (r *reading) house(n yaml.Node, into map[string]Effect) {
	if n.Kind == 0 || n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.wrong(n.Line, "house wants rules of the house with their effects, %s: confirm", House()[0].ID)
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := slices.IndexFunc(House(), func(rule Rule) bool { return rule.ID == key.Value })
		if at < 0 {
			r.wrong(key.Line, "the house has no rule %.40q; it has %s", key.Value, strings.Join(houseIDs(), ", "))
			continue
		}
		if _, twice := into[key.Value]; twice {
			r.wrong(key.Line, "%s is there twice", key.Value)
		}
		e := r.effect(value.Line, value.Value)
		if rule := House()[at]; rule.ID == "call.unknown" && e > rule.Effect {
			r.wrong(value.Line, "call.unknown can only be made stricter than %s", rule.Effect)
		}
		into[key.Value] = e
	}
}

func houseIDs() []string {
	var ids []string
	for _, rule := range House() {
		ids = append(ids, rule.ID)
	}
	return ids
}

func (r *reading) effect(line int, word string) Effect {
	var e Effect
	if err := e.UnmarshalText([]byte(word)); err != nil {
		r.wrong(line, "effect %.20q is none of deny, hold, confirm, allow", word)
	}
	return e
}

func (r *reading) rule(line int, f ruleFile) Own {
	o := Own{ID: f.ID, Effect: r.effect(line, f.Effect), Apps: f.Apps, Tools: f.Tools, Classes: f.Actions, When: strings.TrimSpace(f.When),
		Told: f.Told, Reason: f.Reason}
	_, ours := refusals()[f.ID]
	switch {
	case !ruleID.MatchString(f.ID):
		r.wrong(line, "the rule's id %.40q is not made of small letters, digits and dots", f.ID)
	case ours || slices.Contains(houseIDs(), f.ID):
		r.wrong(line, "%s is a rule of the house; its effect is set below house", f.ID)
	case r.ids[f.ID]:
		r.wrong(line, "there are two rules %s", f.ID)
	}
	r.ids[f.ID] = true
	if o.Effect == Allow {
		r.wrong(line, "rule %s allows: a rule can only make things stricter", f.ID)
	}
	for _, app := range f.Apps {
		if !appSlug.MatchString(app) {
			r.wrong(line, "rule %s: %.70q is not the slug of an app", f.ID, app)
		}
	}
	for _, pattern := range f.Tools {
		if _, err := path.Match(pattern, ""); err != nil || !toolName.MatchString(strings.ReplaceAll(pattern, "*", "x")) {
			r.wrong(line, "rule %s: %.70q is not the name of a tool, with * for any characters", f.ID, pattern)
		}
	}
	for _, c := range f.Actions {
		if !slices.Contains([]string{"read", "write", "destructive", "unknown"}, c) {
			r.wrong(line, "rule %s: action %.20q is none of read, write, destructive, unknown", f.ID, c)
		}
	}
	if f.Reason.ES == "" || f.Reason.EN == "" {
		r.wrong(line, "rule %s wants a reason in es and en: it is what people read", f.ID)
	}
	for _, t := range []string{f.Told.ES, f.Told.EN, f.Reason.ES, f.Reason.EN} {
		if len(t) > maxRuleText || strings.ContainsFunc(t, unseen) {
			r.wrong(line, "rule %s: a sentence is one plain line of at most %d bytes", f.ID, maxRuleText)
		}
	}
	if o.When != "" {
		if _, err := compile(o.When); err != nil {
			r.wrong(line, "rule %s: when: %s", f.ID, err)
		}
	}
	return o
}

func (r *reading) oneCase(line int, f caseFile) Case {
	c := Case{Name: f.Name, Role: RoleMember, Expect: r.effect(line, f.Expect),
		Action: Action{Tool: f.Tool, App: f.App, Taint: f.Taint, Said: f.Said, Scope: ScopeAppsRead}}
	if f.Role != "" {
		c.Role = Role(f.Role)
	}
	if !c.Role.Known() {
		r.wrong(line, "case %.40q: role %.20q is none of member, approver, admin", f.Name, f.Role)
	}
	if f.Name == "" || f.Tool == "" {
		r.wrong(line, "a case wants a name and a tool")
	}
	switch f.Action {
	case "read", "write", "destructive":
		c.Action.Class = Class(f.Action)
	case "unknown", "":
	default:
		r.wrong(line, "case %.40q: action %.20q is none of read, write, destructive, unknown", f.Name, f.Action)
	}
	c.Action.Hints = Hints{ReadOnly: c.Action.Class == ClassRead, Destructive: c.Action.Class == ClassDestructive || c.Action.Class == ClassUnknown, OpenWorld: true}
	args, err := json.Marshal(f.Args)
	if err != nil {
		r.wrong(line, "case %.40q: its arguments are no JSON", f.Name)
	}
	if c.Action.Args = args; f.Args == nil {
		c.Action.Args = json.RawMessage(`{}`)
	}
	if f.At != "" {
		if c.Action.At, err = time.Parse(time.RFC3339, f.At); err != nil {
			r.wrong(line, "case %.40q: at %.40q is not like 2026-12-01T20:00:00-03:00", f.Name, f.At)
		}
	}
	return c
}
