package model_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pilder/gateway/model"
)

// ask is a request with one message of this content (JSON), and with more fields (JSON, with their commas).
func ask(content, more string) string {
	return `{"model":"claude-sonnet-5-5","max_tokens":100,"messages":[{"role":"user","content":` + content + `}]` + more + `}`
}

func withSearch(_ *model.Config, p *model.Process) { p.Search = true }

func withSources(c *model.Config, _ *model.Process) { c.URLSources = true }

// echo answers with the body it got.
func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body) // before the answer begins, which ends the reading
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// The files are requests of the real CLI (2.1.332), their texts cut short: apps with loaded and deferred tools and a system
// message, files read by it, a web search, and a repetition that does not stream.
func TestWhatTheCLISendsPasses(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	bodies := map[string]string{
		// As the CLI tells of tools that came while a conversation was under way (2.1.332, from its source).
		"tools that come": `{"model":"claude-haiku-5-5-20261001","max_tokens":128000,"messages":[{"role":"system","content":[{"type":"tool_removal","tool":{"type":"tool_reference","name":"a"}},` +
			`{"type":"tool_addition","tool":{"type":"tool_reference","name":"b"}},` +
			`{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"c","input_schema":{"type":"object","properties":{"type":{"type":"string"}}}}}}]}]}`,
		"arguments that look like sources": ask(`[{"type":"tool_use","id":"t","name":"n","input":{"source":{"type":"url","url":"https://a"},"file_id":"f","role":"x","mcp_servers":[]}}]`, ""),
		"an address in a text":             ask(`"{\"type\":\"url\",\"url\":\"https://a\"}"`, ""),
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bodies[filepath.Base(file)] = string(b)
	}
	for name, sent := range bodies {
		t.Run(name, func(t *testing.T) {
			d := serve(t, echo, withSearch)
			resp := d.send(t, "POST", "/v1/messages?beta=true", sent)
			if got := body(t, resp); resp.StatusCode != http.StatusOK || got != sent {
				t.Errorf("%d: %s", resp.StatusCode, got)
			}
		})
	}
}

// Each is something that an agent could want from the API with the house's key, or a body that two readers could read
// differently.
func TestABodyMayNotAskForMore(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	tool := func(definition string) string { return ask(`"x"`, `,"tools":[`+definition+`]`) }
	source := func(kind, s string) string { return ask(`[{"type":"`+kind+`","source":`+s+`}]`, "") }
	const url = `{"type":"url","url":"https://attacker.example/?q=secret"}`
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"another model":               {strings.Replace(question, "sonnet-5-5", "opus-5-5", 1), 403},
		"a model that begins alike":   {strings.Replace(question, "claude-sonnet-5-5", "claude-sonnetty", 1), 403},
		"no model":                    {`{"max_tokens":1,"messages":[]}`, 400},
		"a model that is no text":     {`{"model":["claude-sonnet-5-5"],"messages":[]}`, 400},
		"a model in other letters":    {`{"Model":"claude-sonnet-5-5","messages":[]}`, 403},
		"more models":                 {ask(`"x"`, `,"fallbacks":[{"model":"claude-opus-5-5"}]`), 403},
		"too long an answer":          {strings.Replace(question, "100", "128001", 1), 403},
		"an answer of a fraction":     {strings.Replace(question, "100", "1e9", 1), 400},
		"an answer beyond numbers":    {strings.Replace(question, "100", "99999999999999999999", 1), 400},
		"an answer of nothing":        {strings.Replace(question, "100", "0", 1), 400},
		"MCP servers":                 {ask(`"x"`, `,"mcp_servers":[{"type":"url","url":"https://a","name":"a"}]`), 403},
		"a container":                 {ask(`"x"`, `,"container":"c"`), 403},
		"MCP servers behind escapes":  {ask(`"x"`, `,"mcp\u005fservers":[]`), 403},
		"somebody else's thread":      {ask(`"x"`, `,"thread":{"type":"continue","id":"t"}`), 403},
		"fast and dear":               {ask(`"x"`, `,"speed":"fast"`), 403},
		"web search":                  {tool(`{"type":"web_search_20250305","name":"web_search"}`), 403},
		"web fetch":                   {tool(`{"type":"web_fetch_20260318","name":"web_fetch"}`), 403},
		"code":                        {tool(`{"type":"code_execution_20260521","name":"code_execution"}`), 403},
		"another model as advisor":    {tool(`{"type":"advisor_20260301","name":"advisor","model":"claude-opus-5-5"}`), 403},
		"tools of a server":           {tool(`{"type":"mcp_toolset","mcp_server_name":"a"}`), 403},
		"a computer":                  {tool(`{"type":"computer_20251124","name":"computer"}`), 403},
		"a tool type behind escapes":  {tool(`{"\u0074ype":"web\u005ffetch_20260318","name":"web_fetch"}`), 403},
		"a tool type that is no text": {tool(`{"type":null,"name":"x"}`), 400},
		"a tool in a message": {strings.Replace(question, `"hola"`,
			`[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_fetch_20260318","name":"f"}}}]`, 1), 403},
		"a server's tools in a message":    {ask(`[{"type":"tool_addition","tool":{"type":"mcp_toolset_reference","server_name":"a"}}]`, ""), 403},
		"a picture from an address":        {source("image", url), 403},
		"a document from an address":       {source("document", url), 403},
		"a file":                           {source("document", `{"type":"file","file_id":"file_1"}`), 403},
		"an address beside bytes":          {source("image", `{"type":"base64","data":"","url":"https://a"}`), 403},
		"a source without a type":          {source("image", `{"data":"x"}`), 400},
		"an address in a tool's result":    {ask(`[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":`+url+`}]}]`, ""), 403},
		"an address in a document":         {source("document", `{"type":"content","content":[{"type":"image","source":`+url+`}]}`), 403},
		"an address in the system prompt":  {ask(`"x"`, `,"system":[{"type":"image","source":`+url+`}]`), 403},
		"an address in a list in a list":   {ask(`[[{"type":"image","source":`+url+`}]]`, ""), 403},
		"a file for a container":           {ask(`[{"type":"container_upload","file_id":"f"}]`, ""), 403},
		"a search's result":                {ask(`[{"type":"web_search_tool_result","content":[]}]`, ""), 403},
		"a block of an unknown type":       {ask(`[{"type":"from_the_future"}]`, ""), 403},
		"a block without a type":           {ask(`[{"text":"x"}]`, ""), 400},
		"an unknown role":                  {strings.Replace(question, `"user"`, `"developer"`, 1), 403},
		"no role":                          {strings.Replace(question, `"role":"user",`, ``, 1), 400},
		"the model twice":                  {ask(`"x"`, `,"model":"claude-opus-5-5"`), 400},
		"the model twice behind escapes":   {ask(`"x"`, `,"mode\u006c":"claude-opus-5-5"`), 400},
		"a type twice":                     {tool(`{"type":"custom","type":"web_fetch_20260318"}`), 400},
		"a key twice deep in arguments":    {ask(`[{"type":"tool_use","input":{"a":[{"b":1,"\u0062":2}]}}]`, ""), 400},
		"bytes that are no text":           {ask("\"\xff\"", ""), 400},
		"another encoding":                 {"\xff\xfe{\x00}\x00", 400},
		"a byte order mark":                {"\ufeff" + question, 400},
		"something after it":               {question + question, 400},
		"a comment":                        {"/**/" + question, 400},
		"a comma too many":                 {ask(`"x"`, `,`), 400},
		"half of it":                       {question[:len(question)-1], 400},
		"a list":                           {"[" + question + "]", 400},
		"a text":                           {`"x"`, 400},
		"nothing":                          {"", 400},
		"too deep":                         {ask(`[{"type":"tool_use","input":`+deep(100)+`}]`, ""), 400},
		"very deep":                        {ask(`"x"`, `,"metadata":`+deep(100_000)), 400},
		"too many keys":                    {ask(`"x"`, `,"metadata":{`+keys(10_001)+`}`), 400},
		"too many values":                  {ask(`"x"`, `,"metadata":[0`+strings.Repeat(",0", 200_000)+`]`), 400},
		"a form":                           {"model=claude-sonnet-5-5&max_tokens=1", 400},
		"a model that only begins a known": {strings.Replace(question, "claude-sonnet-5-5", "claude", 1), 403},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens"} {
				d := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the model was asked") })
				resp := d.send(t, "POST", path, c.body)
				kind := map[int]string{400: "invalid_request_error", 403: "permission_error"}[c.status]
				if got := body(t, resp); resp.StatusCode != c.status || !strings.HasPrefix(got, `{"type":"error","error":{"type":"`+kind+`",`) {
					t.Errorf("%s: %d %s", path, resp.StatusCode, got)
				}
			}
		})
	}
}

func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func TestWhatIsSwitchedOnPasses(t *testing.T) {
	picture := ask(`[{"type":"image","source":{"type":"url","url":"https://a"}},{"type":"document","source":{"type":"file","file_id":"f"}}]`, "")
	search := ask(`[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","url":"https://a"}]}]`,
		`,"tools":[{"type":"web_search_20260318","name":"web_search"}]`)
	for name, c := range map[string]struct {
		body   string
		with   option
		status int
	}{
		"sources":                   {picture, withSources, 200},
		"search":                    {search, withSearch, 200},
		"search brings no sources":  {picture, withSearch, 403},
		"sources bring no search":   {search, withSources, 403},
		"a search brings no fetch":  {ask(`"x"`, `,"tools":[{"type":"web_fetch_20260318"}]`), withSearch, 403},
		"an exact model":            {question, func(c *model.Config, _ *model.Process) { c.Models = []string{"claude-sonnet-5-5"} }, 200},
		"an empty line is no model": {question, func(c *model.Config, _ *model.Process) { c.Models = []string{""} }, 403},
		"no list, no model":         {question, func(c *model.Config, _ *model.Process) { c.Models = nil }, 403},
		"a shorter answer":          {question, func(c *model.Config, _ *model.Process) { c.MaxTokens = 99 }, 403},
	} {
		t.Run(name, func(t *testing.T) {
			if resp := serve(t, echo, c.with).send(t, "POST", "/v1/messages", c.body); resp.StatusCode != c.status {
				t.Errorf("%d %s", resp.StatusCode, body(t, resp))
			}
		})
	}
}
