package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/configs"
	"pilder/gateway"
	"pilder/gateway/native"
	"pilder/gateway/pipedream"
	"pilder/prompt"
	"pilder/sim/anthropic"
)

// bareCLI is the same CLI without pilder: started directly, with the command line and environment of a real run, speaking to
// the same model, and to an MCP server with the same tools that asks nobody and checks nothing.
type bareCLI struct {
	w     *bench
	path  string
	argv  []string // as pilder has started it
	env   []string
	mcp   string // address of its server
	input string // what pilder tells it beside the person's words
}

// nobody is the user of the bare CLI when the benchmark is run by root, whom the CLI refuses.
const nobody = 65534

// learnBare reads from a living agent of pilder how it was started.
func (w *bench) learnBare() *bareCLI {
	w.b.Helper()
	c := &bareCLI{w: w, path: w.cli, mcp: w.standIn(w.toolsHandler()), input: w.instructions()}
	hold := make(chan struct{})
	w.anthropic.Fault(anthropic.Fault{Hold: hold})
	began, person := time.Now(), w.newcomer()
	w.telegram.Say(person, benchSays)
	w.marked("model", began)
	for _, pid := range descendants(w.serving.cmd.Process.Pid) {
		proc := "/proc/" + strconv.Itoa(pid)
		argv, err := os.ReadFile(proc + "/cmdline")
		if words := split(argv); err == nil && filepath.Base(words[0]) == filepath.Base(w.cli) {
			env, err := os.ReadFile(proc + "/environ")
			if err != nil {
				w.b.Fatal(err)
			}
			c.argv, c.env = words, split(env)
		}
	}
	if c.argv == nil {
		w.b.Fatalf("no agent found below pilder\n%s", w.serving.log())
	}
	close(hold)
	w.replied(person, began)
	w.gone()
	if os.Getuid() == 0 {
		c.share()
	}
	return c
}

func split(zeros []byte) []string {
	return strings.Split(strings.TrimSuffix(string(zeros), "\x00"), "\x00")
}

// share puts the CLI where nobody may reach it. As another name of the same file it is the same in the kernel's cache.
func (c *bareCLI) share() {
	c.w.b.Helper()
	folder := c.w.b.TempDir()
	c.path = filepath.Join(folder, filepath.Base(c.w.cli))
	err := os.Link(c.w.cli, c.path)
	if errors.Is(err, syscall.EXDEV) {
		err = exec.Command("cp", c.w.cli, c.path).Run()
	}
	for dir := folder; err == nil && dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		err = os.Chmod(dir, 0o755)
	}
	if err = errors.Join(err, c.w.watch(c.path)); err != nil {
		c.w.b.Fatal(err)
	}
}

// turn is one message in a process of its own, in folders of its own.
func (c *bareCLI) turn() turn {
	c.w.b.Helper()
	cmd := c.command()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		c.w.b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.w.b.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	t := turn{said: time.Now()}
	t.stored = t.said
	if err := cmd.Start(); err != nil {
		c.w.b.Fatal(err)
	}
	if _, err := stdin.Write([]byte(c.input)); err != nil {
		c.w.b.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	for t.sent.IsZero() {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			cmd.Wait()
			c.w.b.Fatalf("the bare CLI gave no result: %v\n%s", err, &said)
		}
		var e struct {
			Type, Result string
			Servers      []struct{ Status string } `json:"mcp_servers"`
		}
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch {
		case e.Type == "system" && len(e.Servers) == 1 && e.Servers[0].Status != "connected":
			c.w.b.Fatalf("the bare CLI has no tools: %s", line)
		case e.Type == "result":
			t.sent = time.Now()
			if !strings.Contains(e.Result, benchAnswer) {
				c.w.b.Fatalf("the bare CLI answered %s", line)
			}
		}
	}
	stdin.Close()
	_, err = lines.WriteTo(io.Discard) // its last words
	if err := errors.Join(err, cmd.Wait()); err != nil {
		c.w.b.Fatalf("the bare CLI ended badly: %v\n%s", err, &said)
	}
	t.asked = c.w.marked("model", t.said)
	t.executed = c.w.marked("exec", t.said)
	return t
}

// command is the agent's, with what a sandbox would have provided put in its place.
func (c *bareCLI) command() *exec.Cmd {
	c.w.b.Helper()
	folder := c.w.b.TempDir()
	home, state, work, servers := filepath.Join(folder, "home"), filepath.Join(folder, "state"), filepath.Join(folder, "work"), filepath.Join(folder, "mcp.json")
	files := map[string]string{
		servers:                              `{"mcpServers":{"pilder":{"type":"http","url":"` + c.mcp + `/mcp"}}}`,
		filepath.Join(state, ".claude.json"): `{"projects":{"` + work + `":{"hasClaudeMdExternalIncludesApproved":true}}}`,
	}
	for _, dir := range []string{home, state, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			c.w.b.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			c.w.b.Fatal(err)
		}
	}
	args := []string{"--mcp-config=" + servers, "--session-id=" + uuid.NewString()}
	for _, arg := range c.argv[1:] {
		if !slices.ContainsFunc([]string{"--mcp-config=", "--session-id="}, func(p string) bool { return strings.HasPrefix(arg, p) }) {
			args = append(args, arg)
		}
	}
	cmd := exec.Command(c.path, append([]string{"-p"}, args...)...)
	own := []string{"HOME=" + home, "CLAUDE_CONFIG_DIR=" + state, "TMPDIR=" + folder, "ANTHROPIC_BASE_URL=" + c.w.modelURL, "ANTHROPIC_API_KEY=" + c.w.config.ModelKey.Reveal()}
	for _, kv := range c.env {
		name, _, _ := strings.Cut(kv, "=")
		given := slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		if !given && name != "PWD" && name != "CLAUDE_CODE_SHELL_PREFIX" { // the shell's fence is not there outside
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env, cmd.Dir = append(cmd.Env, own...), work
	if os.Getuid() == 0 {
		c.give(folder)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

// give makes everything below a folder nobody's.
func (c *bareCLI) give(folder string) {
	c.w.b.Helper()
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, nobody, nobody)
	})
	if err != nil {
		c.w.b.Fatal(err)
	}
}

// instructions are the lines that a run's process is given: who it is for, and what the person wrote. What the sandbox mounts
// as files, the agent home's CLAUDE.md, comes with the first.
func (w *bench) instructions() string {
	home, err := fs.ReadFile(configs.AgentHome(), "CLAUDE.md")
	if err != nil {
		w.b.Fatal(err)
	}
	system := prompt.Dynamic(prompt.Input{Lang: "es", Now: time.Now(), Zone: demoZone, Private: true, Person: "Ana", Role: "member", Company: "Empresa", Apps: benchApps()})
	var text strings.Builder
	for _, v := range []any{
		map[string]any{"type": "control_request", "request_id": "init", "request": map[string]any{
			"subtype": "initialize", "appendSystemPrompt": string(home) + "\n" + system, "systemPromptSnapshot": false, "skills": []string{},
		}},
		map[string]any{"type": "user", "uuid": uuid.NewString(), "client_composed": true, "message": map[string]any{
			"role": "user", "content": benchSays,
		}},
	} {
		if err := json.NewEncoder(&text).Encode(v); err != nil {
			w.b.Fatal(err)
		}
	}
	return text.String()
}

// toolsHandler serves what a run's tools door lists, by the same library.
func (w *bench) toolsHandler() http.Handler {
	w.b.Helper()
	apps, err := pipedream.New(pipedreamConfig(w.config))
	if err != nil {
		w.b.Fatal(err)
	}
	if err := apps.Warm(w.b.Context()); err != nil {
		w.b.Fatal(err)
	}
	house := deafConfig()
	house.Apps = offeredApps(apps.Apps())
	own, err := native.New(house)
	if err != nil {
		w.b.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "pilder", Version: version}, nil)
	for _, from := range []gateway.Connector{own, apps} {
		tools, err := from.Tools(w.b.Context(), gateway.Caller{Lang: "es", Apps: benchApps()})
		if err != nil {
			w.b.Fatal(err)
		}
		for _, t := range tools {
			tool := &mcp.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema, OutputSchema: t.OutputSchema}
			if t.AlwaysLoad {
				tool.Meta = mcp.Meta{"anthropic/alwaysLoad": true}
			}
			server.AddTool(tool, nil)
		}
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}
