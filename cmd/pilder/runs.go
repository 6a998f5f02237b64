package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"pilder/policy"
	"pilder/store"
)

func runsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "runs", Short: "what the agents did"}
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "the newest runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				runs, err := s.Runs(ctx, "", limit)
				for _, r := range slices.Backward(runs) {
					printRun(cmd.OutOrStdout(), r)
				}
				return err
			})
		},
	}
	list.Flags().IntVar(&limit, "limit", 20, "at most so many")
	show := &cobra.Command{
		Use: "show RUN", Short: "one run: its calls, replies and times, as JSON", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				run, err := s.RunByID(ctx, policy.RunID(args[0]))
				if err != nil {
					return fmt.Errorf("run %s: %w", args[0], err)
				}
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(run)
			})
		},
	}
	tail := &cobra.Command{
		Use: "tail", Short: "follow the runs as they end", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error { return tailRuns(ctx, s, cmd.OutOrStdout()) })
		},
	}
	cmd.AddCommand(list, show, tail)
	return cmd
}

// tailRuns prints each run once when it has ended, from now on. It looks at the newest hundred.
func tailRuns(ctx context.Context, s *store.Store, out io.Writer) error {
	var before map[policy.RunID]bool // those that had ended at the last look; nil: this is the first
	for {
		runs, err := s.Runs(ctx, "", 100)
		if err != nil {
			return err
		}
		ended := map[policy.RunID]bool{}
		for _, r := range slices.Backward(runs) {
			if r.Ended.IsZero() {
				continue
			}
			ended[r.ID] = true
			if before != nil && !before[r.ID] {
				printRun(out, r)
			}
		}
		before = ended
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func printRun(out io.Writer, r store.RunView) {
	process := "cold"
	if r.Warm {
		process = "warm"
	}
	fmt.Fprintf(out, "%s  %s  %-11s %-10s %s calls=%d turns=%d tokens=%d cost=$%.4f %dms\n",
		r.Started.Local().Format("01-02 15:04:05"), r.ID, r.State, r.Reason, process, len(r.Calls), r.Turns,
		r.Tokens.Input+r.Tokens.Output+r.Tokens.CacheRead+r.Tokens.CacheWrite, r.CostUSD, r.Stages.Total)
}
