package pipedream_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sim "pilder/sim/pipedream"
)

// answerRuns makes every run answer so.
func (h *house) answerRuns(status int, body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replace = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/actions/run") {
			return false
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

func TestNothingOfTheProvidersIsPassedOn(t *testing.T) {
	for name, body := range map[string]string{
		"a good answer": `{"exports":{"$summary":"Used apn_gmail01\u202e","debug":"SECRET","$filestash_uploads":[{"get_url":"https://f.example.com/SECRET"}]},
			"os":[{"k":"console.log","msg":"SECRET"}],"stash_id":"SECRET","ret":{"id":"m1","note":"see dyp_SECRET and ctok_SECRET",
			"file":"https://s3.example.com/a?X-Amz-Signature=SECRET","$auth":{"oauth_access_token":"SECRET"},"get_url":"SECRET","labels":[{"authProvisionId":"SECRET"}]}}`,
		"a bare failure": `{"exports":{"debug":{"headers":{"cookie":"SECRET"}},"debug_config":"SECRET"},
			"os":[{"k":"error","err":{"name":"Error","message":"apn_SECRET is gone","stack":"SECRET"}}],"ret":null}`,
		"a failure of the app": `{"exports":{"debug":{"status":403,"headers":{"cookie":"SECRET"},"data":"SECRET"}},"os":[],"ret":null,
			"error":{"name":"AxiosError - Request failed with status code 403","message":"{\"token\":\"SECRET\",\"message\":\"exu_SECRET may not\"}","stack":"SECRET","attribution":{"origin":"upstream_api"}}}`,
		"a failure with other JSON": `{"exports":{},"os":[],"ret":null,"error":{"name":"AxiosError","message":"{\"oauth\":\"SECRET\"}","attribution":{"origin":"upstream_api"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			h.answerRuns(200, body)
			for _, tool := range []string{"gmail-list-labels", createEvent} {
				r := h.call(tool, map[string]string{createEvent: lunch}[tool])
				if shown := r.Text + string(r.Structured); strings.Contains(shown, "SECRET") || strings.Contains(shown, "\u202e") || strings.Contains(shown, "apn_") {
					t.Errorf("%s shows %s", tool, shown)
				}
			}
		})
	}
}

func TestADecodableBodyDoesNotMakeA202ASuccess(t *testing.T) {
	h := open(t)
	h.answerRuns(202, `{"exports":{"$summary":"Created"},"os":[],"ret":{"id":"evt"}}`)
	wantVerdict(t, h.call(createEvent, lunch), notKnown)
}

func TestAnObjectThatIsNoRunsAnswerIsNoSuccess(t *testing.T) {
	for _, body := range []string{`{}`, `null`, `[]`, `{"status":"ok"}`, `"done"`} {
		h := open(t)
		h.answerRuns(200, body)
		wantVerdict(t, h.call(createEvent, lunch), notKnown)
	}
}

func TestABusyProviderIsAskedOnceForAWrite(t *testing.T) {
	h := open(t)
	h.tools(caller())
	h.call("google_calendar-list-calendars", `{}`)
	h.asked()
	h.sim.Fault(sim.Fault{Path: "actions/run", Shape: sim.Throttled, Seconds: 1})
	h.call(createEvent, lunch)
	if diff := cmp.Diff([]string{"POST actions/run"}, h.asked()); diff != "" {
		t.Error(diff)
	}
}

func TestMarkersOfTheStandInNeverShow(t *testing.T) {
	// Every call of every test is inspected; here are those that the stand-in baits.
	h := open(t)
	for _, f := range []sim.Fault{{Shape: sim.Upstream, Status: 404}, {Shape: sim.Upstream, Status: 500}, {Shape: sim.HTTPAnswer}, {Shape: sim.StashID}, {Shape: sim.StashIDOld}} {
		f.Path = "actions/run"
		h.sim.Fault(f)
		h.call(createEvent, lunch)
		f.Count = 2
		h.sim.Fault(f)
		h.call("google_calendar-list-events", `{}`)
		h.sim.ClearFaults()
	}
	if v := h.sim.Violations(); len(v) != 0 {
		t.Error(v)
	}
}
