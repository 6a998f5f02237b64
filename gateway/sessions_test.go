package gateway_test

import (
	"bytes"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"pilder/policy"
)

func TestG05_AnOldClientThatSendsNoSessionIdIsServed(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	r := w.raws(t, run, addr)[0]
	none := map[string]string{"Mcp-Session-Id": ""}
	for method, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`: `"name":"` + list + `"`,
		r.body("2", `{}`, ""): `"text":"effect`,
	} {
		resp := r.post(method, none)
		if text := readAll(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	}
	if resp := r.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, none); resp.StatusCode != http.StatusAccepted {
		t.Errorf("a notification: %d", resp.StatusCode)
	}
}

func TestG06_AfterARestartAnUnknownSessionIs404AndTheClientComesBackByItself(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	addr, shut := w.door(t, run)
	before := w.raws(t, run, addr)[0]
	shut()
	before.addr, _ = w.door(t, run)
	for _, body := range []string{before.body("1", `{}`, ""), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`} {
		if resp := before.post(body, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	after := w.raws(t, run, before.addr)[0]
	if text := readAll(t, after.post(after.body("1", `{}`, ""), nil)); !strings.Contains(text, `"text":"effect`) {
		t.Error(text)
	}
}

// settled waits until no more goroutines than these are left.
func settled(t *testing.T, most int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for served() > most {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, not %d", served(), most)
		}
		runtime.Gosched()
	}
}

// served counts the goroutines that serve requests: the queue's come and go as they like.
func served() int {
	all := make([]byte, 4<<20)
	n := 0
	for stack := range bytes.SplitSeq(all[:runtime.Stack(all, true)], []byte("\n\n")) {
		if bytes.Contains(stack, []byte("go-sdk/")) || bytes.Contains(stack, []byte("pilder/gateway.")) || bytes.Contains(stack, []byte("net/http.")) {
			n++
		}
	}
	return n
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestG08_AbandonedSessionsLeaveNothingBehind(t *testing.T) {
	w := onSQLite(t)
	w.cfg.MaxSessions = 1100
	w.build(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	first := w.raws(t, run, addr)[0] // one more than what is counted
	goroutines, memory := served(), heap()
	for range 1000 {
		same(t, http.StatusOK, first.brief(firstWords, nil))
	}
	if served() < goroutines+1000 {
		t.Fatal("the sessions are not there")
	}
	w.clock.Advance(11 * time.Minute)
	r := w.raws(t, run, addr)[0] // whoever comes next lets the door look, if it has not by itself
	settled(t, goroutines+20)
	if grown := int64(heap()) - int64(memory); grown > 5<<20 {
		t.Errorf("%d bytes are left of 1,000 sessions", grown)
	}
	if text := readAll(t, r.post(r.body("1", `{}`, ""), nil)); !strings.Contains(text, `"text":"effect`) {
		t.Error("the living one ended too: " + text)
	}
}

func TestG09_DiscoversAndCallsLeaveNothingBehind(t *testing.T) {
	w := onSQLite(t)
	run, _ := w.run(t)
	run.Grant.Limits = policy.Limits{Calls: 1 << 30, Writes: 1 << 30, Asked: 1 << 30}
	addr, _ := w.door(t, run)
	r := w.raws(t, run, addr)[1]
	looks, calls := map[string]string{"Mcp-Method": "server/discover"}, map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": list}
	ask := func(n int) {
		for i := range n {
			same(t, http.StatusOK, r.brief(discover, looks))
			if i%20 == 0 {
				same(t, http.StatusOK, r.brief(r.body("1", `{}`, ""), calls))
			}
		}
	}
	ask(50)
	goroutines, memory := served(), heap()
	ask(300) // one that stays each time shows as well as with 10,000
	settled(t, goroutines+10)
	if grown := int64(heap()) - int64(memory); grown > 4<<20 { // the test's own log and effects among it
		t.Errorf("%d bytes grown", grown)
	}
}

func TestG10_BeyondTheCapAClientIsToldToComeBack(t *testing.T) {
	w := onSQLite(t)
	w.cfg.MaxSessions = 3
	w.build(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	for range 3 {
		w.raws(t, run, addr)
	}
	r := &raw{t: t, addr: addr, token: "Bearer " + need(w.g.MintToken(run))(t).Reveal(), era: "legacy", revision: "2025-11-25"}
	resp := r.post(firstWords, nil)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "600" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if !strings.Contains(w.log.text(), `"event":"sessions.full"`) || !strings.Contains(w.log.text(), `"sessions":3,"max":3`) {
		t.Error("nobody was told how full it is")
	}
	w.clock.Advance(10 * time.Minute)
	if resp := r.post(firstWords, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("when the others had gone: %d", resp.StatusCode)
	}
}
