package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// gatewayProcess is one of the measured processes.
type gatewayProcess struct {
	b     *testing.B
	cmd   *exec.Cmd
	stdin io.WriteCloser
	benchReady
}

func startPart(b *testing.B, p benchPart) *gatewayProcess {
	b.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		b.Fatal(err)
	}
	g := &gatewayProcess{b: b, cmd: exec.Command(os.Args[0])}
	g.cmd.Env = append(os.Environ(), benchPlays+"="+string(text))
	g.cmd.Stderr = os.Stderr
	g.stdin, err = g.cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := g.cmd.StdoutPipe()
	if err == nil {
		err = g.cmd.Start()
	}
	if err == nil {
		b.Cleanup(g.stop)
		err = json.NewDecoder(out).Decode(&g.benchReady)
	}
	if err != nil {
		b.Fatalf("starting the %s: %v", p.Role, err)
	}
	return g
}

// stop ends it and waits; again, it does nothing.
func (g *gatewayProcess) stop() {
	g.stdin.Close()
	_ = g.cmd.Wait() // stopped twice is an error that says nothing
}

// cpu is what all threads of it have used.
func (g *gatewayProcess) cpu() (used time.Duration) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", g.cmd.Process.Pid))
	for _, t := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", g.cmd.Process.Pid, t.Name()))
		if err != nil {
			continue // ended
		}
		ns, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		used += time.Duration(ns)
	}
	return used
}

// rss is its resident memory, in KB.
func (g *gatewayProcess) rss() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", g.cmd.Process.Pid))
	if err != nil {
		g.b.Fatal(err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(text))[1])
	return pages * syscall.Getpagesize() / 1024
}

// target is where calls of one kind go.
type target struct {
	role    string
	process *gatewayProcess
	url     string
	token   string
	modern  bool
	tool    string
	client  *http.Client
}

const (
	oldRevision = "2025-06-18" // as the bars were measured
	newRevision = "2026-07-28"
	newMeta     = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
)

func (t *target) post(session, method, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodPost, t.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {oldRevision}}
	if t.token != "" {
		r.Host = "127.0.0.1:7000" // the door's own name
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	if t.modern {
		r.Header.Set("Mcp-Protocol-Version", newRevision)
		r.Header.Set("Mcp-Method", method)
		r.Header.Set("Mcp-Name", t.tool)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return t.client.Do(r)
}

// begin makes an MCP session, if the era has them.
func (t *target) begin() (session string, err error) {
	if t.modern {
		return "", nil
	}
	resp, err := t.post("", "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	if err != nil {
		return "", err
	}
	session = resp.Header.Get("Mcp-Session-Id")
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp, err = t.post(session, "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err == nil {
		resp.Body.Close()
	}
	return session, err
}

// end says goodbye: the next round has sessions of its own.
func (t *target) end(session string) {
	if t.modern {
		return
	}
	r, err := http.NewRequest(http.MethodDelete, t.url, nil)
	if err != nil {
		return
	}
	if r.Header.Set("Mcp-Session-Id", session); t.token != "" {
		r.Host = "127.0.0.1:7000"
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	if resp, err := t.client.Do(r); err == nil {
		resp.Body.Close()
	}
}

func (t *target) revision() string {
	if t.modern {
		return newRevision
	}
	return oldRevision
}

var benchCalls atomic.Int64 // so that no two calls are the same

// call makes one, and is satisfied with nothing but its own echo.
func (t *target) call(session string) error {
	said := fmt.Sprintf("hello number %d", benchCalls.Add(1))
	meta := ""
	if t.modern {
		meta = "," + newMeta
	}
	resp, err := t.post(session, "tools/call", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"message":%q}%s}}`, benchCalls.Load(), t.tool, said, meta))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Contains(answer, []byte(said)) {
		err = fmt.Errorf("%d %s", resp.StatusCode, answer)
	}
	return err
}

// measured is one target in one round.
type measured struct {
	p50, p99 time.Duration
	rate     float64 // calls a second
	cpu      time.Duration
}

// load calls with so many workers, each with an MCP session of its own, for a while.
func (t *target) load(b *testing.B, workers int, d time.Duration) measured {
	b.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var warm, done sync.WaitGroup
	begin := make(chan struct{})
	var until time.Time
	for range workers {
		warm.Add(1)
		done.Go(func() {
			session, err := t.begin()
			for i := 0; err == nil && i < 20; i++ {
				err = t.call(session)
			}
			warm.Done()
			<-begin
			mine := []time.Duration{}
			for err == nil && time.Now().Before(until) {
				at := time.Now()
				err = t.call(session)
				mine = append(mine, time.Since(at))
			}
			t.end(session)
			mu.Lock()
			defer mu.Unlock()
			all, failed = append(all, mine...), cmp.Or(failed, err)
		})
	}
	warm.Wait()
	at, cpu := time.Now(), t.process.cpu()
	until = at.Add(d)
	close(begin)
	done.Wait()
	took, used := time.Since(at), t.process.cpu()-cpu
	if failed != nil {
		b.Fatalf("%s %s: %v", t.role, t.url, failed)
	}
	slices.Sort(all)
	return measured{percentile(all, 50), percentile(all, 99), float64(len(all)) / took.Seconds(), used / time.Duration(len(all))}
}
