package pipedream_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sim "pilder/sim/pipedream"
	"pilder/store"
)

// watchRuns notes what runs send for the field colorId.
func (h *house) watchRuns(sent *[]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replace = func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/actions/run") {
			return false
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			h.t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		var in struct {
			Props map[string]json.RawMessage `json:"configured_props"`
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			h.t.Error(err)
		}
		*sent = append(*sent, string(in.Props["colorId"]))
		return false
	}
}

// fields are the names in a needs_fields answer.
func fieldsOf(t *testing.T, structured json.RawMessage) map[string]any {
	t.Helper()
	var in struct {
		Fields struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(structured, &in); err != nil {
		t.Fatal(err)
	}
	return in.Fields.Properties
}

var needsFields = verdict{store.OutcomeFailed, "needs_fields", "no", "fix"}

const (
	newPage = `{"parent":"11111111-2222-3333-4444-555555555555","title":"Ideas","metaTypes":["cover"]`
	newRow  = `{"parentDataSource":"99999999-2222-3333-4444-555555555555","templateType":"none","propertyTypes":["Étape / Status"]`
)

func TestNewFieldsAreNamedBeforeAnythingRuns(t *testing.T) {
	h := open(t)
	r := h.call("notion-create-page", newPage+`}`)
	wantVerdict(t, r, needsFields)
	if f := fieldsOf(t, r.Structured); len(f) != 1 || f["cover"] == nil {
		t.Errorf("fields %v", f)
	}
	if got := h.performed(); len(got) != 0 {
		t.Fatalf("performed %v", got)
	}
	wantVerdict(t, h.call("notion-create-page", newPage+`,"more_fields":{"cover":"https://img.example.com/a.png"}}`), done)
	if got := h.sim.Ledger()[0].Props["cover"]; got != "https://img.example.com/a.png" {
		t.Errorf("the new field was sent as %v", got)
	}
	wantVerdict(t, h.call("notion-create-page", newPage+`,"more_fields":{}}`), done)
}

func TestAChoiceThatBringsNothingRunsAtOnce(t *testing.T) {
	h := open(t)
	wantVerdict(t, h.call("notion-create-page", `{"parent":"11111111-2222-3333-4444-555555555555"}`), done)
	wantVerdict(t, h.call("google_calendar-update-event", `{"eventId":"evt0001","summary":"Otra"}`), done)
}

func TestMoreFieldsTakeOnlyWhatIsNew(t *testing.T) {
	h := open(t)
	for _, more := range []string{`{"icon":"x"}`, `{"title":"smuggled"}`, `{"notion":{"authProvisionId":"apn_other01"}}`, `{"cover":7}`} {
		wantVerdict(t, h.call("notion-create-page", newPage+`,"more_fields":`+more+`}`), needsFields)
	}
	// Guests, say, are decided about by their top-level name: they cannot be slipped in below.
	wantVerdict(t, h.call("google_calendar-update-event", `{"eventId":"evt0001","repeatFrequency":"DAILY","more_fields":{"attendees":"a@example.com"}}`), needsFields)
	wantVerdict(t, h.call("google_calendar-update-event", `{"eventId":"evt0001","more_fields":{"attendees":"a@example.com"}}`), needsFields)
	if got := h.performed(); len(got) != 0 {
		t.Errorf("performed %v", got)
	}
}

func TestHiddenFieldsBecomeVisibleWhenChosen(t *testing.T) {
	h := open(t)
	const base = `{"pageId":"11111111-2222-3333-4444-555555555555","blockTypes":["markdownContents"]`
	r := h.call("notion-append-block", base+`}`)
	wantVerdict(t, r, needsFields)
	if f := fieldsOf(t, r.Structured); len(f) != 1 || f["markdownContents"] == nil {
		t.Errorf("fields %v", f)
	}
	wantVerdict(t, h.call("notion-append-block", base+`,"more_fields":{}}`), needsFields) // it is required
	wantVerdict(t, h.call("notion-append-block", base+`,"more_fields":{"markdownContents":["Hola"]}}`), done)
}

func TestFreeTextNamesAreMadeSafeAndSentAsTheyAre(t *testing.T) {
	h := open(t)
	h.sim.Set(func(s *sim.Switches) { s.ColumnsCollide = true })
	r := h.call("notion-create-page-from-database", newRow+`}`)
	wantVerdict(t, r, needsFields)
	names := []string{}
	for _, n := range []string{"Etape_Status", "Etape-Status", "Etape_Status_2", "Etape_Status_3"} {
		if fieldsOf(t, r.Structured)[n] != nil {
			names = append(names, n)
		}
	}
	if len(names) != 4 {
		t.Errorf("fields %v", fieldsOf(t, r.Structured))
	}
	wantVerdict(t, h.call("notion-create-page-from-database", newRow+`,"more_fields":{"Etape_Status":"Done","Etape_Status_3":"x"}}`), done)
	props := h.sim.Ledger()[0].Props
	if diff := cmp.Diff([]any{"Done", "x"}, []any{props["Étape / Status"], props["Etape: Status"]}); diff != "" {
		t.Error(diff)
	}
}

func TestAReloadThatFailsRunsNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*house)
		want    verdict
	}{
		{"errors in a 200", func(h *house) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.replace = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/actions/props") {
					return false
				}
				_, _ = io.WriteString(w, `{"observations":[],"errors":["no such table"],"dynamicProps":null}`)
				return true
			}
		}, verdict{store.OutcomeFailed, "bad_arguments", "no", "fix"}},
		{"202", func(h *house) { h.sim.Fault(sim.Fault{Path: "actions/props", Shape: sim.Async, Count: -1}) }, unavailble},
		{"a cut", func(h *house) { h.sim.Fault(sim.Fault{Path: "actions/props", Shape: sim.Cut, Count: 2}) }, unavailble},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
			c.prepare(h)
			wantVerdict(t, h.call("notion-create-page", newPage+`,"more_fields":{}}`), c.want)
			if got := h.performed(); len(got) != 0 {
				t.Errorf("performed %v", got)
			}
		})
	}
}

func TestFieldsThatChangedSinceTheApprovalAreAskedForAgain(t *testing.T) {
	h := open(t)
	h.sim.Set(func(s *sim.Switches) { s.ColumnsChange = true })
	h.call("notion-create-page-from-database", newRow+`}`)
	// The fields named then are not those of now: Column 2 is new and optional, which is fine …
	wantVerdict(t, h.call("notion-create-page-from-database", newRow+`,"more_fields":{"Etape_Status":"Done"}}`), done)
	// … and one that is gone is not.
	h.sim.Set(func(s *sim.Switches) { s.ColumnsChange = false })
	wantVerdict(t, h.call("notion-create-page-from-database", newRow+`,"more_fields":{"Column_1":"x"}}`), needsFields)
}
