package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"pilder/policy"
)

// freeze fixes what the run's member may do, as the company is now.
func (s *Store) freeze(ctx context.Context, tx *sql.Tx, r *Run, m MembershipID) (err error) {
	if r.Member, err = membership(ctx, tx, `m.company_id = $1 AND m.membership_id = $2`, r.Principal.Company, m); err != nil {
		return err
	}
	if r.Accounts, err = s.accountsWhere(ctx, tx, `company_id = $1 AND membership_id = $2 AND state = 'active'`, r.Principal.Company, m); err != nil {
		return err
	}
	var others int
	if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM membership WHERE company_id = $1 AND membership_id <> $2 AND role IN ('approver', 'admin')`,
		r.Principal.Company, m).Scan(&others); err != nil {
		return err
	}
	var apps []string
	for _, a := range r.Accounts {
		apps = append(apps, a.App)
	}
	r.Principal = r.Member.Principal()
	r.Principal.Run, r.Principal.Scopes = r.ID, r.Member.Role.Scopes()
	r.Grant = policy.NewGrant(policy.GrantInput{
		Principal: r.Principal, Domains: r.Member.Company.Domains, Apps: apps, NobodyElseApproves: others == 0,
	})
	return nil
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
