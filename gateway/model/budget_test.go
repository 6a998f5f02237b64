package model_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pilder/gateway/model"
)

func withBudget(b model.Budget) option {
	return func(_ *model.Config, p *model.Process) { p.Budget = b }
}

// says answers with this usage (JSON).
func says(usage string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"model":"claude-sonnet-5-5","usage":%s}`, usage)
	}
}

// statuses sends one request after the other.
func (d *door) statuses(t *testing.T, n int) []int {
	t.Helper()
	var all []int
	for range n {
		resp := d.send(t, "POST", "/v1/messages", question)
		_ = body(t, resp) // to its end: only then is it paid
		all = append(all, resp.StatusCode)
	}
	return all
}

func TestABudgetEndsWithAWordToBoth(t *testing.T) {
	for name, c := range map[string]struct {
		budget model.Budget
		usage  string
	}{
		// 3 requests fit: the third begins below the bound.
		"tokens": {model.Budget{Tokens: 300}, `{"input_tokens":60,"cache_creation_input_tokens":20,"cache_read_input_tokens":90000,"output_tokens":40}`},
		"money":  {model.Budget{CostUSD: 0.025}, `{"output_tokens":1000}`},
	} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, says(c.usage), withBudget(c.budget))
			if got := fmt.Sprint(d.statuses(t, 5)); got != "[200 200 200 403 403]" {
				t.Errorf("statuses %s", got)
			}
			resp := d.send(t, "POST", "/v1/messages", question)
			if got := body(t, resp); got != `{"type":"error","error":{"type":"permission_error","message":"this run has used up its budget"}}` {
				t.Error(got)
			}
			d.end()
			var refused []string
			for range 6 {
				refused = append(refused, (<-d.used).Refused)
			}
			if got := strings.Join(refused, ","); got != ",,,budget,budget,budget" {
				t.Errorf("told %s", got)
			}
		})
	}
}

func TestABudgetIsTheRunsAndNotTheProcesss(t *testing.T) {
	for name, c := range map[string]struct{ budget, spent model.Budget }{
		"tokens": {model.Budget{Tokens: 300}, model.Budget{Tokens: 180}},
		"money":  {model.Budget{CostUSD: 0.025}, model.Budget{CostUSD: 0.015}},
	} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, says(`{"input_tokens":60,"output_tokens":1000}`), withBudget(c.budget), func(_ *model.Config, p *model.Process) { p.Spent = c.spent })
			if got := fmt.Sprint(d.statuses(t, 3)); got != "[200 403 403]" {
				t.Errorf("statuses %s", got)
			}
		})
	}
}

// A loop that asks in parallel whatever it is told ends: with requests under way counted at their most, what is spent passes
// the bound by less than one request.
func TestParallelRequestsCannotOverspend(t *testing.T) {
	var now, most, asked atomic.Int64
	d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		says(`{"input_tokens":10,"output_tokens":100}`)(w, r)
	}, withBudget(model.Budget{Tokens: 2000}))
	var loops sync.WaitGroup
	for range 50 {
		loops.Go(func() {
			for range 1000 {
				if resp := d.send(t, "POST", "/v1/messages", question); resp.StatusCode == http.StatusForbidden {
					return
				} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					return
				}
			}
			t.Error("a loop was never turned away")
		})
	}
	loops.Wait()
	if asked.Load() != 19 { // 18 of 110 tokens are below 2000, and the last begins below it
		t.Errorf("%d requests reached the model", asked.Load())
	}
	if most.Load() > 4 {
		t.Errorf("%d at once", most.Load())
	}
}

// Near its end a budget lets requests through one by one, rather than refuse one for what another may come to.
func TestAGuessRefusesNobody(t *testing.T) {
	var now, most atomic.Int64
	d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		most.Store(max(most.Load(), n)) // only written alone, unless the test fails
		says(`{"input_tokens":0,"output_tokens":1}`)(w, r)
	}, withBudget(model.Budget{Tokens: 150})) // a request may come to 100 and its body
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if resp := d.send(t, "POST", "/v1/messages", question); resp.StatusCode != http.StatusOK {
				t.Errorf("status %d", resp.StatusCode)
			} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
}

func TestAModelWithoutAPriceCountsAsTheDearest(t *testing.T) {
	// 100 dollars a million of every kind are the dearest: 1000 tokens of input come to 10 cents.
	budget := model.Budget{CostUSD: 0.1}
	odd := strings.Replace(question, "claude-sonnet-5-5", "odd", 1)
	answer := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"model":"odd","usage":{"input_tokens":1000,"output_tokens":0}}`)
	}
	d := serve(t, answer, withBudget(budget), func(c *model.Config, _ *model.Process) { c.Models = []string{"odd"} })
	for _, want := range []int{http.StatusOK, http.StatusForbidden} {
		resp := d.send(t, "POST", "/v1/messages", odd)
		if _ = body(t, resp); resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
	d.end()
	if u := <-d.used; u.Priced || u.CostUSD != 0 {
		t.Errorf("a cost that nobody knows is told: %+v", u)
	}
}

// What the answer does not tell is guessed for the budget, so that nobody spends unseen; what costs nothing is not.
func TestWhatIsNotToldIsGuessed(t *testing.T) {
	stream := func(tail string, abort bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-5-5\",\"usage\":{\"input_tokens\":500,\"output_tokens\":1}}}\n\n"+tail)
			if abort {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(code)
		}
	}
	const failure = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		path   string
		counts bool
	}{
		"an answer without usage":      {func(w http.ResponseWriter, r *http.Request) { echo(w, r) }, "/v1/messages", true},
		"an error within a stream":     {stream(failure, false), "/v1/messages", true},
		"a stream that broke off":      {stream("", true), "/v1/messages", true},
		"an answer that is no JSON":    {status(200), "/v1/messages", true},
		"a refusal":                    {status(429), "/v1/messages", false},
		"a failure":                    {status(500), "/v1/messages", false},
		"counting tokens":              {says(`null,"input_tokens":9000`), "/v1/messages/count_tokens", false},
		"counting, with a false usage": {says(`{"input_tokens":9000}`), "/v1/messages/count_tokens", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, c.answer, withBudget(model.Budget{Tokens: 20})) // the body alone is guessed at more
			_, _ = io.Copy(io.Discard, d.send(t, "POST", c.path, question).Body)
			<-d.used // it is paid before it is told
			_, _ = io.Copy(io.Discard, d.send(t, "POST", c.path, question).Body)
			if u := <-d.used; (u.Refused == model.RefusedBudget) != c.counts {
				t.Errorf("the next: %+v", u)
			}
		})
	}
}

// A caller that hangs up before the answer begins has been heard by the model all the same.
func TestHangingUpIsNoWayToAskForNothing(t *testing.T) {
	asked := make(chan struct{}, 1)
	d := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
	}, withBudget(model.Budget{Tokens: 20}))
	hangUp(t, d, asked)
	if u := <-d.used; u.Refused != "" {
		t.Errorf("told %+v", u)
	}
	if resp := d.send(t, "POST", "/v1/messages", question); resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", resp.StatusCode)
	}
}
