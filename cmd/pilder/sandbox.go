package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "what an agent runs in"}
	cmd.AddCommand(&cobra.Command{
		Use: "exec -- CMD [ARG…]", Short: "run a command exactly as an agent's would be run", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			box, err := newSandbox(cfg, false)
			if err != nil {
				return machineError("%w", err)
			}
			code, err := box.Exec(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if code != 0 {
				return &codedError{code, fmt.Errorf("%s ended with %d", args[0], code)}
			}
			return nil
		},
	})
	return cmd
}
