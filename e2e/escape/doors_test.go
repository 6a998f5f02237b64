//go:build linux

package escape

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"pilder/sim/anthropic"
	"pilder/sim/pipedream"
)

// doorAttempts are made while two runs are held in the middle of a turn.
func (s *suite) doorAttempts(ctx context.Context, mine, other *insider) error {
	s.otherDoors(ctx, mine, other)
	s.modelPaths(ctx, mine)
	s.modelBodies(ctx, mine)
	s.modelCredentials(ctx, mine)
	if err := s.modelFlood(ctx, mine); err != nil {
		return err
	}
	return s.toolCalls(ctx, mine)
}

// otherDoors (T17) tries secrets where they do not belong.
func (s *suite) otherDoors(ctx context.Context, mine, other *insider) {
	discover := func(in *insider, token string) answered {
		return in.tools(ctx, token, "server/discover", "", map[string]any{})
	}
	own := discover(mine, mine.token)
	s.evidence.held(outside, "T17", "own token at own door", own.status == http.StatusOK, own)
	s.evidence.held(outside, "T18", "the token at the door before the end", own.status == http.StatusOK, own)
	for try, got := range map[string]answered{
		"the other's token at own door":   discover(mine, other.token),
		"own token at the other's door":   discover(other, mine.token),
		"the other's key at own door":     mine.raw(ctx, modelDoor, request("POST", "/v1/messages", modelDoor, ask("T17"), "X-Api-Key: "+other.key)),
		"own key at the other's door":     other.raw(ctx, modelDoor, request("POST", "/v1/messages", modelDoor, ask("T17"), "X-Api-Key: "+mine.key)),
		"the token as a key":              mine.raw(ctx, modelDoor, request("POST", "/v1/messages", modelDoor, ask("T17"), "X-Api-Key: "+mine.token)),
		"the key as a token":              discover(mine, mine.key),
		"no token":                        mine.raw(ctx, toolsDoor, request("POST", "/mcp", toolsDoor, "{}", "Content-Type: application/json")),
		"no key":                          mine.raw(ctx, modelDoor, request("POST", "/v1/messages", modelDoor, ask("T17"))),
		"a token in the address":          mine.raw(ctx, toolsDoor, request("POST", "/mcp?access_token="+mine.token, toolsDoor, "{}", "Content-Type: application/json")),
		"a token with a page's Origin":    mine.raw(ctx, toolsDoor, request("POST", "/mcp", toolsDoor, "{}", "Authorization: Bearer "+mine.token, "Origin: http://127.0.0.1:7000")),
		"metadata of a login at the door": mine.raw(ctx, toolsDoor, request("GET", "/.well-known/oauth-protected-resource", toolsDoor, "")),
	} {
		s.evidence.held(inside, "T17", try, got.status < 400, got)
	}
	for _, door := range []string{toolsDoor, modelDoor} {
		s.evidence.held(inside, "T17", "the door "+door+" from the host", reachable(door), "")
	}
	for _, alarm := range []string{"security.token_foreign", "security.process_key_invalid", "security.token_missing"} {
		s.evidence.held(inside, "T17", "no alarm "+alarm, !strings.Contains(s.log.String(), `"`+alarm+`"`), "")
	}
}

// reachable tells whether the host itself reaches an address.
func reachable(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// ask is the body of an ordinary request to the model, with a mark in it by which it is found upstream.
func ask(mark string) string {
	text, _ := json.Marshal(map[string]any{"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": []any{map[string]any{"role": "user", "content": "hola " + mark}}})
	return string(text)
}

// upstream are the requests that came to the model with a mark in them.
func (s *suite) upstream(mark string) []anthropic.Request {
	var found []anthropic.Request
	for _, r := range s.anthropic.Requests() {
		if strings.Contains(string(r.Body), mark) || strings.Contains(r.Path, mark) {
			found = append(found, r)
		}
	}
	return found
}

// modelPaths (T19) asks the model door for everything else that the model's address offers.
func (s *suite) modelPaths(ctx context.Context, in *insider) {
	good := in.askModel(ctx, ask("T19-good"))
	s.evidence.held(outside, "T19", "an ordinary request arrives", good.status == http.StatusOK && len(s.upstream("T19-good")) == 1, good)
	body, key := ask("T19-bad"), in.modelHeaders()
	path := func(method, target string, headers ...string) string {
		return request(method, target, modelDoor, body, append(slices.Clone(key), headers...)...)
	}
	at := func(host string) string { return request("POST", "/v1/messages", host, body, key...) }
	head := strings.Join(append([]string{"POST /v1/messages HTTP/1.1", "Host: " + modelDoor}, key...), "\r\n") + "\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for try, got := range in.rawAll(ctx, modelDoor, map[string]string{
		"the list of models": path("GET", "/v1/models"), "files": path("POST", "/v1/files"), "batches": path("POST", "/v1/messages/batches"),
		"the organization": path("GET", "/v1/organizations/me"), "skills": path("POST", "/v1/skills"), "the old way": path("POST", "/v1/complete"),
		"the stand-in's own record": path("GET", "/sim/requests"), "..": path("POST", "/v1/messages/../files"), "%2e%2e": path("POST", "/v1/messages/%2e%2e/files"),
		"an escaped slash": path("POST", "/v1%2fmessages"), "//": path("POST", "//v1/messages"), "// within": path("POST", "/v1//messages"), "\\": path("POST", "/v1\\messages"),
		"the absolute form": path("POST", "http://"+modelDoor+"/v1/messages"), "another host in the absolute form": path("POST", "https://api.anthropic.com/v1/messages"),
		"another query": path("POST", "/v1/messages?beta=true&x=1"), "a parameter": path("POST", "/v1/messages;x=1"), "capitals": path("POST", "/V1/Messages"),
		"GET": path("GET", "/v1/messages"), "TRACE": path("TRACE", "/v1/messages"), "PUT": path("PUT", "/v1/messages"), "OPTIONS *": path("OPTIONS", "*"),
		"CONNECT": path("CONNECT", "api.anthropic.com:443"), "an upgrade": path("POST", "/v1/messages", "Connection: Upgrade", "Upgrade: websocket"),
		"HTTP/2 in plain": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an upgrade to HTTP/2": path("POST", "/v1/messages", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
		"another Host": at("api.anthropic.com"), "a host of its own": at("evil.example"), "no Host": at(""), "the other door's Host": at(toolsDoor), "a Host with a port too many": at(modelDoor + ":80"),
		"two Hosts":               path("POST", "/v1/messages", "Host: evil.example"),
		"two lengths":             path("POST", "/v1/messages", "Content-Length: 1"),
		"a length and chunks":     head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunked,
		"an encoding of its own":  head + "Transfer-Encoding: xchunked\r\nConnection: close\r\n\r\n" + chunked,
		"a compressed body":       path("POST", "/v1/messages", "Content-Encoding: gzip"),
		"a header folded":         head + "X-A: b\r\n c: d\r\nContent-Length: 0\r\n\r\n",
		"a header with a space":   head + "X-A : b\r\nContent-Length: 0\r\n\r\n",
		"a hidden second request": head + "Content-Length: 0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: " + modelDoor + "\r\n\r\n",
	}) {
		s.evidence.held(inside, "T19", try, got.status > 0 && got.status < 400, got)
	}
	s.evidence.held(inside, "T19", "something of it upstream", len(s.upstream("T19-bad")) > 0, len(s.upstream("T19-bad")))
	other := ""
	for _, r := range s.anthropic.Requests() {
		if p, _, _ := strings.Cut(r.Path, "?"); p != "/v1/messages" && p != "/v1/messages/count_tokens" {
			other += r.Path + " "
		}
	}
	s.evidence.held(inside, "T19", "another path upstream", other != "", other)
}

// modelCredentials (T21) looks for the house's key, and tries to have its own used.
func (s *suite) modelCredentials(ctx context.Context, in *insider) {
	const foreign = "sk-ant-of-somebody-else"
	post := func(mark string, headers ...string) answered {
		return in.raw(ctx, modelDoor, request("POST", "/v1/messages", modelDoor, ask(mark), append(headers, "Content-Type: application/json", "Anthropic-Version: 2023-06-01")...))
	}
	for try, got := range map[string]answered{
		"a key of its own":                 post("T21-own", "X-Api-Key: "+foreign),
		"a key of its own beside the real": post("T21-own", "X-Api-Key: "+in.key, "Authorization: Bearer "+foreign),
		"two keys":                         post("T21-own", "X-Api-Key: "+in.key, "X-Api-Key: "+foreign),
		"another scheme":                   post("T21-own", "Authorization: Basic "+in.key),
		"TRACE":                            in.raw(ctx, modelDoor, request("TRACE", "/v1/messages", modelDoor, "", in.modelHeaders()...)),
	} {
		s.evidence.held(inside, "T21", try, got.status < 400, fmt.Sprint(got, got.header))
	}
	s.evidence.held(inside, "T21", "a foreign key upstream", len(s.upstream("T21-own")) > 0, "")
	// What passes has the house's key and nothing of the agent's.
	got := post("T21-pass", "X-Api-Key: "+in.key, "Cookie: a=b", "Proxy-Authorization: Basic x", "X-Forwarded-For: 10.0.0.1", "Anthropic-Beta: x")
	passed := s.upstream("T21-pass")
	house := sha256.Sum256([]byte(s.secret("model key")))
	s.evidence.held(outside, "T21", "the house's key is used", len(passed) == 1 && passed[0].Header.Get("X-Api-Key") == "sha256:"+hex.EncodeToString(house[:]), got)
	for _, name := range []string{"Cookie", "Proxy-Authorization", "X-Forwarded-For", "Authorization"} {
		s.evidence.held(inside, "T21", name+" passes", len(passed) != 1 || passed[0].Header.Get(name) != "", len(passed))
	}
	for _, status := range []int{400, 401, 403, 500, 529} {
		mark := fmt.Sprint("T21-error-", status)
		s.anthropic.Fault(anthropic.Fault{Status: status, Only: mark})
		got := post(mark, "X-Api-Key: "+in.key)
		s.evidence.held(inside, "T21", fmt.Sprint("an answer of ", status, " tells of the house"), got.header.Get("Anthropic-Organization-Id") != "" || s.canaries.in(fmt.Sprint(got, got.header)) != "", got)
	}
}

// secret is the text of a canary.
func (s *suite) secret(name string) string {
	for _, c := range s.canaries.all {
		if c.name == name {
			return c.text
		}
	}
	return ""
}

// modelFlood (T22) asks the model fifty times at once.
func (s *suite) modelFlood(ctx context.Context, in *insider) error {
	const mark, asked, most = "T22-flood", 50, 4
	flood := func(send func()) (together int, err error) {
		hold := make(chan struct{})
		s.anthropic.Fault(anthropic.Fault{Times: asked, Only: mark, Hold: hold})
		before := len(s.upstream(mark))
		var all sync.WaitGroup
		for range asked {
			all.Go(send)
		}
		deadline, settled := time.Now().Add(patience), time.Time{}
		for together < asked && time.Now().Before(deadline) && (settled.IsZero() || time.Since(settled) < time.Second) {
			time.Sleep(20 * time.Millisecond) // others decide how many come: there is nothing to wait on
			if now := len(s.upstream(mark)) - before; now != together {
				together, settled = now, time.Now()
			}
		}
		close(hold)
		all.Wait()
		return together, ctx.Err()
	}
	direct, err := flood(func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", s.urls["anthropic"]+"/v1/messages", strings.NewReader(ask(mark)))
		req.Header.Set("X-Api-Key", s.secret("model key"))
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	})
	if err != nil {
		return err
	}
	s.evidence.held(outside, "T22", "more than a few at once", direct > most, direct)
	together, err := flood(func() { in.askModel(ctx, ask(mark)) })
	s.evidence.held(inside, "T22", "more than a few at once", together > most || together == 0, together)
	return err
}

// modelBodies (T20) asks the model for what costs more, reaches further or is read differently by two readers.
func (s *suite) modelBodies(ctx context.Context, in *insider) {
	good := in.askModel(ctx, ask("T20-good"))
	s.evidence.held(outside, "T20", "an ordinary body arrives", good.status == http.StatusOK && len(s.upstream("T20-good")) == 1, good)
	with := func(field, value string) string {
		return strings.Replace(ask("T20-bad"), `{"max_tokens"`, `{"`+field+`":`+value+`,"max_tokens"`, 1)
	}
	block := func(block string) string {
		return strings.Replace(ask("T20-bad"), `"content":"hola T20-bad"`, `"content":[{"type":"text","text":"T20-bad"},`+block+`]`, 1)
	}
	bodies := map[string]string{
		"the model's own search":   with("tools", `[{"type":"web_search_20250305","name":"web_search"}]`),
		"the model's own fetching": with("tools", `[{"type":"web_fetch_20250910","name":"web_fetch"}]`),
		"the model's own computer": with("tools", `[{"type":"code_execution_20250825","name":"code_execution"}]`),
		"servers of its own":       with("mcp_servers", `[{"type":"url","url":"https://evil.example","name":"x"}]`),
		"a container":              with("container", `{"id":"x"}`),
		"an image by address":      block(`{"type":"image","source":{"type":"url","url":"https://evil.example/T20-bad"}}`),
		"a document by address":    block(`{"type":"document","source":{"type":"url","url":"https://evil.example/T20-bad"}}`),
		"a file by number":         block(`{"type":"document","source":{"type":"file","file_id":"file_x"}}`),
		"another model":            strings.Replace(ask("T20-bad"), "claude-sonnet-5-5", "claude-opus-5", 1),
		"more tokens than any":     strings.Replace(ask("T20-bad"), `"max_tokens":100`, `"max_tokens":100000000`, 1),
		"a field twice":            with("model", `"claude-sonnet-5-5"`),
		"a field twice, escaped":   with(`\u006dodel`, `"claude-opus-5"`),
		"deep nesting":             with("metadata", strings.Repeat("[", 20000)+strings.Repeat("]", 20000)),
		"no JSON":                  "T20-bad",
		"more behind the end":      ask("T20-bad") + ask("T20-bad"),
		"a hundred megabytes":      with("metadata", `"`+strings.Repeat("x", 100<<20)+`"`),
	}
	for try, body := range bodies {
		bodies[try] = in.asking(body)
	}
	for try, got := range in.rawAll(ctx, modelDoor, bodies) {
		s.evidence.held(inside, "T20", try, got.status < 400, got)
	}
	s.evidence.held(inside, "T20", "something of it upstream", len(s.upstream("T20-bad")) > 0, len(s.upstream("T20-bad")))
}

// toolCalls (T36) tries to act for others, twice, or with what the person does not have.
func (s *suite) toolCalls(ctx context.Context, in *insider) error {
	event := func(more map[string]any) map[string]any {
		args := map[string]any{"summary": "T36 " + random(4), "eventStartDate": "2027-01-04T10:00:00-03:00", "eventEndDate": "2027-01-04T10:30:00-03:00"}
		for k, v := range more {
			args[k] = v
		}
		return args
	}
	const create = "google_calendar-create-event"
	performed := func() int { return len(s.pipedream.Ledger()) }
	before := performed()
	legal := event(nil)
	got := in.call(ctx, create, legal)
	s.evidence.held(outside, "T36", "an ordinary call is performed", performed() == before+1, got)
	before = performed()
	got = in.call(ctx, create, legal)
	s.evidence.held(inside, "T36", "the same call again", performed() != before, got)
	var theirs string
	for _, r := range s.pipedream.Markers() {
		if strings.HasPrefix(r, "apn_") {
			theirs = r
		}
	}
	for try, more := range map[string]map[string]any{
		"another's account": {"account": theirs}, "another's account by the provider's name": {"googleCalendar": map[string]any{"authProvisionId": theirs}},
		"another user": {"external_user_id": "person-2"}, "another person": {"person": "per_other"}, "another company": {"company": "com_other"}, "another run": {"run": "run_other"}, "another chat": {"chat_id": brunilda.id()},
	} {
		before := performed()
		got := in.call(ctx, create, event(more))
		s.evidence.held(inside, "T36", try, performed() != before, got)
	}
	for _, tool := range []string{"gmail-send-email", "google_calendar-respond-to-event", "notion-create-page", "approve", "../" + create, strings.ToUpper(create)} {
		before := performed()
		got := in.call(ctx, tool, event(nil))
		s.evidence.held(inside, "T36", "the tool "+tool, performed() != before, got)
	}
	for _, p := range s.pipedream.Ledger() {
		if !strings.Contains(fmt.Sprint(p.Props), "T36") {
			continue
		}
		own := slices.ContainsFunc(s.pipedream.Accounts(p.ExternalUser), func(a pipedream.Account) bool {
			return a.ID == p.Account && a.Name == anacleta.address()
		})
		s.evidence.held(inside, "T36", "in another's name", !own, p.ExternalUser)
	}
	return nil
}
