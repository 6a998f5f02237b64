package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"pilder/configs"
)

// version is the product's. A release sets it; CHANGELOG.md says what each one changed.
const version = "0.1.0"

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the versions of pilder and of the CLI it is built for", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(cmd.OutOrStdout(), "pilder %s (%s, %s/%s), Claude Code %s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, configs.CLI().Version)
			return nil
		},
	}
}

func migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "bring the database to this build's schema (serve does it too)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			s, err := openStore(cmd.Context(), cfg) // migrates
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "schema is up to date")
			return s.Close()
		},
	}
}
