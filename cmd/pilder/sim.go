package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"pilder/sim/anthropic"
	"pilder/sim/pipedream"
	"pilder/sim/telegram"
)

func simCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sim", Short: "stand-ins that speak the real protocols, on loopback"}
	add := func(name, listen, short string, run func(ctx context.Context, listen string, log io.Writer) error) {
		one := &cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := onLoopback(listen); err != nil {
					return err
				}
				return run(cmd.Context(), listen, cmd.OutOrStdout())
			},
		}
		one.Flags().StringVar(&listen, "listen", listen, "loopback address")
		cmd.AddCommand(one)
	}
	add("telegram", "127.0.0.1:8081", "Bot API and a chat page", func(ctx context.Context, listen string, log io.Writer) error {
		return telegram.Run(ctx, listen, telegram.Config{People: demoChatPeople()}, log)
	})
	add("anthropic", "127.0.0.1:8082", "Messages API played by scripts", func(ctx context.Context, listen string, log io.Writer) error {
		return anthropic.Run(ctx, listen, anthropic.Config{}, log)
	})
	add("pipedream", "127.0.0.1:8083", "Pipedream Connect with a ledger of what was performed", func(ctx context.Context, listen string, log io.Writer) error {
		return pipedream.Run(ctx, listen, pipedream.Config{}, log)
	})
	return cmd
}
