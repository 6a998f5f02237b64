package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pilder/policy"
	"pilder/store"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "what a company's agents may do"}
	cmd.AddCommand(policyCheckCommand(), policyTestCommand(), policyExplainCommand(), policySetCommand(), policyShowCommand(), policyListCommand())
	return cmd
}

// readPolicy reads a policy file, "-" being standard input. What is wrong with it is told with the file's name and lines.
func readPolicy(cmd *cobra.Command, file string) (policy.Policy, string, error) {
	in := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return policy.Policy{}, "", usageError("%v", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, 1<<20))
	if err != nil {
		return policy.Policy{}, "", fmt.Errorf("reading %s: %w", file, err)
	}
	p, err := policy.Parse(text)
	var wrong *policy.FileError
	if errors.As(err, &wrong) {
		for _, problem := range wrong.Problems {
			place := file
			if problem.Line > 0 {
				place = fmt.Sprintf("%s:%d", file, problem.Line)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", place, problem.Reason)
		}
		return p, "", fmt.Errorf("%s is no policy", file)
	}
	return p, string(text), err
}

func policyCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "read a policy file and say what is wrong with it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, _, err := readPolicy(cmd, args[0])
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%d rules, %d rules of the house changed, %d vetoes, %d cases\n", len(p.Rules), len(p.House), len(p.Vetoes), len(p.Cases))
			}
			return err
		},
	}
}

func policyTestCommand() *cobra.Command {
	var domains []string
	cmd := &cobra.Command{
		Use: "test FILE", Short: "run the cases of a policy file", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, _, err := readPolicy(cmd, args[0])
			if err != nil {
				return err
			}
			failed := 0
			for _, c := range p.Cases {
				d, met := c.Met(p, domains)
				word := "ok  "
				if !met {
					word, failed = "FAIL", failed+1
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %s: %s %s\n", word, c.Name, d.Effect, d.Rule)
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d cases are not met", failed, len(p.Cases))
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&domains, "domain", nil, "mail domain of the company's own people (repeat it)")
	return cmd
}

// explained is what `pilder policy explain --json` prints.
type explained struct {
	Effect policy.Effect  `json:"effect"`
	Rule   string         `json:"rule,omitempty"`
	Told   string         `json:"told,omitempty"` // what the person would read
	Policy string         `json:"policy"`         // version
	Voices []policy.Voice `json:"voices"`
}

func policyExplainCommand() *cobra.Command {
	var file, app, class, at, said string
	var taint []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "explain COMPANY MEMBERSHIP TOOL [ARGUMENTS]", Short: "say what would happen to a call, and why", Args: cobra.RangeArgs(3, 4),
		Long: "Says what would happen if the agent of a member (see: pilder person list) called a tool with these arguments (JSON).\n" +
			"Nothing is called. With --file it says so for a policy that is not set yet.",
		RunE: func(cmd *cobra.Command, args []string) error {
			action, err := explainedAction(args[2:], app, class, at)
			if err != nil {
				return err
			}
			action.Taint, action.Said = taint, said
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				company, err := findCompany(ctx, s, args[0])
				if err != nil {
					return err
				}
				now, err := s.AsOfNow(ctx, company.ID, policy.MembershipID(args[1]))
				if err != nil {
					return fmt.Errorf("membership %s: %w", args[1], err)
				}
				if file != "" {
					p, _, err := readPolicy(cmd, file)
					if err != nil {
						return err
					}
					now.Grant = policy.NewGrant(policy.GrantInput{Principal: now.Principal, Domains: company.Domains, Apps: now.Grant.Apps,
						NobodyElseApproves: now.Grant.SoleAdmin, Policy: p})
				}
				now.Grant = now.Grant.WithApps(append(slices.Clone(now.Grant.Apps), openSlugs(cfg.Upstreams, company.ID)...))
				return printExplained(cmd.OutOrStdout(), now, action, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "a policy file instead of the policy that is set")
	cmd.Flags().StringVar(&app, "app", "", "the tool's app; empty: what stands before the first - of its name, if the house has no such tool")
	cmd.Flags().StringVar(&class, "action", "unknown", "what the tool does: read, write, destructive or unknown")
	cmd.Flags().StringVar(&at, "at", "", "when, like 2026-12-01T20:00:00-03:00; empty: now")
	cmd.Flags().StringSliceVar(&taint, "taint", nil, "slug of an app whose words the conversation has taken in, or web (repeat it)")
	cmd.Flags().StringVar(&said, "said", "", "what the person has written")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

// explainedAction is the call that is asked about: a tool and its arguments.
func explainedAction(call []string, app, class, at string) (policy.Action, error) {
	a := policy.Action{Tool: call[0], App: app, Scope: policy.ScopeAppsRead, Args: json.RawMessage(`{}`), At: time.Now()}
	if slug, _, ok := strings.Cut(call[0], "-"); ok && app == "" {
		a.App = slug
	}
	switch class {
	case "read", "write", "destructive":
		a.Class = policy.Class(class)
	case "unknown":
	default:
		return a, usageError("--action %q is none of read, write, destructive, unknown", class)
	}
	if len(call) > 1 {
		if a.Args = json.RawMessage(call[1]); !json.Valid(a.Args) {
			return a, usageError("the arguments are no JSON: %.60s", call[1])
		}
	}
	if at != "" {
		var err error
		if a.At, err = time.Parse(time.RFC3339, at); err != nil {
			return a, usageError("--at %q is not like 2026-12-01T20:00:00-03:00", at)
		}
	}
	return a, nil
}

func printExplained(out io.Writer, now store.Run, a policy.Action, asJSON bool) error {
	lang := now.Member.Person.Lang
	judge := now.Grant.Judge()
	d := judge.Decide(now.Principal, a)
	e := explained{Effect: d.Effect, Rule: d.Rule, Told: now.Grant.Sentence(d, lang), Policy: now.Grant.Version,
		Voices: judge.Explain(now.Principal, a)}
	if asJSON {
		return json.NewEncoder(out).Encode(e)
	}
	fmt.Fprintf(out, "%s  %s  policy %s\n", e.Effect, e.Rule, e.Policy)
	if e.Told != "" {
		fmt.Fprintln(out, e.Told)
	}
	for _, v := range e.Voices {
		says := "does not apply"
		if v.Applies {
			says = v.Effect.String()
		}
		fmt.Fprintf(out, "  %-24s %s\n", v.Rule, says)
	}
	return nil
}

func policySetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "set COMPANY FILE", Short: "make a file a company's policy, from its next turn on", Args: cobra.ExactArgs(2),
		Long: "Makes a file a company's policy, from its next turn on. Its cases must be met. An empty file leaves the house's rules alone.",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, text, err := readPolicy(cmd, args[1])
			if err != nil {
				return err
			}
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				company, err := findCompany(ctx, s, args[0])
				if err != nil {
					return err
				}
				before, err := s.Policy(ctx, company.ID)
				if err != nil {
					return err
				}
				version, err := s.SetPolicy(ctx, store.UpdateRef{}, company.ID, "", before.Version, text)
				var unmet *policy.CaseError
				if errors.As(err, &unmet) {
					return unmet
				}
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "version %d\n", version)
				}
				return err
			})
		},
	}
}

func policyShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show COMPANY", Short: "print the policy file in force", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				company, err := findCompany(ctx, s, args[0])
				if err != nil {
					return err
				}
				p, err := s.Policy(ctx, company.ID)
				if err == nil && p.Version == 0 {
					fmt.Fprintln(cmd.ErrOrStderr(), "pilder: this company has the house's rules alone")
				}
				fmt.Fprint(cmd.OutOrStdout(), p.Text)
				return err
			})
		},
	}
}

func policyListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list COMPANY", Short: "list the versions of a company's policy, and who set them", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				company, err := findCompany(ctx, s, args[0])
				if err != nil {
					return err
				}
				all, err := s.Policies(ctx, company.ID, limit)
				for _, p := range all {
					fmt.Fprintf(cmd.OutOrStdout(), "%d\t%s\t%s\t%d bytes\n", p.Version, p.At.Local().Format(time.DateTime), p.By, len(p.Text))
				}
				return err
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "at most so many")
	return cmd
}
