package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// raw is a client that sends what it is told to a run's door.
type raw struct {
	t             *testing.T
	addr, token   string
	era, revision string
	session       string
}

// raws gives one for each era; the old one has an MCP session.
func (w *world) raws(t *testing.T, run store.Run, addr string) []*raw {
	t.Helper()
	token := "Bearer " + need(w.g.MintToken(run))(t).Reveal()
	old := &raw{t: t, addr: addr, token: token, era: "legacy", revision: "2025-11-25"}
	resp := old.post(firstWords, nil)
	old.session = resp.Header.Get("Mcp-Session-Id")
	readAll(t, resp)
	readAll(t, old.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil))
	return []*raw{old, {t: t, addr: addr, token: token, era: "modern", revision: "2026-07-28"}}
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	return string(need(io.ReadAll(resp.Body))(t))
}

// post sends a body under the era's own headers; an empty one in change takes a header away.
func (r *raw) post(body string, change map[string]string) *http.Response {
	r.t.Helper()
	h := map[string]string{"Mcp-Protocol-Version": r.revision}
	if r.session != "" {
		h["Mcp-Session-Id"] = r.session
	}
	if r.era == "modern" {
		h["Mcp-Method"], h["Mcp-Name"] = "tools/call", list
	}
	maps.Copy(h, change)
	maps.DeleteFunc(h, func(_, v string) bool { return v == "" })
	return post(r.t, r.addr, r.token, h, body)
}

// brief is post for many: nothing of the answer is kept.
func (r *raw) brief(body string, change map[string]string) (status int) {
	r.t.Helper()
	req := need(http.NewRequestWithContext(r.t.Context(), "POST", gateway.DoorURL, strings.NewReader(body)))(r.t)
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": r.revision} {
		req.Header.Set(k, v)
	}
	for k, v := range change {
		req.Header.Set(k, v)
	}
	resp := need(through{r.addr, r.token}.RoundTrip(req))(r.t)
	defer resp.Body.Close()
	need(io.Copy(io.Discard, resp.Body))(r.t)
	return resp.StatusCode
}

const firstWords = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`

const modernAbout = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`

// body is a call of list; meta are members of its _meta, as "key":value.
func (r *raw) body(id, args, meta string) string {
	if r.era == "modern" {
		if meta != "" {
			meta = "," + meta
		}
		meta = modernAbout + meta
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s}}}`, id, list, args, meta)
}

func TestACallIsAnsweredInPlainJSONUnlessThereIsMoreToSay(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	for _, r := range w.raws(t, run, addr) {
		w.app.on(list, func(context.Context, gateway.Call) (gateway.Result, error) { return done("quick"), nil })
		resp := r.post(r.body(`"a-1"`, `{}`, ""), nil)
		text := readAll(t, resp)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" || !strings.HasPrefix(text, `{"jsonrpc":"2.0","id":"a-1","result":{`) {
			t.Errorf("%s: %d %s", r.era, resp.StatusCode, text)
		}
		w.app.on(list, func(_ context.Context, c gateway.Call) (gateway.Result, error) {
			c.Progress(gateway.Progress{Done: 1, Total: 3, Message: "uno\u202e\n"})
			c.Progress(gateway.Progress{Done: 1}) // no more than before: not sent
			c.Progress(gateway.Progress{Done: 2.5})
			return done("slow"), nil
		})
		for _, token := range []string{`"tok"`, `77`} {
			resp = r.post(r.body("5", `{}`, `"progressToken":`+token), nil)
			text = readAll(t, resp)
			if resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Accel-Buffering") != "no" {
				t.Errorf("%s: %v", r.era, resp.Header)
			}
			var said []string
			for line := range strings.Lines(text) {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					said = append(said, strings.TrimSpace(data))
				}
			}
			same(t, []string{
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1,"total":3,"message":"uno"}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":2.5}}`,
			}, said[:len(said)-1])
			if !strings.HasPrefix(said[len(said)-1], `{"jsonrpc":"2.0","id":5,"result":`) {
				t.Errorf("%s: ends with %s", r.era, said[len(said)-1])
			}
		}
	}
}

func TestACallThatIsNotAsItShouldBeIsRefusedAndReachesNothing(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	clients := w.raws(t, run, addr)
	whole := map[string]string{"legacy": clients[0].body("1", `{}`, ""), "modern": clients[1].body("1", `{}`, "")}
	swap := func(era, old, new string) string { return strings.Replace(whole[era], old, new, 1) }
	for name, c := range map[string]struct {
		eras   string
		change map[string]string
		body   func(era string) string
		status int
		code   int // 0: no JSON-RPC answer
	}{
		"content type":               {eras: "legacy modern", change: map[string]string{"Content-Type": "text/plain"}, status: 415},
		"accepts no events":          {eras: "legacy modern", change: map[string]string{"Accept": "application/json"}, status: 400},
		"resumes":                    {eras: "legacy modern", change: map[string]string{"Last-Event-Id": "1"}, status: 400},
		"unknown session":            {eras: "legacy", change: map[string]string{"Mcp-Session-Id": "GONE"}, status: 404},
		"old unknown":                {eras: "legacy", change: map[string]string{"Mcp-Protocol-Version": "2025-01-01"}, status: 400},
		"later than ours":            {eras: "modern", change: map[string]string{"Mcp-Protocol-Version": "2027-01-01"}, body: func(era string) string { return swap(era, "2026-07-28", "2027-01-01") }, status: 400, code: -32022},
		"version mismatch":           {eras: "modern", body: func(era string) string { return swap(era, "2026-07-28", "2026-07-29") }, status: 400, code: -32020},
		"no version in meta":         {eras: "modern", body: func(string) string { return whole["legacy"] }, status: 400, code: -32602},
		"modern body alone":          {eras: "legacy", change: map[string]string{"Mcp-Protocol-Version": ""}, body: func(string) string { return whole["modern"] }, status: 400, code: -32022},
		"modern body":                {eras: "legacy", body: func(string) string { return whole["modern"] }, status: 400, code: -32020},
		"no method header":           {eras: "modern", change: map[string]string{"Mcp-Method": ""}, status: 400, code: -32020},
		"other method":               {eras: "modern", change: map[string]string{"Mcp-Method": "tools/list"}, status: 400, code: -32020},
		"no name header":             {eras: "modern", change: map[string]string{"Mcp-Name": ""}, status: 400, code: -32020},
		"other name":                 {eras: "modern", change: map[string]string{"Mcp-Name": create}, status: 400, code: -32020},
		"no capabilities":            {eras: "modern", body: func(era string) string { return swap(era, `"io.modelcontextprotocol/clientCapabilities":{}`, `"x":1`) }, status: 400, code: -32602},
		"client is a text":           {eras: "modern", body: func(era string) string { return swap(era, `{"name":"a","version":"1"}`, `"a"`) }, status: 400, code: -32602},
		"no JSON":                    {eras: "legacy modern", body: func(era string) string { return whole[era][1:] }, status: 400, code: -32700},
		"two values":                 {eras: "legacy modern", body: func(era string) string { return whole[era] + whole[era] }, status: 400, code: -32700},
		"no UTF-8":                   {eras: "legacy modern", body: func(era string) string { return swap(era, list, "\xff") }, status: 400, code: -32700},
		"nothing":                    {eras: "legacy modern", body: func(string) string { return "" }, status: 400, code: -32700},
		"a batch":                    {eras: "legacy modern", body: func(era string) string { return "[" + whole[era] + "]" }, status: 400, code: -32600},
		"a number":                   {eras: "legacy modern", body: func(string) string { return "7" }, status: 400, code: -32600},
		"two methods":                {eras: "legacy modern", body: func(era string) string { return swap(era, `"id":1`, `"id":1,"method":"ping"`) }, status: 400, code: -32600},
		"two methods, one disguised": {eras: "legacy modern", body: func(era string) string { return swap(era, `"id":1`, `"id":1,"m\u0065thod":"ping"`) }, status: 400, code: -32600},
		"two names":                  {eras: "legacy modern", body: func(era string) string { return swap(era, `"name":"google`, `"name":"x","name":"google`) }, status: 400, code: -32602},
		"version 1":                  {eras: "legacy modern", body: func(era string) string { return swap(era, `"2.0"`, `"1.0"`) }, status: 400, code: -32600},
		"id null":                    {eras: "legacy modern", body: func(era string) string { return swap(era, `"id":1`, `"id":null`) }, status: 400, code: -32600},
		"id a list":                  {eras: "legacy modern", body: func(era string) string { return swap(era, `"id":1`, `"id":[1]`) }, status: 400, code: -32600},
		"no id":                      {eras: "legacy modern", body: func(era string) string { return swap(era, `"id":1,`, ``) }, status: 400, code: -32600},
		"no params":                  {eras: "legacy modern", body: func(string) string { return `{"jsonrpc":"2.0","id":1,"method":"tools/call"}` }, status: 400, code: -32602},
		"name a number":              {eras: "legacy modern", body: func(era string) string { return swap(era, `"`+list+`"`, `7`) }, status: 400, code: -32602},
		"no name":                    {eras: "legacy modern", body: func(era string) string { return swap(era, `"name":`, `"nombre":`) }, status: 400, code: -32602},
		"meta a text": {eras: "legacy modern", body: func(string) string {
			return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":"x"}}`
		}, status: 400, code: -32602},
		"5 MiB": {eras: "legacy modern", body: func(era string) string { return whole[era] + strings.Repeat(" ", 5<<20) }, status: 413},
	} {
		for _, r := range clients {
			if !strings.Contains(c.eras, r.era) {
				continue
			}
			t.Run(name+"/"+r.era, func(t *testing.T) {
				body := whole[r.era]
				if c.body != nil {
					body = c.body(r.era)
				}
				resp := r.post(body, c.change)
				text := readAll(t, resp)
				var said struct{ Error struct{ Code int } }
				if c.code != 0 {
					if err := json.Unmarshal([]byte(text), &said); err != nil {
						t.Errorf("%v: %s", err, text)
					}
				}
				if resp.StatusCode != c.status || said.Error.Code != c.code {
					t.Errorf("%d %s", resp.StatusCode, text)
				}
			})
		}
	}
	same(t, []string{}, w.app.performed())
	same(t, []row(nil), w.rows(t, run.ID))
}

func TestAForeignOriginIsRefusedBeforeTheTokenIsLookedAt(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "PUT", "HEAD"} {
		for _, token := range []string{"", "Bearer " + need(w.g.MintToken(run))(t).Reveal()} {
			req := need(http.NewRequestWithContext(t.Context(), method, gateway.DoorURL, strings.NewReader(strings.Repeat(" ", 5<<20))))(t)
			req.Header.Set("Origin", "https://evil.example")
			resp := need(through{addr, token}.RoundTrip(req))(t)
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %d", method, resp.StatusCode)
			}
		}
	}
	if w.log.has("security.token_missing") {
		t.Error("the token was looked at")
	}
}

func TestG04_OneCallIsOneExecutionOneRowAndOneCount(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, _ := w.run(t)
		addr, _ := w.door(t, run)
		clients := w.raws(t, run, addr)
		var all sync.WaitGroup
		for i := range 12 {
			r := clients[i%2]
			all.Go(func() { readAll(t, r.post(r.body(fmt.Sprint(i), fmt.Sprintf(`{"q":"%d"}`, i), ""), nil)) })
		}
		all.Wait()
		same(t, 12, len(w.app.performed()))
		same(t, 12, len(w.rows(t, run.ID)))
		decided := 0
		for _, a := range need(w.Audit(t.Context(), run.Principal.Company, 1000))(t) {
			if a.Action == "call.decided" {
				decided++
			}
		}
		same(t, 12, decided)
	})
}

func TestG20_NoOpenStreamIsSilent(t *testing.T) {
	w := onSQLite(t)
	w.cfg.Heartbeat = time.Millisecond
	w.build(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	clients := w.raws(t, run, addr)
	// comments reads until some came without anything being said, and gives what follows.
	comments := func(name string, resp *http.Response) *bufio.Reader {
		t.Helper()
		lines, n := bufio.NewReader(resp.Body), 0
		for n < 3 {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if line == ": \n" {
				n++
			}
		}
		return lines
	}
	req := need(http.NewRequestWithContext(t.Context(), "GET", gateway.DoorURL, nil))(t)
	for k, v := range map[string]string{"Accept": "text/event-stream", "Mcp-Session-Id": clients[0].session, "Mcp-Protocol-Version": "2025-11-25"} {
		req.Header.Set(k, v)
	}
	resp := need(through{addr, clients[0].token}.RoundTrip(req))(t)
	same(t, "no", resp.Header.Get("X-Accel-Buffering"))
	comments("the old era's stream", resp)
	resp.Body.Close()
	listen := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{` + modernAbout + `}}}`
	resp = clients[1].post(listen, map[string]string{"Mcp-Method": "subscriptions/listen", "Mcp-Name": ""})
	comments("subscriptions/listen", resp)
	resp.Body.Close()
	for _, r := range clients {
		release := make(chan struct{})
		w.app.on(list, func(context.Context, gateway.Call) (gateway.Result, error) {
			<-release
			return done("late"), nil
		})
		resp := r.post(r.body("9", `{}`, ""), nil)
		answer := comments("a call without a token, "+r.era, resp)
		close(release)
		if rest := string(need(io.ReadAll(answer))(t)); !strings.Contains(rest, `"text":"late"`) {
			t.Errorf("%s: %s", r.era, rest)
		}
		resp.Body.Close()
	}
}

func TestG21_ACallThatWaitsForAHumanIsAnsweredAtOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		run, _ := w.run(t)
		addr, _ := w.door(t, run)
		for era, revision := range eras() {
			got := call(t, w.agent(t, run, addr, revision, nil), mail, `{"para":["`+era+`@otra.com"]}`)
			if code, _ := got.Structured["code"].(string); got.Structured["status"] != "pending" || code == "" || got.IsError {
				t.Errorf("%s: %+v", era, got)
			}
		}
		same(t, []string{}, w.app.performed())
	})
}

func TestG23_ACancellationReachesTheAppAndItsOutcomeIsRecorded(t *testing.T) {
	for _, tool := range []string{list, create} {
		for i, era := range []string{"legacy", "modern"} {
			t.Run(tool+"/"+era, func(t *testing.T) {
				w := onSQLite(t)
				run, _ := w.run(t)
				addr, shut := w.door(t, run)
				r := w.raws(t, run, addr)[i]
				entered := make(chan struct{})
				w.app.on(tool, func(ctx context.Context, c gateway.Call) (gateway.Result, error) {
					close(entered)
					<-c.Cancelled
					if tool == list {
						<-ctx.Done() // a read is given up
					} else if ctx.Err() != nil {
						t.Error("a write's context ended")
					}
					return done("done all the same"), nil
				})
				body := strings.Replace(r.body(`"c-1"`, `{"summary":"x"}`, ""), list, tool, 1)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				answered := make(chan string, 1)
				go func() { answered <- r.try(ctx, body, tool) }()
				next(t, entered)
				if era == "modern" {
					leave()
				} else {
					cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c-1","reason":"x"}}`
					if resp := r.post(cancelled, nil); resp.StatusCode != http.StatusAccepted {
						t.Errorf("%d", resp.StatusCode)
					}
				}
				same(t, "", next(t, answered)) // the late result is nobody's
				shut()                         // waits for the call
				same(t, []row{{tool, policy.Allow, "", store.OutcomeDone, "ok"}}, w.rows(t, run.ID))
			})
		}
	}
}

// try posts a call and gives what was answered, nothing if the caller left.
func (r *raw) try(ctx context.Context, body, tool string) string {
	req, err := http.NewRequestWithContext(ctx, "POST", gateway.DoorURL, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": r.revision, "Mcp-Method": "tools/call", "Mcp-Name": tool, "Mcp-Session-Id": r.session} {
		req.Header.Set(k, v)
	}
	resp, err := through{r.addr, r.token}.RoundTrip(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

func TestG32_StructuredContentIsTheSameInBothErasAndBothForms(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	const structured = "{\n\t\"status\": \"ok\",\r\n \"data\": {\"n\": 1.50, \"text\": \"a\\nb\"}\n}"
	var all []*mcp.CallToolResult
	for _, r := range w.raws(t, run, addr) {
		for _, streams := range []bool{false, true} {
			w.app.on(list, func(_ context.Context, c gateway.Call) (gateway.Result, error) {
				if streams {
					c.Progress(gateway.Progress{Done: 1})
				}
				return gateway.Result{Outcome: store.OutcomeDone, Code: "ok", Text: "a\nb", Structured: json.RawMessage(structured)}, nil
			})
			meta := ""
			if streams {
				meta = `"progressToken":1`
			}
			text := readAll(t, r.post(r.body("1", `{}`, meta), nil))
			if i := strings.LastIndex(text, "data: "); i >= 0 {
				text = text[i+len("data: "):]
			}
			var said struct{ Result mcp.CallToolResult }
			if err := json.Unmarshal([]byte(text), &said); err != nil {
				t.Fatalf("%v: %q", err, text)
			}
			all = append(all, &said.Result)
		}
	}
	for _, r := range all {
		same(t, any(map[string]any{"status": "ok", "data": map[string]any{"n": 1.5, "text": "a\nb"}}), r.StructuredContent)
		same(t, answerOf(t, all[0]), answerOf(t, r))
	}
}

func TestG35_WrongArgumentsAreAToolResultAndReachNothing(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	for _, r := range w.raws(t, run, addr) {
		for args, path := range map[string]string{`{"q":7}`: `/q`, `{"q":"a","q":"b"}`: `/q`, `[1]`: `/`, `"x"`: `/`} {
			resp := r.post(r.body("1", args, ""), nil)
			text := readAll(t, resp)
			if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"isError":true`) || !strings.Contains(text, `"code":"bad_arguments"`) || !strings.Contains(text, `- `+path) {
				t.Errorf("%s %s: %d %s", r.era, args, resp.StatusCode, text)
			}
		}
	}
	agent := w.agent(t, run, addr, "", nil)
	for args, path := range map[string]string{
		`{}`:                                  "",
		`{"summary":5}`:                       "/summary",
		`{"summary":"x","minutes":0}`:         "/minutes",
		`{"summary":"x","attendees":["a",1]}`: "/attendees/1",
		`{"summary":"x","sendUpdates":"all"}`: "",
		`{"summary":"` + strings.Repeat("x", 70000) + `"}`: "",
	} {
		got := call(t, agent, create, args)
		if !got.IsError || got.Structured["code"] != "bad_arguments" || got.Structured["retry"] != "fix" {
			t.Errorf("%.60s: %+v", args, got)
			continue
		}
		first := got.Structured["problems"].([]any)[0].(map[string]any)
		if first["path"] != path || first["expected"] == "" || !strings.Contains(got.Text, first["expected"].(string)) {
			t.Errorf("%.60s: %v", args, first)
		}
	}
	same(t, []string{}, w.app.performed())
	rows := w.rows(t, run.ID)
	same(t, 14, len(rows))
	for _, r := range rows {
		same(t, row{r.Tool, policy.Deny, "", store.OutcomeRefused, "bad_arguments"}, r)
	}
	if got := call(t, agent, create, `{"summary":"x"}`); got.IsError {
		t.Errorf("what was mended: %+v", got)
	}
}
