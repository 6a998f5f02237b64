package anthropic_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/sim/anthropic"
)

// binary is the pinned CLI, where `pilder cli fetch` puts it.
const binary = "../../.tools/claude-code/2.1.332/claude"

// house is an MCP server as pilder's: a deferred tool of an app, and an everyday tool that is always loaded.
type house struct {
	mu    sync.Mutex
	calls []call
}

func (h *house) add(s *mcp.Server, tool *mcp.Tool, answer func(object) *mcp.CallToolResult) {
	s.AddTool(tool, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args object
		if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
			return nil, err
		}
		h.mu.Lock()
		h.calls = append(h.calls, call{tool.Name, args})
		h.mu.Unlock()
		return answer(args), nil
	})
}

func (h *house) seen() []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func serveHouse(t *testing.T) (*house, string) {
	t.Helper()
	text := object{"type": "string"}
	schema := func(properties object) object { return object{"type": "object", "properties": properties} }
	h := &house{}
	s := mcp.NewServer(&mcp.Implementation{Name: "pilder", Version: "1"}, &mcp.ServerOptions{Instructions: "Apps: Google Calendar."})
	h.add(s, &mcp.Tool{
		Name: "google_calendar-create-event", Description: "Crea una reunión | Adds an event",
		InputSchema: schema(object{"summary": text, "eventStartDate": text, "eventEndDate": text, "addSelfAsAttendee": object{"type": "boolean"}}),
	}, func(in object) *mcp.CallToolResult {
		data := event("ev1", in["summary"].(string)+" del equipo", in["eventStartDate"].(string), in["eventEndDate"].(string))
		return &mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: "Evento creado."}},
			StructuredContent: object{"status": "ok", "action": "google_calendar-create-event", "data": data},
		}
	})
	h.add(s, &mcp.Tool{
		Name: "google_calendar-delete-event", Description: "Borra una reunión | Removes an event", InputSchema: schema(object{"eventId": text}),
	}, func(object) *mcp.CallToolResult {
		return &mcp.CallToolResult{
			IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "No existe ese evento. No se hizo nada."}},
			StructuredContent: object{"status": "error", "code": "not_found", "performed": "no"},
		}
	})
	h.add(s, &mcp.Tool{
		Name: "correo_enviar", Description: "Manda un correo", Meta: mcp.Meta{"anthropic/alwaysLoad": true},
		InputSchema: schema(object{"para": object{"type": "array", "items": text}, "asunto": text, "cuerpo": text}),
	}, func(object) *mcp.CallToolResult {
		const held = "Pendiente de aprobación: el destinatario es externo a la empresa. No se envió."
		return &mcp.CallToolResult{
			Content: []mcp.Content{&mcp.TextContent{Text: held}}, StructuredContent: object{"status": "pending", "kind": "hold", "message": held},
		}
	})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	t.Cleanup(srv.Close)
	return h, srv.URL
}

// cli is one process of the real CLI, spoken to as pilder does: stream-json in both directions.
type cli struct {
	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Reader
}

func startCLI(t *testing.T, modelURL, mcpURL string) *cli {
	t.Helper()
	if os.Getenv("PILDER_NO_CLI") != "" {
		t.Skip("PILDER_NO_CLI is set: the real CLI is not run")
	}
	claude, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(claude); errors.Is(err, fs.ErrNotExist) {
		t.Fatal("the CLI is missing: run: bin/pilder cli fetch")
	}
	dir := t.TempDir()
	config, err := json.Marshal(object{"mcpServers": object{"pilder": object{"type": "http", "url": mcpURL, "headers": object{"Authorization": "Bearer x"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mcp.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	args := cliArgs(claude, dir)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "CLAUDE_CONFIG_DIR=" + filepath.Join(dir, "state"), "LANG=C.UTF-8",
		"ANTHROPIC_BASE_URL=" + modelURL, "ANTHROPIC_API_KEY=sim-key", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"CLAUDE_CODE_DISABLE_AUTO_MEMORY=1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", "CLAUDE_CODE_MAX_RETRIES=3", "DISABLE_AUTOUPDATER=1",
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &cli{t, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		in.Close() // idle at the end of input: the CLI exits with 0
		_, _ = io.Copy(io.Discard, c.lines)
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("the CLI ended with %v: %s", err, stderr.String())
		} else if t.Failed() {
			t.Logf("the CLI's stderr: %s", stderr.String())
		}
		cancel()
	})
	return c
}

// cliArgs is the command line, in a user namespace if need be: the CLI refuses to skip permissions as root.
func cliArgs(claude, dir string) []string {
	args := []string{
		claude, "-p", "--model=sonnet", "--dangerously-skip-permissions", "--input-format=stream-json", "--output-format=stream-json",
		"--verbose", "--tools=Bash,Read,Skill,ToolSearch", "--strict-mcp-config", "--mcp-config=" + filepath.Join(dir, "mcp.json"),
		"--setting-sources=", "--append-system-prompt=" + founding + "\nCanal: telegram.",
	}
	if os.Getuid() == 0 {
		args = append([]string{
			"bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--die-with-parent",
			"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--ro-bind", claude, claude, "--bind", dir, dir,
			"--chdir", dir, "--",
		}, args...)
	}
	return args
}

// say sends a person's message and returns the turn's result line.
func (c *cli) say(text string) (result struct {
	Subtype string `json:"subtype"`
	IsError bool   `json:"is_error"`
	Result  string `json:"result"`
	Reason  string `json:"terminal_reason"`
}) {
	c.t.Helper()
	line, err := json.Marshal(object{"type": "user", "client_composed": true, "message": object{"role": "user", "content": text}})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		c.t.Fatal(err)
	}
	for {
		line, err := c.lines.ReadBytes('\n')
		if err != nil {
			c.t.Fatalf("the CLI ended before its result: %v", err)
		}
		var kind struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(line, &kind); err != nil {
			c.t.Fatal(err)
		}
		if kind.Type == "result" {
			if err := json.Unmarshal(line, &result); err != nil {
				c.t.Fatal(err)
			}
			return result
		}
	}
}

func TestTheRealCLIPlaysTheDemo(t *testing.T) {
	s, modelURL := serve(t, anthropic.Config{})
	h, mcpURL := serveHouse(t)
	c := startCLI(t, modelURL, mcpURL)
	turns := []struct{ say, want string }{
		{"guardame una reunión mañana a las 10", "Listo: «Reunión del equipo», jueves 17/9 de 10:00 a 10:30."},
		{"mandale un correo a bob@otra.com diciendo nos vemos mañana", "Quedó a la espera de aprobación. Pendiente de aprobación: el destinatario es externo a la empresa. No se envió."},
		{"borrá el evento inexistente", "No salió: No existe ese evento. No se hizo nada."},
		{"schedule a meeting with Ana on Friday at 3pm", "Done: «Meeting with Ana del equipo», Friday 18 September from 15:00 to 15:30."},
		{"cuánto es 17*23", "17*23 = 391"},
		{"<pilder-a1b2>\nHoy es martes 01/12/2026, 09:00 (Europe/Madrid, UTC+01:00).\n</pilder-a1b2>\nguardame una cita mañana a las 9", "Listo: «Cita del equipo», miércoles 2/12 de 09:00 a 09:30."},
	}
	for _, turn := range turns {
		got := c.say(turn.say)
		if got.IsError || got.Subtype != "success" || got.Reason != "completed" || got.Result != turn.want {
			t.Errorf("%q: %+v\n want %q", turn.say, got, turn.want)
		}
	}
	if got := c.say("contame algo largo"); len([]rune(got.Result)) <= 9000 {
		t.Errorf("the long answer has %d characters", len([]rune(got.Result)))
	}
	create := func(summary, start, end string) call {
		return call{"google_calendar-create-event", object{"summary": summary, "eventStartDate": start, "eventEndDate": end, "addSelfAsAttendee": false}}
	}
	want := []call{
		create("Reunión", "2026-09-17T10:00:00-03:00", "2026-09-17T10:30:00-03:00"),
		{"correo_enviar", object{"para": []any{"bob@otra.com"}, "asunto": "nos vemos mañana", "cuerpo": "nos vemos mañana"}},
		{"google_calendar-delete-event", object{"eventId": "inexistente0000"}},
		create("Meeting with Ana", "2026-09-18T15:00:00-03:00", "2026-09-18T15:30:00-03:00"),
		create("Cita", "2026-12-02T09:00:00+01:00", "2026-12-02T09:30:00+01:00"),
	}
	if diff := cmp.Diff(want, h.seen()); diff != "" {
		t.Error(diff)
	}
	// load and use, use, load and use, use, …: a tool loaded in an earlier turn is not loaded again
	var scripts []string
	for _, r := range s.Requests() {
		if r.Status != http.StatusOK {
			t.Errorf("%s was answered with %d", r.Path, r.Status)
		}
		scripts = append(scripts, r.Script)
	}
	wantScripts := []string{
		"event.create", "event.create", "event.create", "mail.send", "mail.send", "delete.nonexistent", "delete.nonexistent",
		"delete.nonexistent", "event.create", "event.create", "arithmetic", "event.create", "event.create", "long",
	}
	if diff := cmp.Diff(wantScripts, scripts); diff != "" {
		t.Error(diff)
	}
	first := s.Requests()[0]
	wantDeferred := []string{"mcp__pilder__google_calendar-create-event", "mcp__pilder__google_calendar-delete-event"}
	if diff := cmp.Diff(wantDeferred, first.Deferred); diff != "" || !slices.Contains(first.Tools, "mcp__pilder__correo_enviar") {
		t.Errorf("tools %v, deferred %s", first.Tools, diff)
	}
}

func TestTheRealCLISurvivesFaults(t *testing.T) {
	s, modelURL := serve(t, anthropic.Config{})
	h, mcpURL := serveHouse(t)
	c := startCLI(t, modelURL, mcpURL)
	faults := []anthropic.Fault{
		{Status: 529}, {Status: 429, RetryAfter: time.Second}, {Cut: true}, {StreamError: true}, {StopReason: "max_tokens"},
	}
	for _, f := range faults {
		f.Only = "hola"
		s.Fault(f)
		if got := c.say("hola"); got.IsError || got.Result != "¡Hola! ¿En qué te ayudo?" {
			t.Errorf("after %+v: %+v", f, got)
		}
	}
	s.Fault(anthropic.Fault{Status: 403})
	const wish = "guardame una reunión mañana a las 10"
	if got := c.say(wish); !got.IsError {
		t.Errorf("a refused key: %+v", got)
	}
	if got := c.say(wish); got.IsError || got.Result != "Listo: «Reunión del equipo», jueves 17/9 de 10:00 a 10:30." {
		t.Errorf("the same again: %+v", got)
	}
	if calls := h.seen(); len(calls) != 1 {
		t.Errorf("a wish said twice, once in vain, is done once: %v", calls)
	}
}
