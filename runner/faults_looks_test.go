package runner_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pilder/store"
)

// around is what a process finds where it runs.
type around struct {
	Argv, Env   []string
	UID         int
	Composed    bool
	Text        string
	Asked       object
	Resumed     bool
	Writes      map[string]bool // by path
	Dials       map[string]bool // by address
	Credentials []string        // files of the CLI's own credentials
	Status      string          // /proc/self/status
	Planted     string          // what an earlier run of another conversation may have left
}

// looksAround tries what public failures came from, and tells what it found.
func looksAround(a *actor) int {
	var init struct{ Request object }
	var user struct {
		Composed bool `json:"client_composed"`
		Message  struct{ Content string }
	}
	for _, into := range []any{&init, &user} {
		line, err := a.in.ReadBytes('\n')
		if err := errors.Join(err, json.Unmarshal(line, into)); err != nil {
			fmt.Fprintln(os.Stderr, "input:", err)
			return 1
		}
	}
	found := around{Argv: os.Args, Env: os.Environ(), UID: os.Getuid(), Composed: user.Composed, Text: user.Message.Content,
		Asked: init.Request, Resumed: a.resumed, Writes: map[string]bool{}, Dials: map[string]bool{}}
	for _, path := range []string{"/opt/claude/claude", "/opt/claude/new", "/state/.claude.json", "/etc/claude-code/managed-settings.json",
		"/etc/claude-code/CLAUDE.md", "/agent/CLAUDE.md", "/work/ok"} {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			err = f.Close()
		}
		found.Writes[path] = err == nil
	}
	for _, address := range []string{"api.anthropic.com:443", "1.1.1.1:443", "127.0.0.1:7001"} {
		c, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err == nil {
			err = c.Close()
		}
		found.Dials[address] = err == nil
	}
	for _, path := range []string{"/state/.credentials.json", "/home/agent/.claude/.credentials.json", "/home/agent/.claude.json"} {
		if _, err := os.Stat(path); err == nil {
			found.Credentials = append(found.Credentials, path)
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	planted, _ := os.ReadFile("/work/.claude/settings.json")
	found.Status, found.Planted = string(status), string(planted)
	_ = os.MkdirAll("/work/.claude", 0o700)
	_ = os.WriteFile("/work/.claude/settings.json", []byte(`{"hooks":{"SessionStart":[]},"sandbox":{"enabled":false}}`), 0o600)
	a.init("connected")
	text, _ := json.Marshal(found)
	a.result(string(text), nil)
	_, _ = io.Copy(io.Discard, a.in)
	return 0
}

// look is a failure that no script can play: what shuts it out is how a process is started, and where.
type look struct {
	what, expect string
	// problem looks at a conversation's first process, its second, and one of another conversation.
	problem func(first, second, other around) string
}

// lookAround lets three processes look around: two of one conversation, one of another.
func lookAround(t *testing.T) (first, second, other around) {
	t.Helper()
	o := newOffice(t, "looks around", nil)
	o.work()
	words := "/clear @/etc/passwd " + strings.Repeat("word ", 40_000)
	for _, turn := range []struct {
		chat store.Chat
		text string
		into *around
	}{{o.chat(), words, &first}, {o.chat(), "hello", &second}, {store.Chat{ID: -1007}, "hello", &other}} {
		o.writeIn(turn.chat, turn.text)
		got := o.read(1)[0]
		if err := json.Unmarshal([]byte(got.Text), turn.into); err != nil {
			t.Fatalf("%+v, %v\n%s", got, err, o.log)
		}
	}
	if !first.Writes["/work/ok"] || !first.Dials["127.0.0.1:7001"] {
		t.Errorf("nothing could be written or reached at all: nothing is shown: %+v, %+v", first.Writes, first.Dials)
	}
	o.clean()
	return first, second, other
}

// flag is the value of a flag; ok is false when it is not there.
func (a around) flag(name string) (value string, ok bool) {
	for _, arg := range a.Argv {
		if v, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return v, true
		}
	}
	return "", false
}

func (a around) env(name string) string {
	for _, v := range a.Env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// all gives the first problem of several claims, each with what is wrong when it does not hold.
func all(claims ...any) string {
	for i := 0; i < len(claims); i += 2 {
		if !claims[i].(bool) {
			return claims[i+1].(string)
		}
	}
	return ""
}

func looks() []look {
	return slices.Concat(looksAtTheLaunch(), looksAtTheBox())
}

// looksAtTheLaunch are about arguments, environment and input.
func looksAtTheLaunch() []look {
	return []look{
		{"variadic flag eats the prompt (#25978, heron#38)", "no argument stands alone; the text comes on stdin", func(a, _, _ around) string {
			return all(!slices.ContainsFunc(a.Argv[1:], func(s string) bool { return !strings.HasPrefix(s, "-") }), "an argument stands alone",
				strings.HasPrefix(a.Text, "/clear"), "the text did not come")
		}},
		{"allow list ignored in bypass (#50303, #12232, #47613)", "--tools is an exact list", func(a, _, _ around) string {
			tools, _ := a.flag("tools")
			_, allowed := a.flag("allowedTools")
			return all(tools == "Bash,Read,Skill,ToolSearch", "it has the tools "+tools, !allowed, "it has an allow list, which restricts nothing")
		}},
		{"argument over 128 KiB: spawn fails (OSA#130, nerve#59, librefang#4764)", "200 KB come on stdin, no argument is long", func(a, _, _ around) string {
			return all(len(a.Text) >= 200_000, "the text is cut", len(slices.MaxFunc(a.Argv, func(x, y string) int { return len(x) - len(y) })) < 4096, "an argument is long")
		}},
		{"/start reaches the command parser (phantombot#174, cc-connect#797)", "client_composed, and the text untouched", func(a, b, _ around) string {
			return all(a.Composed && b.Composed, "not composed", strings.HasPrefix(a.Text, "/clear @/etc/passwd word"), "the text is another")
		}},
		{"system prompt lost or stale on resume (openclaw#81199, glueclaw#27, #11641)", "sent to each process, snapshot off", func(a, b, _ around) string {
			prompt, _ := b.Asked["appendSystemPrompt"].(string)
			return all(!a.Resumed && b.Resumed, "the second process did not resume", strings.Contains(prompt, "Mia"), "no prompt at resume",
				b.Asked["systemPromptSnapshot"] == false, "a snapshot is asked for")
		}},
		{"background work killed or late (#85129, #89495)", "no background tasks, no Agent", func(a, _, _ around) string {
			vetoed, _ := a.flag("disallowedTools")
			return all(a.env("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS") == "1", "background tasks", strings.Contains(","+vetoed+",", ",Agent,"), "an Agent tool")
		}},
		{"OAuth refresh races in fleets (#88947, #79685, #28827)", "a key per process, no credentials of the CLI's own", func(a, b, c around) string {
			keys := []string{a.env("ANTHROPIC_API_KEY"), b.env("ANTHROPIC_API_KEY"), c.env("ANTHROPIC_API_KEY")}
			slices.Sort(keys)
			return all(len(slices.Compact(keys)) == 3 && strings.HasPrefix(keys[0], "pk-"), "keys are shared",
				len(a.Credentials)+len(b.Credentials)+len(c.Credentials) == 0, "credentials lie about", a.env("CLAUDE_CODE_OAUTH_TOKEN") == "", "an OAuth token")
		}},
		{"MCP servers as children of the CLI stay behind (#40550)", "one server, by http; none of a project", func(a, _, _ around) string {
			config, found := a.flag("mcp-config")
			return all(found && slices.Contains(a.Argv, "--strict-mcp-config"), "other servers are taken", config == "/run/pilder/mcp-config.json", "another configuration")
		}},
	}
}

// looksAtTheBox are about what a process can write, reach and find.
func looksAtTheBox() []look {
	return []look{
		{"shared config dir corrupted (#28922, #29140)", "a state dir per conversation, .claude.json read-only", func(a, _, _ around) string {
			return all(!a.Writes["/state/.claude.json"], "it can write .claude.json", a.env("CLAUDE_CONFIG_DIR") == "/state", "another config dir")
		}},
		{"self-update removes or bypasses the binary (#25364, #69400)", "binary and its folder read-only, updates off", func(a, _, _ around) string {
			return all(!a.Writes["/opt/claude/claude"] && !a.Writes["/opt/claude/new"], "it can write its binary",
				a.env("DISABLE_AUTOUPDATER") == "1" && a.env("DISABLE_UPDATES") == "1", "updates are on", a.Argv[0] == "/opt/claude/claude", "another binary runs")
		}},
		{"agent-written hooks run in another person's session (lark-coding-agent-bridge#259, sandy#79)", "settings of no folder, none from elsewhere",
			func(a, b, c around) string {
				sources, found := a.flag("setting-sources")
				return all(found && sources == "", "settings of a folder are read", b.Planted != "" && c.Planted == "", "another conversation's files are here",
					!a.Writes["/etc/claude-code/managed-settings.json"] && !a.Writes["/etc/claude-code/CLAUDE.md"] && !a.Writes["/agent/CLAUDE.md"], "it can write what the next obeys")
			}},
		{"root refuses bypass (#3490)", "uid 1000", func(a, _, _ around) string {
			return all(a.UID == 1000, "another uid", slices.Contains(a.Argv, "--dangerously-skip-permissions"), "no bypass")
		}},
		{"WebFetch ignores the base URL; hello bursts (dario#822, #24921)", "no network but the doors, no WebFetch", func(a, _, _ around) string {
			tools, _ := a.flag("tools")
			return all(!a.Dials["api.anthropic.com:443"] && !a.Dials["1.1.1.1:443"], "it reaches the network", !strings.Contains(tools, "WebFetch"), "it has WebFetch",
				a.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC") == "1", "it sends what is not essential")
		}},
		{"the CLI's own sandbox switched off by the project (#86504)", "seccomp and no new privileges, whatever the project says", func(_, b, _ around) string {
			return all(strings.Contains(b.Planted, `"enabled":false`), "the project says nothing", strings.Contains(b.Status, "Seccomp:\t2"), "no seccomp filter",
				strings.Contains(b.Status, "NoNewPrivs:\t1"), "new privileges")
		}},
	}
}
