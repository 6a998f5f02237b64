package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"pilder/gateway/upstream"
	"pilder/store"
)

func upstreamCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "upstream", Short: "other MCP servers whose tools agents get"}
	cmd.AddCommand(upstreamListCommand(), upstreamSecretCommand(), upstreamReviewCommand(), upstreamAcceptCommand())
	return cmd
}

// findUpstream gives the configured upstream of a slug.
func findUpstream(cfg Config, slug string) (upstream.Spec, error) {
	i := slices.IndexFunc(cfg.Upstreams, func(u upstream.Spec) bool { return u.Slug == slug })
	if i < 0 {
		return upstream.Spec{}, usageError("no upstream %q is configured (upstreams in pilder.yaml)", slug)
	}
	return cfg.Upstreams[i], nil
}

func upstreamListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "list the upstreams, how many tools each has, and how many wait for you", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				held, err := s.HeldUpstreamTools(ctx)
				if err != nil {
					return err
				}
				for _, u := range cfg.Upstreams {
					listed, err := countTools(ctx, s, u.Slug)
					if err != nil {
						return err
					}
					waiting := 0
					for _, t := range held {
						if t.Upstream == u.Slug {
							waiting++
						}
					}
					where := u.URL
					if where == "" {
						where = u.Command[0]
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%-24s %-8s %4d tools %4d waiting  %s\n", u.Slug, u.Auth, listed, waiting, where)
				}
				return nil
			})
		},
	}
}

// countTools counts the tools in the last list of an upstream or, where each company has a list to itself, in any of them.
func countTools(ctx context.Context, s *store.Store, slug string) (int, error) {
	companies, err := s.UpstreamCompanies(ctx, slug)
	if err != nil {
		return 0, err
	}
	listed := map[string]bool{}
	for _, company := range append(companies, "") {
		tools, err := s.UpstreamTools(ctx, slug, company)
		if err != nil {
			return 0, err
		}
		for _, t := range tools {
			if t.Listed {
				listed[t.Tool] = true
			}
		}
	}
	return len(listed), nil
}

func upstreamSecretCommand() *cobra.Command {
	var forget bool
	cmd := &cobra.Command{
		Use: "secret SLUG", Short: "keep the secret of an upstream with auth: header, or of its OAuth client; it is read from standard input", Args: cobra.ExactArgs(1),
		Long: "Reads one line from standard input and keeps it sealed in the database: pilder upstream secret wiki < token.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			u, err := findUpstream(cfg, args[0])
			if err != nil {
				return err
			}
			if u.Auth != upstream.AuthHeader && u.OAuth.ClientID == "" {
				return usageError("upstream %s has no auth: header and no oauth.client_id", u.Slug)
			}
			var secret store.Secret
			if !forget {
				text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 64<<10))
				line := strings.TrimSpace(string(text))
				if err != nil || line == "" || strings.ContainsFunc(line, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
					return usageError("standard input must be one line of printable characters")
				}
				secret = store.NewSecret(line)
			}
			return withStore(cmd, func(ctx context.Context, s *store.Store) error { return s.SetUpstreamSecret(ctx, u.Slug, secret) })
		},
	}
	cmd.Flags().BoolVar(&forget, "forget", false, "remove the secret that is kept")
	return cmd
}

func upstreamReviewCommand() *cobra.Command {
	return &cobra.Command{
		Use: "review [SLUG]", Short: "show the tools that are held back, and what has changed in them", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				held, err := s.HeldUpstreamTools(ctx)
				if err != nil {
					return err
				}
				for _, t := range held {
					if len(args) == 1 && t.Upstream != args[0] {
						continue
					}
					of := ""
					if t.Company != "" {
						of = " --company " + string(t.Company)
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, since %s\n%sto accept it: pilder upstream accept %s %s%s\n\n", t.Upstream, visible(t.Tool),
						t.Held.At.Local().Format("2006-01-02 15:04"), definitionDiff(t.Accepted.Text, t.Held.Text), t.Upstream, t.Held.Hash[:16], of)
				}
				return nil
			})
		},
	}
}

func upstreamAcceptCommand() *cobra.Command {
	var company string
	cmd := &cobra.Command{
		Use: "accept SLUG HASH", Short: "accept a held definition, by the hash that review has printed", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args[1]) < 16 {
				return usageError("HASH needs 16 digits at least")
			}
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				held, err := s.HeldUpstreamTools(ctx)
				if err != nil {
					return err
				}
				err = store.ErrNotFound
				for _, t := range held {
					if t.Upstream == args[0] && string(t.Company) == company && strings.HasPrefix(t.Held.Hash, args[1]) {
						err = s.AcceptUpstreamTool(ctx, t.Upstream, t.Company, t.Tool, t.Held.Hash)
					}
				}
				if errors.Is(err, store.ErrNotFound) {
					return fmt.Errorf("nothing of %s is held with that hash; see: pilder upstream review", args[0])
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&company, "company", "", "id of the company whose list it is, where each has its own")
	return cmd
}

// definitionDiff shows two definitions line by line: what went with -, what came with +.
func definitionDiff(was, is json.RawMessage) string {
	before, after := jsonLines(was), jsonLines(is)
	common := make([][]int, len(before)+1) // of the tails from i and j on
	for i := range common {
		common[i] = make([]int, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if before[i] == after[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var b strings.Builder
	for i, j := 0, 0; i < len(before) || j < len(after); {
		switch {
		case i < len(before) && j < len(after) && before[i] == after[j]:
			fmt.Fprintf(&b, "  %s\n", before[i])
			i, j = i+1, j+1
		case i < len(before) && (j == len(after) || common[i+1][j] >= common[i][j+1]):
			fmt.Fprintf(&b, "- %s\n", before[i])
			i++
		default:
			fmt.Fprintf(&b, "+ %s\n", after[j])
			j++
		}
	}
	return b.String()
}

// maxDiffLines bounds what is compared; beyond it the rest is one line that tells so.
const maxDiffLines = 2000

func jsonLines(raw json.RawMessage) []string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Indent(&b, raw, "", "  ") != nil {
		return nil
	}
	lines := strings.Split(visible(b.String()), "\n")
	if len(lines) > maxDiffLines {
		lines = append(lines[:maxDiffLines], fmt.Sprintf("… %d more lines", len(lines)-maxDiffLines))
	}
	return lines
}

// visible writes characters that a terminal obeys or hides as their numbers: the text is an outsider's.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp)) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
