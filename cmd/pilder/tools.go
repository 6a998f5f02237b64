package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"pilder/gateway"
	"pilder/gateway/native"
	"pilder/gateway/pipedream"
	"pilder/policy"
	"pilder/store"
)

// listedTool is a line of `pilder tools list --json`.
type listedTool struct {
	Name        string       `json:"name"`
	Connector   string       `json:"connector"`
	App         string       `json:"app"`
	Scope       policy.Scope `json:"scope"`
	Annotations listedHints  `json:"annotations"`
}

// listedHints are the annotations as MCP spells them.
type listedHints struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

func toolsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tools", Short: "what agents can call"}
	var asJSON bool
	list := &cobra.Command{
		Use: "list", Short: "the whole catalogue: house tools, and the offered actions of every app", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			tools, err := catalogue(cmd, cfg)
			if err != nil {
				return err
			}
			return printTools(cmd.OutOrStdout(), tools, asJSON)
		},
	}
	list.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	cmd.AddCommand(list, toolsReviewCommand(), toolsAcceptCommand())
	return cmd
}

// catalogue asks every connector for what it would offer somebody with everything connected. Without a project there are
// the house tools only, which it says on standard error.
func catalogue(cmd *cobra.Command, cfg Config) ([]gateway.Tool, error) {
	ctx, everything := cmd.Context(), gateway.Caller{Lang: "es"}
	house := deafConfig()
	var connectors []gateway.Connector
	if cfg.PipedreamProject == "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "pilder: no connected apps are configured (pipedream.project_id); these are the house tools")
		everything.Apps = []string{"gmail"}
		house.Apps = []gateway.App{{Slug: "google_calendar", Name: policy.Text{ES: "Google Calendar", EN: "Google Calendar"}}}
	} else {
		pd := pipedreamConfig(cfg)
		pd.Log = zerolog.Nop()
		apps, err := pipedream.New(pd)
		if err != nil {
			return nil, err
		}
		if err := apps.Warm(ctx); err != nil {
			return nil, fmt.Errorf("asking Pipedream for the definitions: %w", err)
		}
		for _, a := range apps.Apps() {
			everything.Apps = append(everything.Apps, a.Slug)
		}
		house.Apps = []gateway.App{{Slug: "another_app", Name: policy.Text{ES: "otra app", EN: "another app"}}}
		connectors = append(connectors, apps)
	}
	own, err := native.New(house)
	if err != nil {
		return nil, err
	}
	var all []gateway.Tool
	for _, c := range append([]gateway.Connector{own}, connectors...) {
		tools, err := c.Tools(ctx, everything)
		if err != nil {
			return nil, err
		}
		all = append(all, tools...)
	}
	if len(cfg.Upstreams) > 0 {
		tools, err := upstreamTools(cmd, cfg)
		if err != nil {
			return nil, err
		}
		all = append(all, tools...)
	}
	for _, t := range all {
		if err := gateway.CheckTool(t); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// deafConfig is for listing only: no tool can act through it.
func deafConfig() native.Config {
	listing := errors.New("this process only lists tools")
	return native.Config{
		Send: func(context.Context, gateway.Call, native.Mail) (gateway.Result, error) {
			return gateway.Result{}, listing
		},
		Pending: func(context.Context, policy.Principal) ([]store.Approval, error) { return nil, listing },
		Link:    func(context.Context, gateway.Caller, string) error { return listing },
	}
}

func printTools(out io.Writer, tools []gateway.Tool, asJSON bool) error {
	lines := []listedTool{}
	for _, t := range tools {
		lines = append(lines, listedTool{t.Name, t.Connector, t.App, t.Scope, listedHints(t.Annotations)})
	}
	if asJSON {
		return json.NewEncoder(out).Encode(lines)
	}
	for _, t := range lines {
		fmt.Fprintf(out, "%-48s %-10s %-16s %s\n", t.Name, t.Connector, t.App, t.Scope)
	}
	return nil
}
