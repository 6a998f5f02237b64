package pipedream_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/sim/pipedream"
)

// example is one file of fixtures/examples.
type example struct {
	Request struct {
		Method, Path string
		Body         json.RawMessage
	}
	Response struct {
		Status int
		Body   any
	}
}

func readExample(t *testing.T, name string) example {
	t.Helper()
	raw, err := fs.ReadFile(pipedream.Examples(), name)
	if err != nil {
		t.Fatal(err)
	}
	var e example
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// shape lists the paths and kinds of a JSON value; of arrays the first element counts.
func shape(v any) []string {
	var out []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				walk(path+"."+k, e)
			}
		case []any:
			out = append(out, path+"[]")
			if len(v) > 0 {
				walk(path+"[0]", v[0])
			}
		default:
			out = append(out, path+" "+strings.SplitN(fmt.Sprintf("%T", v), ".", 2)[0])
		}
	}
	walk("", v)
	sort.Strings(out)
	return out
}

func TestAnswersHaveTheShapeOfTheExamples(t *testing.T) {
	for _, c := range []struct {
		name   string
		adjust func(*world)
		ignore []string // path prefixes that depend on the world, or that examples leave out
	}{
		{name: "accounts.get.200.json"},
		{name: "accounts.get.wrapped.200.json", adjust: func(w *world) { w.sim.Set(func(s *pipedream.Switches) { s.WrapAccount = true }) }},
		{name: "accounts.get.404.json"},
		{name: "accounts.get.other_person.200.json"},
		{name: "accounts.list.200.json"},
		{name: "accounts.list.legacy.200.json", adjust: func(w *world) { w.sim.Set(func(s *pipedream.Switches) { s.LegacyAccounts = true }) }},
		{name: "accounts.list.past_end.200.json"},
		{name: "accounts.list.wrong_environment.200.json", adjust: func(w *world) { w.env = "production" }},
		{name: "accounts.delete.204.json"},
		{name: "apps.get.200.json"},
		{name: "apps.list.200.json"},
		{name: "users.accounts.200.json"},
		{name: "users.accounts.413.json", adjust: func(w *world) { w.sim.Set(func(s *pipedream.Switches) { s.LimitReached = true }) }},
		{name: "error.401.json", adjust: func(w *world) { w.sim.ExpireTokens() }},
		{name: "oauth_token.401.json"},
		{name: "tokens.create.200.json"},
		{name: "configure.page0.200.json"},
		{name: "configure.page1.200.json", ignore: []string{".timings"}},
		{name: "configure.strings.200.json", ignore: []string{".timings"}},
		{name: "configure.notion_end.200.json", ignore: []string{".timings", ".options"}},
		{name: "configure.gmail_end.200.json", ignore: []string{".timings", ".options"}},
		{name: "configure.error.200.json", adjust: func(w *world) { w.sim.SetHealth("apn_gcal01", false, false) }, ignore: []string{".timings"}},
		{name: "props.notion-create-page.200.json"},
		{name: "props.notion-create-page-from-database.200.json", ignore: []string{".dynamicProps.configurableProps"}},
		{name: "run.ok.200.json", ignore: []string{".ret"}},
		{name: "run.no_ret.200.json", ignore: []string{".ret"}},
		{name: "run.component_error.B.json"},
		{name: "run.component_error.A.json", adjust: func(w *world) { w.sim.Fault(pipedream.Fault{Path: "actions/run", Shape: pipedream.EnvelopeA}) }},
		{name: "run.http_error.details.json"},
		{name: "run.upstream_error.json", ignore: []string{".exports.debug.headers", ".os[0].err.stack"}},
		{name: "run.string_error.json", adjust: func(w *world) { w.sim.Fault(pipedream.Fault{Path: "actions/run", Shape: pipedream.BareString}) }},
		{name: "run.plan.400.json", adjust: func(w *world) { w.sim.Fault(pipedream.Fault{Path: "actions/run", Shape: pipedream.Plan}) }},
		{name: "run.async.202.json", adjust: func(w *world) { w.sim.Fault(pipedream.Fault{Path: "actions/run", Shape: pipedream.Async}) }},
		{name: "run.stash.200.json", adjust: func(w *world) { w.sim.Fault(pipedream.Fault{Path: "actions/run", Shape: pipedream.StashID}) }},
		{name: "error.429.json", adjust: func(w *world) { w.sim.Fault(pipedream.Fault{Path: "actions", Shape: pipedream.Throttled}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := readExample(t, c.name)
			w := start(t)
			if c.name == "run.stash.200.json" {
				// The example names an imaginary message; the stand-in knows its own.
				e.Request.Body = json.RawMessage(strings.Replace(string(e.Request.Body), `"m1"`, `"msg-1"`, 1))
			}
			if c.adjust != nil {
				c.adjust(w)
			}
			status, body := w.call(e.Request.Method, e.Request.Path, string(e.Request.Body))
			trim := func(paths []string) []string {
				return slices.DeleteFunc(paths, func(p string) bool {
					return slices.ContainsFunc(c.ignore, func(i string) bool { return strings.HasPrefix(p, i) })
				})
			}
			if diff := cmp.Diff(e.Response.Status, status); diff != "" {
				t.Errorf("status (-example +stand-in):\n%s", diff)
			}
			if diff := cmp.Diff(trim(shape(e.Response.Body)), trim(shape(body))); diff != "" {
				t.Errorf("shape (-example +stand-in):\n%s", diff)
			}
		})
	}
}

func TestListsEndWithAnEmptyPage(t *testing.T) {
	w := start(t)
	seen, cursor := 0, ""
	for {
		_, body := w.call("GET", "/v1/connect/proj_test1/accounts?external_user_id=person-1&limit=4&after="+cursor, "")
		page := body.(map[string]any)
		n := len(page["data"].([]any))
		seen += n
		end, more := page["page_info"].(map[string]any)["end_cursor"].(string)
		if !more {
			if n != 0 {
				t.Fatal("the page without cursor has items")
			}
			break
		}
		cursor = end
	}
	if seen != 6 {
		t.Errorf("the pages had %d accounts, want 6", seen)
	}
}

func TestBearersDie(t *testing.T) {
	at := now
	w := startWith(t, pipedream.Config{Now: func() time.Time { return at }, TokenLife: 2 * time.Second})
	list := "/v1/connect/proj_test1/accounts?external_user_id=person-1"
	if status, _ := w.call("GET", list, ""); status != 200 {
		t.Fatalf("fresh bearer got %d", status)
	}
	at = at.Add(2 * time.Second)
	if status, _ := w.call("GET", list, ""); status != http.StatusUnauthorized {
		t.Errorf("old bearer got %d, want 401", status)
	}
	w.env = ""
	w.login()
	if status, _ := w.call("GET", list, ""); status != http.StatusBadRequest {
		t.Errorf("a call without environment got %d, want 400", status)
	}
	if got := w.sim.TokenCalls(); got != 2 {
		t.Errorf("counted %d token requests, want 2", got)
	}
}

func TestWhatMustNeverBeSentFailsLoudly(t *testing.T) {
	p := "/v1/connect/proj_test1"
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
	}{
		{"include_credentials", "GET", p + "/accounts/apn_gcal01?include_credentials=false", "", nil},
		{"accounts listed without external_user_id", "GET", p + "/accounts?external_user_id=", "", nil},
		{"run without version", "POST", p + "/actions/run", `{"id":"gmail-find-email","external_user_id":"person-1"}`, nil},
		{"bulk deletion of accounts", "DELETE", p + "/apps/app_gcal/accounts", "", nil},
		{"idempotency header on a POST", "POST", p + "/tokens", `{"external_user_id":"person-1"}`, []string{"Idempotency-Key", "k"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t)
			if status, _ := w.call(c.method, c.path, c.body, c.header...); status != http.StatusBadRequest {
				t.Errorf("got %d, want 400", status)
			}
			if diff := cmp.Diff([]string{c.name}, w.sim.Violations()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMarkersShownToAnAgentAreViolations(t *testing.T) {
	w := start(t)
	if found := w.sim.Inspect("Created the event evt0005"); found != nil {
		t.Fatalf("found %v in decent text", found)
	}
	for _, secret := range []string{w.bearer, "sim-secret", "apn_other01"} {
		if found := w.sim.Inspect("… " + secret + " …"); len(found) != 1 {
			t.Errorf("a marker was not found")
		}
	}
	if got := len(w.sim.Violations()); got != 3 {
		t.Errorf("%d violations, want 3", got)
	}
}

func TestControlPathsServeTestsOfTheBinary(t *testing.T) {
	w := start(t)
	w.call("POST", "/_sim/accounts", `{"external_user_id":"person-9","app":"gmail","name":"nueve@example.com"}`)
	if got := w.sim.Accounts("person-9"); len(got) != 1 || got[0].App != "gmail" {
		t.Errorf("accounts of person-9: %v", got)
	}
	if status, _ := w.call("POST", "/_sim/faults", `{"path":"accounts","shape":"status","status":503,"body":"{}"}`); status != 204 {
		t.Errorf("adding a fault answered %d", status)
	}
	if status, _ := w.call("GET", "/v1/connect/proj_test1/accounts?external_user_id=person-1", ""); status != 503 {
		t.Errorf("the fault did not show: %d", status)
	}
	w.ret("google_calendar-create-event", lunch)
	_, ledger := w.call("GET", "/_sim/ledger", "")
	if len(ledger.([]any)) != 1 {
		t.Errorf("ledger: %v", ledger)
	}
}
