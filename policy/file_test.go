package policy_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/policy"
)

const goodPolicy = `# what Empresa says
version: 1
house:
  mail.send: allow
  mail.outside: deny
vetoes: [notion-archive-page]
limits: {calls: 20, writes: 1000, asked: 3}
rules:
  - id: notes.night
    effect: hold
    apps: [notion]
    tools: ["notion-*"]
    actions: [write, destructive]
    when: now.getHours("America/Montevideo") >= 20
    told: {es: las notas de noche esperan, en: notes at night wait}
    reason: {es: es de noche, en: it is night}
  - id: money
    effect: deny
    when: amounts.exists(a, a > 1000)
    reason: {es: es mucho dinero, en: it is much money}
cases:
  - name: a note at night waits
    tool: notion-create-page
    app: notion
    action: write
    args: {title: x, tags: [a, {b: 1}]}
    at: 2026-12-01T21:00:00-03:00
    expect: hold
`

func TestAPolicyIsRead(t *testing.T) {
	got, err := policy.Parse([]byte(goodPolicy))
	if err != nil {
		t.Fatal(err)
	}
	night := time.Date(2026, 12, 1, 21, 0, 0, 0, time.FixedZone("", -3*3600))
	want := policy.Policy{
		House:  map[string]policy.Effect{"mail.send": policy.Allow, "mail.outside": policy.Deny},
		Vetoes: []string{"notion-archive-page"},
		Limits: policy.Limits{Calls: 20, Writes: 1000, Asked: 3},
		Rules: []policy.Own{
			{ID: "notes.night", Effect: policy.Hold, Apps: []string{"notion"}, Tools: []string{"notion-*"}, Classes: []string{"write", "destructive"},
				When: `now.getHours("America/Montevideo") >= 20`,
				Told: policy.Text{ES: "las notas de noche esperan", EN: "notes at night wait"}, Reason: policy.Text{ES: "es de noche", EN: "it is night"}},
			{ID: "money", Effect: policy.Deny, When: "amounts.exists(a, a > 1000)", Reason: policy.Text{ES: "es mucho dinero", EN: "it is much money"}},
		},
		Cases: []policy.Case{{Name: "a note at night waits", Role: policy.RoleMember, Expect: policy.Hold, Action: policy.Action{
			Tool: "notion-create-page", App: "notion", Class: policy.ClassWrite, Scope: policy.ScopeAppsRead,
			Args: []byte(`{"tags":["a",{"b":1}],"title":"x"}`), At: night, Hints: policy.Hints{OpenWorld: true}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	for _, empty := range []string{"", "# nothing\n", "version: 1\n", "{}"} {
		if p, err := policy.Parse([]byte(empty)); err != nil || len(p.House)+len(p.Rules) > 0 {
			t.Errorf("%q is %+v, %v", empty, p, err)
		}
	}
}

func TestABadPolicyIsRefusedWithItsLine(t *testing.T) {
	rule := func(more string) string {
		return "rules:\n  - id: own\n    effect: deny\n    reason: {es: a, en: b}\n" + more
	}
	for text, want := range map[string]string{
		"versoin: 1":                                 "line 1: field versoin not found in type the file",
		"version: 2":                                 `line 1: version "2" is not 1`,
		"house:\n  mail.sent: allow":                 `line 2: the house has no rule "mail.sent"; it has mail.send, mail.outside, event.notifies, call.destructive, taint.unnamed, taint.shared, taint.elsewhere, call.unknown`,
		"house: [mail.send]":                         "line 1: house wants rules of the house with their effects, mail.send: confirm",
		"house:\n  mail.send: maybe":                 `line 2: effect "maybe" is none of deny, hold, confirm, allow`,
		"house:\n  call.unknown: allow":              "line 2: call.unknown can only be made stricter than confirm",
		"house: {mail.send: deny, mail.send: allow}": "line 1: mail.send is there twice",
		"vetoes:\n  - a b":                           `line 2: "a b" is not the name of a tool`,
		"limits: {calls: -1}":                        "limits must not be negative",
		"rules: [1]":                                 "line 1: keys and values are expected here",
		"rules:\n  - if: x":                          `line 2: key "if" is not known here`,
		"rules:\n  - id: X\n    effect: deny\n    reason: {es: a, en: b}":         `line 2: the rule's id "X" is not made of small letters, digits and dots`,
		"rules:\n  - id: mail.send\n    effect: deny\n    reason: {es: a, en: b}": "line 2: mail.send is a rule of the house; its effect is set below house",
		"rules:\n  - id: own\n    effect: allow\n    reason: {es: a, en: b}":      "line 2: rule own allows: a rule can only make things stricter",
		"rules:\n  - id: own\n    effect: deny":                                   "line 2: rule own wants a reason in es and en: it is what people read",
		rule("  - id: own\n    effect: deny\n    reason: {es: a, en: b}"):         "line 5: there are two rules own",
		rule("    tools: [\"a[\"]"):                                               `line 2: rule own: "a[" is not the name of a tool, with * for any characters`,
		rule("    apps: [Notion]"):                                                `line 2: rule own: "Notion" is not the slug of an app`,
		rule("    actions: [change]"):                                             `line 2: rule own: action "change" is none of read, write, destructive, unknown`,
		rule("    when: args.x >"):                                                "line 2: rule own: when: column 9: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}: not a condition",
		rule("    when: amount > 1"):                                              "line 2: rule own: when: column 1: undeclared reference to 'amount' (did you mean 'amounts'?): not a condition",
		rule("    when: tool"):                                                    "line 2: rule own: when: it gives string and not true or false: not a condition",
		rule("    told: {es: \"a\\u202eb\", en: b}"):                              "line 2: rule own: a sentence is one plain line of at most 300 bytes",
		"cases:\n  - name: x\n    tool: t\n    expect: no":                        `line 2: effect "no" is none of deny, hold, confirm, allow`,
		"cases:\n  - name: x\n    tool: t\n    expect: deny\n    role: boss":      `line 2: case "x": role "boss" is none of member, approver, admin`,
		"cases:\n  - name: x\n    tool: t\n    expect: deny\n    at: noon":        `line 2: case "x": at "noon" is not like 2026-12-01T20:00:00-03:00`,
		"a: [":                      "line 1: did not find expected node content",
		"---\n---\n":                "the file has more than one document",
		strings.Repeat("#", 65<<10): "the file has 66560 bytes, more than 65536",
	} {
		_, err := policy.Parse([]byte(text))
		if !errors.Is(err, policy.ErrPolicy) {
			t.Errorf("%.60q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("%.60q:\n%s", text, diff)
		}
	}
	if _, err := policy.Parse([]byte("version: 3\nvetoes: [a b]\nlimits: {calls: -1}")); strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three mistakes are told as %q", err)
	}
}

// withRule is the grant of a member whose company has one rule more, and none over what others see.
func withRule(o policy.Own) policy.Grant {
	g := grantFor(policy.RoleMember, false)
	for i, r := range g.Rules {
		if r.ID == "taint.shared" {
			g.Rules[i].Effect = policy.Allow
		}
	}
	o.ID, o.Effect = "own", policy.Deny
	g.Own = []policy.Own{o}
	return g
}

func TestWhenACompanysRuleApplies(t *testing.T) {
	noon := time.Date(2026, 12, 1, 15, 0, 0, 0, time.UTC)
	note := func(args string) policy.Action {
		return policy.Action{Tool: "notion-create-page", App: "notion", Class: policy.ClassWrite, Scope: policy.ScopeAppsWrite,
			Args: []byte(args), At: noon, Taint: []string{"mail"}, Hints: policy.Hints{OpenWorld: true}}
	}
	for _, tt := range []struct {
		claim string
		rule  policy.Own
		args  string
		want  bool
	}{
		{"nothing named is all", policy.Own{}, `{}`, true},
		{"another app's rule does not touch this one", policy.Own{Apps: []string{"gmail"}}, `{}`, false},
		{"a pattern of tools", policy.Own{Tools: []string{"notion-*"}}, `{}`, true},
		{"another tool", policy.Own{Tools: []string{"notion-update-*"}}, `{}`, false},
		{"case of names does not matter", policy.Own{Tools: []string{"NOTION-create-page"}, Apps: []string{"NOTION"}}, `{}`, true},
		{"what the call does", policy.Own{Classes: []string{"read", "destructive"}}, `{}`, false},
		{"an argument", policy.Own{When: `args.parent == "x"`}, `{"parent":"x"}`, true},
		{"an argument that is another", policy.Own{When: `args.parent == "x"`}, `{"parent":"y"}`, false},
		{"an argument that is missing counts against the call", policy.Own{When: `args.parent == "x"`}, `{}`, true},
		{"unless the rule asks first", policy.Own{When: `has(args.parent) && args.parent == "x"`}, `{}`, false},
		{"an argument of another kind counts against it", policy.Own{When: `args.n > 5`}, `{"n":"many"}`, true},
		{"numbers are compared whatever their type", policy.Own{When: `args.n > 5 && args.n < 6.5`}, `{"n":6}`, true},
		{"an amount, deep inside and as text", policy.Own{When: `amounts.exists(a, a > 1000)`}, `{"x":[{"price":" 1500.5 "}]}`, true},
		{"no amount", policy.Own{When: `amounts.exists(a, a > 1000)`}, `{"x":[{"price":"1500 pesos"}, 3]}`, false},
		{"people outside", policy.Own{When: `size(outside) > 0`}, `{"share_with":[{"who":"x@otra.com"}]}`, true},
		{"people inside only", policy.Own{When: `size(recipients) == 1 && size(outside) == 0`}, `{"to":"a@empresa.com"}`, true},
		{"the hour where the company is", policy.Own{When: `now.getHours("America/Montevideo") == 12`}, `{}`, true},
		{"taint", policy.Own{When: `"mail" in taint && !("web" in taint)`}, `{}`, true},
		{"who asks", policy.Own{When: `role == "member" && person == "m1"`}, `{}`, true},
		{"what the tool says of itself", policy.Own{When: `hints.open_world && !hints.read_only`}, `{}`, true},
		{"a name that is there twice counts against the call", policy.Own{When: `args.a == 1`}, `{"a":2,"A":1}`, true},
		{"a condition that would take too long counts against it",
			policy.Own{When: `args.l.all(a, args.l.all(b, args.l.all(c, args.l.all(d, a + b + c + d >= 0))))`}, `{"l":[` + strings.Repeat("1,", 99) + `1]}`, true},
		{"one that does not compile counts against it", policy.Own{When: `(`}, `{}`, true},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			want := policy.Decision{Effect: policy.Allow}
			if tt.want {
				want = policy.Decision{Effect: policy.Deny, Rule: "own"}
			}
			if diff := cmp.Diff(want, withRule(tt.rule).Decide(person(policy.RoleMember), note(tt.args))); diff != "" {
				t.Error(diff)
			}
		})
	}
	without := note(`{}`)
	without.At = time.Time{}
	if d := withRule(policy.Own{When: `now.getFullYear() == 1900`}).Decide(person(policy.RoleMember), without); d.Effect != policy.Deny {
		t.Errorf("with no clock a condition over the time is %v", d)
	}
}

func TestACompanyChangesWhatTheHouseSays(t *testing.T) {
	p, err := policy.Parse([]byte(goodPolicy))
	if err != nil {
		t.Fatal(err)
	}
	g := policy.NewGrant(policy.GrantInput{Principal: person(policy.RoleMember), Domains: []string{"empresa.com"}, Apps: []string{"notion"},
		Policy: p, PolicyVersion: 7})
	for _, tt := range []struct {
		action policy.Action
		want   policy.Decision
	}{
		{mail(`{"para":"a@empresa.com"}`), policy.Decision{Effect: policy.Allow}},
		{mail(`{"para":"x@otra.com"}`), policy.Decision{Effect: policy.Deny, Rule: "mail.outside"}},
		{app("notion", "archive-page", policy.ClassDestructive), policy.Decision{Effect: policy.Deny, Rule: policy.RuleVetoed}},
	} {
		if diff := cmp.Diff(tt.want, g.Decide(person(policy.RoleMember), tt.action)); diff != "" {
			t.Errorf("%s: %s", tt.action.Tool, diff)
		}
	}
	if g.Version != policy.Version+"+7" || g.Limits != (policy.Limits{Calls: 20, Writes: 50, Asked: 3}) {
		t.Errorf("version %s, limits %+v", g.Version, g.Limits)
	}
	want := "mail to addresses outside @empresa.com waits for approval (not allowed)|" +
		"confirm before a calendar change that invites or notifies other people|confirm before deleting or overwriting anything|notes at night wait"
	if diff := cmp.Diff(strings.Split(want, "|"), g.Sentences("en")); diff != "" {
		t.Error(diff)
	}
	broken := policy.NewGrant(policy.GrantInput{Principal: person(policy.RoleAdmin), Apps: []string{"notion"}, Broken: true})
	if d := broken.Decide(person(policy.RoleAdmin), app("notion", "search", policy.ClassRead)); d.Effect != policy.Deny {
		t.Errorf("under a policy that cannot be read: %+v", d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(goodPolicy)
	f.Add("rules: &a [*a]")
	f.Add("house: !!binary x")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := policy.Parse([]byte(text))
		if err != nil && !errors.Is(err, policy.ErrPolicy) {
			t.Fatal(err)
		}
		g := policy.NewGrant(policy.GrantInput{Principal: person(policy.RoleMember), Policy: p})
		_ = g.Decide(person(policy.RoleMember), app("notion", "search", policy.ClassRead))
	})
}

// TestTheDocumentHasEveryVariable: people write conditions from it.
func TestTheDocumentHasEveryVariable(t *testing.T) {
	text, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range policy.Variables() {
		if row := "| `" + v[0] + "` | " + v[1] + " | " + v[2] + " |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/policy.md lacks %s", row)
		}
	}
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	p, err := policy.Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if d, met := p.Cases[0].Met(p, nil); !met {
		t.Errorf("its case is not met: %+v", d)
	}
}

func TestInATaintedTurnWhatThePersonDidNotNameIsConfirmed(t *testing.T) {
	const said = "Anotá lo de https://Acme.example/plan y avisale a Juan <juan@otra.com>, y mirá acme.example"
	for _, tt := range []struct {
		claim string
		args  string
		want  bool
	}{
		{"words alone", `{"title":"Reunión 10.30 hs. Ver p.3, S.A."}`, false},
		{"a link the person wrote", `{"body":"ver https://acme.example/plan."}`, false},
		{"a name the person wrote", `{"body":"ver acme.example"}`, false},
		{"an address the person wrote", `{"to":["juan@otra.com"]}`, false},
		{"the beginning of an address the person wrote", `{"to":["juan@otra.co"]}`, true},
		{"the end of one", `{"to":["uan@otra.com"]}`, true},
		{"its domain alone", `{"body":"otra.com"}`, true},
		{"a link from elsewhere", `{"body":"ver https://evil.example/?d=secret"}`, true},
		{"a longer link than the person's", `{"body":"https://acme.example/plan/../x"}`, true},
		{"a link without a scheme", `{"body":"entrá en evil.example/x"}`, true},
		{"another scheme", `{"body":"tg://resolve?domain=evil"}`, true},
		{"a name in another script", `{"body":"аpple.com"}`, true},
		{"an address from elsewhere", `{"body":"escribile a x@evil.example"}`, true},
		{"deep inside", `{"a":[{"b":["https://evil.example"]}]}`, true},
		{"the name of a member", `{"https://evil.example":1}`, true},
		{"a recipient that is no address", `{"attendees":["@evil"]}`, true},
		{"what cannot be read", `[`, true},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			a := policy.Action{Tool: "gmail-create-draft", App: "gmail", Class: policy.ClassWrite, Scope: policy.ScopeAppsWrite,
				Args: []byte(tt.args), Taint: []string{"gmail"}, Said: said}
			want := policy.Decision{Effect: policy.Allow}
			if tt.want {
				want = policy.Decision{Effect: policy.Confirm, Rule: "taint.unnamed"}
			}
			g := grantFor(policy.RoleMember, false)
			if diff := cmp.Diff(want, g.Decide(person(policy.RoleMember), a)); diff != "" {
				t.Error(diff)
			}
			a.Taint = nil
			if d := g.Decide(person(policy.RoleMember), a); d.Effect != policy.Allow {
				t.Errorf("without taint: %+v", d)
			}
			a.Taint, a.Class = []string{"gmail"}, policy.ClassRead
			if d := g.Decide(person(policy.RoleMember), a); d.Effect != policy.Allow {
				t.Errorf("a read: %+v", d)
			}
		})
	}
}

func TestInATaintedTurnWordsOfOthersAreShownToNobodyUnseen(t *testing.T) {
	const said = "Anotá en Notion: comprar leche, y poné la reunión en el calendario Equipo"
	act := func(tool, app string, class policy.Class, args string) policy.Action {
		return policy.Action{Tool: tool, App: app, Class: class, Scope: policy.ScopeAppsWrite, Args: []byte(args), Taint: []string{"gmail"}, Said: said}
	}
	at := func(elsewhere policy.Action, from string) policy.Action {
		elsewhere.Elsewhere, elsewhere.Taint = true, []string{from}
		return elsewhere
	}
	open := func(a policy.Action) policy.Action { a.Open = true; return a }
	const page = "1f0a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8"
	for _, tt := range []struct {
		claim string
		policy.Action
		rule string
	}{
		{"a note with words of somebody else", act("notion-create-page", "notion", policy.ClassWrite, `{"title":"la clave es 1234"}`), "taint.shared"},
		{"a note with the person's words", act("notion-create-page", "notion", policy.ClassWrite, `{"parent":"`+page+`","title":"Comprar leche"}`), ""},
		{"a part of the person's words", act("notion-create-page", "notion", policy.ClassWrite, `{"title":"comprar lech"}`), "taint.shared"},
		{"the person's words in other capitals", act("notion-create-page", "notion", policy.ClassWrite, `{"title":"cOmPrAr lEcHe"}`), "taint.shared"},
		{"spaces that carry something", act("notion-create-page", "notion", policy.ClassWrite, `{"title":" \t  \t"}`), "taint.shared"},
		{"a number that carries something", act("notion-create-page", "notion", policy.ClassWrite, `{"size":48213377}`), "taint.shared"},
		{"a count", act("notion-create-page", "notion", policy.ClassWrite, `{"size":12}`), ""},
		{"a note whose table has words of somebody else", act("notion-create-page", "notion", policy.ClassWrite, `{"more_fields":{"la clave es 1234":1}}`), "taint.shared"},
		{"a meeting in one's own calendar", act("google_calendar-create-event", "google_calendar", policy.ClassWrite, `{"summary":"la clave","sendUpdates":"none"}`), ""},
		{"the same by its name", act("google_calendar-create-event", "google_calendar", policy.ClassWrite, `{"calendarId":"primary","summary":"la clave","sendUpdates":"none"}`), ""},
		{"a meeting in another calendar", act("google_calendar-create-event", "google_calendar", policy.ClassWrite, `{"calendarId":"c_1","summary":"la clave","sendUpdates":"none"}`), "taint.shared"},
		{"a meeting that everybody may see", act("google_calendar-create-event", "google_calendar", policy.ClassWrite, `{"visibility":"public","summary":"la clave","sendUpdates":"none"}`), "taint.shared"},
		{"a calendar that is no text", act("google_calendar-create-event", "google_calendar", policy.ClassWrite, `{"calendarId":["c_1"],"summary":"la clave","sendUpdates":"none"}`), "taint.shared"},
		{"a draft in one's own mailbox", act("gmail-create-draft", "gmail", policy.ClassWrite, `{"body":"la clave es 1234"}`), ""},
		{"a search in one's own notes", act("notion-search", "notion", policy.ClassRead, `{"title":"la clave es 1234"}`), ""},
		{"a search at somebody else's server", at(act("issues-search", "notion", policy.ClassRead, `{"q":"la clave es 1234"}`), "gmail"), "taint.elsewhere"},
		{"the person's words at somebody else's server", at(act("issues-search", "notion", policy.ClassRead, `{"q":"leche"}`), "gmail"), ""},
		{"an id of somebody's choice, elsewhere", at(act("issues-get", "notion", policy.ClassRead, `{"id":"`+page+`"}`), "gmail"), "taint.elsewhere"},
		{"a name of an argument that no schema lists", open(at(act("issues-get", "notion", policy.ClassRead, `{"la clave es 1234":1}`), "gmail")), "taint.elsewhere"},
		{"what that server said, back to it", at(act("issues-get", "notion", policy.ClassRead, `{"id":"PIL-7"}`), "notion"), ""},
		{"what cannot be read, elsewhere", at(act("issues-get", "notion", policy.ClassRead, `[`), "gmail"), "taint.elsewhere"},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			g := grantFor(policy.RoleMember, false)
			want := policy.Decision{Effect: policy.Allow}
			if tt.rule != "" {
				want = policy.Decision{Effect: policy.Confirm, Rule: tt.rule}
			}
			if diff := cmp.Diff(want, g.Decide(person(policy.RoleMember), tt.Action)); diff != "" {
				t.Error(diff)
			}
			tt.Action.Taint = nil
			if d := g.Decide(person(policy.RoleMember), tt.Action); d.Effect != policy.Allow {
				t.Errorf("without taint: %+v", d)
			}
		})
	}
}

func TestARuleOfTheHouseIsSwitchedAndAllElseStays(t *testing.T) {
	for text, want := range map[string]string{
		"":             "house:\n  mail.send: deny\n",
		"version: 1\n": "version: 1\nhouse:\n  mail.send: deny\n",
		"house:\n":     "house:\n  mail.send: deny\n",
		"# why\nhouse:\n  mail.send: allow # for now\n  mail.outside: deny\n": "# why\nhouse:\n  mail.send: deny\n  mail.outside: deny\n",
		"vetoes: [a] # b\n": "vetoes: [a] # b\nhouse:\n  mail.send: deny\n",
	} {
		got, err := policy.WithHouse(text, "mail.send", policy.Deny)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q:\n%s", text, diff)
		}
	}
	for _, rule := range []string{"mail.sent", "call.unknown"} {
		if _, err := policy.WithHouse(goodPolicy, rule, policy.Allow); !errors.Is(err, policy.ErrPolicy) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
