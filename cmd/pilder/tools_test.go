package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestToolsListIsAnArrayOfWhatAgentsCanCall holds the promised shape against the stand-in's definitions.
func TestToolsListIsAnArrayOfWhatAgentsCanCall(t *testing.T) {
	quiet(t)
	config := nearby(t, "  client_id: client\n  client_secret: client-secret\n  project_id: proj_a1\n  environment: development\n")
	got := pilder(t, "", "--config", config, "tools", "list", "--json")
	if got.code != exitOK || got.errs != "" {
		t.Fatalf("exit code %d: %s", got.code, got.errs)
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(got.out), &all); err != nil {
		t.Fatal(err)
	}
	apps, names := map[string]int{}, map[string]map[string]any{}
	for _, tool := range all {
		if diff := cmp.Diff([]string{"annotations", "app", "connector", "name", "scope"}, slices.Sorted(maps.Keys(tool))); diff != "" {
			t.Fatalf("keys of %v (-want +got):\n%s", tool["name"], diff)
		}
		hints, _ := tool["annotations"].(map[string]any)
		if diff := cmp.Diff([]string{"destructiveHint", "idempotentHint", "openWorldHint", "readOnlyHint"}, slices.Sorted(maps.Keys(hints))); diff != "" {
			t.Fatalf("annotations of %v (-want +got):\n%s", tool["name"], diff)
		}
		name, _ := tool["name"].(string)
		if names[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		names[name] = tool
		app, _ := tool["app"].(string)
		apps[app]++
		if app != "pilder" && !strings.HasPrefix(name, app+"-") && name != "retrieve_options" {
			t.Errorf("%s is of app %s", name, app)
		}
	}
	hints := func(readOnly, destructive, idempotent, openWorld bool) map[string]any {
		return map[string]any{"readOnlyHint": readOnly, "destructiveHint": destructive, "idempotentHint": idempotent, "openWorldHint": openWorld}
	}
	for _, want := range []map[string]any{
		{"name": "aprobaciones_pendientes", "connector": "native", "app": "pilder", "scope": "approvals:read", "annotations": hints(true, false, true, false)},
		{"name": "correo_enviar", "connector": "native", "app": "pilder", "scope": "mail:send", "annotations": hints(false, false, false, true)},
		{"name": "google_calendar-list-events", "connector": "pipedream", "app": "google_calendar", "scope": "apps:read", "annotations": hints(true, false, true, true)},
		{"name": "google_calendar-delete-event", "connector": "pipedream", "app": "google_calendar", "scope": "apps:write", "annotations": hints(false, true, false, true)},
	} {
		if diff := cmp.Diff(want, names[want["name"].(string)]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for _, app := range []string{"pilder", "google_calendar", "gmail", "notion", "calendly_v2"} {
		if apps[app] == 0 {
			t.Errorf("nothing of %s", app)
		}
	}
	plain := pilder(t, "", "--config", config, "tools", "list")
	if lines := strings.Count(plain.out, "\n"); lines != len(all) {
		t.Errorf("%d lines for %d tools", lines, len(all))
	}
}

func TestToolsListWithoutAppsHasTheHousesOwnAndSaysSo(t *testing.T) {
	quiet(t)
	got := pilder(t, "", "--config", nearby(t, ""), "tools", "list", "--json")
	var all []struct{ Name, Connector string }
	if err := json.Unmarshal([]byte(got.out), &all); err != nil {
		t.Fatal(err, got)
	}
	var names []string
	for _, tool := range all {
		names = append(names, tool.Connector+" "+tool.Name)
	}
	want := []string{"native aprobaciones_pendientes", "native conectar_app", "native correo_enviar"}
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(names))); diff != "" || !strings.Contains(got.errs, "no connected apps are configured") {
		t.Errorf("it said %q; tools (-want +got):\n%s", got.errs, diff)
	}
}
