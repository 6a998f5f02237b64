package pipedream_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pilder/sim/pipedream"
)

// now is the time of every test.
var now = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

// world is a seeded server, reachable, with a bearer.
type world struct {
	t      *testing.T
	sim    *pipedream.Server
	url    string
	bearer string
	env    string
}

func start(t *testing.T) *world {
	t.Helper()
	return startWith(t, pipedream.Config{})
}

func startWith(t *testing.T, cfg pipedream.Config) *world {
	t.Helper()
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return now }
	}
	cfg.Seed = true
	sim := pipedream.New(cfg)
	srv := httptest.NewServer(sim.Handler())
	t.Cleanup(srv.Close)
	w := &world{t: t, sim: sim, url: srv.URL, env: "development"}
	w.login()
	return w
}

func (w *world) login() {
	w.t.Helper()
	status, body := w.call("POST", "/v1/oauth/token", `{"grant_type":"client_credentials","client_id":"sim-client","client_secret":"sim-secret"}`)
	if status != 200 {
		w.t.Fatalf("token request answered %d", status)
	}
	w.bearer = body.(map[string]any)["access_token"].(string)
}

// try sends one request and gives status, raw body and the error of the transport.
func (w *world) try(method, path, body string, header ...string) (int, []byte, error) {
	w.t.Helper()
	req, err := http.NewRequest(method, w.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.bearer)
	if w.env != "" {
		req.Header.Set("x-pd-environment", w.env)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, raw, err
}

// call is try for answers that are JSON or nothing.
func (w *world) call(method, path, body string, header ...string) (int, any) {
	w.t.Helper()
	status, raw, err := w.try(method, path, body, header...)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	if len(raw) == 0 {
		return status, nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		w.t.Fatalf("%s %s answered %d with no JSON: %q", method, path, status, raw)
	}
	return status, v
}

// run performs an action of person-1.
func (w *world) run(key, props string) map[string]any {
	w.t.Helper()
	status, body := w.call("POST", "/v1/connect/proj_test1/actions/run", w.runBody(key, props))
	if status != 200 {
		w.t.Fatalf("%s answered %d: %v", key, status, body)
	}
	return body.(map[string]any)
}

// runBody is the body of a run of person-1 with the account bound to the app prop.
func (w *world) runBody(key, props string) string {
	account := map[string]string{"google_calendar": `"googleCalendar":{"authProvisionId":"apn_gcal01"}`, "gmail": `"gmail":{"authProvisionId":"apn_gmail01"}`,
		"notion": `"notion":{"authProvisionId":"apn_notion02"}`, "calendly_v2": `"calendly":{"authProvisionId":"apn_calendly02"}`}
	app, _, _ := strings.Cut(key, "-")
	bound := account[app]
	if key == "google_calendar-respond-to-event" {
		bound = strings.Replace(bound, "googleCalendar", "app", 1)
	}
	if props != "" {
		bound += "," + props
	}
	version := w.sim.Action(key)["version"].(string)
	return `{"id":"` + key + `","version":"` + version + `","external_user_id":"person-1","configured_props":{` + bound + `}}`
}

// ret is what a run returned, or fails the test when it did not work.
func (w *world) ret(key, props string) any {
	w.t.Helper()
	body := w.run(key, props)
	if len(body["os"].([]any)) > 0 {
		w.t.Fatalf("%s failed: %v", key, body)
	}
	return body["ret"]
}

const lunch = `"calendarId":"primary","summary":"Lunch","eventStartDate":"2026-12-02T12:00:00+01:00","eventEndDate":"2026-12-02T13:00:00+01:00"`
