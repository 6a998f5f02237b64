package configs_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"pilder/configs"
)

func read(t *testing.T, files fs.FS, name string) string {
	t.Helper()
	data, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The agent home holds these files and nothing else: what stands there, every agent obeys.
func TestTheAgentHomeHoldsWhatIsPromised(t *testing.T) {
	var got []string
	err := fs.WalkDir(configs.AgentHome(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		".claude/rules/fuentes.md", ".claude/rules/mensajes.md", ".claude/rules/seguridad.md", ".claude/rules/voz.md",
		".claude/skills/pilder-conectar/SKILL.md", ".claude/skills/pilder-email/SKILL.md", "CLAUDE.md",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, configs.AgentHome()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read(t, configs.AgentHome(), "CLAUDE.md"), read(t, os.DirFS(folder), "CLAUDE.md")); diff != "" {
		t.Error(diff)
	}
}

// Every run pays for these bytes, in time and in money.
func TestWhatEveryRunReadsIsShort(t *testing.T) {
	size := len(read(t, configs.AgentHome(), "CLAUDE.md"))
	rules, err := fs.Glob(configs.AgentHome(), ".claude/rules/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range rules {
		size += len(read(t, configs.AgentHome(), name))
	}
	if size > 8<<10 {
		t.Errorf("CLAUDE.md and rules are %d bytes", size)
	}
}

func TestSkillsHaveTheFrontmatterTheCLIReads(t *testing.T) {
	skills, err := fs.Glob(configs.AgentHome(), ".claude/skills/*/SKILL.md")
	if err != nil || len(skills) == 0 {
		t.Fatal(skills, err)
	}
	for _, name := range skills {
		parts := strings.SplitN(read(t, configs.AgentHome(), name), "---\n", 3)
		if len(parts) != 3 || parts[0] != "" || strings.TrimSpace(parts[2]) == "" {
			t.Fatalf("%s does not begin with frontmatter", name)
		}
		var head struct{ Name, Description string }
		dec := yaml.NewDecoder(strings.NewReader(parts[1]))
		dec.KnownFields(true) // no allowed-tools, no hooks
		if err := dec.Decode(&head); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if head.Name != path.Base(path.Dir(name)) || head.Description == "" || len(head.Description) > 1024 {
			t.Errorf("%s: %+v", name, head)
		}
		// The CLI runs these when a skill loads (2.1.332, seen).
		if regexp.MustCompile("!`").MatchString(parts[2]) {
			t.Errorf("%s runs a command", name)
		}
	}
}

func TestManagedSettingsKeepOthersOut(t *testing.T) {
	var got struct {
		AllowManagedHooksOnly           bool
		AllowManagedPermissionRulesOnly bool
		AllowManagedMcpServersOnly      bool
		AllowedMcpServers               []struct{ ServerName string }
		CrossSessionInbound             string
		DisableBundledSkills            bool
		SkipWebFetchPreflight           bool
		Permissions                     struct{ Deny []string }
	}
	dec := json.NewDecoder(strings.NewReader(string(configs.ManagedSettings())))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if !got.AllowManagedHooksOnly || !got.AllowManagedPermissionRulesOnly || !got.AllowManagedMcpServersOnly ||
		len(got.AllowedMcpServers) != 1 || got.AllowedMcpServers[0].ServerName != "pilder" || got.CrossSessionInbound != "refuse" {
		t.Errorf("got %+v", got)
	}
	for _, tool := range []string{"Agent", "CronCreate", "CronDelete", "CronList", "RemoteTrigger", "ScheduleWakeup",
		"mcp__pilder__gmail-send-email", "mcp__pilder__google_calendar-add-attendees-to-event",
		"mcp__pilder__google_calendar-respond-to-event"} {
		if !slices.Contains(got.Permissions.Deny, tool) {
			t.Errorf("%s is not denied", tool)
		}
	}
}

func TestThePinNamesOneBuild(t *testing.T) {
	pin := configs.CLI()
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(pin.Integrity, "sha512-"))
	if err != nil || len(sum) != 64 || !strings.HasPrefix(pin.Integrity, "sha512-") {
		t.Errorf("integrity %q: %v", pin.Integrity, err)
	}
	if sum, err := hex.DecodeString(pin.BinarySHA256); err != nil || len(sum) != 32 {
		t.Errorf("binary_sha256 %q: %v", pin.BinarySHA256, err)
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(pin.Version) || pin.Package == "" || pin.License == "" {
		t.Errorf("got %+v", pin)
	}
}

func TestPricesAreWhole(t *testing.T) {
	prices := configs.Prices()
	seen := map[string]bool{}
	for _, p := range prices {
		if p.Prefix == "" || seen[p.Prefix] {
			t.Errorf("prefix %q twice or empty", p.Prefix)
		}
		seen[p.Prefix] = true
		ordered := p.CacheRead > 0 && p.CacheRead < p.Input && p.Input < p.CacheWrite && p.CacheWrite < p.CacheWrite1h && p.CacheWrite1h < p.Output
		if !ordered || p.LongAbove < 0 || p.LongAbove > 0 && p.LongTimes < 1 {
			t.Errorf("%+v", p)
		}
	}
	// What "sonnet" means to the pinned CLI (2.1.332, measured).
	if !slices.ContainsFunc(prices, func(p configs.Price) bool { return strings.HasPrefix("claude-sonnet-5-5", p.Prefix) }) {
		t.Error("the default model has no price")
	}
}

func TestSettingsNameEveryPromisedKeyAndNoSecret(t *testing.T) {
	var tree map[string]any
	if err := yaml.Unmarshal(configs.Settings(), &tree); err != nil {
		t.Fatal(err)
	}
	flat := map[string]any{}
	var flatten func(prefix string, m map[string]any)
	flatten = func(prefix string, m map[string]any) {
		for k, v := range m {
			if inner, ok := v.(map[string]any); ok {
				flatten(prefix+k+".", inner)
				continue
			}
			flat[prefix+k] = v
		}
	}
	flatten("", tree)
	want := map[string]any{
		"data": ".pilder", "telegram.token": "", "telegram.api_url": "https://api.telegram.org",
		"model.url": "https://api.anthropic.com", "model.key": "", "model.name": "sonnet",
		"model.allowed": []any{}, "model.max_tokens": 128000, "model.url_sources": false,
		"runner.budget.tokens": 3000000, "runner.budget.usd": 5,
		"pipedream.url": "https://api.pipedream.com", "pipedream.client_id": "", "pipedream.client_secret": "",
		"pipedream.project_id": "", "pipedream.environment": "", "store.url": "", "store.key": "",
		"gateway.listen": "127.0.0.1:8080", "gateway.public_url": "", "token.keys": []any{},
		"sandbox.memory": "2GiB",
		"sandbox.mode":   "bwrap", "sandbox.require": "C", "sandbox.user": "",
		"runner.max_runs": 4, "runner.run_timeout": "15m", "runner.claude_path": "", "runner.quota.bytes": "1GiB", "runner.quota.files": 50000,
		"runner.memory": "", "runner.warm.max": 4, "runner.warm.idle": "10m",
		"agent_home": "", "web.allow": []any{}, "web.search": false, "log.level": "info", "log.format": "json", "metrics.listen": "",
		"upstreams": []any{},
	}
	if diff := cmp.Diff(want, flat); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Every key is explained: a comment stands above it, or above the block that begins with it.
	lines := strings.Split(string(configs.Settings()), "\n")
	for i, line := range lines {
		key := strings.TrimSpace(line)
		if i == 0 || key == "" || strings.HasPrefix(key, "#") || strings.HasSuffix(key, ":") {
			continue
		}
		block := i
		for block > 0 && lines[block-1] != "" && !strings.HasPrefix(strings.TrimSpace(lines[block-1]), "#") {
			block--
		}
		if block == 0 || !strings.HasPrefix(strings.TrimSpace(lines[block-1]), "#") {
			t.Errorf("line %d has no comment: %s", i+1, line)
		}
	}
}

func TestTheAppsFolderIsThere(t *testing.T) {
	entries, err := fs.ReadDir(configs.Apps(), ".")
	if err != nil || len(entries) == 0 {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		if e.IsDir() || path.Ext(e.Name()) != ".yaml" {
			t.Errorf("%s does not belong there", e.Name())
		}
	}
}
