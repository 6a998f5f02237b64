package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
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
			i := initialisation{file: file, in: bufio.NewReader(cmd.InOrStdin()), out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr()}
			if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
				i.terminal = f
			}
			return i.run(cmd.Context(), force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "ask again although the file is there; what you leave empty stays as it is, and so do the keys")
	return cmd
}

// question is one thing init asks for.
type question struct {
	key, text, fallback string
	secret              bool // not echoed
}

func questions() []question {
	return []question{
		{"telegram.token", "Token of your bot (in Telegram: @BotFather, /newbot)", "", true},
		{"model.key", "Model key (https://console.anthropic.com/settings/keys)", "", true},
		{"pipedream.project_id", "Pipedream project id (proj_…; empty: no connected apps yet)", "", false},
		{"pipedream.client_id", "Pipedream OAuth client id", "", false},
		{"pipedream.client_secret", "Pipedream OAuth client secret", "", true},
		{"pipedream.environment", "Pipedream environment (development or production)", "development", false},
		{"store.url", "Database (sqlite:PATH or postgres://…)", "sqlite:.pilder/pilder.db", false},
		{"gateway.listen", "Address for the public HTTP server", "127.0.0.1:8080", false},
		{"gateway.public_url", "Address under which people's browsers reach it (empty: on this machine only)", "", false},
	}
}

// initialisation is one run of init.
type initialisation struct {
	file      string
	in        *bufio.Reader
	terminal  *os.File // nil: answers come from a pipe
	out, errs io.Writer
	tree      map[string]any // what will be written
}

// run asks, refuses each answer that cannot work at once, says what does not answer, and writes the file with mode 0600. It
// shows nothing secret, and it never replaces a key: what a key has sealed could not be read any more.
func (i *initialisation) run(ctx context.Context, force bool) error {
	i.tree = map[string]any{}
	body, err := os.ReadFile(i.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !force:
		return fmt.Errorf("%s is there already; --force asks again and keeps what you leave empty", i.file)
	default:
		if err := yaml.Unmarshal(body, &i.tree); err != nil {
			return machineError("%s is not valid YAML; mend it or move it away", i.file)
		}
	}
	for _, q := range questions() {
		if strings.HasPrefix(q.key, "pipedream.") && q.key != "pipedream.project_id" && lookup(i.tree, "pipedream.project_id") == "" {
			continue
		}
		if err := i.ask(ctx, q); err != nil {
			return err
		}
	}
	// A SQLite store keeps its own key beside its file; one that several machines share has to be told.
	if !strings.HasPrefix(lookup(i.tree, "store.url"), "sqlite:") && lookup(i.tree, "store.key") == "" {
		put(i.tree, "store.key", randomHex())
	}
	if err := i.write(); err != nil {
		return err
	}
	if err := i.tryOut(ctx); err != nil {
		return err
	}
	fmt.Fprintf(i.out, "\nWrote %s. Next:\n  pilder company add \"Your company\" --domain your-domain.com\n  pilder invite \"Your company\" --role admin\n  pilder doctor && pilder serve\n", i.file)
	return nil
}

// ask puts one question until the answer is one that the configuration takes.
func (i *initialisation) ask(ctx context.Context, q question) error {
	for {
		shown := q.fallback
		if old := lookup(i.tree, q.key); old != "" {
			shown = old
			if u, err := url.Parse(old); q.secret || err != nil || u.User != nil {
				shown = "keep the one there" // a database's address may hold its password
			}
		}
		fmt.Fprint(i.out, q.text)
		if shown != "" {
			fmt.Fprintf(i.out, " [%s]", shown)
		}
		fmt.Fprint(i.out, ": ")
		answer, err := i.read(ctx, q)
		if err != nil {
			return err
		}
		before := lookup(i.tree, q.key)
		if answer == "" && before == "" {
			answer = q.fallback
		}
		if answer == "" {
			return nil
		}
		put(i.tree, q.key, answer)
		if err := i.check(); err != nil {
			put(i.tree, q.key, before)
			if i.terminal == nil {
				return err
			}
			fmt.Fprintln(i.errs, "✗", err)
			continue
		}
		return nil
	}
}

// read reads one answer. It gives up when ctx ends: a read of a terminal cannot be broken off otherwise.
func (i *initialisation) read(ctx context.Context, q question) (string, error) {
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	var before *term.State
	if q.secret && i.terminal != nil {
		before, _ = term.GetState(int(i.terminal.Fd()))
	}
	go func() { // outlives this call only when the process is about to end
		if q.secret && i.terminal != nil {
			secret, err := term.ReadPassword(int(i.terminal.Fd()))
			fmt.Fprintln(i.out)
			read <- line{string(secret), err}
			return
		}
		text, err := i.in.ReadString('\n')
		if errors.Is(err, io.EOF) && text != "" {
			err = nil
		}
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		if l.err != nil {
			return "", errors.New("init needs an answer to every question; it was not given one for " + q.key)
		}
		return strings.TrimSpace(l.text), nil
	case <-ctx.Done():
		if before != nil {
			_ = term.Restore(int(i.terminal.Fd()), before) // echo on again
		}
		fmt.Fprintln(i.out)
		return "", errors.New("nothing was written")
	}
}

// check loads what has been answered so far, as serve would.
func (i *initialisation) check() error {
	if lookup(i.tree, "pipedream.project_id") != "" && lookup(i.tree, "pipedream.environment") == "" {
		put(i.tree, "pipedream.environment", "development") // needed beside it, and asked later
		defer put(i.tree, "pipedream.environment", "")
	}
	body, err := yaml.Marshal(i.tree)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "pilder-init-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(body)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	_, err = LoadConfig(file.Name(), nil)
	return err
}

// write puts the file beside its place, loads it as serve would, and only then renames it.
func (i *initialisation) write() error {
	body, err := yaml.Marshal(i.tree)
	if err != nil {
		return err
	}
	place := i.file
	if real, err := filepath.EvalSymlinks(place); err == nil {
		place = real // the file that a link names, not the link
	}
	fresh, err := os.CreateTemp(filepath.Dir(place), ".pilder-init-") // of mode 0600, and nobody else's
	if err != nil {
		return err
	}
	defer os.Remove(fresh.Name())
	_, err = fresh.WriteString("# Made by `pilder init`; every key with its meaning: configs/pilder.yaml\n" + string(body))
	if err := errors.Join(err, fresh.Close()); err != nil {
		return err
	}
	if _, err := LoadConfig(fresh.Name(), nil); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), place)
}

// tryOut asks the services whether they take what was answered, and says so. A service that does not is no reason to lose
// the answers: the file stands, and doctor asks again.
func (i *initialisation) tryOut(ctx context.Context) error {
	cfg, err := LoadConfig(i.file, nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(i.out)
	if err := examine(ctx, cfg, []string{"telegram", "model", "pipedream"}, false, i.out, i.errs); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return nil
}

func put(tree map[string]any, key string, value any) {
	group, name, _ := strings.Cut(key, ".")
	inner, ok := tree[group].(map[string]any)
	if !ok {
		inner = map[string]any{}
		tree[group] = inner
	}
	if value == "" {
		delete(inner, name)
		return
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
