package runner

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"pilder/prompt"
	"pilder/store"
)

// The CLI's world inside: one MCP server, two doors that are always there (web.go has the third).
const (
	serverName = "pilder"
	doorTools  = "tools"
	doorModel  = "model"
	portTools  = 7000
	portModel  = 7001
)

// builtins are the CLI's own tools that every agent has: an exact list, since the CLI's allow list restricts nothing in its
// bypass mode (2.1.332, measured). Files are written by Bash.
const builtins = "Bash,Read,Skill,ToolSearch"

// forbidden are tools that must not come back by way of a new CLI version: work that outlives a turn.
func forbidden() []string {
	return []string{"Agent", "CronCreate", "CronDelete", "CronList", "RemoteTrigger", "ScheduleWakeup"}
}

// launch is one process of the CLI: what it is started with, and what it is known by afterwards.
type launch struct {
	Launch
	session string // the id the process works on
	resumed bool
	key     store.Secret // the process key, for its model door
	mark    string       // by which the process knows the house's words beside a person's text
	home    string       // the agent home as it was at the start
	allowed string       // what its person might do then
}

// launchFor composes a process: its command line, environment and files. With fresh, the conversation so far is left
// behind.
func (r *Runner) launchFor(run store.Run, ws workspace, fresh bool) (launch, error) {
	l := launch{
		session: run.Session, resumed: run.Session != "" && !fresh, key: store.RandomSecret("pk-"), mark: store.RandomSecret("").Reveal(),
	}
	if !l.resumed {
		id, err := uuid.NewRandom()
		if err != nil {
			return l, fmt.Errorf("making a session id: %w", err)
		}
		l.session = id.String()
	}
	var err error
	if l.home, err = stamp(r.cfg.AgentHome); err != nil {
		return l, err
	}
	if l.allowed, err = allowed(run); err != nil {
		return l, err
	}
	l.Launch = Launch{
		Work: ws.work, State: ws.state, Run: ws.run, AgentHome: r.cfg.AgentHome, CLI: filepath.Dir(r.cfg.CLI),
		Doors: r.openings(),
	}
	paths := r.box.Paths(l.Launch)
	l.Argv = r.arguments(run, l, paths)
	l.Env = r.environment(l.key, paths)
	l.Files, err = r.files(paths)
	return l, err
}

// arguments is the command line. Every value is joined to its flag by "=": some flags swallow all that follows. Texts go
// through stdin, since an argument is bounded, and can be read in /proc.
func (r *Runner) arguments(run store.Run, l launch, paths Paths) []string {
	vetoed := forbidden()
	for _, tool := range run.Grant.Vetoes {
		vetoed = append(vetoed, "mcp__"+serverName+"__"+tool)
	}
	args := []string{
		filepath.Join(paths.CLI, filepath.Base(r.cfg.CLI)), "-p", "--model=" + r.cfg.Model,
		"--input-format=stream-json", "--output-format=stream-json", "--verbose", "--include-partial-messages",
		"--disallowedTools=" + strings.Join(vetoed, ","),
		"--mcp-config=" + filepath.Join(paths.Run, mcpConfigName), "--strict-mcp-config", "--setting-sources=", "--await-initialize",
	}
	if r.box.Unsandboxed() {
		// Without a sandbox the agent has no tool that reaches the machine, and no bypass.
		args = append(args, "--tools=ToolSearch", "--permission-mode=dontAsk", "--allowedTools=mcp__"+serverName)
	} else {
		args = append(args, "--tools="+r.builtins(), "--dangerously-skip-permissions")
	}
	if l.resumed {
		return append(args, "--resume="+l.session)
	}
	return append(args, "--session-id="+l.session)
}

// environment is the complete one. Each variable was measured with CLI 2.1.332 unless it says otherwise.
func (r *Runner) environment(key store.Secret, paths Paths) []string {
	env := append(plainEnvironment(),
		"ANTHROPIC_BASE_URL=http://127.0.0.1:"+strconv.Itoa(portModel),
		"ANTHROPIC_API_KEY="+key.Reveal(), // the process key, worth something at this process's model door only
		"CLAUDE_CONFIG_DIR="+paths.State,
		"CLAUDE_CODE_PROJECT_DIR_NAME=conv",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST=1", // no settings file can redirect the base URL
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", // one message, one result
		"CLAUDE_CODE_DISABLE_AUTO_MEMORY=1",
		"ENABLE_TOOL_SEARCH=true", // names at the start, schemas on demand
		"MCP_TOOL_TIMEOUT="+strconv.Itoa(toolTimeout),
		"BASH_MAX_TIMEOUT_MS=300000", // a command ends by its own limit before ToolTimeout ends the run
		"CLAUDE_CODE_MAX_RETRIES=3",
		"API_TIMEOUT_MS=120000",                                                               // until the first byte; without it a silent API costs six minutes an attempt
		"DISABLE_AUTOUPDATER=1", "DISABLE_UPDATES=1", "CLAUDE_CODE_STARTUP_FAILURE_RESULTS=1", // documented
	)
	if !r.box.Unsandboxed() {
		env = append(env, "CLAUDE_CODE_SHELL_PREFIX="+dirTools+"/"+shellName)
	}
	return append(env, r.webEnvironment()...)
}

// files are what the CLI reads of its own configuration, read-only: an agent that could write them would decide what the
// next run obeys.
func (r *Runner) files(paths Paths) ([]SandboxFile, error) {
	type project struct {
		Approved bool `json:"hasClaudeMdExternalIncludesApproved"`
	}
	text, err := json.Marshal(map[string]map[string]project{"projects": {paths.Work: {Approved: true}}}) // for the imports of CLAUDE.md
	if err != nil {
		return nil, err
	}
	files := []SandboxFile{{Path: DirState + "/.claude.json", Mode: 0o600, Data: text}}
	if len(r.cfg.ManagedSettings) > 0 {
		files = append(files, SandboxFile{Path: "/etc/claude-code/managed-settings.json", Mode: 0o444, Data: r.cfg.ManagedSettings})
	}
	return files, nil
}

// introduction is the first line to a process: who it is for. systemPromptSnapshot off sends today's prompt when a session
// is resumed, instead of the first one's.
func (r *Runner) introduction(run store.Run, mark string) ([]byte, error) {
	skills, err := skillNames(r.cfg.AgentHome)
	if err != nil {
		return nil, err
	}
	in := r.promptInput(run)
	in.Mark = mark
	system := prompt.Dynamic(in)
	if r.box.Unsandboxed() && r.cfg.AgentHome != "" {
		home, err := os.ReadFile(filepath.Join(r.cfg.AgentHome, "CLAUDE.md")) // nothing is mounted under /etc here
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the agent home: %w", err)
		}
		system = string(home) + "\n" + system
	}
	return line(map[string]any{"type": "control_request", "request_id": requestInit, "request": map[string]any{
		"subtype": "initialize", "appendSystemPrompt": system, "systemPromptSnapshot": false, "skills": skills,
	}})
}

// turnLine is what the person wrote. client_composed keeps their words words: without it "/clear" is carried out and
// "@file" read (CLI 2.1.332, measured). A process whose introduction is older than the turn is told today's facts too, in a
// block of their own between marks that no person knows.
func (r *Runner) turnLine(run store.Run, mark string, told bool) ([]byte, error) {
	var content any = turnText(run)
	if !told {
		in := r.promptInput(run)
		in.Mark = mark
		content = []map[string]string{{"type": "text", "text": prompt.Turn(in)}, {"type": "text", "text": turnText(run)}}
	}
	return line(map[string]any{"type": "user", "uuid": uuid.NewString(), "client_composed": true, "message": map[string]any{
		"role": "user", "content": content,
	}})
}

// line is a value as one line of JSON.
func line(v any) ([]byte, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(v); err != nil {
		return nil, fmt.Errorf("writing to the process: %w", err)
	}
	return b.Bytes(), nil
}

// turnText is the turn as one text: what the person sent, in order.
func turnText(run store.Run) string {
	var texts []string
	for _, m := range run.Messages {
		if text := strings.TrimSpace(m.Text); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n\n")
}

func (r *Runner) promptInput(run store.Run) prompt.Input {
	m := run.Member
	lang := cmp.Or(m.Person.Lang, m.Company.Lang)
	in := prompt.Input{
		Lang: lang, Now: r.cfg.Now(), Zone: cmp.Or(m.Person.Zone, m.Company.Zone), Private: run.Chat.Private,
		Rules: run.Grant.Sentences(lang), Person: m.Person.Name, Role: string(m.Role), Company: m.Company.Name,
		Search: r.canSearch(),
	}
	if r.canFetch() {
		in.Fetch = r.cfg.WebNames
	}
	for _, slug := range run.Grant.Apps {
		in.Apps = append(in.Apps, r.cfg.AppName(slug, in.Lang))
	}
	for _, p := range run.Preferences {
		in.Preferences = append(in.Preferences, r.cfg.Preference(p, lang))
	}
	for _, n := range run.News {
		in.News = append(in.News, prompt.News{At: n.At, Tool: n.Tool, Outcome: string(n.Outcome), Text: n.Text})
	}
	return in
}

// allowed is what the run's person may do, as one text: it stands in a process's command line and introduction.
func allowed(run store.Run) (string, error) {
	var accounts []store.AccountID
	for _, a := range run.Accounts {
		accounts = append(accounts, a.ID)
	}
	text, err := json.Marshal([]any{run.Member.Role, run.Grant, accounts})
	if err != nil {
		return "", fmt.Errorf("writing down what a run may do: %w", err)
	}
	return string(text), nil
}

// skillNames lists the owner's skills. The CLI offers exactly these: without the list it would add its own.
func skillNames(home string) ([]string, error) {
	names := []string{}
	if home == "" {
		return names, nil
	}
	found, err := filepath.Glob(filepath.Join(home, ".claude", "skills", "*", "SKILL.md"))
	if err != nil {
		return nil, fmt.Errorf("listing skills: %w", err)
	}
	for _, path := range found {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	slices.Sort(names)
	return names, nil
}

// stamp tells the state of a folder: it changes when anything in it is written, added, moved or removed.
func stamp(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil {
			fmt.Fprintf(sum, "%q %v %d %d\n", path, st.Mode(), st.Size(), st.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("looking at the agent home: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
