package upstream_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pilder/gateway"
	"pilder/sim/mcp"
)

func TestG30_RootVariantsAreFlattenedAndNoBadToolCostsTheList(t *testing.T) {
	good := `{"type":"object","properties":{"id":{"type":"string"}}}`
	for _, tt := range []struct {
		claim, schema string
		want          string // "": left out
	}{
		{"oneOf at the root becomes one object",
			`{"oneOf":[{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}},{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}]}`,
			`{"type":"object","properties":{"id":{"type":"string"},"name":{"type":"string"}}}`},
		{"a property that variants see differently may be either",
			`{"anyOf":[{"required":["id"],"properties":{"id":{"type":"string"}}},{"required":["id"],"properties":{"id":{"type":"integer"}}}]}`,
			`{"type":"object","required":["id"],"properties":{"id":{"anyOf":[{"type":"string"},{"type":"integer"}]}}}`},
		{"allOf at the root is all of it",
			`{"allOf":[{"required":["a"],"properties":{"a":{"type":"string"}}},{"required":["b"],"properties":{"b":{"type":"string"}}}]}`,
			`{"type":"object","required":["a","b"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`},
		{"a root that is a reference is what it refers to",
			`{"$ref":"#/definitions/in","definitions":{"in":{"type":"object","properties":{"a":{"$ref":"#/definitions/b"}}},"b":{"type":"string"}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"in":{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}},"b":{"type":"string"}}}`},
		{"no schema is an object", `{}`, `{"type":"object"}`},
		{"a root that is a list is left out", `{"type":"array"}`, ""},
		{"a reference to elsewhere is left out", `{"type":"object","properties":{"a":{"$ref":"https://evil.example/s.json"}}}`, ""},
		{"a reference to nothing is left out", `{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`, ""},
		{"a name that hosts refuse is left out", `{"type":"object","properties":{"a b":{"type":"string"}}}`, ""},
		{"what is no schema is left out", `"nothing"`, ""},
		{"a type that is none is left out", `{"type":"object","properties":{"a":{"type":"text"}}}`, ""},
		{"nested without end is left out", strings.Repeat(`{"type":"object","properties":{"a":`, 40) + `{}` + strings.Repeat(`}}`, 40), ""},
		{"one that fills the model's context is left out", fmt.Sprintf(`{"type":"object","properties":{"a":{"enum":[%q]}}}`, strings.Repeat("x", 40_000)), ""},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			w := newWorld(t, mcp.New(mcp.Config{}, withInput("good", good), withInput("odd", tt.schema)), nil)
			names := w.names(t, "ana")
			if tt.want == "" {
				same(t, "listed", []string{"notes-good"}, names)
				if !strings.Contains(w.log.text(), "upstream.tool_left_out") {
					t.Error("the operator was not told")
				}
				return
			}
			same(t, "listed", []string{"notes-good", "notes-odd"}, names)
			same(t, "schema", asValue(t, tt.want), asValue(t, string(w.tool(t, "notes-odd").InputSchema)))
		})
	}
	t.Run("an output schema that is no object, and a tool without a name", func(t *testing.T) {
		w := newWorld(t, mcp.New(mcp.Config{}, withInput("good", good), defined(`{"description":"nameless"}`), defined(`{"name":7}`),
			defined(`{"name":"odd","inputSchema":{"type":"object"},"outputSchema":{"type":"array","oneOf":[]}}`)), nil)
		same(t, "listed", []string{"notes-good", "notes-odd"}, w.names(t, "ana"))
	})
}

func TestG31_OlderDialectsAreTranslated(t *testing.T) {
	for _, tt := range []struct{ claim, property, want string }{
		{"nullable", `{"type":"string","nullable":true}`, `{"type":["string","null"]}`},
		{"nullable enum", `{"type":"string","enum":["a"],"nullable":true}`, `{"type":["string","null"],"enum":["a",null]}`},
		{"nullable reference", `{"$ref":"#/$defs/d","nullable":true}`, `{"anyOf":[{"$ref":"#/$defs/d"},{"type":"null"}]}`},
		{"not nullable", `{"type":"string","nullable":false}`, `{"type":"string"}`},
		{"a property called nullable", `{"type":"object","properties":{"nullable":{"type":"boolean"}}}`, `{"type":"object","properties":{"nullable":{"type":"boolean"}}}`},
		{"draft 4 bounds", `{"type":"number","minimum":0,"exclusiveMinimum":true}`, `{"type":"number","exclusiveMinimum":0}`},
		{"tuples", `{"type":"array","items":[{"type":"string"}],"additionalItems":false}`, `{"type":"array","prefixItems":[{"type":"string"}],"items":false}`},
		{"dependencies", `{"type":"object","dependencies":{"a":["b"],"c":{"required":["d"]}}}`,
			`{"type":"object","dependentRequired":{"a":["b"]},"dependentSchemas":{"c":{"required":["d"]}}}`},
		{"OpenAPI's own", `{"type":"string","example":"x","discriminator":{"propertyName":"k"},"xml":{},"x-internal":1}`, `{"type":"string"}`},
		{"values stay as they are", `{"const":{"nullable":true,"$ref":"https://e.example"},"default":{"x-a":1}}`, `{"const":{"nullable":true,"$ref":"https://e.example"},"default":{"x-a":1}}`},
		{"a pattern of another dialect", `{"type":"string","pattern":"^(?!x)"}`, `{"type":"string"}`},
		{"hidden characters in texts", `{"type":"string","description":"a\u202eb\u0000c"}`, `{"type":"string","description":"abc"}`},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			schema := `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"p":%s},"$defs":{"d":{"type":"string"}}}`
			w := newWorld(t, mcp.New(mcp.Config{}, withInput("read", fmt.Sprintf(schema, tt.property))), nil)
			want := fmt.Sprintf(`{"type":"object","properties":{"p":%s},"$defs":{"d":{"type":"string"}}}`, tt.want)
			same(t, "schema", asValue(t, want), asValue(t, string(w.tool(t, "notes-read").InputSchema)))
		})
	}
}

// TestG33 is about the list; that the gateway enforces what is listed, TestG35 shows.
func TestG33_TheWholeOfJSONSchemaIsKept(t *testing.T) {
	schema := `{"type":"object","additionalProperties":false,"required":["who"],"$defs":{"who":{"type":"string","pattern":"^[a-z]+@empresa\\.com$"}},
		"properties":{"who":{"$ref":"#/$defs/who"},"when":{"anyOf":[{"type":"string","format":"date"},{"type":"integer","minimum":1}]},
		"tags":{"type":"array","prefixItems":[{"const":"x"}],"uniqueItems":true,"maxItems":3},
		"kind":{"if":{"const":"a"},"then":{"type":"string"},"else":{"not":{"type":"null"}}}}}`
	w := newWorld(t, mcp.New(mcp.Config{}, withInput("read", schema)), nil)
	tool := w.tool(t, "notes-read")
	same(t, "schema", asValue(t, schema), asValue(t, string(tool.InputSchema)))
	if err := gateway.CheckTool(tool); err != nil {
		t.Error(err)
	}
}

func asValue(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestASchemaThatCannotBeCheckedInTimeIsLeftOut: references that fan out, or lead back to themselves, cost a processor for good.
func TestASchemaThatCannotBeCheckedInTimeIsLeftOut(t *testing.T) {
	var fan strings.Builder
	for i := range 60 {
		fmt.Fprintf(&fan, `"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	for claim, schema := range map[string]string{
		"fans out":           `{"type":"object","properties":{"x":{"$ref":"#/$defs/a0"}},"$defs":{` + fan.String() + `"a60":{"type":"string"}}}`,
		"refers to itself":   `{"type":"object","properties":{"x":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}}}`,
		"refers in a circle": `{"type":"object","properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"items":{"$ref":"#/$defs/a"}}}}`,
	} {
		sim := mcp.New(mcp.Config{}, mcp.Tool{Definition: `{"name":"bad","description":"x","inputSchema":` + schema + `}`}, mcp.Simple("good"))
		w := newWorld(t, sim, nil)
		same(t, claim, []string{"notes-good"}, w.names(t, "ana"))
	}
}
