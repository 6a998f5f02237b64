package store

import (
	"context"
	"encoding/json"
	"fmt"

	"pilder/policy"
)

// freeze fixes what the run's member may do, as the company is now.
func (s *Store) freeze(ctx context.Context, q queryer, r *Run, m MembershipID) (err error) {
	if r.Member, err = membership(ctx, q, `m.company_id = $1 AND m.membership_id = $2`, r.Principal.Company, m); err != nil {
		return err
	}
	if r.Accounts, err = s.accountsWhere(ctx, q, `company_id = $1 AND membership_id = $2 AND `+inUse, r.Principal.Company, m); err != nil {
		return err
	}
	if r.Preferences, err = s.preferences(ctx, q, r.Principal.Company, m); err != nil {
		return err
	}
	var others int
	if err := q.QueryRowContext(ctx, `SELECT COUNT(*) FROM membership WHERE company_id = $1 AND membership_id <> $2 AND role IN ('approver', 'admin')`,
		r.Principal.Company, m).Scan(&others); err != nil {
		return err
	}
	var apps []string
	for _, a := range r.Accounts {
		apps = append(apps, a.App)
	}
	r.Principal = r.Member.Principal()
	r.Principal.Run, r.Principal.Scopes = r.ID, r.Member.Role.Scopes()
	own, err := s.policyOf(ctx, q, r.Principal.Company)
	if err != nil {
		return err
	}
	in := policy.GrantInput{
		Principal: r.Principal, Domains: r.Member.Company.Domains, Apps: apps, NobodyElseApproves: others == 0, PolicyVersion: own.Version,
	}
	in.Policy, err = policy.Parse([]byte(own.Text))
	in.Broken = err != nil // it was read when it was set: this binary knows less
	r.Grant = policy.NewGrant(in)
	return nil
}

// AsOfNow gives what a run of a member would be frozen with at this moment. It is no run: it has no id and no state.
func (s *Store) AsOfNow(ctx context.Context, company CompanyID, m MembershipID) (Run, error) {
	r := Run{Principal: policy.Principal{Company: company}}
	if err := s.freeze(ctx, s.reads, &r, m); err != nil {
		return Run{}, fmt.Errorf("reading what %s may do: %w", m, err)
	}
	return r, nil
}

// frozenTexts is what a run's row keeps of what was frozen. Two runs may do the same when these are equal.
type frozenTexts struct{ scopes, grant, accounts string }

func (r Run) frozenTexts() (f frozenTexts, err error) {
	ids := make([]AccountID, 0, len(r.Accounts))
	for _, a := range r.Accounts {
		ids = append(ids, a.ID)
	}
	for _, c := range []struct {
		value any
		into  *string
	}{{r.Principal.Scopes, &f.scopes}, {r.Grant, &f.grant}, {ids, &f.accounts}} {
		b, err := json.Marshal(c.value)
		if err != nil {
			return frozenTexts{}, err
		}
		*c.into = string(b)
	}
	return f, nil
}
