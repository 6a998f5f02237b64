package pipedream_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/gateway"
	"pilder/store"
)

const deleteEvent = "google_calendar-delete-event"

// undone performs a call, then what it says takes it back, and gives the latter's arguments.
func (h *house) undone(tool, args string) gateway.Result {
	h.t.Helper()
	r := h.call(tool, args)
	if r.Outcome != store.OutcomeDone || r.Undo == nil {
		h.t.Fatalf("%s: %+v", tool, r)
	}
	return h.call(r.Undo.Tool, string(r.Undo.Args))
}

func TestWhatWasDoneIsTakenBackByItsUndo(t *testing.T) {
	h := open(t)
	for tool, args := range map[string]string{
		createEvent:                       lunch,
		"google_calendar-quick-add-event": `{"text":"Lunch tomorrow at 12"}`,
		"notion-create-page":              newPage + `,"more_fields":{}}`,
	} {
		if r := h.undone(tool, args); r.Outcome != store.OutcomeDone {
			t.Errorf("%s: %s", tool, r.Text)
		}
	}
}

func TestAnUndoNamesTheVeryCalendarAndEvent(t *testing.T) {
	h := open(t)
	r := h.call(createEvent, strings.Replace(lunch, "{", `{"calendarId":"team-calendar@example.com",`, 1))
	var got map[string]string
	if r.Undo == nil || json.Unmarshal(r.Undo.Args, &got) != nil {
		t.Fatalf("%+v", r)
	}
	id, _ := data(t, r).(map[string]any)["id"].(string)
	if diff := cmp.Diff(map[string]string{"calendarId": "team-calendar@example.com", "eventId": id}, got); diff != "" || r.Undo.Tool != deleteEvent {
		t.Error(diff)
	}
}

func TestWhatCannotBeTakenBackHasNoUndo(t *testing.T) {
	h := open(t)
	for tool, args := range map[string]string{
		"google_calendar-update-event": `{"eventId":"evt0001","summary":"Otra"}`,
		deleteEvent:                    `{"eventId":"evt0001"}`,
		createEvent:                    `{}`,
	} {
		if r := h.call(tool, args); r.Undo != nil {
			t.Errorf("%s: %+v", tool, r.Undo)
		}
	}
}

func TestAnIDIsNamedByWhatItsAppSaysOfIt(t *testing.T) {
	h := open(t)
	describe := func(tool, args string) []store.Fact {
		return h.conn.Describe(t.Context(), gateway.Call{Caller: caller(), Tool: tool, Args: json.RawMessage(args)})
	}
	named := []store.Fact{{Arg: "eventId", Text: "Reunión de equipo · 2026-12-01 10:00 (Europe/Madrid) · 2026-12-01 11:00 (Europe/Madrid)"}}
	if diff := cmp.Diff(named, describe(deleteEvent, `{"eventId":"evt0001"}`)); diff != "" {
		t.Error(diff)
	}
	unnamed := []store.Fact{{Arg: "eventId"}}
	if diff := cmp.Diff(unnamed, describe(deleteEvent, `{"eventId":"evt9999"}`)); diff != "" {
		t.Error(diff)
	}
	if facts := describe(createEvent, lunch); facts != nil {
		t.Errorf("no id: %v", facts)
	}
	h.mu.Lock()
	h.replace = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/run") {
			http.Error(w, "down", http.StatusBadGateway)
			return true
		}
		return false
	}
	h.mu.Unlock()
	if diff := cmp.Diff(unnamed, describe(deleteEvent, `{"eventId":"evt0001"}`)); diff != "" {
		t.Error(diff)
	}
}
