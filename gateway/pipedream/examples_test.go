package pipedream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"pilder/gateway"
	sim "pilder/sim/pipedream"
	"pilder/store"
)

// example is one request and its answer, as it was seen or guessed.
type example struct {
	Request struct {
		Method, Path string
		Body         struct {
			ID              string
			PropName        string `json:"prop_name"`
			Page            int
			Query           string
			ConfiguredProps map[string]any `json:"configured_props"`
		}
	}
	Response struct {
		Status  int
		Headers map[string]string
		Body    json.RawMessage
	}
}

// answer makes the provider give the example's answer to requests of the example's path, and records that it was asked.
func (e example) answer(asked *bool) func(http.ResponseWriter, *http.Request) bool {
	path, _, _ := strings.Cut(e.Request.Path, "?")
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != e.Request.Method || r.URL.Path != path {
			return false
		}
		*asked = true
		for k, v := range e.Response.Headers {
			w.Header().Set(k, v)
		}
		w.WriteHeader(e.Response.Status)
		if string(e.Response.Body) != "null" {
			_, _ = w.Write(e.Response.Body)
		}
		return true
	}
}

// args are the example's arguments without the account, and without the wrappers a gateway makes itself.
func (e example) args() map[string]any {
	out := map[string]any{}
	for name, v := range e.Request.Body.ConfiguredProps {
		if object, isObject := v.(map[string]any); isObject && object["authProvisionId"] != nil {
			continue
		}
		out[name] = v
	}
	return out
}

// seenResult is what an agent is told, for the golden file.
type seenResult struct {
	Outcome    store.Outcome
	Code       string
	IsError    bool
	Text       string
	Structured json.RawMessage
}

func seenOf(r gateway.Result) seenResult {
	return seenResult{r.Outcome, r.Code, r.IsError, r.Text, r.Structured}
}

// TestEveryExampleIsReadAsMeant plays each recorded answer to the code that has to read it, and compares what comes out.
func TestEveryExampleIsReadAsMeant(t *testing.T) {
	files, err := fs.Glob(sim.Examples(), "*.json")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	got := map[string]any{}
	for _, file := range files {
		raw, err := fs.ReadFile(sim.Examples(), file)
		if err != nil {
			t.Fatal(err)
		}
		var e example
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Run(file, func(t *testing.T) { got[file] = readExample(t, file, e) })
	}
	golden(t, "examples.golden.json", got)
}

// readExample gives the example to whoever reads its kind of answer.
func readExample(t *testing.T, file string, e example) any {
	asked := false
	h := open(t)
	if err := h.conn.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.replace = e.answer(&asked)
	h.mu.Unlock()
	kind := strings.SplitN(file, ".", 3)
	ctx := context.Background()
	var out any
	switch kind[0] + "." + kind[1] {
	case "run.ok", "run.no_ret", "run.stash", "run.component_error", "run.http_error", "run.plan", "run.string_error", "run.upstream_error", "run.async":
		args := e.args()
		if file == "run.stash.200.json" {
			// The action behind this example is not offered; its answer is read like any other.
			e.Request.Body.ID, args = createEvent, nil
			if err := json.Unmarshal([]byte(lunch), &args); err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasPrefix(file, "run.component_error") || file == "run.http_error.details.json" {
			// What the provider refuses here, the gateway refuses before; other arguments bring the answer out.
			delete(args, "user")
			args["summary"] = "Comida"
			if strings.HasPrefix(e.Request.Body.ID, "calendly") {
				delete(args, "summary")
			}
		}
		if file == "run.no_ret.200.json" {
			args["more_fields"] = map[string]any{"imageUrls": []any{}}
		}
		out = seenOf(h.call(e.Request.Body.ID, mustJSON(args)))
	case "configure.page0", "configure.page1", "configure.strings", "configure.notion_end", "configure.gmail_end", "configure.error":
		q := map[string]any{"action": e.Request.Body.ID, "prop": e.Request.Body.PropName}
		if e.Request.Body.Query != "" {
			q["query"] = e.Request.Body.Query
		}
		r := seenOf(h.call("retrieve_options", mustJSON(q)))
		if next := cursorOf(r.Structured); next != "" { // random
			r.Text, r.Structured = strings.ReplaceAll(r.Text, next, "CURSOR"), json.RawMessage(strings.ReplaceAll(string(r.Structured), next, "CURSOR"))
		}
		out = r
	case "props.notion-create-page", "props.notion-create-page-from-database":
		out = seenOf(h.call(e.Request.Body.ID, mustJSON(e.args())))
	case "accounts.list", "users.accounts":
		_, query, _ := strings.Cut(e.Request.Path, "?")
		if kind[0] == "users" { // read by the same function, were the provider to answer so
			e.Request.Path = "/v1/connect/proj_test1/accounts"
			h.mu.Lock()
			h.replace = e.answer(&asked)
			h.mu.Unlock()
		}
		q, _ := url.ParseQuery(query)
		list, err := h.conn.Accounts(ctx, "person-1", q.Get("app"))

		out = []any{list, errText(err)}
	case "accounts.get":
		a, err := h.conn.Account(ctx, "person-1", lastPart(e.Request.Path))
		out = []any{a, errText(err)}
	case "accounts.delete":
		out = errText(h.conn.DeleteAccount(ctx, "person-1", lastPart(e.Request.Path)))
	case "tokens.create":
		s, err := h.conn.StartConnect(ctx, gateway.StartConnect{ExternalUser: "person-1", App: "gmail"})
		out = []any{s.Token.Reveal(), s.URL.Reveal(), errText(err)}
	case "oauth_token.200", "oauth_token.401":
		// The connector is warm, so its token is thrown away first.
		h.sim.ExpireTokens()
		_, err := h.conn.Accounts(ctx, "person-1", "gmail")
		if file == "oauth_token.200.json" {
			asked = asked && err != nil // a token this provider never gave is no use; that it was read is seen by its use
		}
		out = errText(err)
	case "error.401", "error.429":
		if file == "error.429.json" {
			e.Request.Path = "/v1/connect/proj_test1/accounts"
			h.mu.Lock()
			h.replace = e.answer(&asked)
			h.mu.Unlock()
		}
		_, err := h.conn.Accounts(ctx, "person-1", "")
		out = errText(err)
	case "apps.get", "apps.list", "proxy.get", "webhook.connection_error", "webhook.connection_success":
		return "not read by this package"
	default:
		t.Fatalf("nobody reads this example")
	}
	if !asked {
		t.Error("the example was never asked for")
	}
	return out
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprint(err)
}

func lastPart(path string) string { return path[strings.LastIndex(path, "/")+1:] }

func cursorOf(structured json.RawMessage) string {
	var in struct {
		Next string `json:"next_cursor"`
	}
	_ = json.Unmarshal(structured, &in)
	return in.Next
}
