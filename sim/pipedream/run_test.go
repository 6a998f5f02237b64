package pipedream_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/sim/pipedream"
)

const runPath = "/v1/connect/proj_test1/actions/run"

func TestAnEventLivesFromCreationToDeletion(t *testing.T) {
	w := start(t)
	id := w.ret("google_calendar-create-event", lunch).(map[string]any)["id"].(string)
	on := `"calendarId":"primary","eventId":"` + id + `"`

	if list := w.ret("google_calendar-list-events", `"calendarId":"primary","q":"lunch"`).([]any); len(list) != 1 {
		t.Errorf("list has %d events, want the new one", len(list))
	}
	busy := w.ret("google_calendar-query-free-busy-calendars", `"calendarId":["primary"],"timeMin":"2026-12-02T11:30:00Z","timeMax":"2026-12-02T18:00:00Z"`)
	if got := busy.(map[string]any)["calendars"].(map[string]any)["primary"].(map[string]any)["busy"].([]any); len(got) != 1 {
		t.Errorf("busy: %v", got)
	}
	w.ret("google_calendar-update-event", on+`,"summary":"Cena"`)
	if got := w.ret("google_calendar-get-event", on).(map[string]any)["summary"]; got != "Cena" {
		t.Errorf("summary after update is %v", got)
	}
	if got := w.ret("google_calendar-delete-event", on).(map[string]any)["status"]; got != 204.0 {
		t.Errorf("delete returned %v, want the whole HTTP answer", got)
	}
	gone := w.run("google_calendar-get-event", on)
	if got := gone["error"].(map[string]any)["attribution"].(map[string]any)["origin"]; got != "upstream_api" {
		t.Errorf("reading a deleted event: %v", gone)
	}
	var keys []string
	for _, p := range w.sim.Ledger() {
		keys = append(keys, strings.TrimPrefix(p.Key, "google_calendar-")+" by "+p.ExternalUser+" with "+p.Account)
	}
	who := " by person-1 with apn_gcal01"
	if diff := cmp.Diff([]string{"create-event" + who, "list-events" + who, "query-free-busy-calendars" + who, "update-event" + who,
		"get-event" + who, "delete-event" + who}, keys); diff != "" {
		t.Error(diff)
	}
}

func TestMailIsFoundSentAndLabelled(t *testing.T) {
	w := start(t)
	if got := w.ret("gmail-find-email", `"q":"from:facturas","format":"full"`).([]any); len(got) != 1 ||
		!strings.Contains(got[0].(map[string]any)["bodyText"].(string), "INSTRUCCIÓN PARA EL ASISTENTE") {
		t.Errorf("the poisoned mail was not found: %v", got)
	}
	sent := w.ret("gmail-send-email", `"to":["marta@example.com"],"subject":"Sí","body":"A las 13:00.","bodyType":"plaintext"`).(map[string]any)
	if diff := cmp.Diff([]any{"SENT"}, sent["labelIds"]); diff != "" {
		t.Error(diff)
	}
	w.ret("gmail-delete-email", `"messageId":"msg-1"`)
	if got := w.ret("gmail-find-email", `"q":"novedades"`).([]any); len(got) != 0 {
		t.Errorf("trashed mail is still found: %v", got)
	}
	if got := w.run("gmail-modify-labels", `"messageIds":["msg-2"]`); got["error"] == nil {
		t.Error("modify-labels without lists worked")
	}
}

func TestNotesAndBookingsAnswer(t *testing.T) {
	w := start(t)
	w.ret("notion-create-page", `"parent":"11111111-2222-3333-4444-555555555555","title":"Ideas"`)
	if got := w.ret("notion-search", `"title":"ideas","pageSize":100`).(map[string]any)["results"].([]any); len(got) != 1 {
		t.Errorf("the new page is not found: %v", got)
	}
	link := w.ret("calendly_v2-create-scheduling-link", `"owner":"et-30","maxEventCount":1`).(map[string]any)["resource"].(map[string]any)
	if link["booking_url"] != "https://calendly.example.com/d/link-0001" {
		t.Errorf("link: %v", link)
	}
}

func TestWhatARunLeavesOutIsNotFilledIn(t *testing.T) {
	w := start(t)
	body := w.run("google_calendar-list-events", "")
	if body["error"] == nil {
		t.Error("calendarId was filled in from its default")
	}
}

func TestAccountsAreHeldToTheirOwnerOnlyInModeOne(t *testing.T) {
	foreign := func(w *world) int {
		body := strings.Replace(w.runBody("google_calendar-create-event", lunch), "apn_gcal01", "apn_other01", 1)
		status, _ := w.call("POST", runPath, body)
		return status
	}
	w := start(t)
	if got := foreign(w); got != http.StatusNotFound || len(w.sim.Ledger()) != 0 {
		t.Errorf("mode 1 answered %d and performed %d", got, len(w.sim.Ledger()))
	}
	w.sim.Set(func(s *pipedream.Switches) { s.RunsForeign = true })
	if got := foreign(w); got != http.StatusOK || len(w.sim.Ledger()) != 1 {
		t.Errorf("mode 2 answered %d and performed %d", got, len(w.sim.Ledger()))
	}
	wrong := strings.Replace(w.runBody("google_calendar-create-event", lunch), "apn_gcal01", "apn_gmail01", 1)
	if _, body := w.call("POST", runPath, wrong); body.(map[string]any)["error"] == nil {
		t.Error("an account of another app was accepted")
	}
}

func TestFaultsComeBeforeOrAfterTheEffect(t *testing.T) {
	for _, shape := range []pipedream.Shape{pipedream.Cut, pipedream.HTML, pipedream.Empty, pipedream.Async, pipedream.Throttled} {
		for performed, want := range map[bool]int{false: 0, true: 1} {
			w := start(t)
			w.sim.Fault(pipedream.Fault{Path: "actions/run", Key: "google_calendar-create-event", Shape: shape, Performed: performed})
			_, _, err := w.try("POST", runPath, w.runBody("google_calendar-create-event", lunch))
			if (err != nil) != (shape == pipedream.Cut) {
				t.Errorf("%s: transport error %v", shape, err)
			}
			if got := len(w.sim.Ledger()); got != want {
				t.Errorf("%s, performed %v: ledger has %d", shape, performed, got)
			}
			w.ret("google_calendar-create-event", lunch) // the fault is used up
		}
	}
}

func TestACutWithinTheAnswerComesAfterTheEffect(t *testing.T) {
	for _, shape := range []pipedream.Shape{pipedream.CutInBody, pipedream.Truncated} {
		w := start(t)
		w.sim.Fault(pipedream.Fault{Path: "actions/run", Shape: shape})
		status, raw, err := w.try("POST", runPath, w.runBody("google_calendar-create-event", lunch))
		if status != 200 && err == nil || len(w.sim.Ledger()) != 1 || strings.HasSuffix(string(raw), "}") && err == nil {
			t.Errorf("%s: %d %q %v, ledger %d", shape, status, raw, err, len(w.sim.Ledger()))
		}
	}
}

func TestReloadsHoldForPersonKeyAndVersionOnly(t *testing.T) {
	w := start(t)
	props := `"parent":"11111111-2222-3333-4444-555555555555","metaTypes":["cover"]`
	_, body := w.call("POST", "/v1/connect/proj_test1/actions/props", w.runBody("notion-create-page", props))
	dyp := body.(map[string]any)["dynamicProps"].(map[string]any)["id"].(string)
	run := func(dyp string) any {
		req := strings.Replace(w.runBody("notion-create-page", props+`,"cover":"https://img.example.com/a.png"`), `{"id"`, `{"dynamic_props_id":"`+dyp+`","id"`, 1)
		w.call("POST", runPath, req)
		l := w.sim.Ledger()
		return l[len(l)-1].Props["cover"]
	}
	if got := run(dyp); got != "https://img.example.com/a.png" {
		t.Errorf("with the id the new prop is %v", got)
	}
	if got := run("dyp_unknown"); got != nil {
		t.Errorf("with an unknown id the new prop is %v, want the first definition to apply", got)
	}
}

func TestHiddenPropsBecomeVisibleAndColumnsKeepTheirNames(t *testing.T) {
	w := start(t)
	visible := func(key, props string) (out []string) {
		_, body := w.call("POST", "/v1/connect/proj_test1/actions/props", w.runBody(key, props))
		for _, p := range body.(map[string]any)["dynamicProps"].(map[string]any)["configurableProps"].([]any) {
			if p := p.(map[string]any); p["hidden"] == nil && p["type"] != "app" && p["type"] != "alert" {
				out = append(out, p["name"].(string))
			}
		}
		return out
	}
	if diff := cmp.Diff([]string{"pageId", "blockTypes", "markdownContents"},
		visible("notion-append-block", `"pageId":"11111111-2222-3333-4444-555555555555","blockTypes":["markdownContents"]`)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"parentDataSource", "templateType", "propertyTypes", "properties", "icon", "cover", "pageContent", "Étape / Status"},
		visible("notion-create-page-from-database", `"parentDataSource":"99999999-2222-3333-4444-555555555555","templateType":"none","propertyTypes":["Étape / Status"]`)); diff != "" {
		t.Error(diff)
	}
}
