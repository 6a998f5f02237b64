package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

func TestARunSeesWhatItsPersonMayUseInBothEras(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	for era, revision := range eras() {
		agent := w.agent(t, run, addr, revision, nil)
		got := agent.InitializeResult()
		if got.ServerInfo.Name != "pilder" || got.ServerInfo.Version != "1.2.3" {
			t.Errorf("%s: %+v", era, got.ServerInfo)
		}
		same(t, `{"tools":{"listChanged":true}}`, string(need(json.Marshal(got.Capabilities))(t)))
		if !strings.Contains(got.Instructions, "Empresa <b>") || !strings.Contains(got.Instructions, "Asana") {
			t.Errorf("%s: instructions %q", era, got.Instructions)
		}
		listed := need(agent.ListTools(t.Context(), nil))(t)
		if era == "modern" && listed.CacheScope != "private" {
			t.Errorf("cache scope %q", listed.CacheScope)
		}
		names := []string{}
		for _, tool := range listed.Tools {
			names = append(names, tool.Name)
			if tool.Annotations == nil || tool.Annotations.DestructiveHint == nil || tool.Annotations.OpenWorldHint == nil || tool.Title == "" || tool.OutputSchema == nil {
				t.Errorf("%s: %s is not whole", era, tool.Name)
			}
			if always := tool.Meta["anthropic/alwaysLoad"]; (always == true) != (tool.Name == mail) {
				t.Errorf("%s: %s alwaysLoad %v", era, tool.Name, always)
			}
		}
		same(t, []string{mail, create, remove, list}, names)
	}
}

// wire keeps the bodies that a client reads.
type wire struct {
	through
	read *strings.Builder
}

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.through.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, w.read), resp.Body}
	}
	return resp, err
}

// TestG44_EveryToolSaysItsHintsAloud: a host that finds a hint missing shows no tool at all, so each is on the wire.
func TestG44_EveryToolSaysItsHintsAloud(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	token := need(w.g.MintToken(run))(t).Reveal()
	for era, revision := range eras() {
		read := &strings.Builder{}
		client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
		transport := &mcp.StreamableClientTransport{Endpoint: gateway.DoorURL, MaxRetries: -1, DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: wire{through{addr, "Bearer " + token}, read}}}
		session := need(client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision}))(t)
		listed := need(session.ListTools(t.Context(), nil))(t)
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		for _, hint := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
			said := strings.Count(read.String(), `"`+hint+`":true`) + strings.Count(read.String(), `"`+hint+`":false`)
			if said != len(listed.Tools) || said == 0 {
				t.Errorf("%s: %s is said of %d of %d tools", era, hint, said, len(listed.Tools))
			}
		}
	}
}

func TestOnlyTheRunsOwnLiveTokenOpensTheDoor(t *testing.T) {
	w := onSQLite(t)
	run, end := w.run(t)
	addr, _ := w.door(t, run)
	good := need(w.g.MintToken(run))(t).Reveal()
	mint := func(change func(r *store.Run)) string {
		other := run
		change(&other)
		return need(w.g.MintToken(other))(t).Reveal()
	}
	sign := func(method jwt.SigningMethod, kid, secret string, change func(c jwt.MapClaims)) string {
		var c jwt.MapClaims
		payload := need(base64.RawURLEncoding.DecodeString(strings.Split(good, ".")[1]))(t)
		if err := json.Unmarshal(payload, &c); err != nil {
			t.Fatal(err)
		}
		change(c)
		token := jwt.NewWithClaims(method, c)
		token.Header["kid"] = kid
		var k any = []byte(secret)
		if method == jwt.SigningMethodNone {
			k = jwt.UnsafeAllowNoneSignatureType
		}
		return need(token.SignedString(k))(t)
	}
	keep := func(jwt.MapClaims) {}
	secret := key("new").Reveal()
	for name, tt := range map[string]struct{ header, event string }{
		"missing":          {"", "security.token_missing"},
		"basic":            {"Basic " + good, "security.token_missing"},
		"garbage":          {"Bearer garbage", "security.token_invalid"},
		"alg none":         {"Bearer " + sign(jwt.SigningMethodNone, "new", "", keep), "security.token_invalid"},
		"another alg":      {"Bearer " + sign(jwt.SigningMethodHS512, "new", secret, keep), "security.token_invalid"},
		"another key":      {"Bearer " + sign(jwt.SigningMethodHS256, "new", "some other secret, just as long as ours", keep), "security.token_invalid"},
		"unknown key id":   {"Bearer " + sign(jwt.SigningMethodHS256, "other", secret, keep), "security.token_invalid"},
		"another audience": {"Bearer " + sign(jwt.SigningMethodHS256, "new", secret, func(c jwt.MapClaims) { c["aud"] = "https://api.pilder.example/mcp" }), "security.token_invalid"},
		"another issuer":   {"Bearer " + sign(jwt.SigningMethodHS256, "new", secret, func(c jwt.MapClaims) { c["iss"] = "x" }), "security.token_invalid"},
		"no expiry":        {"Bearer " + sign(jwt.SigningMethodHS256, "new", secret, func(c jwt.MapClaims) { delete(c, "exp") }), "security.token_invalid"},
		"expired":          {"Bearer " + sign(jwt.SigningMethodHS256, "new", secret, func(c jwt.MapClaims) { c["exp"] = w.clock.Now().Add(-time.Second).Unix() }), "security.token_expired"},
		"of another run":   {"Bearer " + mint(func(r *store.Run) { r.ID = "run_other" }), "security.token_foreign"},
		// The process's own, which its client may still show when the door has become the next run's.
		"of the run before":       {"Bearer " + mint(func(r *store.Run) { r.ID = "run_before"; r.Fence-- }), ""},
		"of a later run":          {"Bearer " + mint(func(r *store.Run) { r.ID = "run_later"; r.Fence++ }), "security.token_foreign"},
		"of another conversation": {"Bearer " + mint(func(r *store.Run) { r.ID, r.Conversation = "run_before", "con_other"; r.Fence-- }), "security.token_foreign"},
		"of an old fence":         {"Bearer " + mint(func(r *store.Run) { r.Fence-- }), "security.token_foreign"},
		"another person":          {"Bearer " + mint(func(r *store.Run) { r.Principal.Person = "per_other" }), "security.token_foreign"},
		"more scopes":             {"Bearer " + mint(func(r *store.Run) { r.Principal.Scopes = append(slices.Clone(r.Principal.Scopes), "x") }), "security.token_foreign"},
	} {
		for era, headers := range rawEras() {
			t.Run(name+"/"+era, func(t *testing.T) {
				refused(t, w, addr, tt.header, headers, tt.event)
			})
		}
	}
	if resp := post(t, addr, "Bearer "+sign(jwt.SigningMethodHS256, "old", key("old").Reveal(), keep), rawEras()["modern"], discover); resp.StatusCode != http.StatusOK {
		t.Errorf("a token of the ring's other key: %d", resp.StatusCode)
	}
	end()
	refused(t, w, addr, "Bearer "+good, rawEras()["modern"], "security.run_over")
	refused(t, w, addr, "Bearer "+good, rawEras()["legacy"], "security.run_over")
}

const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

// rawEras are the headers a client of each era sends first.
func rawEras() map[string]map[string]string {
	return map[string]map[string]string{
		"modern": {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"},
		"legacy": {},
	}
}

func post(t *testing.T, addr, authorization string, headers map[string]string, body string) *http.Response {
	t.Helper()
	req := need(http.NewRequestWithContext(t.Context(), "POST", gateway.DoorURL, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range headers {
		if k == "Host" {
			req.URL.Host = v
		}
		req.Header.Set(k, v)
	}
	req.Header.Del("Host")
	resp := need(through{addr, authorization}.RoundTrip(req))(t)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func refused(t *testing.T, w *world, addr, authorization string, headers map[string]string, event string) {
	t.Helper()
	w.log.mu.Lock()
	w.log.all = nil
	w.log.mu.Unlock()
	resp := post(t, addr, authorization, headers, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	body := string(need(io.ReadAll(resp.Body))(t))
	if resp.StatusCode != http.StatusUnauthorized || body != `{"error":"unauthorized"}` || len(resp.Header.Values("WWW-Authenticate")) > 0 {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
	if event != "" && !w.log.has(event) {
		t.Errorf("no %s", event)
	}
	for _, alarm := range []string{"missing", "invalid", "expired", "foreign"} {
		if event == "" && w.log.has("security.token_"+alarm) {
			t.Errorf("an alarm: %s", alarm)
		}
	}
}

func TestTheDoorServesNothingButItsPurpose(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	token := "Bearer " + need(w.g.MintToken(run))(t).Reveal()
	for _, path := range []string{"/", "/health", "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server", "/mcp/", "/mcp/x"} {
		req := need(http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:7000"+path, nil))(t)
		resp := need(through{addr, token}.RoundTrip(req))(t)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	modern := rawEras()["modern"]
	with := func(k, v string) map[string]string {
		h := maps.Clone(modern)
		h[k] = v
		return h
	}
	for name, tt := range map[string]struct {
		headers map[string]string
		body    string
		status  int
	}{
		"as it should be": {modern, discover, http.StatusOK},
		"localhost":       {with("Host", "localhost:7000"), discover, http.StatusOK},
		"foreign host":    {with("Host", "evil.example"), discover, http.StatusForbidden},
		"other port":      {with("Host", "127.0.0.1:7001"), discover, http.StatusForbidden},
		"any origin":      {with("Origin", "http://127.0.0.1:7000"), discover, http.StatusForbidden},
		"5 MiB":           {modern, discover + strings.Repeat(" ", 5<<20), http.StatusRequestEntityTooLarge},
	} {
		if resp := post(t, addr, token, tt.headers, tt.body); resp.StatusCode != tt.status {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}

func TestAnAppConnectedInMidRunIsAnnouncedInBothEras(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	changed := map[string]chan struct{}{}
	agents := map[string]*mcp.ClientSession{}
	for era, revision := range eras() {
		c := make(chan struct{}, 10)
		changed[era] = c
		agents[era] = w.agent(t, run, addr, revision, &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c <- struct{}{} },
		})
	}
	if got := call(t, agents["modern"], "asana-search", `{}`); !got.IsError {
		t.Errorf("before: %+v", got)
	}
	w.connect(t, "asana", "apn_asana")
	for era, agent := range agents {
		next(t, changed[era])
		names := []string{}
		for _, tool := range need(agent.ListTools(t.Context(), nil))(t).Tools {
			names = append(names, tool.Name)
		}
		if !slices.Contains(names, "asana-search") {
			t.Errorf("%s: %v", era, names)
		}
		if got := call(t, agent, "asana-search", `{}`); got.IsError {
			t.Errorf("%s: %+v", era, got)
		}
	}
}

func TestACallerWithAProgressTokenGetsProgress(t *testing.T) {
	w := onSQLite(t)
	w.cfg.Heartbeat = time.Millisecond
	w.build(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	for era, revision := range eras() {
		t.Run(era, func(t *testing.T) {
			release := make(chan struct{})
			w.app.on(list, func(context.Context, gateway.Call) (gateway.Result, error) {
				<-release
				return done("late"), nil
			})
			progress := make(chan any, 1000)
			agent := w.agent(t, run, addr, revision, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				select {
				case progress <- r.Params.ProgressToken:
				default:
				}
			}})
			answers := make(chan error, 1)
			go func() {
				p := &mcp.CallToolParams{Name: list, Arguments: json.RawMessage(`{}`), Meta: mcp.Meta{"progressToken": "tok"}}
				_, err := agent.CallTool(context.Background(), p)
				answers <- err
			}()
			same(t, any("tok"), next(t, progress))
			close(release)
			if err := next(t, answers); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPreparedRunWhoseRowHasEndedIsRefused(t *testing.T) {
	w := onSQLite(t)
	run, end := w.run(t)
	end()
	run.State = store.RunPrepared // handed in as prepared, but its row has ended: the row counts
	addr, _ := w.door(t, run)
	refused(t, w, addr, "Bearer "+need(w.g.MintToken(run))(t).Reveal(), rawEras()["modern"], "security.run_over")
}

func TestEveryToolThatLacksSomethingIsNamed(t *testing.T) {
	w := onSQLite(t)
	whole := w.app.tools["gmail"][0]
	if err := gateway.CheckTool(whole); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*gateway.Tool){
		"name":            func(t *gateway.Tool) { t.Name = "correo enviar" },
		"long name":       func(t *gateway.Tool) { t.Name = strings.Repeat("x", 65) },
		"title":           func(t *gateway.Tool) { t.Title = "" },
		"description":     func(t *gateway.Tool) { t.Description = "" },
		"app":             func(t *gateway.Tool) { t.App = "" },
		"connector":       func(t *gateway.Tool) { t.Connector = "" },
		"scope":           func(t *gateway.Tool) { t.Scope = "" },
		"class":           func(t *gateway.Tool) { t.Class = "harmless" },
		"hints of a read": func(t *gateway.Tool) { t.Annotations.ReadOnly = true },
		"no input":        func(t *gateway.Tool) { t.InputSchema = nil },
		"input of a list": func(t *gateway.Tool) { t.InputSchema = json.RawMessage(`{"type":"array"}`) },
		"no output":       func(t *gateway.Tool) { t.OutputSchema = nil },
		"broken schema": func(t *gateway.Tool) {
			t.InputSchema = json.RawMessage(`{"type":"object","properties":{"a":{"type":"text"}}}`)
		},
		"schema that fetches": func(t *gateway.Tool) {
			t.InputSchema = json.RawMessage(`{"type":"object","$ref":"http://127.0.0.1/x"}`)
		},
		"schema off the disk": func(t *gateway.Tool) {
			t.InputSchema = json.RawMessage(`{"type":"object","$ref":"file:///etc/passwd"}`)
		},
		"unknown not reckoned": func(t *gateway.Tool) { t.Class = "" },
	} {
		tool := whole
		spoil(&tool)
		if gateway.CheckTool(tool) == nil {
			t.Errorf("%s: passed", name)
		}
		w.app.tools["gmail"] = []gateway.Tool{tool}
		if _, err := w.g.Catalogue(t.Context(), gateway.Caller{Apps: []string{"gmail"}}); err == nil {
			t.Errorf("%s: in the catalogue", name)
		}
	}
}

// TestACallerThatDoesNotReadHoldsNoDoorOpen: what an agent leaves running may ask and never look at an answer.
func TestACallerThatDoesNotReadHoldsNoDoorOpen(t *testing.T) {
	w := onSQLite(t)
	w.cfg.Grace = time.Millisecond
	unbounded := gateway.Bound{AtOnce: 1 << 20, PerMinute: 1 << 30}
	w.cfg.Bounds = gateway.Bounds{Person: unbounded, Company: unbounded, App: unbounded}
	w.build(t)
	w.app.on(list, func(context.Context, gateway.Call) (gateway.Result, error) {
		return done(strings.Repeat("x", 20_000)), nil
	})
	run, _ := w.run(t)
	run.Grant.Limits = policy.Limits{Calls: 1 << 30}
	addr, shut := w.door(t, run)
	conn := need(net.Dial("tcp", addr))(t)
	defer conn.Close()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + list + `","arguments":{}}}`
	request := "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:7000\r\nAuthorization: Bearer " + need(w.g.MintToken(run))(t).Reveal() +
		"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	for { // until the door reads no more: then it is at an answer that nobody takes
		if err := conn.SetWriteDeadline(time.Now().Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan struct{})
	go func() { shut(); close(closed) }()
	next(t, closed)
}
