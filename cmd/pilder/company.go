package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pilder/policy"
	"pilder/store"
)

// withStore opens the configured store for one command.
func withStore(cmd *cobra.Command, do func(ctx context.Context, s *store.Store) error) error {
	cfg, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	s, err := openStore(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(cmd.Context(), s), s.Close())
}

func companyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "company", Short: "the companies served here"}
	c := store.Company{}
	add := &cobra.Command{
		Use: "add NAME", Short: "add a company", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Name = args[0]
			if err := checkCompany(c); err != nil {
				return err
			}
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				all, err := s.Companies(ctx)
				if err != nil {
					return err
				}
				if slices.ContainsFunc(all, func(o store.Company) bool { return strings.EqualFold(o.Name, c.Name) }) {
					return fmt.Errorf("there is a company %q already", c.Name)
				}
				made, err := s.CreateCompany(ctx, c)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), made.ID)
				return nil
			})
		},
	}
	add.Flags().StringSliceVar(&c.Domains, "domain", nil, "mail domain of the company's own people (repeat it)")
	add.Flags().StringVar(&c.Zone, "zone", "America/Argentina/Buenos_Aires", "time zone, IANA name")
	add.Flags().StringVar(&c.Lang, "lang", "es", "language: es or en")
	list := &cobra.Command{
		Use: "list", Short: "list the companies", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				all, err := s.Companies(ctx)
				for _, c := range all {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\t%s\t%s\n", c.ID, c.Name, strings.Join(c.Domains, ","), c.Zone)
				}
				return err
			})
		},
	}
	cmd.AddCommand(add, list)
	return cmd
}

func checkCompany(c store.Company) error {
	if strings.TrimSpace(c.Name) == "" {
		return usageError("a company needs a name")
	}
	if _, err := time.LoadLocation(c.Zone); err != nil || c.Zone == "" {
		return usageError("--zone %q is no IANA time zone", c.Zone)
	}
	for _, d := range c.Domains {
		if ascii, ok := policy.Domain(d); !ok || !strings.Contains(ascii, ".") {
			return usageError("--domain %q is no mail domain", d)
		}
	}
	if c.Lang != "es" && c.Lang != "en" {
		return usageError("--lang must be es or en, not %q", c.Lang)
	}
	return nil
}

func personCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "person", Short: "the people of a company"}
	list := &cobra.Command{
		Use: "list COMPANY", Short: "list a company's people and roles", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				company, err := findCompany(ctx, s, args[0])
				if err != nil {
					return err
				}
				members, err := s.Members(ctx, company.ID)
				for _, m := range members {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\t%d\t%s\n", m.ID, m.Role, m.Person.Telegram, m.Person.Name)
				}
				return err
			})
		},
	}
	cmd.AddCommand(list)
	return cmd
}

func inviteCommand() *cobra.Command {
	var role string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "invite COMPANY", Short: "make an invitation link for a person", Args: cobra.ExactArgs(1),
		Long: "Makes a link that can be used once. The first person of a company is invited as --role admin.",
		RunE: func(cmd *cobra.Command, args []string) error {
			r := policy.Role(role)
			if r != policy.RoleMember && r != policy.RoleApprover && r != policy.RoleAdmin {
				return usageError("--role must be admin, approver or member, not %q", role)
			}
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			var token store.Secret
			err = withStore(cmd, func(ctx context.Context, s *store.Store) error {
				company, err := findCompany(ctx, s, args[0])
				if err == nil {
					token, err = s.Invite(ctx, company.ID, r, "", ttl)
				}
				return err
			})
			if err != nil {
				return err
			}
			printInvitation(cmd, cfg, token)
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", string(policy.RoleMember), "admin, approver or member")
	cmd.Flags().DurationVar(&ttl, "for", 72*time.Hour, "how long the link is good")
	return cmd
}

// printInvitation prints the t.me link when the bot can be asked its name, else what the person has to write to it.
func printInvitation(cmd *cobra.Command, cfg Config, token store.Secret) {
	name, err := botName(cmd.Context(), cfg)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "pilder: the bot's name is not known, so there is no link; the person writes this to the bot:", err)
		fmt.Fprintf(cmd.OutOrStdout(), "/start %s\n", token.Reveal())
		return
	}
	fmt.Fprintf(cmd.OutOrStdout(), "https://t.me/%s?start=%s\n", name, token.Reveal())
}

// findCompany takes an id or an exact name.
func findCompany(ctx context.Context, s *store.Store, which string) (store.Company, error) {
	all, err := s.Companies(ctx)
	if err != nil {
		return store.Company{}, err
	}
	for _, c := range all {
		if string(c.ID) == which || c.Name == which {
			return c, nil
		}
	}
	return store.Company{}, fmt.Errorf("no company %q; `pilder company list` shows them", which)
}

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "who did what, chained by hash"}
	var limit int
	list := &cobra.Command{
		Use: "list COMPANY", Short: "print the newest audit rows as JSON lines", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				company, err := findCompany(ctx, s, args[0])
				if err != nil {
					return err
				}
				rows, err := s.Audit(ctx, company.ID, limit)
				if err != nil {
					return err
				}
				lines := json.NewEncoder(cmd.OutOrStdout())
				for _, r := range rows {
					if err := lines.Encode(r); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	list.Flags().IntVar(&limit, "limit", 100, "at most so many rows")
	verify := &cobra.Command{
		Use: "verify COMPANY", Short: "check a company's chain; names the first broken row", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, func(ctx context.Context, s *store.Store) error {
				company, err := findCompany(ctx, s, args[0])
				if err != nil {
					return err
				}
				rows, err := s.VerifyAudit(ctx, company.ID)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%d rows hold\n", rows)
				return nil
			})
		},
	}
	cmd.AddCommand(list, verify)
	return cmd
}
