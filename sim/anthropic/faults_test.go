package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"pilder/sim/anthropic"
)

func streamed(text string) object {
	body := ask(text)
	body["stream"] = true
	return body
}

func TestAnErrorStatusComesInTheApisWords(t *testing.T) {
	tests := []struct {
		status int
		kind   string
	}{
		{400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
		{413, "request_too_large"}, {429, "rate_limit_error"}, {500, "api_error"}, {529, "overloaded_error"},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			s, url := serve(t, anthropic.Config{})
			s.Fault(anthropic.Fault{Status: tt.status, Times: 2, RetryAfter: 7 * time.Second})
			for range 2 {
				resp, body := post(t, url+"/v1/messages", "sim-key", streamed("hola"))
				if resp.StatusCode != tt.status || !strings.Contains(string(body), `"type":"`+tt.kind+`"`) || resp.Header.Get("retry-after") != "7" {
					t.Errorf("got %d %s, retry-after %q", resp.StatusCode, body, resp.Header.Get("retry-after"))
				}
			}
			if resp, _ := post(t, url+"/v1/messages", "sim-key", streamed("hola")); resp.StatusCode != 200 {
				t.Errorf("the third request: %d", resp.StatusCode)
			}
		})
	}
}

func TestAFaultMayBeMeantForOnePersonsWords(t *testing.T) {
	s, url := serve(t, anthropic.Config{})
	s.Fault(anthropic.Fault{Status: 500, Only: "chau"})
	if resp, _ := post(t, url+"/v1/messages", "sim-key", ask("hola")); resp.StatusCode != 200 {
		t.Errorf("another text: %d", resp.StatusCode)
	}
	if resp, _ := post(t, url+"/v1/messages", "sim-key", ask("chau chau")); resp.StatusCode != 500 {
		t.Errorf("the text meant: %d", resp.StatusCode)
	}
}

func open(t *testing.T, ctx context.Context, url string) (*http.Response, error) {
	t.Helper()
	body, _ := json.Marshal(streamed("contame algo largo"))
	req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Api-Key": {"sim-key"}, "Content-Type": {"application/json"}, "Anthropic-Version": {"2023-06-01"}}
	return http.DefaultClient.Do(req)
}

func TestACutStreamEndsWithoutItsEnd(t *testing.T) {
	s, url := serve(t, anthropic.Config{})
	s.Fault(anthropic.Fault{Cut: true})
	resp, err := open(t, t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Contains(body, []byte("text_delta")) || bytes.Contains(body, []byte("message_stop")) {
		t.Errorf("read %d bytes, then %v", len(body), err)
	}
}

func TestAStreamErrorIsAnEvent(t *testing.T) {
	s, url := serve(t, anthropic.Config{})
	s.Fault(anthropic.Fault{StreamError: true})
	_, body := post(t, url+"/v1/messages", "sim-key", streamed("hola"))
	all := events(t, body)
	last := all[len(all)-1]
	if last.name != "error" || last.data["error"].(object)["type"] != "overloaded_error" {
		t.Errorf("last event %v", last)
	}
}

func TestASilentStreamLastsUntilTheClientGoes(t *testing.T) {
	s, url := serve(t, anthropic.Config{})
	s.Fault(anthropic.Fault{Silent: true})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := open(t, ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 20)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "event: message_start" {
		t.Errorf("first bytes %q, %v", first, err)
	}
	cancel()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("the stream ended by itself: %v", err)
	}
}

func TestAHeldRequestIsAnsweredWhenLetGo(t *testing.T) {
	s, url := serve(t, anthropic.Config{})
	letGo := make(chan struct{})
	s.Fault(anthropic.Fault{Hold: letGo, Delay: time.Millisecond})
	done := make(chan error, 1)
	go func() {
		resp, err := open(t, t.Context(), url)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		done <- err
	}()
	if err := s.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if r := s.Requests()[0]; r.Status != 0 {
		t.Errorf("answered already: %d", r.Status)
	}
	select {
	case err := <-done:
		t.Fatalf("not held: %v", err)
	default:
	}
	close(letGo)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAMessageMayEndForAnotherReason(t *testing.T) {
	for _, reason := range []string{"max_tokens", "refusal", "pause_turn"} {
		s, url := serve(t, anthropic.Config{})
		s.Fault(anthropic.Fault{StopReason: reason})
		_, body := post(t, url+"/v1/messages", "sim-key", ask("hola"))
		var got reply
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		text := ""
		if len(got.Content) > 0 {
			text = got.Content[0].Text
		}
		want := map[string]string{"max_tokens": "¡Hola! ¿En q", "refusal": "", "pause_turn": "¡Hola! ¿En qué te ayudo?"}[reason]
		if got.StopReason != reason || text != want {
			t.Errorf("%s: %s", reason, body)
		}
	}
}
