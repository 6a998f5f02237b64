package pipedream_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/gateway"
	"pilder/gateway/pipedream"
	"pilder/policy"
	sim "pilder/sim/pipedream"
)

func (h *house) tools(c gateway.Caller) []gateway.Tool {
	h.t.Helper()
	tools, err := h.conn.Tools(context.Background(), c)
	if err != nil {
		h.t.Fatal(err)
	}
	return tools
}

func names(tools []gateway.Tool) (out []string) {
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return out
}

func TestToolsOfTheFixtureApps(t *testing.T) {
	h := open(t)
	tools := h.tools(caller())
	for _, tool := range tools {
		if err := gateway.CheckTool(tool); err != nil {
			t.Error(err)
		}
	}
	golden(t, "tools.golden.json", tools)
}

func TestOnlyConnectedAppsAreListed(t *testing.T) {
	h := open(t)
	c := caller()
	c.Apps = []string{"gmail", "asana", "unheard_of"}
	for _, tool := range h.tools(c) {
		if !strings.HasPrefix(tool.Name, "gmail-") && tool.Name != "retrieve_options" {
			t.Errorf("%s is listed", tool.Name)
		}
	}
	c.Apps = []string{"asana"}
	if got := h.tools(c); len(got) != 0 {
		t.Errorf("tools of nothing: %v", names(got))
	}
}

func TestAFileOnlyActionIsNotOffered(t *testing.T) {
	h := open(t)
	if slices.Contains(names(h.tools(caller())), "gmail-download-attachment") {
		t.Error("gmail-download-attachment is listed")
	}
}

func TestAWarmListAsksNobody(t *testing.T) {
	h := open(t)
	if err := h.conn.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	h.asked()
	h.tools(caller())
	if got := h.asked(); len(got) != 0 {
		t.Errorf("listing made requests: %v", got)
	}
}

func TestDescriptionsSpeakThePersonsLanguageAndKeepTheRegistrysWords(t *testing.T) {
	h := open(t)
	about := func(lang string) string {
		c := caller()
		c.Lang = lang
		for _, tool := range h.tools(c) {
			if tool.Name == "calendly_v2-create-scheduling-link" {
				return tool.Description
			}
		}
		return ""
	}
	const registry = " | Makes a booking link for one event type."
	if diff := cmp.Diff("Solo para enviar un enlace de reserva; para una reunión a hora fija usa google_calendar-create-event."+registry, about("es")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("Only to send a booking link; for a meeting at a fixed time use google_calendar-create-event."+registry, about("fr")); diff != "" {
		t.Error(diff)
	}
}

func TestTheHouseDecidesAnnotationsNotTheRegistry(t *testing.T) {
	h := open(t)
	want := map[string]gateway.Annotations{
		"notion-query-database":              {ReadOnly: true, Idempotent: true, OpenWorld: true}, // registry: readOnlyHint false
		"gmail-modify-labels":                {Destructive: true, OpenWorld: true},                // registry: destructiveHint false
		"calendly_v2-create-scheduling-link": {OpenWorld: true},                                   // registry: destructiveHint true
		"google_calendar-delete-event":       {Destructive: true, OpenWorld: true},
	}
	got := map[string]gateway.Annotations{}
	for _, tool := range h.tools(caller()) {
		if _, asked := want[tool.Name]; asked {
			got[tool.Name] = tool.Annotations
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// describe registers an action of the calendar app and lists it.
func describe(t *testing.T, change func(def map[string]any)) (*house, *gateway.Tool) {
	t.Helper()
	h := open(t)
	def := h.sim.Action("google_calendar-list-calendars")
	change(def)
	h.sim.SetAction(def)
	for _, tool := range h.tools(caller()) {
		if tool.Name == "google_calendar-list-calendars" {
			return h, &tool
		}
	}
	return h, nil
}

func props(def map[string]any, more ...map[string]any) {
	for _, p := range more {
		def["configurable_props"] = append(def["configurable_props"].([]any), p)
	}
}

func TestAnotherVersionThanThePinnedOneIsNotOffered(t *testing.T) {
	h := open(t)
	def := h.sim.Action("google_calendar-list-calendars")
	def["version"], def["description"] = "9.0.0", "Newer."
	h.sim.SetAction(def) // the pinned one is still there
	i := slices.IndexFunc(h.tools(caller()), func(t gateway.Tool) bool { return t.Name == "google_calendar-list-calendars" })
	if i < 0 || strings.Contains(h.tools(caller())[i].Description, "Newer") {
		t.Error("the newer version was taken over")
	}
}

func TestADefinitionThatGoesWrongCostsOnlyItself(t *testing.T) {
	h := open(t)
	h.sim.Fault(sim.Fault{Path: "google_calendar-list-events", Count: -1, Shape: sim.Status, Status: 503})
	got := names(h.tools(caller()))
	if slices.Contains(got, "google_calendar-list-events") || !slices.Contains(got, createEvent) {
		t.Errorf("listed: %v", got)
	}
	if !strings.Contains(h.log.String(), "pipedream.action_unavailable") {
		t.Error("the operator was not told")
	}
	h.asked()
	h.tools(caller())
	if n := len(h.asked()); n != 0 {
		t.Errorf("the broken definition was asked for again at once: %d requests", n)
	}
	h.sim.ClearFaults()
	h.pass(time.Minute)
	if !slices.Contains(names(h.tools(caller())), "google_calendar-list-events") {
		t.Error("it did not come back")
	}
}

func TestDefinitionsThatCannotBeOffered(t *testing.T) {
	for name, change := range map[string]func(map[string]any){
		"a required secret":                func(d map[string]any) { props(d, map[string]any{"name": "key", "type": "string", "secret": true}) },
		"a required sql statement":         func(d map[string]any) { props(d, map[string]any{"name": "q", "type": "sql"}) },
		"a required prop of no known type": func(d map[string]any) { props(d, map[string]any{"name": "q", "type": "hologram"}) },
		"a required file":                  func(d map[string]any) { props(d, map[string]any{"name": "f", "type": "string", "format": "file-ref"}) },
		"a second account":                 func(d map[string]any) { props(d, map[string]any{"name": "slack", "type": "app", "app": "slack"}) },
		"a stash that must be given":       func(d map[string]any) { d["stash"] = "required" },
	} {
		t.Run(name, func(t *testing.T) {
			if _, tool := describe(t, change); tool != nil {
				t.Errorf("it is offered: %s", tool.InputSchema)
			}
		})
	}
}

func TestPropsBecomeSchema(t *testing.T) {
	options := func(n int) (out []any) {
		for i := range n {
			out = append(out, map[string]any{"label": "L", "value": i})
		}
		return out
	}
	for _, c := range []struct {
		name string
		prop map[string]any
		want string // the property; empty: there is none
	}{
		{"hidden", map[string]any{"name": "x", "type": "string", "hidden": true}, ""},
		{"an optional secret", map[string]any{"name": "x", "type": "string", "secret": true, "optional": true}, ""},
		{"an alert", map[string]any{"name": "x", "type": "alert", "content": "c"}, ""},
		{"an integer with bounds", map[string]any{"name": "x", "type": "integer", "min": 1, "max": 10},
			`"x":{"type":"integer","minimum":1,"maximum":10}`},
		{"a default outside the options is dropped", map[string]any{"name": "x", "type": "string", "options": []any{"a", "b"}, "default": ""},
			`"x":{"type":"string","enum":["a","b"]}`},
		{"labels are told", map[string]any{"name": "x", "type": "string", "label": "X", "options": []any{map[string]any{"label": "Yes", "value": "y"}, map[string]any{"__lv": map[string]any{"label": "n", "value": "n"}}, nil}},
			`"x":{"type":"string","enum":["y","n"],"title":"X","description":"y = Yes."}`},
		{"fifty options close", map[string]any{"name": "x", "type": "integer", "options": options(50), "description": "d"}, `"enum":[0,1,2`},
		{"fifty-one do not", map[string]any{"name": "x", "type": "integer", "options": options(51), "description": "d"},
			`"x":{"type":"integer","description":"d For valid values call retrieve_options with action \"google_calendar-list-calendars\" and prop \"x\"."}`},
		{"any", map[string]any{"name": "x", "type": "any"}, `"x":{}`},
		{"a discord channel", map[string]any{"name": "x", "type": "$.discord.channel[]"}, `"x":{"type":"array","items":{"type":"string"}}`},
		{"a free-text name", map[string]any{"name": "Étape / Status", "type": "boolean"}, `"Etape_Status":{"type":"boolean"}`},
		{"control and direction characters", map[string]any{"name": "x", "type": "string", "description": "a\u202eb\u0007 \n c"}, `"description":"ab c"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, tool := describe(t, func(d map[string]any) { props(d, c.prop) })
			if tool == nil {
				t.Fatal("not offered")
			}
			schema := string(tool.InputSchema)
			if c.want == "" && !strings.Contains(schema, `"properties":{}`) || !strings.Contains(schema, c.want) {
				t.Errorf("schema %s\nlacks  %s", schema, c.want)
			}
		})
	}
}

func TestCollidingSafeNamesStayApart(t *testing.T) {
	_, tool := describe(t, func(d map[string]any) {
		for _, n := range []string{"Due date", "Due: date", "日付", "more_fields"} {
			props(d, map[string]any{"name": n, "type": "string", "optional": true})
		}
	})
	var schema struct{ Properties map[string]json.RawMessage }
	if err := json.Unmarshal(tool.InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for n := range schema.Properties {
		got = append(got, n)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"Due_date", "Due_date_2", "field_4", "more_fields_2"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAConfigurationThatCouldMisleadIsRefused(t *testing.T) {
	good := func() pipedream.Config {
		var got pipedream.Config
		open(t, func(_ *sim.Config, c *pipedream.Config) { got = *c })
		return got
	}()
	for name, change := range map[string]func(*pipedream.Config){
		"no environment":    func(c *pipedream.Config) { c.Environment = "" },
		"other environment": func(c *pipedream.Config) { c.Environment = "staging" },
		"no project":        func(c *pipedream.Config) { c.ProjectID = "" },
		"no client":         func(c *pipedream.Config) { c.ClientID = "" },
		"no table":          func(c *pipedream.Config) { c.Apps = nil },
		"address":           func(c *pipedream.Config) { c.BaseURL = "api.pipedream.com" },
	} {
		cfg := good
		change(&cfg)
		if _, err := pipedream.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestClassesOfTheHouseTable(t *testing.T) {
	h := open(t)
	count := map[policy.Class]int{}
	for _, a := range h.conn.Apps() {
		for _, act := range a.Actions {
			count[act.Class]++
		}
	}
	if diff := cmp.Diff(map[policy.Class]int{policy.ClassRead: 25, policy.ClassWrite: 16, policy.ClassDestructive: 9}, count); diff != "" {
		t.Error(diff)
	}
}
