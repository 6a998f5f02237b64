package pipedream_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/gateway"
	sim "pilder/sim/pipedream"
	"pilder/store"
)

type optionsAnswer struct {
	Options []struct {
		Value any
		Label string
	}
	Next string `json:"next_cursor"`
	Note string
	Code string
}

// options asks for choices as person-1.
func (h *house) options(args string) optionsAnswer {
	h.t.Helper()
	r := h.call("retrieve_options", args)
	var out optionsAnswer
	if err := json.Unmarshal(r.Structured, &out); err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (a optionsAnswer) values() string {
	var out []string
	for _, o := range a.Options {
		out = append(out, fmt.Sprint(o.Value))
	}
	return strings.Join(out, " ")
}

// walk follows cursors to the end.
func (h *house) walk(args string) (pages []string) {
	h.t.Helper()
	a := h.options(args)
	for {
		pages = append(pages, a.values())
		if a.Next == "" || len(pages) > 20 {
			return pages
		}
		a = h.options(strings.TrimSuffix(args, "}") + `,"cursor":"` + a.Next + `"}`)
	}
}

const calendars = `{"action":"google_calendar-create-event","prop":"calendarId"}`

func TestListsOfChoicesEndAsTheirAppsEndThem(t *testing.T) {
	h := open(t)
	for _, c := range []struct {
		name, args string
		want       []string
	}{
		{"false", calendars, []string{"person@example.com team-calendar@example.com", "holidays@example.com"}},
		{"null", `{"action":"notion-retrieve-page","prop":"pageId","query":"trimestre"}`, []string{"11111111-2222-3333-4444-666666666666"}},
		{"absent", `{"action":"gmail-archive-email","prop":"message"}`, []string{"msg-4 msg-3", "msg-2 msg-1"}},
		{"texts only", `{"action":"gmail-create-draft","prop":"fromEmail","values":{"to":["a@example.com"]}}`, []string{"person@example.com sales@example.com"}},
	} {
		if diff := cmp.Diff(c.want, h.walk(c.args)); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func TestListsOfChoicesThatNeverEndAreEnded(t *testing.T) {
	for shape, want := range map[sim.Shape]int{sim.OptionToken: 2, sim.OptionSame: 2, sim.OptionEndless: 10} {
		h := open(t)
		h.sim.Fault(sim.Fault{Path: "actions/configure", Shape: shape, Count: -1})
		if got := h.walk(calendars); len(got) != want {
			t.Errorf("%s: %d pages, want %d: %v", shape, len(got), want, got)
		}
	}
}

func TestChoicesDependOnEarlierFieldsDefaultsIncluded(t *testing.T) {
	h := open(t)
	got := h.options(`{"action":"google_calendar-delete-event","prop":"eventId"}`)
	if len(got.Options) != 3 {
		t.Errorf("with the default calendar: %+v", got)
	}
	got = h.options(`{"action":"google_calendar-delete-event","prop":"eventId","values":{"calendarId":"team-calendar@example.com"}}`)
	if len(got.Options) != 1 || got.Options[0].Label != "Planificación del trimestre" {
		t.Errorf("with another calendar: %+v", got)
	}
	got = h.options(`{"action":"notion-create-page-from-database","prop":"propertyTypes"}`)
	if got.Code != "" || !strings.Contains(got.Note, "parentDataSource") {
		t.Errorf("without the table: %+v", got)
	}
}

func TestChoicesOfStrangeKindsAreCleaned(t *testing.T) {
	h := open(t)
	h.sim.Fault(sim.Fault{Path: "actions/configure", Shape: sim.OptionKinds})
	got := h.options(calendars)
	if diff := cmp.Diff("1 2 three four five", got.values()); diff != "" {
		t.Error(diff)
	}
	if got.Options[3].Label != "badlabel" || got.Note == "" {
		t.Errorf("%+v", got)
	}
}

func TestChoicesThatFailAreSaidToFail(t *testing.T) {
	for _, shape := range []sim.Shape{sim.OptionErrors, sim.OptionObserved} {
		h := open(t)
		h.sim.Fault(sim.Fault{Path: "actions/configure", Shape: shape, Count: -1})
		wantVerdict(t, h.call("retrieve_options", calendars), verdict{store.OutcomeFailed, "app_refused", "no", "fix"})
	}
	h := open(t)
	h.sim.Fault(sim.Fault{Path: "actions/configure", Shape: sim.Async, Count: -1})
	wantVerdict(t, h.call("retrieve_options", calendars), verdict{store.OutcomeFailed, "unavailable", "no", "wait"})
}

func TestACursorIsWorthNothingElsewhere(t *testing.T) {
	h := open(t)
	next := h.options(calendars).Next
	bad := verdict{store.OutcomeFailed, "bad_arguments", "no", "fix"}
	with := func(args string) string { return strings.TrimSuffix(args, "}") + `,"cursor":"` + next + `"}` }
	wantVerdict(t, h.call("retrieve_options", with(`{"action":"google_calendar-delete-event","prop":"calendarId"}`)), bad)
	other := caller()
	other.ExternalUser = "person-2"
	wantVerdict(t, h.send(gateway.Call{Caller: other, Tool: "retrieve_options", Args: json.RawMessage(with(calendars))}), bad)
	h.pass(10 * time.Minute)
	wantVerdict(t, h.call("retrieve_options", with(calendars)), bad)
}

func TestOnlyOfferedFieldsWithChoicesAreAnswered(t *testing.T) {
	h := open(t)
	for _, args := range []string{
		`{"action":"google_calendar-create-event","prop":"summary"}`,
		`{"action":"google_calendar-create-event","prop":"googleCalendar"}`,
		`{"action":"google_calendar-create-event","prop":"nothing"}`,
		`{"action":"gmail-download-attachment","prop":"messageId"}`,
		`{"action":"asana-create-task","prop":"project"}`,
		`{"action":"google_calendar-create-event"}`,
		`{"action":"google_calendar-create-event","prop":"calendarId","external_user_id":"person-2"}`,
	} {
		wantVerdict(t, h.call("retrieve_options", args), verdict{store.OutcomeFailed, "bad_arguments", "no", "fix"})
	}
	c := caller()
	c.Apps = []string{"gmail"}
	wantVerdict(t, h.send(gateway.Call{Caller: c, Tool: "retrieve_options", Args: json.RawMessage(calendars)}), verdict{store.OutcomeFailed, "bad_arguments", "no", "fix"})
}

func TestLongInlineListsAreAnsweredFromTheDefinition(t *testing.T) {
	h, _ := describe(t, func(d map[string]any) {
		var options []any
		for i := range 150 {
			options = append(options, map[string]any{"label": fmt.Sprint("Label ", i), "value": fmt.Sprint("v", i)})
		}
		props(d, map[string]any{"name": "x", "type": "string", "options": options, "optional": true})
	})
	h.asked()
	pages := h.walk(`{"action":"google_calendar-list-calendars","prop":"x"}`)
	if len(pages) != 2 || !strings.HasPrefix(pages[1], "v100 ") || len(h.asked()) != 0 {
		t.Errorf("%d pages", len(pages))
	}
}

func TestAFieldThatReadsItsLabelGetsIt(t *testing.T) {
	h, _ := describe(t, func(d map[string]any) {
		props(d, map[string]any{"name": "colorId", "type": "string", "withLabel": true, "remoteOptions": true, "optional": true})
	})
	var sent []string
	h.watchRuns(&sent)
	h.call("google_calendar-list-calendars", `{"colorId":"2"}`)
	h.options(`{"action":"google_calendar-list-calendars","prop":"colorId"}`)
	h.call("google_calendar-list-calendars", `{"colorId":"2"}`)
	if diff := cmp.Diff([]string{`{"__lv":{"label":"2","value":"2"}}`, `{"__lv":{"label":"Sage","value":"2"}}`}, sent); diff != "" {
		t.Error(diff)
	}
}
