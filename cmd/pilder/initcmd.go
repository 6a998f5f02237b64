package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func initCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "init", Short: "ask for what pilder needs, check it, and write pilder.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := cmd.Flags().GetString("config")
			if err != nil {
				return err
			}
			if file == "" {
				file = "pilder.yaml"
			}
			return initialise(cmd, file, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	return cmd
}

// question is one thing init asks for.
type question struct {
	key, text, fallback string
}

func questions() []question {
	return []question{
		{"telegram.token", "Token of your bot (in Telegram: @BotFather, /newbot)", ""},
		{"model.key", "Model key (https://console.anthropic.com/settings/keys)", ""},
		{"pipedream.project_id", "Pipedream project id (proj_…; empty: no connected apps yet)", ""},
		{"pipedream.client_id", "Pipedream OAuth client id", ""},
		{"pipedream.client_secret", "Pipedream OAuth client secret", ""},
		{"pipedream.environment", "Pipedream environment (development or production)", "development"},
		{"store.url", "Database (sqlite:PATH or postgres://…)", "sqlite:.pilder/pilder.db"},
		{"gateway.listen", "Address for the public HTTP server", "127.0.0.1:8080"},
		{"gateway.public_url", "Address under which people's browsers reach it", ""},
	}
}

// initialise asks, refuses what cannot work, and writes the file with fresh keys and mode 0600. It shows nothing secret.
func initialise(cmd *cobra.Command, file string, force bool) error {
	if _, err := os.Stat(file); err == nil && !force {
		return fmt.Errorf("%s is there already; --force replaces it", file)
	}
	in, out := bufio.NewReader(cmd.InOrStdin()), cmd.OutOrStdout()
	tree := map[string]any{}
	for _, q := range questions() {
		if strings.HasPrefix(q.key, "pipedream.") && q.key != "pipedream.project_id" && lookup(tree, "pipedream.project_id") == "" {
			continue
		}
		answer, err := ask(in, out, q)
		if err != nil {
			return err
		}
		if answer != "" {
			put(tree, q.key, answer)
		}
	}
	put(tree, "store.key", randomHex())
	put(tree, "token.keys", []string{"k1:" + randomHex()})
	body, err := yaml.Marshal(tree)
	if err != nil {
		return err
	}
	if err := writeChecked(file, body); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nWrote %s. Next:\n  pilder company add \"Your company\" --domain your-domain.com\n  pilder invite \"Your company\" --role admin\n  pilder doctor && pilder serve\n", file)
	return nil
}

func ask(in *bufio.Reader, out io.Writer, q question) (string, error) {
	fmt.Fprint(out, q.text)
	if q.fallback != "" {
		fmt.Fprintf(out, " [%s]", q.fallback)
	}
	fmt.Fprint(out, ": ")
	line, err := in.ReadString('\n')
	if err != nil && (!errors.Is(err, io.EOF) || line == "") {
		return "", errors.New("init needs an answer to every question; it was not given one for " + q.key)
	}
	if line = strings.TrimSpace(line); line == "" {
		line = q.fallback
	}
	return line, nil
}

// writeChecked writes the file beside its place, loads it as serve would, and only then renames it.
func writeChecked(file string, body []byte) error {
	fresh := file + ".new"
	head := "# Made by `pilder init`; every key with its meaning: configs/pilder.yaml\n"
	if err := os.WriteFile(fresh, append([]byte(head), body...), 0o600); err != nil {
		return err
	}
	if _, err := LoadConfig(fresh, nil); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return os.Rename(fresh, file)
}

func put(tree map[string]any, key string, value any) {
	group, name, _ := strings.Cut(key, ".")
	inner, ok := tree[group].(map[string]any)
	if !ok {
		inner = map[string]any{}
		tree[group] = inner
	}
	inner[name] = value
}

func lookup(tree map[string]any, key string) string {
	group, name, _ := strings.Cut(key, ".")
	inner, _ := tree[group].(map[string]any)
	value, _ := inner[name].(string)
	return value
}

// randomHex is 256 random bits.
func randomHex() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
