package model_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/gateway/model"
	"pilder/store"
)

const (
	realKey    = "sk-ant-real-key-of-the-operator"
	processKey = "prk_of_one_agent_process"
	question   = `{"model":"claude-sonnet-5-5","max_tokens":100,"messages":[{"role":"user","content":"hola"}]}`
)

// door is a served model door before a scripted Messages API.
type door struct {
	addr  string
	mu    sync.Mutex
	alive error
	used  chan model.Usage
	looks chan struct{} // whether the run is alive was asked
	end   func()
}

// option changes a door before it is served.
type option func(*model.Config, *model.Process)

func serve(t *testing.T, upstream http.HandlerFunc, options ...option) *door {
	t.Helper()
	api := httptest.NewServer(upstream)
	t.Cleanup(api.Close)
	return serveURL(t, api.URL, options...)
}

func serveURL(t *testing.T, url string, options ...option) *door {
	t.Helper()
	cfg := model.Config{
		URL: url, Key: store.NewSecret(realKey), Models: []string{"claude-sonnet", "claude-haiku-5-5"}, Prices: []model.Price{
			{Prefix: "claude-sonnet", Input: 100, Output: 100, CacheWrite: 100, CacheWrite1h: 100, CacheRead: 100},
			{Prefix: "claude-sonnet-5-5", Input: 2, Output: 10, CacheWrite: 2.5, CacheWrite1h: 4, CacheRead: 0.1},
			{Prefix: "claude-haiku-5-5", Input: 1, Output: 2, CacheWrite: 3, CacheWrite1h: 4, CacheRead: 5, LongAbove: 1000, LongTimes: 5},
		},
	}
	d := &door{used: make(chan model.Usage, 256), looks: make(chan struct{}, 64)}
	process := model.Process{
		Run: "run_1", Key: store.NewSecret(processKey), Meter: func(u model.Usage) { d.used <- u },
		Alive: func(context.Context) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			select {
			case d.looks <- struct{}{}:
			default: // nobody counts
			}
			return d.alive
		},
	}
	for _, o := range options {
		o(&cfg, &process)
	}
	doors, err := model.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- doors.Serve(ctx, process, l) }()
	d.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(d.end)
	return d
}

// send makes a request as the CLI would, at the address it knows the door by.
func (d *door) send(t *testing.T, method, target, body string, headers ...string) *http.Response {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableCompression: true, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, d.addr)
		},
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, model.DoorURL+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", processKey)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Del(headers[i])
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// raw sends bytes as no client library would.
func (d *door) raw(t *testing.T, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// events is an answer as the API streams it: the line ends and the spacing are part of what must survive.
const events = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-5-5-20260801\",\"usage\":{\"input_tokens\":1000,\"output_tokens\":1,\"cache_read_input_tokens\":20000,\"cache_creation_input_tokens\":3000,\"cache_creation\":{\"ephemeral_1h_input_tokens\":1000}}}}\r\n\r\n" +
	"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"ma\u00f1ana \\\"message_delta\\\"\"}}\n\n" +
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":500}}\n\n" +
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

func TestBodyAndAnswerPassByteForByteAndAreCounted(t *testing.T) {
	sent := "{ \"model\":\"claude-sonnet-5-5\",\n\"temperature\" :1.50, \"messages\":[{\"role\":\"user\",\"content\":\"\\u00f1 \u00f1 \\ud800\",\"later_field\":{\"type\":1e2}}]}\n"
	var got []byte
	d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, events)
	})
	answer := body(t, d.send(t, "POST", "/v1/messages?beta=true", sent))
	if diff := cmp.Diff(events, answer); diff != "" {
		t.Errorf("answer changed: %s", diff)
	}
	if !bytes.Equal(got, []byte(sent)) {
		t.Errorf("body changed: %q", got)
	}
	u := <-d.used
	if u.FirstToken <= 0 || u.FirstToken > u.Total {
		t.Errorf("first token after %v of %v", u.FirstToken, u.Total)
	}
	u.FirstToken, u.Total = 0, 0
	want := model.Usage{
		Model: "claude-sonnet-5-5-20260801", Status: 200, Priced: true,
		Tokens:  store.Tokens{Input: 1000, Output: 500, CacheRead: 20000, CacheWrite: 3000},
		CostUSD: (1000*2 + 500*10 + 20000*0.1 + 2000*2.5 + 1000*4) / 1e6,
	}
	want.Counted = model.Budget{Tokens: 4500, CostUSD: want.CostUSD}
	if diff := cmp.Diff(want, u); diff != "" {
		t.Error(diff)
	}
}

// A model without a price costs a run's budget the highest of each kind.
func TestJSONAnswersAreCountedToo(t *testing.T) {
	d := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"model":"other-model","usage":{"input_tokens":7,"output_tokens":-3}}`)
	})
	body(t, d.send(t, "POST", "/v1/messages", question))
	u := <-d.used
	u.FirstToken, u.Total = 0, 0
	if diff := cmp.Diff(model.Usage{Model: "other-model", Status: 200, Tokens: store.Tokens{Input: 7},
		Counted: model.Budget{Tokens: 7, CostUSD: 0.0007}}, u); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyHarmlessHeadersCross(t *testing.T) {
	got := make(chan http.Header, 1)
	d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Clone()
		w.Header().Set("Request-Id", "req_1")
		w.Header().Set("Retry-After", "3")
		w.Header().Set("Anthropic-Organization-Id", "org_secret")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	resp := d.send(t, "POST", "/v1/messages", question,
		"X-Api-Key", "", "Authorization", "Bearer "+processKey, "Cookie", "session=1", "Anthropic-Beta", "a-1,b-2",
		"Anthropic-Version", "2023-06-01", "X-Stainless-Lang", "js", "X-Forwarded-For", "1.2.3.4", "Proxy-Authorization", "Basic x",
		"User-Agent", "claude-cli", "Te", "trailers")
	sent := <-got
	sent.Del("Content-Length")
	want := http.Header{
		"Accept-Encoding": {"identity"}, "Content-Type": {"application/json"}, "Anthropic-Beta": {"a-1,b-2"}, "Anthropic-Version": {"2023-06-01"},
		"User-Agent": {"claude-cli"}, "X-Api-Key": {realKey}, "X-Stainless-Lang": {"js"},
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("to the model: %s", diff)
	}
	resp.Header.Del("Date")
	resp.Header.Del("Content-Length")
	resp.Header.Del("Connection")
	if diff := cmp.Diff(http.Header{"Request-Id": {"req_1"}, "Retry-After": {"3"}}, resp.Header); diff != "" {
		t.Errorf("to the agent: %s", diff)
	}
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestFirstBytesArriveBeforeTheAnswerEnds(t *testing.T) {
	release := make(chan struct{})
	d := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": first\n")
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, ": last\n")
	})
	lines := bufio.NewReader(d.send(t, "POST", "/v1/messages", question).Body)
	for _, want := range []string{": first\n", ": last\n"} {
		line, err := lines.ReadString('\n')
		if err != nil || line != want {
			t.Fatalf("read %q, %v", line, err)
		}
		if want == ": first\n" {
			close(release)
		}
	}
}

func TestOnlyTheProcessKeyOpensTheDoor(t *testing.T) {
	d := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the model was asked") })
	for name, headers := range map[string][]string{
		"no key":               {"X-Api-Key", ""},
		"another key":          {"X-Api-Key", "prk_of_another_process"},
		"the real key":         {"X-Api-Key", realKey},
		"a longer key":         {"X-Api-Key", processKey + "x"},
		"bearer of another":    {"X-Api-Key", "", "Authorization", "Bearer x"},
		"key beside a foreign": {"Authorization", "Bearer x"},
		"basic":                {"X-Api-Key", "", "Authorization", "Basic " + processKey},
	} {
		t.Run(name, func(t *testing.T) {
			resp := d.send(t, "POST", "/v1/messages", question, headers...)
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("status %d", resp.StatusCode)
			}
			if got := body(t, resp); got != `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}` {
				t.Errorf("body %s", got)
			}
		})
	}
}

func TestTheKeyIsWorthNothingBetweenTurns(t *testing.T) {
	d := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the model was asked") })
	d.mu.Lock()
	d.alive = errors.New("over")
	d.mu.Unlock()
	if resp := d.send(t, "POST", "/v1/messages", question); resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// A request that waited for its place while the run ended spends nothing.
func TestARequestThatWaitedBeyondItsRunIsRefused(t *testing.T) {
	release := make(chan struct{})
	d := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		_, _ = io.WriteString(w, `{}`)
	})
	statuses := make(chan int, 5)
	ask := func() {
		go func() { statuses <- d.send(t, "POST", "/v1/messages", question).StatusCode }()
	}
	look := func(n int) {
		for range n {
			<-d.looks
		}
	}
	for range 4 {
		ask()
	}
	look(8) // each before and after it had its place
	ask()
	look(1)
	d.mu.Lock()
	d.alive = errors.New("over")
	d.mu.Unlock()
	close(release)
	got := map[int]int{}
	for range 5 {
		got[<-statuses]++
	}
	if got[http.StatusOK] != 4 || got[http.StatusForbidden] != 1 {
		t.Errorf("statuses %v", got)
	}
}

func TestEveryOtherTargetIsRefused(t *testing.T) {
	d := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the model was asked: %s", r.RequestURI) })
	line := func(method, target string, more ...string) string {
		head := append([]string{method + " " + target + " HTTP/1.1", "X-Api-Key: " + processKey, "Content-Length: 2", "Connection: close"}, more...)
		if len(more) == 0 {
			head = append(head, "Host: 127.0.0.1:7001")
		}
		return strings.Join(head, "\r\n") + "\r\n\r\n{}"
	}
	for name, raw := range map[string]string{
		"files":              line("POST", "/v1/files"),
		"models":             line("GET", "/v1/models"),
		"get messages":       line("GET", "/v1/messages"),
		"trailing slash":     line("POST", "/v1/messages/"),
		"doubled slash":      line("POST", "//v1/messages"),
		"dots":               line("POST", "/v1/x/../messages"),
		"escaped":            line("POST", "/v1/%6dessages"),
		"escaped slash":      line("POST", "/v1/messages%2f..%2ffiles"),
		"backslash":          line("POST", `/v1\messages`),
		"another query":      line("POST", "/v1/messages?beta=true&x=1"),
		"another value":      line("POST", "/v1/messages?beta=false"),
		"absolute form":      line("POST", "http://api.anthropic.com/v1/messages"),
		"connect":            line("CONNECT", "api.anthropic.com:443"),
		"batches":            line("POST", "/v1/messages/batches"),
		"post hello":         line("POST", "/api/hello"),
		"foreign host":       line("POST", "/v1/messages", "Host: api.anthropic.com"),
		"upgrade":            line("POST", "/v1/messages", "Host: localhost", "Upgrade: websocket"),
		"compressed request": line("POST", "/v1/messages", "Host: localhost", "Content-Encoding: gzip"),
	} {
		t.Run(name, func(t *testing.T) {
			resp := d.raw(t, raw)
			if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
}

func TestHelloIsAnsweredHere(t *testing.T) {
	d := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the model was asked") })
	for _, method := range []string{"GET", "HEAD"} {
		if resp := d.send(t, method, "/api/hello", "", "X-Api-Key", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", method, resp.StatusCode)
		}
	}
}

func TestAModelThatCannotBeReachedIsToldWithoutItsAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	d := serveURL(t, "http://"+addr)
	resp := d.send(t, "POST", "/v1/messages", question)
	got := body(t, resp)
	if resp.StatusCode != http.StatusBadGateway || got != `{"type":"error","error":{"type":"api_error","message":"the model cannot be reached"}}` {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
}

func TestAnAnswerThatBreaksOffDoesNotLookWhole(t *testing.T) {
	d := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":5}}}\n\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	resp := d.send(t, "POST", "/v1/messages", question)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the answer ended as if it were whole")
	}
	if u := <-d.used; u.Tokens.Input != 5 {
		t.Errorf("what was used until then is lost: %+v", u)
	}
}

func TestTooLargeABodyIsRefused(t *testing.T) {
	d := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the model was asked") })
	resp := d.raw(t, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: "+processKey+"\r\nContent-Length: 33554433\r\n\r\n")
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestClosingTheDoorCutsWhatIsUnderWay(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan struct{})
	d := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does a server see its caller go
		close(asked)
		<-r.Context().Done()
		close(gone)
	})
	go func() { // its answer is of no interest; the transport's error neither
		client := &http.Client{Timeout: time.Minute}
		req, _ := http.NewRequest("POST", "http://"+d.addr+"/v1/messages", strings.NewReader(question))
		req.Host = "localhost"
		req.Header.Set("X-Api-Key", processKey)
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-asked
	d.end()
	<-gone
}
