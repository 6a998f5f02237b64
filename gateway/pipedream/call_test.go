package pipedream_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/gateway"
	"pilder/gateway/pipedream"
	sim "pilder/sim/pipedream"
	"pilder/store"
)

var (
	done       = verdict{store.OutcomeDone, "ok", "", ""}
	notKnown   = verdict{store.OutcomeUnknown, "outcome_unknown", "unknown", "never"}
	unavailble = verdict{store.OutcomeFailed, "unavailable", "no", "wait"}
)

func TestAnEventIsCreatedFoundAndDeleted(t *testing.T) {
	h := open(t)
	created := data(t, h.call(createEvent, lunch)).(map[string]any)
	id := created["id"].(string)
	list := data(t, h.call("google_calendar-list-events", `{"q":"comida","timeMin":"2026-12-02T00:00:00Z"}`)).([]any)
	if diff := cmp.Diff([]any{created}, list); diff != "" {
		t.Error(diff)
	}
	gone := h.call("google_calendar-delete-event", `{"eventId":"`+id+`"}`)
	if diff := cmp.Diff(map[string]any{"status": 204.0, "data": ""}, data(t, gone)); diff != "" {
		t.Errorf("a whole HTTP answer was passed on:\n%s", diff)
	}
	wantVerdict(t, h.call("google_calendar-get-event", `{"eventId":"`+id+`"}`), verdict{store.OutcomeFailed, "not_found", "no", "fix"})

	if diff := cmp.Diff(map[string]any{"calendarId": "primary", "summary": "Comida", "eventStartDate": "2026-12-02T12:00:00+01:00",
		"eventEndDate": "2026-12-02T13:00:00+01:00"}, h.sim.Ledger()[0].Props); diff != "" {
		t.Errorf("sent, default included:\n%s", diff)
	}
}

// Fault pairs: whatever happens on the way, a write happens at most once, and is never called undone when it was done.
func TestAWriteThatBreaksOffIsNeverRepeatedNorCalledUndone(t *testing.T) {
	for _, shape := range []sim.Fault{
		{Shape: sim.Cut}, {Shape: sim.HTML}, {Shape: sim.HTML, Status: 502}, {Shape: sim.Empty}, {Shape: sim.Empty, Status: 504}, {Shape: sim.Async},
		{Shape: sim.Status, Status: 500, Body: `{"error":"internal"}`}, {Shape: sim.Status, Status: 503}, {Shape: sim.Status, Status: 302, Header: map[string]string{"Location": "https://evil.example/"}},
		{Shape: sim.NetworkIO}, {Shape: sim.Upstream, Status: 500},
	} {
		for performed, ledger := range map[bool]int{false: 0, true: 1} {
			h := open(t)
			shape.Path, shape.Key, shape.Performed = "actions/run", createEvent, performed
			h.sim.Fault(shape)
			wantVerdict(t, h.call(createEvent, lunch), notKnown)
			if got := len(h.performed()); got != ledger {
				t.Errorf("%s %d, performed %v: ledger has %d", shape.Shape, shape.Status, performed, got)
			}
		}
	}
}

func TestAWriteCutWithinItsAnswerIsUnknown(t *testing.T) {
	for _, shape := range []sim.Shape{sim.CutInBody, sim.Truncated} {
		h := open(t)
		h.call("gmail-list-labels", `{}`) // so that the connection is one used before
		h.sim.Fault(sim.Fault{Path: "actions/run", Shape: shape})
		wantVerdict(t, h.call(createEvent, lunch), notKnown)
		if diff := cmp.Diff([]string{"gmail-list-labels", createEvent}, h.performed()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAWriteThatHangsIsUnknownAfterItsTime(t *testing.T) {
	for _, shape := range []sim.Shape{sim.Hang, sim.Drip} {
		h := open(t, func(_ *sim.Config, c *pipedream.Config) { c.RunTimeout = 300 * time.Millisecond })
		h.conn.Tools(context.Background(), caller())
		h.sim.Fault(sim.Fault{Path: "actions/run", Shape: shape, Performed: true})
		wantVerdict(t, h.call(createEvent, lunch), notKnown)
		if diff := cmp.Diff([]string{createEvent}, h.performed()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAWriteThatNeverLeftIsSaidToBeUndone(t *testing.T) {
	h := open(t)
	h.call(createEvent, lunch)
	h.sim.ExpireTokens()
	h.pass(59 * time.Minute) // the token is due for renewal, and the account is looked up anew
	h.sim.Fault(sim.Fault{Path: "oauth/token", Shape: sim.Cut, Count: -1})
	wantVerdict(t, h.call(createEvent, lunch), unavailble)
	if got := len(h.performed()); got != 1 {
		t.Errorf("ledger has %d", got)
	}

	unreachable := open(t, func(_ *sim.Config, c *pipedream.Config) { c.BaseURL = "http://127.0.0.1:1" })
	wantVerdict(t, unreachable.call(createEvent, lunch), unavailble)
}

func TestReadsAreRepeatedOnceInSilence(t *testing.T) {
	const tool = "google_calendar-list-calendars"
	for _, shape := range []sim.Fault{{Shape: sim.Cut}, {Shape: sim.HTML, Status: 502}, {Shape: sim.Async}, {Shape: sim.Truncated}, {Shape: sim.NetworkIO}, {Shape: sim.Throttled}} {
		h := open(t)
		shape.Path, shape.Key = "actions/run", tool
		h.sim.Fault(shape)
		wantVerdict(t, h.call(tool, `{}`), done)
		h.sim.Fault(sim.Fault{Path: "actions/run", Key: tool, Shape: sim.Status, Status: 500, Count: 2})
		wantVerdict(t, h.call(tool, `{}`), unavailble)
	}
}

func TestABusyProviderPerformsNothing(t *testing.T) {
	for shape, seconds := range map[sim.Shape]int{sim.Throttled: 12, sim.ThrottleDate: 12, sim.ThrottleBare: 12} {
		h := open(t)
		h.sim.Fault(sim.Fault{Path: "actions/run", Shape: shape, Seconds: seconds})
		r := h.call(createEvent, lunch)
		wantVerdict(t, r, verdict{store.OutcomeFailed, "busy", "no", "wait"})
		var in struct {
			After int `json:"retry_after_s"`
		}
		if err := json.Unmarshal(r.Structured, &in); err != nil || in.After != seconds {
			t.Errorf("%s: retry after %d s", shape, in.After)
		}
		// A read would have to wait too long as well.
		h.sim.Fault(sim.Fault{Path: "actions/run", Shape: shape, Seconds: seconds})
		wantVerdict(t, h.call("gmail-list-labels", `{}`), verdict{store.OutcomeFailed, "busy", "no", "wait"})
		if got := h.performed(); len(got) != 0 {
			t.Errorf("performed %v", got)
		}
	}
}

func TestATokenThatDiesBetweenTwoRequestsOfACallIsReplaced(t *testing.T) {
	h := open(t)
	h.conn.Tools(context.Background(), caller())
	before := h.sim.TokenCalls()
	h.sim.Fault(sim.Fault{Path: "actions/run", Shape: sim.ExpireToken})
	wantVerdict(t, h.call(createEvent, lunch), done)
	if got := h.sim.TokenCalls() - before; got != 1 || len(h.performed()) != 1 {
		t.Errorf("%d token requests, ledger %v", got, h.performed())
	}
	// A provider that refuses every token is asked once more, not for ever.
	h.sim.Fault(sim.Fault{Path: "actions/run", Shape: sim.Status, Status: 401, Body: `{"error":"unauthorized"}`, Count: -1})
	h.asked()
	wantVerdict(t, h.call(createEvent, lunch), verdict{store.OutcomeFailed, "gateway_problem", "no", "never"})
	if diff := cmp.Diff([]string{"POST actions/run", "POST /v1/oauth/token", "POST actions/run"}, h.asked()); diff != "" {
		t.Error(diff)
	}
}

func TestATokenIsAskedForOnceHoweverManyNeedIt(t *testing.T) {
	h := open(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { h.call("gmail-list-labels", `{}`) })
	}
	wg.Wait()
	if got := h.sim.TokenCalls(); got != 1 {
		t.Errorf("%d token requests", got)
	}
	h.pass(58 * time.Minute)
	h.call("gmail-list-labels", `{}`)
	if got := h.sim.TokenCalls(); got != 2 {
		t.Errorf("%d token requests, want an early renewal", got)
	}
}

func TestRefusedCredentialsAreTheOperatorsTrouble(t *testing.T) {
	h := open(t, func(_ *sim.Config, c *pipedream.Config) { c.ClientSecret = store.NewSecret("wrong") })
	for range 3 {
		h.call(createEvent, lunch)
	}
	if n := strings.Count(h.log.String(), "pipedream.credentials_refused"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestFailuresInsideAnActionAreTold(t *testing.T) {
	fix := func(code string) verdict { return verdict{store.OutcomeFailed, code, "no", "fix"} }
	for _, c := range []struct {
		name  string
		fault sim.Fault
		write verdict
		read  verdict
	}{
		{"the action refuses, envelope A", sim.Fault{Shape: sim.EnvelopeA}, fix("bad_arguments"), fix("bad_arguments")},
		{"the action refuses, envelope B", sim.Fault{Shape: sim.EnvelopeB}, fix("bad_arguments"), fix("bad_arguments")},
		{"status with details", sim.Fault{Shape: sim.Details}, fix("bad_arguments"), fix("bad_arguments")},
		{"the app does not find it", sim.Fault{Shape: sim.Upstream, Status: 404}, fix("not_found"), fix("not_found")},
		{"the app refuses", sim.Fault{Shape: sim.Upstream, Status: 403}, fix("app_refused"), fix("app_refused")},
		{"the app wants a new login", sim.Fault{Shape: sim.Upstream, Status: 401}, verdict{store.OutcomeFailed, "reconnect", "no", "person"}, verdict{store.OutcomeFailed, "reconnect", "no", "person"}},
		{"a bare string", sim.Fault{Shape: sim.BareString}, verdict{store.OutcomeUnknown, "app_refused", "unknown", "never"}, fix("app_refused")},
		{"the plan", sim.Fault{Shape: sim.Plan}, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"}, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"}},
		{"413", sim.Fault{Shape: sim.TooLarge}, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"}, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"}},
		{"403", sim.Fault{Shape: sim.Status, Status: 403}, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"}, verdict{store.OutcomeFailed, "gateway_problem", "no", "never"}},
		{"the account turned unhealthy meanwhile", sim.Fault{Shape: sim.TurnsUnwell}, verdict{store.OutcomeFailed, "reconnect", "no", "person"}, verdict{store.OutcomeFailed, "reconnect", "no", "person"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for tool, want := range map[string]verdict{createEvent: c.write, "google_calendar-list-calendars": c.read} {
				h := open(t)
				c.fault.Path = "actions/run"
				h.sim.Fault(c.fault)
				args := map[bool]string{true: lunch, false: `{}`}[tool == createEvent]
				wantVerdict(t, h.call(tool, args), want)
			}
		})
	}
}

func TestGoodAnswersOfEveryForm(t *testing.T) {
	for _, shape := range []sim.Shape{sim.NoReturn, sim.NoSummary, sim.BigReturn, sim.StashID, sim.StashIDOld, sim.HTTPAnswer, sim.ErrorBeside} {
		h := open(t)
		h.sim.Fault(sim.Fault{Path: "actions/run", Shape: shape})
		r := h.call("gmail-list-labels", `{}`)
		wantVerdict(t, r, done)
		var in struct {
			Message, Warning string
			Truncated        bool
			Omitted          []struct{ Path string }
			Data             any
		}
		if err := json.Unmarshal(r.Structured, &in); err != nil {
			t.Fatal(err)
		}
		switch shape {
		case sim.NoReturn:
			if in.Data != nil {
				t.Errorf("data of nothing: %v", in.Data)
			}
		case sim.NoSummary:
			if in.Message != "Esto es lo que hay en Gmail." {
				t.Errorf("message %q", in.Message)
			}
		case sim.BigReturn:
			if !in.Truncated || len(in.Omitted) == 0 || in.Omitted[0].Path != "/data" || !strings.Contains(r.Text, "de 1000.)") {
				t.Errorf("a cut list does not say so: %.200s", r.Text)
			}
		case sim.ErrorBeside:
			if in.Warning == "" {
				t.Error("no warning")
			}
		}
	}
}

func TestUnknownFieldsAndKindsChangeNothing(t *testing.T) {
	h := open(t)
	h.sim.Set(func(s *sim.Switches) { s.ExtraFields = true })
	plain := open(t)
	if diff := cmp.Diff(plain.tools(caller()), h.tools(caller())); diff != "" {
		t.Error(diff)
	}
	wantVerdict(t, h.call(createEvent, lunch), done)
}

func TestWrongArgumentsReachNobody(t *testing.T) {
	h := open(t)
	h.tools(caller())
	h.asked()
	for name, c := range map[string][2]string{
		"an unknown field":      {createEvent, `{"summary":"a","eventStartDate":"b","eventEndDate":"c","colour":"red"}`},
		"a missing field":       {createEvent, `{"summary":"a"}`},
		"null for a needed one": {createEvent, `{"summary":null,"eventStartDate":"b","eventEndDate":"c"}`},
		"a wrong type":          {createEvent, `{"summary":7,"eventStartDate":"b","eventEndDate":"c"}`},
		"a value not listed":    {createEvent, `{"summary":"a","eventStartDate":"b","eventEndDate":"c","visibility":"secret"}`},
		"a fraction":            {createEvent, `{"summary":"a","eventStartDate":"b","eventEndDate":"c","repeatTimes":1.5}`},
		"a number over its max": {"notion-search", `{"title":"a","pageSize":101}`},
		"both of two":           {createEvent, `{"summary":"a","eventStartDate":"b","eventEndDate":"c","repeatTimes":2,"repeatUntil":"d"}`},
		"none of two":           {"google_calendar-respond-to-event", `{"responseStatus":"accepted"}`},
		"order without its ask": {"google_calendar-list-events", `{"orderBy":"startTime"}`},
		"no label list":         {"gmail-modify-labels", `{"messageIds":["m"],"addLabels":[]}`},
		"three owners":          {"calendly_v2-list-events", `{"user":"u","group":"g"}`},
		"a file by address":     {"gmail-send-email", `{"to":["a@example.com"],"body":"b","attachments":["http://169.254.169.254/"]}`},
		"an account of choice":  {createEvent, `{"summary":"a","eventStartDate":"b","eventEndDate":"c","googleCalendar":{"authProvisionId":"apn_x"}}`},
		"no object":             {createEvent, `[]`},
		"too much":              {createEvent, `{"summary":"` + strings.Repeat("x", 65<<10) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			wantVerdict(t, h.call(c[0], c[1]), verdict{store.OutcomeFailed, "bad_arguments", "no", "fix"})
		})
	}
	if got := h.asked(); len(got) != 0 {
		t.Errorf("requests were made: %v", got)
	}
}

func TestValuesAreSentAsTheyAre(t *testing.T) {
	h := open(t)
	wantVerdict(t, h.call("google_calendar-list-events", `{"maxResults":10.0,"singleEvents":true,"orderBy":"startTime","q":null}`), done)
	if diff := cmp.Diff(map[string]any{"calendarId": "primary", "maxResults": 10.0, "singleEvents": true, "orderBy": "startTime"}, h.sim.Ledger()[0].Props); diff != "" {
		t.Error(diff)
	}
}

func TestAnActionWithoutAccountNeedsNone(t *testing.T) {
	h := open(t)
	h.tools(caller())
	h.asked()
	wantVerdict(t, h.call("google_calendar-get_date_time", `{}`), done)
	if diff := cmp.Diff([]string{"POST actions/run"}, h.asked()); diff != "" {
		t.Error(diff)
	}
}

func TestMailIsPassedOnReadably(t *testing.T) {
	h := open(t)
	mails := data(t, h.call("gmail-find-email", `{"q":"from:marta","format":"full"}`)).([]any)
	headers := []string{}
	for _, x := range mails[0].(map[string]any)["payload"].(map[string]any)["headers"].([]any) {
		headers = append(headers, x.(map[string]any)["name"].(string))
	}
	if diff := cmp.Diff([]string{"From", "To", "Subject", "Date"}, headers); diff != "" {
		t.Error(diff)
	}
	if body := mails[0].(map[string]any)["payload"].(map[string]any)["body"]; body != nil {
		t.Error("the encoded body is passed on beside its text")
	}
}

func TestCheckSaysWhatCallWouldRefuseAndRunsNothing(t *testing.T) {
	h := open(t)
	check := func(tool, args string) *gateway.Result {
		return h.conn.Check(context.Background(), gateway.Call{Caller: caller(), Tool: tool, Args: json.RawMessage(args)})
	}
	if r := check(createEvent, lunch); r != nil {
		t.Errorf("a good call: %s", r.Text)
	}
	if r := check(createEvent, `{}`); r == nil || r.Code != "bad_arguments" {
		t.Errorf("a bad call: %v", r)
	}
	if got := h.performed(); len(got) != 0 {
		t.Errorf("performed %v", got)
	}
}

func TestNothingIsFollowed(t *testing.T) {
	h := open(t)
	h.mu.Lock()
	h.replace = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/accounts") {
			http.Redirect(w, r, "/v1/elsewhere", http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	h.mu.Unlock()
	if _, err := h.conn.Accounts(context.Background(), "person-1", "gmail"); err == nil {
		t.Error("a redirect gave accounts")
	}
	for _, r := range h.asked() {
		if strings.Contains(r, "elsewhere") {
			t.Error("a redirect was followed")
		}
	}
}
