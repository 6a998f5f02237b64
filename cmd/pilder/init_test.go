package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pilder/sim/anthropic"
	"pilder/sim/pipedream"
	"pilder/sim/telegram"
	"pilder/store"
)

// answers is what a person types for what init asks, a line each.
func answers(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// nearby writes a configuration that names stand-ins where the services would be, and gives its path.
func nearby(t *testing.T, more string) string {
	t.Helper()
	bot, model := telegram.New(telegram.Config{}), anthropic.New(anthropic.Config{Key: "model-key"})
	apps := pipedream.New(pipedream.Config{ClientID: "client", ClientSecret: "client-secret", ProjectID: "proj_a1"})
	var urls []string
	for _, s := range []*httptest.Server{httptest.NewServer(bot.Handler()), httptest.NewServer(model.Handler()), httptest.NewServer(apps.Handler())} {
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	t.Cleanup(bot.Close)
	t.Cleanup(model.Close)
	return write(t, "telegram:\n  api_url: "+urls[0]+"\nmodel:\n  url: "+urls[1]+"\npipedream:\n  url: "+urls[2]+"\n"+more)
}

func TestInitWritesAFileThatServeAccepts(t *testing.T) {
	quiet(t)
	for name, c := range map[string]struct {
		stdin string
		want  Config
		found []string // what the services said
	}{
		"with connected apps": {
			stdin: answers(telegram.DefaultToken, "model-key", "proj_a1", "client", "client-secret", "development", "postgres://pilder@db/pilder", "127.0.0.1:9000", "https://bot.example.com/"),
			want: Config{
				ModelKey: store.NewSecret("model-key"), PipedreamProject: "proj_a1", PipedreamClientID: "client",
				PipedreamSecret: store.NewSecret("client-secret"), PipedreamEnvironment: "development",
				StoreURL: "postgres://pilder@db/pilder", GatewayListen: "127.0.0.1:9000", GatewayPublicURL: "https://bot.example.com",
			},
			found: []string{"✓ telegram   @pilder_demo_bot", "✓ model      sonnet at ", "✓ pipedream  proj_a1, development"},
		},
		"without, and with defaults for the rest": {
			stdin: answers(telegram.DefaultToken, "model-key", "", "", "", ""),
			want: Config{
				ModelKey: store.NewSecret("model-key"),
				StoreURL: "sqlite:.pilder/pilder.db", GatewayListen: "127.0.0.1:8080", GatewayPublicURL: "http://127.0.0.1:8080",
			},
			found: []string{"✓ telegram ", "✓ model ", "✓ pipedream  no project"},
		},
		"with a key that the model refuses, which the file keeps all the same": {
			stdin: answers(telegram.DefaultToken, "another-key", "", "", "", ""),
			want: Config{
				ModelKey: store.NewSecret("another-key"),
				StoreURL: "sqlite:.pilder/pilder.db", GatewayListen: "127.0.0.1:8080", GatewayPublicURL: "http://127.0.0.1:8080",
			},
			found: []string{"✗ model      the key is refused; check model.key"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := nearby(t, "")
			got := pilder(t, c.stdin, "init", "--force", "--config", file)
			if got.code != exitOK {
				t.Fatalf("exit code %d: %s", got.code, got.errs)
			}
			for _, text := range c.found {
				if !strings.Contains(got.out+got.errs, text) {
					t.Errorf("it does not say %q: %s%s", text, got.out, got.errs)
				}
			}
			for _, secret := range []string{telegram.DefaultToken, "model-key", "another-key", "client-secret"} {
				if strings.Contains(got.out+got.errs, secret) {
					t.Errorf("it shows %q", secret)
				}
			}
			if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
				t.Errorf("the file is %v, %v", st.Mode(), err)
			}
			cfg, err := LoadConfig(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			if postgres := strings.HasPrefix(c.want.StoreURL, "postgres"); postgres != (len(cfg.StoreKey.Reveal()) == 64) {
				t.Errorf("on PostgreSQL %v the sealing key has %d digits", postgres, len(cfg.StoreKey.Reveal()))
			}
			want := c.want
			want.TelegramToken, want.Data, want.ModelName = store.NewSecret(telegram.DefaultToken), filepath.Join(filepath.Dir(file), ".pilder"), "sonnet"
			if path, ok := strings.CutPrefix(want.StoreURL, "sqlite:"); ok {
				want.StoreURL = "sqlite:" + filepath.Join(filepath.Dir(file), path)
			}
			want.SandboxMode, want.SandboxRequire, want.RunnerMaxRuns, want.RunnerRunTimeout = "bwrap", "C", 4, 15*time.Minute
			defaults, err := LoadConfig("", nil) // of what init does not ask about
			if err != nil {
				t.Fatal(err)
			}
			want.SandboxMemory, want.RunnerQuotaBytes, want.RunnerQuotaFiles = defaults.SandboxMemory, defaults.RunnerQuotaBytes, defaults.RunnerQuotaFiles
			want.ModelAllowed, want.ModelMaxTokens, want.WebAllow = defaults.ModelAllowed, defaults.ModelMaxTokens, defaults.WebAllow
			want.RunnerBudgetTokens, want.RunnerBudgetUSD = defaults.RunnerBudgetTokens, defaults.RunnerBudgetUSD
			want.RunnerWarmMax, want.RunnerWarmIdle = defaults.RunnerWarmMax, defaults.RunnerWarmIdle
			want.LogLevel, want.LogFormat = "info", "json"
			secrets := cmp.Comparer(func(a, b store.Secret) bool { return a.Reveal() == b.Reveal() })
			if diff := cmp.Diff(want, cfg, secrets, cmpopts.IgnoreFields(Config{}, "StoreKey", "TelegramAPIURL", "ModelURL", "PipedreamURL")); diff != "" {
				t.Errorf("what serve reads (-want +got):\n%s", diff)
			}
			again := pilder(t, c.stdin, "init", "--config", file)
			if again.code != exitError || !strings.Contains(again.errs, "--force") {
				t.Errorf("without --force: exit code %d, %q", again.code, again.errs)
			}
		})
	}
}

// TestInitAgainKeepsWhatIsLeftEmpty: above all the key that everything is sealed with.
func TestInitAgainKeepsWhatIsLeftEmpty(t *testing.T) {
	quiet(t)
	file := nearby(t, "store:\n  url: sqlite:here.db\n  key: \""+strings.Repeat("ab", 32)+"\"\n")
	if got := pilder(t, answers(telegram.DefaultToken, "model-key", "", "", "", ""), "init", "--force", "--config", file); got.code != exitOK {
		t.Fatal(got)
	}
	before, err := LoadConfig(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := pilder(t, answers("", "new-key", "", "", "", ""), "init", "--force", "--config", file); got.code != exitOK {
		t.Fatal(got)
	}
	after, err := LoadConfig(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	before.ModelKey = store.NewSecret("new-key")
	secrets := cmp.Comparer(func(a, b store.Secret) bool { return a.Reveal() == b.Reveal() })
	if diff := cmp.Diff(before, after, secrets); diff != "" || after.StoreKey.Reveal() != strings.Repeat("ab", 32) {
		t.Errorf("the second file (-want +got):\n%s", diff)
	}
}

func TestInitWritesNothingThatCannotWork(t *testing.T) {
	quiet(t)
	for name, c := range map[string]struct{ stdin, errs string }{
		"a token that is none":   {answers("nonsense", "key", "", "", "", ""), "telegram.token"},
		"a project that is none": {answers(telegram.DefaultToken, "key", "demo", "a", "b", "development", "", "", ""), "pipedream.project_id"},
		"plain http to people":   {answers(telegram.DefaultToken, "key", "", "", "", "http://bot.example.com"), "gateway.public_url"},
		"the answers end":        {answers(telegram.DefaultToken), "model.key"},
		"no answer at all":       {"", "telegram.token"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			got := pilder(t, c.stdin, "init", "--config", filepath.Join(folder, "pilder.yaml"))
			if got.code == exitOK || !strings.Contains(got.errs, c.errs) || strings.Contains(got.errs, telegram.DefaultToken) {
				t.Errorf("exit code %d, it said %q, want %q", got.code, got.errs, c.errs)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
