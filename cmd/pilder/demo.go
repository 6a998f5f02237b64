package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"pilder/sim/telegram"
)

// demoListen is where the chat page is, unless told otherwise.
const demoListen = "127.0.0.1:8090"

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "the whole system without accounts: the real CLI in the real sandbox, stand-ins for the rest",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			said := strings.TrimSpace(o.say) != ""
			switch {
			case cmd.Flags().Changed("say") && !said:
				return usageError("--say wants something to say")
			case o.json && !said:
				return usageError("--json goes with --say")
			}
			return runDemo(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&o.say, "say", "", "say one thing, print the answer and end")
	cmd.Flags().StringVar(&o.as, "as", "admin", "who says it: admin, approver, member, newcomer or stranger")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the answer as JSON")
	cmd.Flags().StringVar(&o.listen, "listen", demoListen, "loopback address of the chat page")
	cmd.Flags().StringVar(&o.publish, "publish", "", "write the stand-ins' addresses and the data folder into this file (JSON), for tests")
	cmd.Flags().StringVar(&o.record, "record", "", "with --say: write what the stand-ins saw into this folder (ledger.txt, model.txt, chat-ID.txt)")
	cmd.Flags().DurationVar(&o.patience, "patience", 3*time.Minute, "how long --say waits for the answer")
	return cmd
}

type demoOptions struct {
	say, as  string
	json     bool
	listen   string
	publish  string
	record   string
	patience time.Duration
}

// demo is a running demonstration: a house, and what stands where the world would be.
type demo struct {
	*standIns
	house *house
}

// runDemo plays the demonstration until ctx ends or, with --say, until the one message has its answer. Nothing is kept.
func runDemo(ctx context.Context, o demoOptions, out, errs io.Writer) error {
	who, err := demoPersonAs(o.as)
	if err != nil {
		return err
	}
	if err := onLoopback(o.listen); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "pilder-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	level := zerolog.InfoLevel
	if o.say != "" {
		o.listen, level = "127.0.0.1:0", zerolog.ErrorLevel
	}
	standIns, err := startStandIns(o.listen)
	if err != nil {
		return err
	}
	d := &demo{standIns: standIns}
	err = d.build(ctx, folder, zerolog.New(errs).Level(level).Hook(stamp{}))
	if err == nil {
		err = d.run(ctx, folder, o, who, out)
	}
	return errors.Join(err, standIns.close()) // last: the house speaks to them until it has stopped
}

// build makes the house on the stand-ins, with the demo's company in it.
func (d *demo) build(ctx context.Context, folder string, log zerolog.Logger) error {
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	cfg, err := demoConfig(folder, d.telegramURL, d.modelURL, d.appsURL, public.Addr().String())
	if err == nil {
		d.house, err = buildHouse(ctx, cfg, log, houseOptions{public: public})
	}
	if err != nil {
		return errors.Join(err, public.Close())
	}
	if err := seedDemo(ctx, d.house.store, d.pipedream); err != nil {
		return errors.Join(err, d.house.Close(), public.Close())
	}
	return nil
}

// run runs the house, and beside it what was asked for.
func (d *demo) run(ctx context.Context, folder string, o demoOptions, who demoPerson, out io.Writer) (err error) {
	defer func() { err = errors.Join(err, d.house.Close()) }()
	if o.publish != "" {
		if err := publish(o.publish, map[string]string{
			"telegram": d.telegramURL, "anthropic": d.modelURL, "pipedream": d.appsURL, "data": folder}); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.house.Run(ctx) })
	if o.say != "" {
		err = d.say(ctx, who, o, out)
		stop()
	} else {
		fmt.Fprintf(out, "\n  pilder demo: open %s/ and write, for instance: guardame una reunión mañana a las 10\n  (Ctrl-C ends it; nothing is kept)\n\n", d.telegramURL)
	}
	if failed := group.Wait(); failed != nil {
		return failed // it is also why there was no answer
	}
	return err
}

func demoConfig(folder, botURL, modelURL, appsURL, public string) (Config, error) {
	return LoadConfig(os.DevNull, append(demoEnviron(folder, botURL, modelURL, appsURL, public),
		"PILDER_RUNNER_CLAUDE_PATH="+os.Getenv("PILDER_RUNNER_CLAUDE_PATH")))
}

// demoEnviron points a configuration at the stand-ins.
func demoEnviron(folder, botURL, modelURL, appsURL, public string) []string {
	return []string{
		"PILDER_DATA=" + folder,
		"PILDER_TELEGRAM_TOKEN=" + telegram.DefaultToken,
		"PILDER_TELEGRAM_API_URL=" + botURL,
		"PILDER_MODEL_URL=" + modelURL,
		"PILDER_MODEL_KEY=sim-key",
		"PILDER_PIPEDREAM_URL=" + appsURL,
		"PILDER_PIPEDREAM_CLIENT_ID=sim-client",
		"PILDER_PIPEDREAM_CLIENT_SECRET=sim-secret",
		"PILDER_PIPEDREAM_PROJECT_ID=proj_test1",
		"PILDER_PIPEDREAM_ENVIRONMENT=development",
		"PILDER_GATEWAY_LISTEN=" + public,
	}
}

// publish writes a file in one step, so that a reader never sees half of it.
func publish(file string, v map[string]string) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	fresh := filepath.Join(filepath.Dir(file), "."+filepath.Base(file))
	if err := os.WriteFile(fresh, body, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
