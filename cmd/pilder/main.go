package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // people's zones, also where the machine has no zone files

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"pilder/runner"
)

// Exit codes, for scripts. 78 is EX_CONFIG of sysexits: the machine or the configuration must change, starting again will
// not help.
const (
	exitOK      = 0
	exitError   = 1
	exitUsage   = 2
	exitMachine = 78
)

// codedError carries an exit code beside its one line.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// machineError is an error that only a change of the machine or the configuration mends.
func machineError(format string, a ...any) error {
	return &codedError{exitMachine, fmt.Errorf(format, a...)}
}

// usageError is a command line that says nothing we know.
func usageError(format string, a ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, a...)}
}

func main() {
	if code, inside := runner.Reexec(os.Args); inside {
		os.Exit(code) // started by a sandbox: before anything reads a configuration or an environment
	}
	zerolog.ErrorFieldName = "err" // the key that is promised
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the first signal ends in order; a second one is not waited for
	os.Exit(Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Main runs one command and gives its exit code. Tests call it too.
func Main(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(errs, "pilder:", err)
	if coded := (*codedError)(nil); errors.As(err, &coded) {
		return coded.code
	}
	return exitError
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pilder",
		Short: "One Telegram bot for a company's people; an agent acts on their apps under the company's rules",
		Long: "pilder lets a company's people ask for things in Telegram. For each message it runs an agent in a sandbox;\n" +
			"the agent acts on the person's connected apps through pilder's gateway, under the company's rules,\n" +
			"and a human approves what needs approving.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().String("config", os.Getenv("PILDER_CONFIG"), "configuration file (default ./pilder.yaml if it is there)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError("%w", err) })
	root.AddCommand(
		serveCommand(), demoCommand(), runCommand(), initCommand(), doctorCommand(), migrateCommand(), versionCommand(),
		companyCommand(), personCommand(), inviteCommand(), runsCommand(), toolsCommand(), upstreamCommand(), policyCommand(), auditCommand(),
		sandboxCommand(), simCommand(), cliCommand(),
	)
	strict(root)
	return root
}

// strict makes every refusal of a command line a usage error. cobra's own are plain errors, and of a word that is no
// subcommand of a group it makes a success with the group's help.
func strict(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError("%w", err)
			}
			return nil
		}
	}
	if !cmd.Runnable() {
		cmd.Args, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return usageError("%s has no command %q; did you mean %s?", cmd.CommandPath(), args[0], strings.Join(near, " or "))
			}
			return usageError("%s has no command %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
		}
	}
	for _, c := range cmd.Commands() {
		strict(c)
	}
}

// loadConfig reads the configuration of a command line.
func loadConfig(cmd *cobra.Command) (Config, error) {
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return Config{}, err
	}
	cfg, err := LoadConfig(file, os.Environ())
	if err != nil {
		return Config{}, machineError("%w", err)
	}
	return cfg, nil
}
