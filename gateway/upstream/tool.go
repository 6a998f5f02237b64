package upstream

import (
	"encoding/json"
	"fmt"
	"strings"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// Limits of what a definition may put into a tool.
const (
	maxDescription     = 1500 // characters of the upstream's description
	maxDescriptionSize = 2048 // bytes of hint and description together: what clients surely show
)

// definition is what an upstream says of a tool, as far as anybody goes by it.
type definition struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"inputSchema,omitempty"`
	Output      json.RawMessage `json:"outputSchema,omitempty"`
	Annotations struct {
		Title       string `json:"title,omitempty"`
		ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
		Destructive *bool  `json:"destructiveHint,omitempty"`
		Idempotent  *bool  `json:"idempotentHint,omitempty"`
		OpenWorld   *bool  `json:"openWorldHint,omitempty"`
	} `json:"annotations"`
}

// tool is an accepted definition, ready to be listed and called.
type tool struct {
	u     *server
	def   definition
	hash  string
	name  string // as listed
	title string
	about string
	class policy.Class
	input json.RawMessage
	open  bool // arguments may have names that input does not list
}

// compile makes a tool of a definition, or says why no host would take it.
func (u *server) compile(d store.ToolDefinition) (*tool, error) {
	t := &tool{u: u, hash: d.Hash}
	if err := json.Unmarshal(d.Text, &t.def); err != nil {
		return nil, fmt.Errorf("reading a definition: %w", err)
	}
	t.name = toolName(u.Slug, t.def.Name)
	t.title = gateway.OneLine(t.def.Title, 100)
	if t.title == "" {
		t.title = gateway.OneLine(t.def.Annotations.Title, 100)
	}
	if t.title == "" {
		t.title = t.name
	}
	var note string
	var err error
	if t.input, note, err = inputSchema(t.def.Input); err != nil {
		return nil, err
	}
	t.open = isOpen(t.input)
	t.about = strings.TrimSpace(gateway.OneLine(t.def.Description, maxDescription) + " " + note)
	t.class = u.classOf(t.def)
	if err := gateway.CheckTool(t.in("es")); err != nil {
		return nil, err
	}
	return t, nil
}

// isOpen tells whether arguments may have names that the schema does not list.
func isOpen(schema json.RawMessage) bool {
	var root struct {
		More any `json:"additionalProperties"`
	}
	return json.Unmarshal(schema, &root) != nil || root.More != false
}

// classOf says what a tool does: what the operator says, else what the upstream says if the operator trusts it, else nobody
// knows.
func (u *server) classOf(d definition) policy.Class {
	if class, said := u.Tools[d.Name]; said {
		return class
	}
	a := d.Annotations
	switch {
	case !u.TrustAnnotations:
		return policy.ClassUnknown
	case a.ReadOnly != nil && *a.ReadOnly:
		return policy.ClassRead
	case a.Destructive != nil && !*a.Destructive:
		return policy.ClassWrite
	}
	return policy.ClassDestructive
}

// outputSchema is the house envelope: the same for every tool. What an upstream promises of its own results is not repeated,
// since a result that is cut down would break the promise.
const outputSchema = `{"type":"object","required":["status"],"properties":{` +
	`"status":{"enum":["ok","error","pending"]},"message":{"type":"string"},` +
	`"data":{"description":"what the app answered, cut down"},"truncated":{"type":"boolean"},"omitted":{"type":"array"},` +
	`"code":{"type":"string"},"performed":{"enum":["no","unknown"]},"retry":{"enum":["fix","wait","person","never"]},` +
	`"retry_after_s":{"type":"integer"}}}`

// in is the tool as a caller of that language sees it.
func (t *tool) in(lang string) gateway.Tool {
	description := t.about
	if hint := t.u.Hint.In(lang); hint != "" {
		description = strings.TrimSuffix(hint+" | "+t.about, " | ")
	}
	if description == "" {
		description = t.title
	}
	scope := policy.ScopeAppsWrite
	if t.class == policy.ClassRead {
		scope = policy.ScopeAppsRead
	}
	return gateway.Tool{
		Name: t.name, Title: t.title, Description: cutBytes(description, maxDescriptionSize), App: t.u.Slug, Connector: connectorName,
		Class: t.class, Scope: scope, InputSchema: t.input, OutputSchema: json.RawMessage(outputSchema), Annotations: annotations(t.class),
		Elsewhere: t.u.URL != "", Open: t.open,
	}
}

// annotations of a class: the upstream's own never loosen it.
func annotations(c policy.Class) gateway.Annotations {
	switch c {
	case policy.ClassRead:
		return gateway.Annotations{ReadOnly: true, Idempotent: true, OpenWorld: true}
	case policy.ClassWrite:
		return gateway.Annotations{OpenWorld: true}
	}
	return gateway.Annotations{Destructive: true, OpenWorld: true}
}
