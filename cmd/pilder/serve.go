package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var o houseOptions
	cmd := &cobra.Command{
		Use: "serve", Short: "serve the configured bot", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, o, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&o.role, "role", "all", "all, bot, worker or gateway")
	cmd.Flags().BoolVar(&o.acceptUnsandboxed, "i-accept-unsandboxed-agents", false,
		"the second of the two places that must say so (the first is sandbox.mode: none)")
	return cmd
}

// runCommand is what `make run` calls: the real thing when a bot is configured, the demo when none is.
func runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "serve if a Telegram token is configured, else the demo", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			if cfg.TelegramToken.IsZero() {
				return runDemo(cmd.Context(), demoOptions{as: "admin", listen: demoListen}, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return serve(cmd.Context(), cfg, houseOptions{role: "all"}, cmd.ErrOrStderr())
		},
	}
}

func serve(ctx context.Context, cfg Config, o houseOptions, errs io.Writer) error {
	if !slices.Contains([]string{"all", "bot", "worker", "gateway"}, o.role) {
		return usageError("--role must be all, bot, worker or gateway, not %q", o.role)
	}
	if cfg.TelegramToken.IsZero() {
		return machineError("telegram.token is not set; `pilder init` asks for it, `pilder demo` needs none")
	}
	if cfg.ModelKey.IsZero() && (o.role == "all" || o.role == "worker") {
		return machineError("model.key is not set; `pilder init` asks for it")
	}
	log := newLog(cfg, errs)
	for _, key := range cfg.Reserved {
		log.Warn().Str("event", "config.reserved").Str("key", key).Msg("this setting has no effect in this version")
	}
	if o.role == "all" || o.role == "gateway" {
		l, err := net.Listen("tcp", cfg.GatewayListen)
		if err != nil {
			return machineError("gateway.listen: %w", err)
		}
		o.public = l
	}
	h, err := buildHouse(ctx, cfg, log, o)
	if err != nil {
		if o.public != nil {
			err = errors.Join(err, o.public.Close())
		}
		return err
	}
	log.Info().Str("event", "pilder.started").Str("version", version).Str("role", o.role).Send()
	err = h.Run(ctx)
	log.Info().Str("event", "pilder.stopped").Send()
	return errors.Join(err, h.Close())
}

// newLog writes one JSON line per event, or text for a human at a terminal.
func newLog(cfg Config, out io.Writer) zerolog.Logger {
	level, err := zerolog.ParseLevel(cfg.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel // check() let only real levels through
	}
	if cfg.LogFormat == "text" {
		_, isFile := out.(*os.File)
		out = zerolog.ConsoleWriter{Out: out, NoColor: !isFile}
	}
	return zerolog.New(out).Level(level).Hook(stamp{})
}

// stamp dates a line to the microsecond, so that where a turn's time went can be read from the lines of one machine; the
// library's own form has whole seconds.
type stamp struct{}

// Run implements zerolog.Hook.
func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format(stampForm))
}

const stampForm = "2006-01-02T15:04:05.000000Z07:00"
