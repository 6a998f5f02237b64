package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"pilder/runner"
)

func sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "what an agent runs in"}
	var shell bool
	run := &cobra.Command{
		Use: "exec -- CMD [ARG…]", Example: "  pilder sandbox exec -- ls -la /\n  pilder sandbox exec --shell 'ls -la /work | head'", Short: "run a command exactly as an agent's would be run", Args: cobra.MinimumNArgs(1),
		Long: "The command runs as the CLI of a run does: same mounts (with the agent home at /agent and the CLI at /opt/claude), user,\n" +
			"limits, system-call filter and outer fence. What differs: no door is open, /run/pilder is not there, /work and /state\n" +
			"are empty and in memory, and the environment has no key and none of the CLI's own variables.\n\n" +
			"With --shell the one argument is a line for the agent's Bash tool, in the inner fence: the CLI's state, token and doors\n" +
			"are out of its reach.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			box, err := newSandbox(cfg, false)
			if err != nil {
				return machineError("%w", err)
			}
			if shell {
				if len(args) != 1 {
					return usageError("--shell takes one command line, in quotes")
				}
				args = runner.ShellArgv(args[0])
			}
			code, err := box.Exec(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if code != 0 {
				what := args[0]
				if shell {
					what = "the command line"
				}
				return &codedError{code, fmt.Errorf("%s ended with %d", what, code)}
			}
			return nil
		},
	}
	run.Flags().BoolVar(&shell, "shell", false, "run one line as the agent's Bash tool does")
	cmd.AddCommand(run)
	return cmd
}
