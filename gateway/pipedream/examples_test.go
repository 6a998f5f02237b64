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

// player plays one example to the code that reads it.
type player struct {
	*house
	file  string
	e     example
	asked bool
}

// answerAt makes the provider answer with the example, at another path where one function reads several kinds of answers.
func (p *player) answerAt(path string) {
	p.e.Request.Path = path
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replace = p.e.answer(&p.asked)
}

// readExample gives the example to whoever reads its kind of answer.
func readExample(t *testing.T, file string, e example) any {
	p := &player{house: open(t), file: file, e: e}
	if err := p.conn.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.answerAt(e.Request.Path)
	kind := strings.SplitN(file, ".", 3)
	var out any
	switch kind[0] {
	case "run":
		out = p.run()
	case "configure":
		out = p.options()
	case "props":
		out = seenOf(p.call(e.Request.Body.ID, mustJSON(e.args())))
	case "accounts", "users", "tokens", "error", "oauth_token":
		out = p.account(kind[0] + "." + kind[1])
	case "apps", "proxy", "webhook":
		return "not read by this package"
	default:
		t.Fatal("nobody reads this example")
	}
	if !p.asked {
		t.Error("the example was never asked for")
	}
	return out
}

// run makes a call that brings the example's answer out. Where the gateway refuses the example's own arguments before the
// provider could, others do.
func (p *player) run() any {
	tool, args := p.e.Request.Body.ID, p.e.args()
	switch p.file {
	case "run.stash.200.json": // its action is not offered; its answer is read like any other
		tool, args = createEvent, nil
		if err := json.Unmarshal([]byte(lunch), &args); err != nil {
			p.t.Fatal(err)
		}
	case "run.component_error.A.json", "run.component_error.B.json":
		delete(args, "user")
	case "run.http_error.details.json":
		args["summary"] = "Comida"
	case "run.no_ret.200.json":
		args["more_fields"] = map[string]any{"imageUrls": []any{}}
	}
	return seenOf(p.call(tool, mustJSON(args)))
}

// options asks for the choices of the example.
func (p *player) options() any {
	q := map[string]any{"action": p.e.Request.Body.ID, "prop": p.e.Request.Body.PropName}
	if p.e.Request.Body.Query != "" {
		q["query"] = p.e.Request.Body.Query
	}
	r := seenOf(p.call("retrieve_options", mustJSON(q)))
	if next := cursorOf(r.Structured); next != "" { // random
		r.Text, r.Structured = strings.ReplaceAll(r.Text, next, "CURSOR"), json.RawMessage(strings.ReplaceAll(string(r.Structured), next, "CURSOR"))
	}
	return r
}

// account calls the function that reads accounts, tokens or refusals.
func (p *player) account(kind string) any {
	ctx := context.Background()
	path, query, _ := strings.Cut(p.e.Request.Path, "?")
	switch kind {
	case "accounts.get":
		a, err := p.conn.Account(ctx, "person-1", path[strings.LastIndex(path, "/")+1:])
		return []any{a, errText(err)}
	case "accounts.delete":
		return errText(p.conn.DeleteAccount(ctx, "person-1", path[strings.LastIndex(path, "/")+1:]))
	case "tokens.create":
		s, err := p.conn.StartConnect(ctx, gateway.StartConnect{ExternalUser: "person-1", App: "gmail"})
		return []any{s.Token.Reveal(), s.URL.Reveal(), errText(err)}
	case "oauth_token.200", "oauth_token.401":
		p.sim.ExpireTokens() // so that another is asked for; this provider never gave the example's, so its use fails
	default: // one function reads every list, in whatever form and with whatever refusal it comes
		p.answerAt("/v1/connect/proj_test1/accounts")
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		p.t.Fatal(err)
	}
	list, err := p.conn.Accounts(ctx, "person-1", q.Get("app"))
	return []any{list, errText(err)}
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

func cursorOf(structured json.RawMessage) string {
	var in struct {
		Next string `json:"next_cursor"`
	}
	_ = json.Unmarshal(structured, &in)
	return in.Next
}
