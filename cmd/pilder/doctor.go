package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pilder/bot"
	"pilder/configs"
	"pilder/gateway/pipedream"
	"pilder/runner"
	"pilder/store"
)

// check is one thing doctor looks at. It returns what it found, or what is wrong together with the remedy.
type check struct {
	name string
	look func(ctx context.Context, cfg Config) (found string, err error)
}

func checks() []check {
	return []check{
		{"sandbox", checkSandbox},
		{"cli", checkCLI},
		{"store", checkStore},
		{"telegram", checkTelegram},
		{"model", checkModel},
		{"pipedream", checkPipedream},
	}
}

func doctorCommand() *cobra.Command {
	var only []string
	var quiet bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "look at everything pilder needs: ok, or the exact remedy", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return examine(cmd.Context(), cfg, only, quiet, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "look at these only: sandbox, cli, store, telegram, model, pipedream")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "print what is wrong only")
	return cmd
}

func examine(ctx context.Context, cfg Config, only []string, quiet bool, out, errs io.Writer) error {
	for _, name := range only {
		if !slices.ContainsFunc(checks(), func(c check) bool { return c.name == name }) {
			return usageError("nothing called %q to look at", name)
		}
	}
	var wrong []string
	for _, c := range checks() {
		if len(only) > 0 && !slices.Contains(only, c.name) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		found, err := c.look(limited, cfg)
		cancel()
		switch {
		case err != nil:
			wrong = append(wrong, c.name)
			fmt.Fprintf(errs, "✗ %-10s %v\n", c.name, err)
		case !quiet:
			fmt.Fprintf(out, "✓ %-10s %s\n", c.name, found)
		}
	}
	if len(wrong) > 0 {
		return machineError("not ready: %s", strings.Join(wrong, ", "))
	}
	return nil
}

func checkSandbox(ctx context.Context, cfg Config) (string, error) {
	box, err := newSandbox(cfg, false)
	if err != nil {
		return "", err
	}
	if box.Unsandboxed() {
		return "", errors.New("sandbox.mode is none: agents can reach everything that pilder's user can")
	}
	if _, err := box.Ready(ctx); err != nil {
		return "", err
	}
	tier, findings := box.Probe(ctx)
	said := "tier " + tier.String()
	if tier < runner.TierB {
		said += "; B would add"
		for _, f := range findings {
			said += "\n  " + f.Check + ": " + f.Problem + "\n    → " + f.Remedy
		}
	}
	return said, nil
}

func checkCLI(_ context.Context, cfg Config) (string, error) {
	pin := configs.CLI()
	if err := verifyBinary(claudePath(cfg), pin.BinarySHA256); err != nil {
		return "", fmt.Errorf("%w; run: pilder cli fetch", err)
	}
	return "Claude Code " + pin.Version + ", digest as pinned", nil
}

func checkStore(ctx context.Context, cfg Config) (string, error) {
	s, err := openStore(ctx, cfg)
	if err != nil {
		return "", fmt.Errorf("%w; check store.url", err)
	}
	all, err := s.Companies(ctx)
	if err = errors.Join(err, s.Close()); err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", errors.New("no company yet; run: pilder company add NAME --domain your-domain.com, then pilder invite NAME --role admin")
	}
	return fmt.Sprintf("%d companies", len(all)), nil
}

func checkTelegram(ctx context.Context, cfg Config) (string, error) {
	name, err := botName(ctx, cfg)
	if err != nil {
		return "", err
	}
	return "@" + name, nil
}

// botName asks Telegram what the configured bot is called.
func botName(ctx context.Context, cfg Config) (string, error) {
	if cfg.TelegramToken.IsZero() {
		return "", errors.New("no token; talk to @BotFather in Telegram, send /newbot, and put the token into telegram.token")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	name, err := bot.Username(ctx, cfg.TelegramAPIURL, cfg.TelegramToken)
	if err != nil {
		return "", fmt.Errorf("%w; check the network, and telegram.token with @BotFather (/mybots, API Token)", err)
	}
	return name, nil
}

// checkModel counts the tokens of one word: it proves address, key and model name and costs nothing.
func checkModel(ctx context.Context, cfg Config) (string, error) {
	if cfg.ModelKey.IsZero() {
		return "", errors.New("no key; make one at https://console.anthropic.com/settings/keys and put it into model.key")
	}
	body, err := json.Marshal(map[string]any{
		"model":    modelID(cfg.ModelName),
		"messages": []map[string]string{{"role": "user", "content": "hola"}},
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(cfg.ModelURL, "/")+"/v1/messages/count_tokens", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("x-api-key", cfg.ModelKey.Reveal())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("%s cannot be reached; check model.url and the network", cfg.ModelURL)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return cfg.ModelName + " at " + cfg.ModelURL, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return "", errors.New("the key is refused; check model.key")
	case http.StatusNotFound:
		return "", fmt.Errorf("model %q is not known; check model.name", cfg.ModelName)
	}
	return "", fmt.Errorf("%s answers %s", cfg.ModelURL, res.Status)
}

// modelID is the model to ask the API for, which knows no aliases; the CLI resolves them by itself. For any alias the key is
// proved with what CLI 2.1.332 makes of sonnet (measured).
func modelID(name string) string {
	switch name {
	case "sonnet", "opus", "haiku":
		return "claude-sonnet-5-5"
	}
	return name
}

func checkPipedream(ctx context.Context, cfg Config) (string, error) {
	if cfg.PipedreamProject == "" {
		return "no project, so there are no connected apps; for some, make one at https://pipedream.com/projects and set pipedream.project_id, client_id, client_secret and environment", nil
	}
	apps, err := pipedream.New(pipedreamConfig(cfg))
	if err != nil {
		return "", err
	}
	if err := apps.Warm(ctx); err != nil {
		return "", fmt.Errorf("%w; check pipedream.client_id, client_secret, project_id and environment", err)
	}
	return cfg.PipedreamProject + ", " + cfg.PipedreamEnvironment, nil
}

// openStore opens the configured store for one command: as its owner, or, while a server has it, as a guest.
func openStore(ctx context.Context, cfg Config) (*store.Store, error) {
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	c := store.Config{URL: cfg.StoreURL, Key: cfg.StoreKey}
	s, err := store.Open(ctx, c)
	if held := (*store.LockedError)(nil); errors.As(err, &held) {
		c.Guest = true
		s, err = store.Open(ctx, c)
	}
	if err != nil {
		return nil, machineError("opening the store: %w", err)
	}
	return s, nil
}
