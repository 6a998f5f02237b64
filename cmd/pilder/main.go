package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // people's zones, also where the machine has no zone files

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

// exitError carries a code beside its one line.
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

func main() {
	if code, inside := runner.Reexec(os.Args); inside {
		os.Exit(code) // started by a sandbox: before anything reads a configuration or an environment
	}
	os.Exit(Main(os.Args[1:]))
}

// Main runs one command and gives its exit code. Scripts of the tests call it too.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "pilder:", err)
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &codedError{exitUsage, err} })
	root.AddCommand(
		serveCommand(), demoCommand(), runCommand(), initCommand(), doctorCommand(), migrateCommand(), versionCommand(),
		companyCommand(), personCommand(), inviteCommand(), runsCommand(), toolsCommand(), auditCommand(),
		sandboxCommand(), simCommand(), cliCommand(),
	)
	return root
}

// loadConfig reads the configuration of a command line.
func loadConfig(cmd *cobra.Command) (Config, error) {
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return Config{}, err
	}
	cfg, err := LoadConfig(file, os.Environ())
	if err != nil {
		return Config{}, &codedError{exitMachine, err}
	}
	return cfg, nil
}
