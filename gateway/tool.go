package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/policy"
)

// toolName is what every MCP host takes: Claude Code drops a tool whose full name is over 128 characters without a word.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// maxDescription is what Claude Code surely shows of a description, in bytes (documents: 2 KB; measured on 2.1.332: 4 KB).
const maxDescription = 2048

// ErrBadTool says that a connector offers a tool that lacks something every tool must have.
var ErrBadTool = errors.New("tool is not fit to be listed")

// CheckTool says what a tool lacks: a name fit for every host, title, description, connector, app, scope, a known class
// that its annotations agree with, and compiling schemas of type object.
func CheckTool(t Tool) error { return newSchemas().checkTool(t) }

func (s *schemas) checkTool(t Tool) error {
	bad := func(what string) error { return fmt.Errorf("tool %.64q: %s: %w", t.Name, what, ErrBadTool) }
	switch {
	case !toolName.MatchString(t.Name):
		return bad("name")
	case t.Title == "":
		return bad("title")
	case t.Description == "" || len(t.Description) > maxDescription:
		return bad("description")
	case t.App == "" || t.Connector == "":
		return bad("app or connector")
	case t.Scope == "":
		return bad("scope")
	}
	switch t.Class {
	case policy.ClassRead:
		if !t.Annotations.ReadOnly || t.Annotations.Destructive {
			return bad("annotations of a read")
		}
	case policy.ClassWrite:
		if t.Annotations.ReadOnly {
			return bad("annotations of a write")
		}
	case policy.ClassDestructive, policy.ClassUnknown:
		if t.Annotations.ReadOnly || !t.Annotations.Destructive {
			return bad("annotations of a destructive action")
		}
	default:
		return bad("class")
	}
	for _, schema := range []json.RawMessage{t.InputSchema, t.OutputSchema} {
		var head struct{ Type string }
		if err := json.Unmarshal(schema, &head); err != nil || head.Type != "object" {
			return bad("schema of type object")
		}
		if _, err := s.compile(schema); err != nil {
			return fmt.Errorf("%w: %w", bad("schema"), err)
		}
	}
	return nil
}

// publish makes the MCP form of a tool. All four hints are said aloud: a missing one is read as its worst.
func (s *schemas) publish(t Tool) (*mcp.Tool, error) {
	output, err := s.admitPending(t.OutputSchema)
	if err != nil {
		return nil, err
	}
	tool := &mcp.Tool{
		Name:         t.Name,
		Title:        t.Title,
		Description:  t.Description,
		InputSchema:  t.InputSchema,
		OutputSchema: output,
		Annotations: &mcp.ToolAnnotations{
			Title:           t.Title,
			ReadOnlyHint:    t.Annotations.ReadOnly,
			DestructiveHint: &t.Annotations.Destructive,
			IdempotentHint:  t.Annotations.Idempotent,
			OpenWorldHint:   &t.Annotations.OpenWorld,
		},
	}
	if t.AlwaysLoad {
		tool.Meta = mcp.Meta{"anthropic/alwaysLoad": true}
	}
	return tool, nil
}

// pendingSchema describes the answer to a call that waits for a button.
const pendingSchema = `{"type":"object","required":["status","message"],"properties":{"status":{"const":"pending"},` +
	`"kind":{"enum":["hold","confirm"]},"message":{"type":"string"},"code":{"type":"string"}}}`

// admitPending widens an output schema that would call the gateway's own "pending" invalid: such an answer is no error, and
// a client that checks structured content would throw it away.
func (s *schemas) admitPending(output json.RawMessage) (json.RawMessage, error) {
	sample := pending(policy.Hold, "ABCDEF", "Waiting.")
	if problems, err := s.check(output, sample.Structured); err != nil || problems == nil {
		return output, err
	}
	wide, err := json.Marshal(map[string]any{"type": "object", "anyOf": []json.RawMessage{output, json.RawMessage(pendingSchema)}})
	if err != nil {
		return nil, fmt.Errorf("widening output schema: %w", err)
	}
	return wide, nil
}

// sameTool tells whether two tools would be published alike.
func sameTool(a, b Tool) bool {
	same := slices.Equal(a.InputSchema, b.InputSchema) && slices.Equal(a.OutputSchema, b.OutputSchema)
	a.InputSchema, a.OutputSchema, b.InputSchema, b.OutputSchema = nil, nil, nil, nil
	return same && a.Name == b.Name && a.Title == b.Title && a.Description == b.Description && a.App == b.App &&
		a.Uses == b.Uses && a.Connector == b.Connector && a.Class == b.Class && a.Scope == b.Scope &&
		a.Annotations == b.Annotations && a.AlwaysLoad == b.AlwaysLoad
}
