package model_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pilder/gateway/model"
)

// begin sends a request's head and a part of its body.
func begin(t *testing.T, d *door, part string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	head := "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: " + processKey + "\r\nContent-Length: " + strconv.Itoa(len(question)) + "\r\n\r\n"
	if _, err := io.WriteString(conn, head+part); err != nil {
		t.Fatal(err)
	}
	return conn
}

// hangUp goes away once its request is with the model.
func hangUp(t *testing.T, d *door, asked <-chan struct{}) {
	t.Helper()
	conn := begin(t, d, question)
	<-asked
	conn.Close()
}

// A body that is still being sent when its run ends is never begun at the model.
func TestABodyThatOutlastsItsRunIsCut(t *testing.T) {
	half, rest := question[:20], question[20:]
	t.Run("the run is over", func(t *testing.T) {
		d := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the model was asked") })
		conn := begin(t, d, half)
		<-d.looks // it was alive when the request began
		d.mu.Lock()
		d.alive = errors.New("over")
		d.mu.Unlock()
		if _, err := io.WriteString(conn, rest); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 12)
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "HTTP/1.1 403" {
			t.Errorf("%q, %v", b, err)
		}
	})
	t.Run("the door closes", func(t *testing.T) {
		d := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the model was asked") })
		conn := begin(t, d, half)
		<-d.looks
		d.end() // returns though the body never comes
		if b, err := io.ReadAll(conn); err == nil && strings.Contains(string(b), " 200 ") {
			t.Errorf("%q", b)
		}
	})
	t.Run("the body breaks off", func(t *testing.T) {
		d := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the model was asked") })
		conn := begin(t, d, half)
		_ = conn.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400") {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// One large body is held at a time; small ones pass it by.
func TestALargeBodyDoesNotStopSmallOnes(t *testing.T) {
	d := serve(t, echo)
	large := strings.Replace(question, "hola", strings.Repeat("a", 5<<20), 1)
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n", processKey, len(large))
	<-d.looks
	if resp := d.send(t, "POST", "/v1/messages", question); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	if _, err := io.WriteString(conn, large); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 12)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "HTTP/1.1 200" {
		t.Errorf("%q, %v", b, err)
	}
}

// A provider, or a proxy before it, that repeats the key in what it says must not hand it to the agent.
func TestTheKeyIsNeverRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status int
		want   string // of the body; what broke off, up to there
	}{
		"in an error": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":"invalid x-api-key %s"}}`, r.Header.Get("X-Api-Key"))
		}, 401, `{"type":"error","error":{"type":"api_error","message":"the model refused"}}`},
		"in headers": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Request-Id", "for "+r.Header.Get("X-Api-Key"))
			w.Header().Set("Content-Type", "text/plain; k="+r.Header.Get("X-Api-Key"))
			_, _ = io.WriteString(w, "fine")
		}, 200, "fine"},
		"in an answer": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"debug":"`+r.Header.Get("X-Api-Key")+`"}`)
		}, 200, `{"debug":"`},
		"in pieces": {func(w http.ResponseWriter, r *http.Request) {
			for _, letter := range "data: " + r.Header.Get("X-Api-Key") + "\n" {
				_, _ = io.WriteString(w, string(letter))
				_ = http.NewResponseController(w).Flush()
			}
		}, 200, "data: "},
		"only its beginning": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "sk-ant-real, and then sk-ant-real-k")
		}, 200, "sk-ant-real, and then sk-ant-real-k"},
		"an ordinary error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(529)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		}, 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, c.answer)
			resp := d.send(t, "POST", "/v1/messages", question)
			b, _ := io.ReadAll(resp.Body) // what was cut ends in an error
			if all := fmt.Sprint(resp.Header) + string(b); strings.Contains(all, realKey) {
				t.Errorf("the key is in %s", all)
			}
			if resp.StatusCode != c.status || string(b) != c.want {
				t.Errorf("%d %q", resp.StatusCode, b)
			}
		})
	}
}

func TestABusyProviderIsToldWithItsTime(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		status  int
		headers []string
		want    time.Duration
	}{
		"seconds":        {429, []string{"Retry-After", "7"}, 7 * time.Second},
		"milliseconds":   {529, []string{"Retry-After-Ms", "1500", "Retry-After", "7"}, 1500 * time.Millisecond},
		"a date":         {429, []string{"Retry-After", "Mon, 30 Nov 2026 12:01:00 GMT"}, time.Minute},
		"a date gone by": {429, []string{"Retry-After", "Mon, 30 Nov 2026 11:01:00 GMT"}, 0},
		"below nothing":  {429, []string{"Retry-After", "-5"}, 0},
		"no number":      {429, []string{"Retry-After", "NaN"}, 0},
		"for ever":       {429, []string{"Retry-After", "1e300"}, 24 * time.Hour},
		"the latest of what is used": {429, []string{
			"Anthropic-Ratelimit-Requests-Reset", "2026-11-30T12:00:20Z", "Anthropic-Ratelimit-Requests-Remaining", "0",
			"Anthropic-Ratelimit-Tokens-Reset", "2026-11-30T12:00:30Z", "Anthropic-Ratelimit-Tokens-Remaining", "0",
			"Anthropic-Ratelimit-Input-Tokens-Reset", "2026-11-30T12:09:00Z", "Anthropic-Ratelimit-Input-Tokens-Remaining", "5",
		}, 30 * time.Second},
		"seconds since 1970":  {429, []string{"Anthropic-Ratelimit-Unified-Reset", strconv.FormatInt(now.Unix()+3600, 10)}, time.Hour},
		"not said":            {529, nil, 0},
		"another failure":     {500, []string{"Retry-After", "7"}, 0},
		"a word before a 200": {200, []string{"Retry-After", "7"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(c.headers); i += 2 {
					w.Header().Set(c.headers[i], c.headers[i+1])
				}
				w.WriteHeader(c.status)
			}, func(cfg *model.Config, _ *model.Process) { cfg.Now = func() time.Time { return now } })
			resp := d.send(t, "POST", "/v1/messages", question)
			_ = body(t, resp)
			if u := <-d.used; u.RetryAfter != c.want || u.Status != c.status {
				t.Errorf("told %d, %s", u.Status, u.RetryAfter)
			}
			for name := range resp.Header {
				if strings.HasPrefix(name, "Anthropic-") {
					t.Errorf("%s went inside", name)
				}
			}
		})
	}
}

// Prompts beyond a length cost more, searches cost by the piece.
func TestCostIsAsListed(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   float64
	}{
		"a prompt at the bound":  {`{"model":"claude-haiku-5-5","usage":{"input_tokens":400,"cache_read_input_tokens":600,"output_tokens":10}}`, (400 + 600*5 + 10*2) / 1e6},
		"a prompt beyond it":     {`{"model":"claude-haiku-5-5","usage":{"input_tokens":401,"cache_read_input_tokens":600,"output_tokens":10}}`, 5 * (401 + 600*5 + 10*2) / 1e6},
		"three searches":         {`{"model":"claude-sonnet-5-5","usage":{"output_tokens":100,"server_tool_use":{"web_search_requests":3}}}`, 0.031},
		"searches below nothing": {`{"model":"claude-sonnet-5-5","usage":{"output_tokens":100,"server_tool_use":{"web_search_requests":-3}}}`, 0.001},
	} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.answer)
			})
			_ = body(t, d.send(t, "POST", "/v1/messages", question))
			if u := <-d.used; u.CostUSD < c.want*0.999999 || u.CostUSD > c.want*1.000001 {
				t.Errorf("%g, want %g", u.CostUSD, c.want)
			}
		})
	}
}
