package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pilder/policy"
	"pilder/runner"
	"pilder/store"
)

func TestWhatBecomesOfATurn(t *testing.T) {
	for script, c := range map[string]struct {
		change func(*runner.Config)
		want   said
	}{
		"echo":                  {nil, said{Text: "you said: hello"}},
		"knocks at the doors":   {nil, said{Text: "tools model"}},
		"a line over the limit": {func(cfg *runner.Config) { cfg.MaxLine = 1 << 20 }, said{Text: "after the long line"}},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			fault{script: script, change: c.change, talk: reads(c.want), end: ok()}.play(t)
		})
	}
}

func TestSandboxThatBreaksFailsTheRunAndNotTheRunner(t *testing.T) {
	o := newOffice(t, "echo", nil)
	o.work()
	c := o.write("hello")
	o.read(1)
	// An earlier run has put a link where the state folder was.
	state := filepath.Join(o.data, "conversations", string(c), "state")
	if err := errors.Join(os.Rename(state, state+".old"), os.Symlink("/etc", state)); err != nil {
		t.Fatal(err)
	}
	o.write("again")
	if diff := cmp.Diff([]said{{Notice: "run.not_ready"}}, o.read(1)); diff != "" {
		t.Error(diff)
	}
	if err := errors.Join(os.Remove(state), os.Rename(state+".old", state)); err != nil {
		t.Fatal(err)
	}
	o.write("once more")
	if diff := cmp.Diff([]said{{Text: "you said: once more"}}, o.read(1)); diff != "" {
		t.Error(diff)
	}
	o.clean()
}

func TestMessagesOfATurnAreOneTextInOrder(t *testing.T) {
	o := newOffice(t, "echo", nil)
	o.write("/clear", "  ", "second @/etc/passwd")
	o.work()
	if diff := cmp.Diff([]said{{Text: "you said: /clear\n\nsecond @/etc/passwd"}}, o.read(1)); diff != "" {
		t.Error(diff)
	}
}

func TestProcessIsStartedWithTheGoldenLaunch(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "canary")
	o := newOffice(t, "tells what it knows", nil)
	o.work()
	c := o.write("hello")
	var known struct {
		Resumed  bool
		Snapshot any
		Skills   []string
		Prompt   bool
		Config   string
	}
	if err := json.Unmarshal([]byte(o.read(1)[0].Text), &known); err != nil {
		t.Fatal(err)
	}
	run := o.ended(1)[0]
	wantConfig := `{"mcpServers":{"pilder":{"type":"http","url":"http://127.0.0.1:7000/mcp","headers":{"Authorization":"Bearer token-of-` +
		string(run.ID) + `"},"timeout":90000}}}`
	if known.Resumed || known.Snapshot != false || !known.Prompt || known.Config != wantConfig || !cmp.Equal(known.Skills, []string{"agenda"}) {
		t.Errorf("it knows %+v", known)
	}
	var seen struct{ Argv, Env []string }
	text, err := os.ReadFile(filepath.Join(o.data, "conversations", string(c), "work/seen.json"))
	if err == nil {
		err = json.Unmarshal(text, &seen)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantArgv := []string{
		"/opt/claude/claude", "-p", "--model=sonnet", "--input-format=stream-json", "--output-format=stream-json", "--verbose",
		"--include-partial-messages", "--disallowedTools=Agent,CronCreate,CronDelete,CronList,RemoteTrigger,ScheduleWakeup," + vetoes(),
		"--mcp-config=/run/pilder/mcp-config.json", "--strict-mcp-config", "--setting-sources=", "--await-initialize",
		"--tools=Bash,Read,Skill,ToolSearch", "--dangerously-skip-permissions", "--session-id=UUID",
	}
	wantEnv := []string{
		"ANTHROPIC_API_KEY=PROCESSKEY", "ANTHROPIC_BASE_URL=http://127.0.0.1:7001", "API_TIMEOUT_MS=120000", "BASH_MAX_TIMEOUT_MS=300000",
		"CLAUDE_CODE_DISABLE_AUTO_MEMORY=1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"CLAUDE_CODE_MAX_RETRIES=3", "CLAUDE_CODE_PROJECT_DIR_NAME=conv", "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST=1",
		"CLAUDE_CODE_SHELL_PREFIX=/opt/pilder/pilder-sh", "CLAUDE_CODE_STARTUP_FAILURE_RESULTS=1", "CLAUDE_CONFIG_DIR=/state",
		"DISABLE_AUTOUPDATER=1", "DISABLE_UPDATES=1", "ENABLE_TOOL_SEARCH=true", "HOME=/home/agent", "LANG=C.UTF-8", "LOGNAME=agent",
		"MCP_TOOL_TIMEOUT=90000", "PATH=/usr/local/bin:/usr/bin:/bin", "SHELL=/bin/bash", "TMPDIR=/tmp", "TZ=UTC", "USER=agent",
	}
	for _, list := range [][]string{seen.Argv, seen.Env} {
		for i, s := range list {
			if strings.HasPrefix(s, "--session-id=") && len(s) == len("--session-id=")+36 {
				list[i] = "--session-id=UUID"
			}
			if strings.HasPrefix(s, "ANTHROPIC_API_KEY=pk-") && len(s) == len("ANTHROPIC_API_KEY=pk-")+43 {
				list[i] = "ANTHROPIC_API_KEY=PROCESSKEY"
			}
		}
	}
	if diff := cmp.Diff(wantArgv, seen.Argv); diff != "" {
		t.Errorf("command line (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantEnv, seen.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

// vetoes are the house's, as the CLI names tools.
func vetoes() string {
	var all []string
	for _, v := range policy.NewGrant(policy.GrantInput{Principal: policy.Principal{Role: policy.RoleMember}}).Vetoes {
		all = append(all, "mcp__pilder__"+v)
	}
	return strings.Join(all, ",")
}

func TestConversationGoesOnInItsSession(t *testing.T) {
	o := newOffice(t, "tells what it knows", nil)
	o.work()
	var known [2]struct{ Resumed bool }
	for i := range known {
		o.write("hello")
		if err := json.Unmarshal([]byte(o.read(1)[0].Text), &known[i]); err != nil {
			t.Fatal(err)
		}
	}
	if known[0].Resumed || !known[1].Resumed {
		t.Errorf("resumed: %+v", known)
	}
	o.clean()
}

func TestStoppedRunnerGivesTheTurnBack(t *testing.T) {
	o := newOffice(t, "waits to be stopped", nil)
	o.work()
	await(t, filepath.Join(o.data, "conversations", string(o.write("hello")), "work/waiting"))
	o.clean()
	runs := o.ended(1)
	if diff := cmp.Diff([]end{{store.RunInterrupted, "stopped"}}, ends(runs)); diff != "" {
		t.Error(diff)
	}
	fates, err := o.MessageFates(t.Context(), bot, o.chat().ID, 10)
	if err != nil || len(fates) != 1 || fates[0].Fate != store.FateQueued {
		t.Errorf("the message's fate: %+v, %v", fates, err)
	}
}

func TestNextTurnWaitsForTheProcessBefore(t *testing.T) {
	o := newOffice(t, "answers and never exits", func(cfg *runner.Config) { cfg.ExitGrace = 5 * time.Second })
	o.work()
	o.write("one")
	o.read(1)
	first := o.processes()
	o.write("two")
	o.read(1)
	if len(first) == 0 {
		t.Error("the first process was gone before the second turn was written: nothing is shown")
	}
	for _, path := range o.processes() {
		if slices.Contains(first, path) {
			t.Errorf("the second turn was answered beside the first one's process %s", path)
		}
	}
	o.clean()
}

func TestDoorThatFailsEndsTheRun(t *testing.T) {
	o := newOffice(t, "waits to be stopped", func(cfg *runner.Config) {
		cfg.ServeTools = func(context.Context, store.Run, net.Listener) error { return errors.New("no") }
	})
	o.work()
	o.write("hello")
	if diff := cmp.Diff([]said{{Notice: "run.not_ready"}}, o.read(1)); diff != "" {
		t.Error(diff)
	}
	o.clean()
}

// TestRunWithoutAnAnswerTellsWhatItDid: whoever is asked to try again must know what has happened already.
func TestRunWithoutAnAnswerTellsWhatItDid(t *testing.T) {
	var o *office
	o = newOffice(t, "knocks and has no result", func(cfg *runner.Config) {
		cfg.ServeTools = func(ctx context.Context, run store.Run, l net.Listener) error {
			for _, c := range []struct {
				tool    string
				class   policy.Class
				outcome store.Outcome
			}{
				{"google_calendar-create-event", policy.ClassWrite, store.OutcomeDone},
				{"google_calendar-list-events", policy.ClassRead, store.OutcomeDone},
				{"notion-create-page", policy.ClassWrite, store.OutcomeFailed},
				{"notion-update-page", policy.ClassWrite, store.OutcomeDone},
				{"gmail-archive-email", policy.ClassWrite, store.OutcomeUnknown},
			} {
				begun, err := o.BeginCall(ctx, store.NewCall{Run: run, Tool: c.tool, App: "x", Class: c.class, Args: []byte(`{}`),
					Decision: policy.Decision{Effect: policy.Allow}}, nil)
				if err == nil {
					err = o.EndCall(ctx, run.Principal.Company, begun.ID, c.outcome, "x", nil, nil)
				}
				if err != nil {
					return err
				}
			}
			return serveText(ctx, l, "tools", nil)
		}
	})
	o.work()
	o.write("hello")
	want := []said{
		{Notice: "run.failed", Done: "google_calendar-create-event, notion-update-page"},
		{Notice: "call.unknown", Tool: "gmail-archive-email"},
	}
	if diff := cmp.Diff(want, o.read(2)); diff != "" {
		t.Errorf("the person read (-want +got):\n%s\n%s", diff, o.log)
	}
	o.clean()
}

// TestASecondProcessSpendsWhatTheFirstHasLeft: a run whose processes fail must not cost a budget each.
func TestASecondProcessSpendsWhatTheFirstHasLeft(t *testing.T) {
	spent := make(chan runner.Budget, 2)
	o := newOffice(t, "asks, and then has no tools", func(cfg *runner.Config) {
		cfg.Budget = runner.Budget{Tokens: 100}
		cfg.ServeModel = func(ctx context.Context, d runner.ModelDoor, l net.Listener) error {
			spent <- d.Spent
			return serveText(ctx, l, "model", func(*http.Request) bool {
				d.Meter(runner.Usage{Tokens: store.Tokens{Input: 1}, Counted: runner.Budget{Tokens: 7, CostUSD: 0.5}})
				return true
			})
		}
	})
	o.work()
	o.write("hello")
	o.read(1)
	want := []runner.Budget{{}, {Tokens: 7, CostUSD: 0.5}}
	if diff := cmp.Diff(want, []runner.Budget{<-spent, <-spent}); diff != "" {
		t.Errorf("spent before (-want +got):\n%s", diff)
	}
	o.clean()
}

func TestStaleWorkspacesAreSweptAndLivingOnesKept(t *testing.T) {
	o := newOffice(t, "echo", nil)
	stale := filepath.Join(o.data, "runs/stale/x/mcp-config.json")
	write(t, stale, "{}")
	o.work()
	o.write("hello")
	o.read(1)
	if _, err := os.Stat(filepath.Join(o.data, "runs/stale")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale workspace: %v", err)
	}
	living, err := os.ReadDir(filepath.Join(o.data, "runs"))
	if err != nil || len(living) != 1 {
		t.Fatal(living, err)
	}
	other := newOffice(t, "echo", func(cfg *runner.Config) { cfg.Data = o.data })
	other.work()
	other.write("hello")
	other.read(1)
	if _, err := os.Stat(filepath.Join(o.data, "runs", living[0].Name())); err != nil {
		t.Errorf("the living workspace: %v", err)
	}
	other.stopWork()
	o.clean()
}

func TestRunIsLoggedWithoutContent(t *testing.T) {
	o := newOffice(t, "knocks at the doors", nil)
	o.work()
	o.write("canary")
	o.read(1)
	o.clean()
	finished := o.log.lines("run.finished")
	want := []object{{"level": "info", "event": "run.finished", "state": "succeeded", "reason": "ok", "turns": 1.0, "cost_usd": 0.5,
		"tokens": map[string]any{"input": 3.0, "output": 4.0, "cache_read": 0.0, "cache_write": 0.0}, "company": string(o.member.Company.ID), "person": string(o.member.Person.ID)}}
	ignore := cmpopts.IgnoreMapEntries(func(k string, _ any) bool {
		return k == "ms" || k == "run" || k == "conversation" || k == "time"
	})
	if diff := cmp.Diff(want, finished, ignore); diff != "" {
		t.Error(diff)
	}
	stages, _ := finished[0]["ms"].(map[string]any)
	if diff := cmp.Diff([]string{"delivery", "first_token", "queue", "spawn", "tools", "total"}, slices.Sorted(maps.Keys(stages))); diff != "" {
		t.Error(diff)
	}
	for _, event := range []string{"run.started", "run.init"} {
		if len(o.log.lines(event)) != 1 {
			t.Errorf("%s: %v", event, o.log.lines(event))
		}
	}
}
