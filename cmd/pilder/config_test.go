package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMistakesInTheConfigurationNameTheirKey walks what an operator gets wrong: each is one line that names the key.
func TestMistakesInTheConfigurationNameTheirKey(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		environ []string
		want    string
	}{
		"misspelt key in the file":      {file: "modle:\n  key: x\n", want: `unknown configuration key "modle.key"; did you mean "model.key"?`},
		"misspelt environment":          {environ: []string{"PILDER_STORE_ULR=x"}, want: `unknown configuration key "store_ulr"; did you mean "store.url"?`},
		"no YAML":                       {file: "a: [", want: "reading configuration"},
		"token of the wrong shape":      {environ: []string{"TELEGRAM_BOT_TOKEN=nonsense"}, want: "telegram.token does not look like"},
		"plain http to the world":       {environ: []string{"PILDER_MODEL_URL=http://api.example.com"}, want: "model.url must be https"},
		"credentials in an address":     {environ: []string{"PILDER_MODEL_URL=https://a:b@api.example.com"}, want: "model.url is not an address"},
		"no environment of Pipedream":   {environ: []string{"PILDER_PIPEDREAM_PROJECT_ID=proj_a1"}, want: "pipedream.environment must be"},
		"a run longer than its token":   {environ: []string{"PILDER_RUNNER_RUN_TIMEOUT=59m"}, want: "runner.run_timeout must be"},
		"no runs at all":                {environ: []string{"PILDER_RUNNER_MAX_RUNS=0"}, want: "runner.max_runs must be"},
		"a quota for nothing":           {environ: []string{"PILDER_RUNNER_QUOTA_BYTES=1MiB"}, want: "runner.quota.bytes must be"},
		"a size of another kind":        {environ: []string{"PILDER_RUNNER_QUOTA_BYTES=1gb"}, want: "runner.quota.bytes must be"},
		"a size beyond numbers":         {environ: []string{"PILDER_RUNNER_QUOTA_BYTES=9999999999GiB"}, want: "runner.quota.bytes must be"},
		"a quota of few files":          {environ: []string{"PILDER_RUNNER_QUOTA_FILES=10"}, want: "runner.quota.files must be"},
		"an answer of no tokens":        {environ: []string{"PILDER_MODEL_MAX_TOKENS=0"}, want: "model.max_tokens must be"},
		"a budget below nothing":        {environ: []string{"PILDER_RUNNER_BUDGET_USD=-1"}, want: "runner.budget.usd must not"},
		"tokens below nothing":          {environ: []string{"PILDER_RUNNER_BUDGET_TOKENS=-1"}, want: "runner.budget.tokens must not"},
		"a sandbox that is none":        {environ: []string{"PILDER_SANDBOX_MODE=docker"}, want: "sandbox.mode must be"},
		"a tier that is none":           {environ: []string{"PILDER_SANDBOX_REQUIRE=D"}, want: "sandbox.require must be"},
		"a database of another kind":    {environ: []string{"PILDER_STORE_URL=mysql://x"}, want: "store.url must be"},
		"a web address for a name":      {file: "web:\n  allow: [\"https://example.com\"]\n", want: `web.allow: "https://example.com" is no name`},
		"the whole web":                 {environ: []string{"PILDER_WEB_ALLOW=example.com *"}, want: `web.allow: "*" is no name`},
		"a name of the inside":          {environ: []string{"PILDER_WEB_ALLOW=wiki.internal"}, want: "web.allow: \"wiki.internal\" is a name of a private network"},
		"a number that is none":         {environ: []string{"PILDER_RUNNER_MAX_RUNS=x"}, want: `runner.max_runs must be a whole number, not "x"`},
		"a budget that is no number":    {environ: []string{"PILDER_RUNNER_BUDGET_USD=5,00"}, want: `runner.budget.usd must be a number like 2.5, not "5,00"`},
		"a budget without an end":       {environ: []string{"PILDER_RUNNER_BUDGET_USD=Inf"}, want: "runner.budget.usd must be a number"},
		"a budget with a unit":          {environ: []string{"PILDER_RUNNER_BUDGET_TOKENS=3M"}, want: "runner.budget.tokens must be a whole number"},
		"a part of a process":           {environ: []string{"PILDER_RUNNER_WARM_MAX=1.5"}, want: "runner.warm.max must be a whole number"},
		"a time without a unit":         {environ: []string{"PILDER_RUNNER_WARM_IDLE=10"}, want: `runner.warm.idle must be a time like 90s, 10m or 1h, not "10"`},
		"a size that is told":           {environ: []string{"PILDER_SANDBOX_MEMORY=2GB"}, want: `sandbox.memory must be a size like 500MiB or 2GiB, not "2GB"`},
		"a permission that is neither":  {environ: []string{"PILDER_MODEL_URL_SOURCES=x"}, want: "model.url_sources must be true or false"},
		"a search that is neither":      {environ: []string{"PILDER_WEB_SEARCH=perhaps"}, want: "web.search must be true or false"},
		"a listen address without port": {environ: []string{"PILDER_GATEWAY_LISTEN=8080"}, want: "gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadConfig(write(t, c.file), c.environ)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Count(err.Error(), "\n") > 0 && c.file != "a: [" {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

// TestTheEnvironmentWins also shows that our own variable goes before the borrowed name.
func TestTheEnvironmentWins(t *testing.T) {
	cfg, err := LoadConfig(write(t, "model:\n  key: file\n  name: opus\nrunner:\n  run_timeout: 5m\n"),
		[]string{"ANTHROPIC_API_KEY=borrowed", "PILDER_MODEL_KEY=ours", "PILDER_METRICS_LISTEN=127.0.0.1:9", "HOME=/nowhere", "PILDER_STORE_URL="})
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.ModelKey.Reveal(); got != "ours" {
		t.Errorf("model key is %q", got)
	}
	if cfg.ModelName != "opus" || cfg.RunnerRunTimeout != 5*time.Minute || !strings.HasSuffix(cfg.StoreURL, "/.pilder/pilder.db") {
		t.Errorf("got %q, %s, %q", cfg.ModelName, cfg.RunnerRunTimeout, cfg.StoreURL)
	}
	if strings.Join(cfg.Reserved, " ") != "metrics.listen" {
		t.Errorf("reserved keys: %q", cfg.Reserved)
	}
}

// TestSizesAreBytesOrBinaryUnits also takes a bare number from the file.
func TestSizesAreBytesOrBinaryUnits(t *testing.T) {
	for given, want := range map[string]int64{"20480KiB": 20 << 20, `"500 MiB"`: 500 << 20, "2GiB": 2 << 30, "104857600": 100 << 20} {
		cfg, err := LoadConfig(write(t, "runner:\n  quota:\n    bytes: "+given+"\n    files: 2000\n"), nil)
		if err != nil || cfg.RunnerQuotaBytes != want || cfg.RunnerQuotaFiles != 2000 {
			t.Errorf("%s became %d, %d files, %v", given, cfg.RunnerQuotaBytes, cfg.RunnerQuotaFiles, err)
		}
	}
}

// TestModelsAreThoseOfTheName: what an alias means is the CLI's to say, so all of its family are allowed; a name is a name.
func TestModelsAreThoseOfTheName(t *testing.T) {
	for given, want := range map[string]string{
		"": "claude-sonnet claude-haiku", "PILDER_MODEL_NAME=opus[1m]": "claude-opus claude-haiku", "PILDER_MODEL_NAME=house-7": "house-7 claude-haiku",
		"PILDER_MODEL_NAME=opusplan": "claude-opus claude-sonnet claude-haiku", "PILDER_MODEL_ALLOWED=a b": "a b",
	} {
		cfg, err := LoadConfig(os.DevNull, []string{given})
		if err != nil || strings.Join(cfg.ModelAllowed, " ") != want {
			t.Errorf("%q allows %q, %v", given, cfg.ModelAllowed, err)
		}
	}
	cfg, err := LoadConfig(os.DevNull, nil)
	if err != nil || cfg.RunnerBudgetUSD != 5 || cfg.RunnerBudgetTokens != 3_000_000 || cfg.ModelMaxTokens != 128_000 || cfg.ModelURLSources {
		t.Errorf("got %+v, %v", cfg, err)
	}
}

// TestThePublicAddressIsAsBrowsersNameIt: they drop a port that the scheme implies and lower the host's case.
func TestThePublicAddressIsAsBrowsersNameIt(t *testing.T) {
	for given, want := range map[string]string{
		"https://Pilder.Example.com:443/": "https://pilder.example.com", "http://127.0.0.1:80": "http://127.0.0.1",
		"https://a.example:8443": "https://a.example:8443",
	} {
		cfg, err := LoadConfig(os.DevNull, []string{"PILDER_GATEWAY_PUBLIC_URL=" + given})
		if err != nil || cfg.GatewayPublicURL != want {
			t.Errorf("%s became %q, %v", given, cfg.GatewayPublicURL, err)
		}
	}
}

// TestTheWebIsOffUntilItIsNamed, and its list can be given in the environment too.
func TestTheWebIsOffUntilItIsNamed(t *testing.T) {
	cfg, err := LoadConfig(os.DevNull, nil)
	if err != nil || len(cfg.WebAllow) > 0 || cfg.WebSearch {
		t.Errorf("got %q, %v, %v", cfg.WebAllow, cfg.WebSearch, err)
	}
	cfg, err = LoadConfig(write(t, "web:\n  allow:\n    - example.com\n  search: true\n"), []string{"PILDER_WEB_ALLOW=a.example *.b.example"})
	if err != nil || strings.Join(cfg.WebAllow, "|") != "a.example|*.b.example" || !cfg.WebSearch {
		t.Errorf("got %q, %v, %v", cfg.WebAllow, cfg.WebSearch, err)
	}
}

// TestRelativePathsStartAtTheFile lets a command mean the same data from any folder.
func TestRelativePathsStartAtTheFile(t *testing.T) {
	file := write(t, "data: here\nagent_home: /abs/home\n")
	cfg, err := LoadConfig(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(file)
	if cfg.Data != filepath.Join(folder, "here") || cfg.StoreURL != "sqlite:"+filepath.Join(folder, "here", "pilder.db") || cfg.AgentHome != "/abs/home" {
		t.Errorf("got %q, %q, %q", cfg.Data, cfg.StoreURL, cfg.AgentHome)
	}
	if cfg, err = LoadConfig(write(t, "store:\n  url: sqlite:a.db\n"), nil); err != nil || !filepath.IsAbs(strings.TrimPrefix(cfg.StoreURL, "sqlite:")) {
		t.Errorf("got %q, %v", cfg.StoreURL, err)
	}
}

func write(t *testing.T, body string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pilder.yaml")
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
