//go:build linux

package escape

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// insider stands in a run's network with the run's own secrets in its hands. No agent gets there while the fence around its
// shell holds; what the doors let through must hold without it.
type insider struct {
	pid        int // of the CLI on the host
	token, key string
	user, net  *os.File // its network and the user namespace that owns it; they live as long as they are open here
}

// insiderOf finds the CLI of a person's run and takes its secrets, as only the host can.
func (s *suite) insiderOf(p person) (*insider, error) {
	for _, pid := range s.clis() {
		if !serves(pid, p) {
			continue
		}
		root := filepath.Join("/proc", strconv.Itoa(pid))
		in := &insider{pid: pid}
		env, err := os.ReadFile(filepath.Join(root, "environ"))
		if err != nil {
			return nil, err
		}
		for kv := range strings.SplitSeq(string(env), "\x00") {
			if key, ok := strings.CutPrefix(kv, "ANTHROPIC_API_KEY="); ok {
				in.key = key
			}
		}
		var config struct {
			Servers map[string]struct{ Headers map[string]string } `json:"mcpServers"`
		}
		text, err := os.ReadFile(filepath.Join(root, "root/run/pilder/mcp-config.json"))
		if err == nil {
			err = json.Unmarshal(text, &config)
		}
		if err != nil {
			return nil, err
		}
		in.token = strings.TrimPrefix(config.Servers["pilder"].Headers["Authorization"], "Bearer ")
		if in.net, err = os.Open(filepath.Join(root, "ns/net")); err == nil {
			in.user, err = ownerOf(in.net)
		}
		if err == nil && (in.key == "" || in.token == "") {
			err = fmt.Errorf("the run of %s has no secrets of its own", p)
		}
		return in, err
	}
	return nil, fmt.Errorf("no CLI works for %s", p)
}

// serves tells whether a process has a person's work folder.
func serves(pid int, p person) bool {
	who, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "root/work/who"))
	return err == nil && strings.TrimSpace(string(who)) == string(p)
}

// leaves waits until a person's CLI is gone: it goes on for a moment after its answer, and writes into its folders.
func (s *suite) leaves(ctx context.Context, p person) error {
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // it is not ours to wait for
		if !slices.ContainsFunc(s.clis(), func(pid int) bool { return serves(pid, p) }) {
			return nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("the CLI of %s does not end", p)
		}
	}
}

// ownerOf is the user namespace that a namespace belongs to: the CLI's own lies in another one within.
func ownerOf(ns *os.File) (*os.File, error) {
	fd, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return nil, fmt.Errorf("finding the owner of a namespace: %w", err)
	}
	return os.NewFile(uintptr(fd), "user namespace"), nil
}

// clis are the processes of the CLI that this test's pilder has started, by their folder below the data folder.
func (s *suite) clis() []int {
	var found []int
	for _, pid := range marked("/opt/claude/claude\x00-p") {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.HasPrefix(string(line), "/opt/claude/claude\x00") { // what started it names it too
			continue
		}
		if mounts, err := os.ReadFile(filepath.Join(dir, "mountinfo")); err == nil && strings.Contains(string(mounts), filepath.Base(s.dir)) {
			found = append(found, pid)
		}
	}
	return found
}

func (in *insider) close() {
	_ = in.net.Close()
	_ = in.user.Close()
}

// enter is a command of the hostile program that runs in the run's network.
func (in *insider) enter(ctx context.Context, args ...string) *exec.Cmd {
	argv := []string{"--net=/proc/self/fd/3"}
	if os.Getuid() != 0 {
		argv = append(argv, "--user=/proc/self/fd/4", "--preserve-credentials")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(append(argv, filepath.Join(built, "attack")), args...)...)
	cmd.ExtraFiles = []*os.File{in.net, in.user}
	return cmd
}

// dial is a connection from there.
func (in *insider) dial(ctx context.Context, address string) (net.Conn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	cmd := in.enter(ctx, "as", "dial", address)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }() // it ends with its connection
	return net.FileConn(ours)
}

// answered is what a door said.
type answered struct {
	status int
	body   string
	header http.Header
}

func (a answered) String() string { return fmt.Sprintf("%d %.200s", a.status, a.body) }

// raw sends bytes to a door, whatever they mean, and reads one answer. A connection that is closed without one has status 0.
func (in *insider) raw(ctx context.Context, address, text string) answered {
	c, err := in.dial(ctx, address)
	if err != nil {
		return answered{body: err.Error()}
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = io.WriteString(c, text) }() // a door that refuses may not read it all
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return answered{body: err.Error()}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil && len(body) == 0 {
		body = []byte(err.Error())
	}
	return answered{resp.StatusCode, string(body), resp.Header}
}

// Where the doors are, from within.
const (
	toolsDoor = "127.0.0.1:7000"
	modelDoor = "127.0.0.1:7001"
	webDoor   = "127.0.0.1:7002"
)

// request is one HTTP/1.1 request as text.
func request(method, target, host, body string, headers ...string) string {
	lines := []string{method + " " + target + " HTTP/1.1"}
	if host != "" {
		lines = append(lines, "Host: "+host)
	}
	lines = append(lines, headers...)
	lines = append(lines, "Connection: close", "Content-Length: "+strconv.Itoa(len(body)), "", body)
	return strings.Join(lines, "\r\n")
}

// rawAll sends several, a few at a time.
func (in *insider) rawAll(ctx context.Context, address string, texts map[string]string) map[string]answered {
	all := map[string]answered{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(6)
	for try, text := range texts {
		group.Go(func() error {
			got := in.raw(ctx, address, text)
			mu.Lock()
			defer mu.Unlock()
			all[try] = got
			return nil
		})
	}
	_ = group.Wait() // what went wrong stands in the answers
	return all
}

// askModel is a request to the model door with a body.
func (in *insider) askModel(ctx context.Context, body string) answered {
	return in.raw(ctx, modelDoor, in.asking(body))
}

func (in *insider) asking(body string) string {
	return request("POST", "/v1/messages?beta=true", modelDoor, body, in.modelHeaders()...)
}

func (in *insider) modelHeaders(more ...string) []string {
	return append([]string{"X-Api-Key: " + in.key, "Anthropic-Version: 2023-06-01", "Content-Type: application/json"}, more...)
}

// tools is one JSON-RPC request to the tools door in the stateless era of MCP.
func (in *insider) tools(ctx context.Context, token, method, name string, params map[string]any) answered {
	params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28",
		"io.modelcontextprotocol/clientInfo": map[string]string{"name": "a", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
	if err != nil {
		return answered{body: err.Error()}
	}
	return in.raw(ctx, toolsDoor, request("POST", "/mcp", toolsDoor, string(body), "Authorization: Bearer "+token, "Content-Type: application/json",
		"Accept: application/json, text/event-stream", "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: "+method, "Mcp-Name: "+name))
}

// call calls a tool.
func (in *insider) call(ctx context.Context, tool string, arguments map[string]any) answered {
	return in.tools(ctx, in.token, "tools/call", tool, map[string]any{"name": tool, "arguments": arguments})
}
