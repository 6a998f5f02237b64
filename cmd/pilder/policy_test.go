package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/policy"
	"pilder/store"
)

const nightPolicy = `house:
  mail.send: allow
rules:
  - id: notes.night
    effect: hold
    apps: [notion]
    when: now.getHours("UTC") >= 20
    reason: {es: es de noche, en: it is night}
cases:
  - {name: a note at night waits, tool: notion-create-page, app: notion, action: write, at: "2026-12-01T21:00:00Z", expect: hold}
  - {name: a mail to a colleague goes, tool: correo_enviar, action: write, args: {para: [a@acme.example]}, expect: allow}
`

// home is a company with one member, and a folder with a policy file.
func home(t *testing.T) (config, file string, member store.Membership) {
	t.Helper()
	quiet(t)
	dir := t.TempDir()
	config, file = filepath.Join(dir, "pilder.yaml"), filepath.Join(dir, "policy.yaml")
	for path, text := range map[string]string{config: "store:\n  url: sqlite:" + dir + "/pilder.db\n", file: nightPolicy} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := LoadConfig(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	company, err := s.CreateCompany(t.Context(), store.Company{Name: "Acme", Domains: []string{"acme.example"}, Zone: "UTC", Lang: "en"})
	if err != nil {
		t.Fatal(err)
	}
	if member, err = s.AddMember(t.Context(), company.ID, store.Person{Telegram: 1, Name: "Mia", Lang: "en"}, policy.RoleMember); err != nil {
		t.Fatal(err)
	}
	if _, err = s.SeedAccount(t.Context(), member, "notion", "apn_1", "mia"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return config, file, member
}

func TestAnOperatorChecksTestsAndSetsAPolicy(t *testing.T) {
	config, file, m := home(t)
	bad := filepath.Join(filepath.Dir(file), "bad.yaml")
	if err := os.WriteFile(bad, []byte("house:\n  mail.sent: deny\nlimits: {calls: -1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unmet := strings.Replace(nightPolicy, "expect: allow", "expect: deny", 1)
	explain := []string{"policy", "explain", "Acme", string(m.ID), "notion-create-page", `{"title":"x"}`, "--action", "write", "--at"}
	for _, step := range []struct {
		stdin string
		args  []string
		want  ran
	}{
		{"", []string{"policy", "check", file}, ran{exitOK, "1 rules, 1 rules of the house changed, 0 vetoes, 2 cases\n", ""}},
		{"", []string{"policy", "check", bad}, ran{1, "", bad + `:2: the house has no rule "mail.sent"; it has mail.send, mail.outside, event.notifies, call.destructive, taint.unnamed, taint.shared, taint.elsewhere, call.unknown` +
			"\n" + bad + ": limits must not be negative\npilder: " + bad + " is no policy\n"}},
		{"", []string{"policy", "test", file, "--domain", "acme.example"}, ran{exitOK, "ok    a note at night waits: hold notes.night\nok    a mail to a colleague goes: allow \n", ""}},
		{unmet, []string{"policy", "test", "-"}, ran{1, "ok    a note at night waits: hold notes.night\nFAIL  a mail to a colleague goes: hold mail.outside\n", "pilder: 1 of 2 cases are not met\n"}},
		{"", []string{"policy", "show", "Acme"}, ran{exitOK, "", "pilder: this company has the house's rules alone\n"}},
		{unmet, []string{"policy", "set", "Acme", "-"}, ran{1, "", "pilder: case \"a mail to a colleague goes\" expects deny, and it is allow\n"}},
		{"", append(explain, "2026-12-01T21:00:00Z"), ran{exitOK, "allow    policy house/3\n  mail.send                does not apply\n  mail.outside             does not apply\n" +
			"  event.notifies           does not apply\n  call.destructive         does not apply\n  taint.unnamed            does not apply\n  taint.shared             does not apply\n  taint.elsewhere          does not apply\n  call.unknown             does not apply\n", ""}},
		{"", []string{"policy", "set", "Acme", file}, ran{exitOK, "version 1\n", ""}},
		{"", []string{"policy", "show", "Acme"}, ran{exitOK, nightPolicy, ""}},
		{"", append(explain, "2026-12-01T21:00:00Z"), ran{exitOK, "hold  notes.night  policy house/3+1\nWaiting for approval: it is night. It was not done.\n" +
			"  mail.send                does not apply\n  mail.outside             does not apply\n  event.notifies           does not apply\n" +
			"  call.destructive         does not apply\n  taint.unnamed            does not apply\n  taint.shared             does not apply\n  taint.elsewhere          does not apply\n  call.unknown             does not apply\n  notes.night              hold\n", ""}},
		{"", append(explain, "2026-12-01T12:00:00Z", "--json"), ran{exitOK, `{"effect":"allow","policy":"house/3+1","voices":[{"rule":"mail.send","effect":"allow","applies":false},` +
			`{"rule":"mail.outside","effect":"hold","applies":false},{"rule":"event.notifies","effect":"confirm","applies":false},` +
			`{"rule":"call.destructive","effect":"confirm","applies":false},{"rule":"taint.unnamed","effect":"confirm","applies":false},{"rule":"taint.shared","effect":"confirm","applies":false},{"rule":"taint.elsewhere","effect":"confirm","applies":false},{"rule":"call.unknown","effect":"confirm","applies":false},` +
			`{"rule":"notes.night","effect":"hold","applies":false}]}` + "\n", ""}},
		{"", []string{"policy", "explain", "Acme", string(m.ID), "gmail-find-email"}, ran{exitOK, "deny  app.not_connected  policy house/3+1\n" +
			"Not allowed: that app is not connected. It was not done.\n  app.not_connected        deny\n", ""}},
		{"", []string{"policy", "set", "Nobody", file}, ran{1, "", "pilder: no company \"Nobody\"; `pilder company list` shows them\n"}},
	} {
		got := pilder(t, step.stdin, append(step.args, "--config", config)...)
		if diff := cmp.Diff(step.want, got, cmp.AllowUnexported(ran{})); diff != "" {
			t.Errorf("%v (-want +got):\n%s", step.args, diff)
		}
	}
	if got := pilder(t, "", "policy", "list", "Acme", "--config", config); got.code != exitOK || !strings.HasPrefix(got.out, "1\t") || !strings.Contains(got.out, "\toperator\t") {
		t.Errorf("list: %+v", got)
	}
	if got := pilder(t, "", "audit", "list", "Acme", "--config", config); !strings.Contains(got.out, `"policy.set"`) {
		t.Errorf("the audit says nothing of it: %s", got.out)
	}
}

func TestACompanyIsAddedOnceAndWithDomainsThatAreSome(t *testing.T) {
	config, _, _ := home(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"acme"}, `there is a company "acme" already`},
		{[]string{"Other", "--domain", "nonsense"}, `--domain "nonsense" is no mail domain`},
		{[]string{"Other", "--domain", "a b.com"}, `--domain "a b.com" is no mail domain`},
	} {
		got := pilder(t, "", append([]string{"company", "add", "--config", config}, c.args...)...)
		if got.code == exitOK || !strings.Contains(got.errs, c.want) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	if got := pilder(t, "", "company", "add", "Other", "--domain", "@Other.example.", "--config", config); got.code != exitOK {
		t.Errorf("%+v", got)
	}
}

func TestADemoThatHasNothingToSaySaysSo(t *testing.T) {
	quiet(t)
	for _, args := range [][]string{{"demo", "--say", " "}, {"demo", "--json"}} {
		if got := pilder(t, "", args...); got.code != exitUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
