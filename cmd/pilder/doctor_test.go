package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pilder/sim/telegram"
)

// TestDoctorSaysOKOrTheRemedy goes through each thing it looks at, once as it should be and in the ways it can be wrong.
func TestDoctorSaysOKOrTheRemedy(t *testing.T) {
	cli := pinnedCLI(t)
	quiet(t)
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	const (
		bot  = "PILDER_TELEGRAM_TOKEN=" + telegram.DefaultToken
		key  = "PILDER_MODEL_KEY=model-key"
		apps = "PILDER_PIPEDREAM_PROJECT_ID=proj_a1 PILDER_PIPEDREAM_ENVIRONMENT=development PILDER_PIPEDREAM_CLIENT_ID=client "
	)
	for name, c := range map[string]struct {
		only, env string
		code      int
		says      string
	}{
		"the sandbox holds":          {only: "sandbox", says: "✓ sandbox    tier C; B would add"},
		"a stronger one is required": {only: "sandbox", env: "PILDER_SANDBOX_REQUIRE=A", code: exitMachine, says: "✗ sandbox    sandbox is weaker than required: tier C, required A"},
		"none is wanted":             {only: "sandbox", env: "PILDER_SANDBOX_MODE=none", code: exitMachine, says: "✗ sandbox    agents without a sandbox need"},
		"the CLI is as pinned":       {only: "cli", env: "PILDER_RUNNER_CLAUDE_PATH=" + cli, says: "✓ cli        Claude Code 2.1.332, digest as pinned"},
		"another CLI":                {only: "cli", env: "PILDER_RUNNER_CLAUDE_PATH=/bin/true", code: exitMachine, says: "; run: pilder cli fetch"},
		"no CLI":                     {only: "cli", code: exitMachine, says: "no such file or directory; run: pilder cli fetch"},
		"no company yet":             {only: "store", code: exitMachine, says: "✗ store      no company yet; run: pilder company add NAME"},
		"a store that is none":       {only: "store", env: "PILDER_STORE_URL=sqlite:/dev/null/x.db", code: exitMachine, says: "; check store.url"},
		"the bot answers":            {only: "telegram", env: bot, says: "✓ telegram   @pilder_demo_bot"},
		"no bot":                     {only: "telegram", code: exitMachine, says: "✗ telegram   no token; talk to @BotFather"},
		"another bot's token":        {only: "telegram", env: "PILDER_TELEGRAM_TOKEN=100002:SIM-demo-token-opens-nothing-real-0000", code: exitMachine, says: "refused with 401; check the network, and telegram.token"},
		"no Telegram":                {only: "telegram", env: bot + " PILDER_TELEGRAM_API_URL=http://127.0.0.1:1", code: exitMachine, says: "connection refused; check the network"},
		"the model answers":          {only: "model", env: key, says: "✓ model      sonnet at http://127.0.0.1:"},
		"an alias the API lacks":     {only: "model", env: key + " PILDER_MODEL_NAME=opus", says: "✓ model      opus at "},
		"no key":                     {only: "model", code: exitMachine, says: "✗ model      no key; make one at"},
		"another key":                {only: "model", env: "PILDER_MODEL_KEY=other", code: exitMachine, says: "the key is refused; check model.key"},
		"a model that is none":       {only: "model", env: key + " PILDER_MODEL_NAME=claude-none PILDER_MODEL_URL=" + missing.URL, code: exitMachine, says: `model "claude-none" is not known; check model.name`},
		"no model":                   {only: "model", env: key + " PILDER_MODEL_URL=http://127.0.0.1:1", code: exitMachine, says: "cannot be reached; check model.url"},
		"apps can be connected":      {only: "pipedream", env: apps + "PILDER_PIPEDREAM_CLIENT_SECRET=client-secret", says: "✓ pipedream  proj_a1, development"},
		"no apps are wanted":         {only: "pipedream", says: "✓ pipedream  no project"},
		"another client's secret":    {only: "pipedream", env: apps + "PILDER_PIPEDREAM_CLIENT_SECRET=other", code: exitMachine, says: "; check pipedream.client_id, client_secret"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kv := range strings.Fields(c.env) {
				name, value, _ := strings.Cut(kv, "=")
				t.Setenv(name, value)
			}
			got := pilder(t, "", "--config", nearby(t, "data: "+t.TempDir()+"\n"), "doctor", "--only", c.only)
			if got.code != c.code || !strings.Contains(got.out+got.errs, c.says) {
				t.Errorf("exit code %d, want %d; it said %q, want %q", got.code, c.code, got.out+got.errs, c.says)
			}
			for _, secret := range []string{telegram.DefaultToken, "SIM-demo", "model-key", "client-secret"} {
				if strings.Contains(got.out+got.errs, secret) {
					t.Errorf("it shows %q: %q", secret, got.out+got.errs)
				}
			}
		})
	}
	t.Run("everything at once, quietly", func(t *testing.T) {
		t.Setenv("PILDER_RUNNER_CLAUDE_PATH", cli)
		config := nearby(t, "data: "+t.TempDir()+"\n")
		if got := pilder(t, "", "--config", config, "company", "add", "Acme"); got.code != exitOK {
			t.Fatal(got)
		}
		got := pilder(t, "", "--config", config, "doctor", "--quiet")
		if got.out != "" || !strings.HasSuffix(got.errs, "pilder: not ready: telegram, model\n") {
			t.Errorf("got %+v", got)
		}
	})
}
