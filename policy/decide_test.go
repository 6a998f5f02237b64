package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/policy"
)

var allScopes = []policy.Scope{
	policy.ScopeAppsRead, policy.ScopeAppsWrite, policy.ScopeMailSend, policy.ScopeApprovalsRead, policy.ScopeAccountsWrite,
}

func person(role policy.Role) policy.Principal {
	return policy.Principal{Company: "c1", Membership: "m1", Person: "p1", Role: role, Scopes: allScopes, Run: "r1"}
}

func grantFor(role policy.Role, alone bool) policy.Grant {
	return policy.NewGrant(policy.GrantInput{
		Principal:          person(role),
		Domains:            []string{"Empresa.com", "@ñandú.example."},
		Apps:               []string{"notion", "gmail", "google_calendar", "gmail"},
		NobodyElseApproves: alone,
	})
}

func mail(args string) policy.Action {
	return policy.Action{Tool: "correo_enviar", Class: policy.ClassWrite, Scope: policy.ScopeMailSend, Args: json.RawMessage(args)}
}

func calendar(tool, args string) policy.Action {
	return policy.Action{
		Tool: "google_calendar-" + tool, App: "google_calendar", Class: policy.ClassWrite,
		Scope: policy.ScopeAppsWrite, Args: json.RawMessage(args),
	}
}

func app(slug, tool string, class policy.Class) policy.Action {
	return policy.Action{Tool: slug + "-" + tool, App: slug, Class: class, Scope: policy.ScopeAppsWrite, Args: json.RawMessage(`{}`)}
}

func TestDecisionsOfTheHouse(t *testing.T) {
	allow := policy.Decision{Effect: policy.Allow}
	decides := func(effect policy.Effect, rule string) policy.Decision {
		return policy.Decision{Effect: effect, Rule: rule}
	}
	notifies := decides(policy.Confirm, "event.notifies")
	outside := decides(policy.Hold, "mail.outside")
	send := decides(policy.Confirm, "mail.send")

	for _, tt := range []struct {
		claim  string
		action policy.Action
		want   policy.Decision
	}{
		{"an event for oneself is made at once", calendar("create-event", `{"summary":"Reunión","addSelfAsAttendee":false}`), allow},
		{"empty guest lists are no guests", calendar("create-event", `{"attendees":[]}`), allow},
		{"null guests are no guests", calendar("create-event", `{"attendees":null,"sendUpdates":null}`), allow},
		{"a written-out empty list is no guests", calendar("create-event", `{"attendees":" [] "}`), allow},
		{"mailing nobody is no notice", calendar("create-event", `{"sendUpdates":"None"}`), allow},
		{"guests are notified", calendar("create-event", `{"attendees":["a@empresa.com"]}`), notifies},
		{"guests are notified even when nobody is mailed", calendar("create-event", `{"attendees":["a@empresa.com"],"sendUpdates":"none"}`), notifies},
		{"guests as text with commas are guests", calendar("quick-add-event", `{"text":"x","attendees":"a@b.c, d@e.f"}`), notifies},
		{"guests as JSON in text are guests", calendar("update-event", `{"attendees":"[\"a@b.c\"]"}`), notifies},
		{"the case of an argument's name does not matter", calendar("create-event", `{"Attendees":["a@b.c"]}`), notifies},
		{"the second of two arguments with one name counts", calendar("create-event", `{"attendees":[],"attendees":["a@b.c"]}`), notifies},
		{"the first of two arguments with one name counts", calendar("create-event", `{"attendees":["a@b.c"],"attendees":[]}`), notifies},
		{"guests of an unexpected type count", calendar("create-event", `{"attendees":{"email":"a@b.c"}}`), notifies},
		{"a false in place of guests counts", calendar("create-event", `{"attendees":false}`), notifies},
		{"a blank guest counts", calendar("create-event", `{"attendees":[""]}`), notifies},
		{"mailing everybody is a notice", calendar("create-event", `{"sendUpdates":"all"}`), notifies},
		{"an empty sendUpdates is not surely nobody", calendar("create-event", `{"sendUpdates":""}`), notifies},
		{"a sendUpdates that is no text counts", calendar("create-event", `{"sendUpdates":["none"]}`), notifies},
		{"sendNotifications is a notice", calendar("update-event-attendees", `{"sendNotifications":true}`), notifies},
		{"an address in the quick sentence is a guest", calendar("quick-add-event", `{"text":"café con ana@b.c mañana"}`), notifies},
		{"a sentence without an at sign invites nobody", calendar("quick-add-event", `{"text":"café en la esquina"}`), allow},
		{"an at sign of another width is one", calendar("quick-add-event", `{"text":"café con juan＠otra.com"}`), notifies},
		{"an at sign apart is one", calendar("quick-add-event", `{"text":"café con juan @otra.com"}`), notifies},
		{"arguments that cannot be read notify", calendar("create-event", `{"attendees":[`), notifies},
		{"arguments that are no object notify", calendar("create-event", `["a@b.c"]`), notifies},
		{"a calendar tool nobody knows is held to the same", calendar("update-following-instances", `{"attendees":"a@b.c"}`), notifies},
		{"a read of the calendar with guests among its filters is a read", policy.Action{
			Tool: "google_calendar-list-events", App: "google_calendar", Class: policy.ClassRead,
			Scope: policy.ScopeAppsRead, Args: json.RawMessage(`{"attendees":"a@b.c"}`)}, allow},
		{"creating an event stays caught when called a read", policy.Action{
			Tool: "google_calendar-create-event", App: "google_calendar", Class: policy.ClassRead,
			Scope: policy.ScopeAppsWrite, Args: json.RawMessage(`{"attendees":"a@b.c"}`)}, notifies},

		{"deleting needs a confirm", app("gmail", "delete-email", policy.ClassDestructive), decides(policy.Confirm, "call.destructive")},
		{"an unknown class needs a confirm", app("notion", "whatever", policy.ClassUnknown), decides(policy.Confirm, "call.unknown")},
		{"a class of no meaning needs a confirm", app("notion", "whatever", "harmless"), decides(policy.Confirm, "call.unknown")},
		{"a draft is written at once", app("gmail", "create-draft", policy.ClassWrite), allow},
		{"a read is done at once", app("notion", "search", policy.ClassRead), allow},

		{"mail inside the company needs a confirm", mail(`{"para":["Ana <ana@empresa.com>"],"cc":"luis@EMPRESA.com"}`), send},
		{"mail to the company's accented domain is inside", mail(`{"para":"ana@ñandú.example"}`), send},
		{"one stranger among many is enough", mail(`{"para":["ana@empresa.com","x@otra.com"]}`), outside},
		{"a stranger in a hidden copy is enough", mail(`{"para":"ana@empresa.com","cco":["x@otra.com"]}`), outside},
		{"the English names of the fields count", mail(`{"to":"ana@empresa.com","bcc":"x@otra.com"}`), outside},
		{"the case of the fields' names does not matter", mail(`{"para":"ana@empresa.com","BCC":"x@otra.com"}`), outside},
		{"a doubled field counts twice", mail(`{"para":"x@otra.com","para":"ana@empresa.com"}`), outside},
		{"nobody is outside", mail(`{"asunto":"hola"}`), outside},
		{"blank recipients are nobody", mail(`{"para":["", " "],"cc":null}`), outside},
		{"a recipient that is no text is outside", mail(`{"para":[{"email":"ana@empresa.com"}]}`), outside},
		{"arguments that cannot be read are outside", mail(`{"para":`), outside},
		{"another spelling of the tool is the same tool", policy.Action{
			Tool: "Correo_Enviar", Class: policy.ClassWrite, Scope: policy.ScopeMailSend,
			Args: json.RawMessage(`{"para":"x@otra.com"}`)}, outside},

		{"a vetoed tool is never called", calendar("add-attendees-to-event", `{}`), decides(policy.Deny, policy.RuleVetoed)},
		{"a vetoed tool is never called by another spelling", app("gmail", "SEND-email", policy.ClassWrite), decides(policy.Deny, policy.RuleVetoed)},
		{"a tool without name is never called", policy.Action{Scope: policy.ScopeAppsRead, Class: policy.ClassRead}, decides(policy.Deny, policy.RuleVetoed)},
		{"an app that is not connected is not called", app("asana", "create-task", policy.ClassWrite), decides(policy.Deny, policy.RuleNotConnected)},
		{"a tool that names no scope is refused", policy.Action{Tool: "x", Class: policy.ClassRead}, decides(policy.Deny, policy.RuleScope)},
		{"a scope the token lacks is refused", policy.Action{Tool: "x", Class: policy.ClassRead, Scope: "shop:write"}, decides(policy.Deny, policy.RuleScope)},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			for _, role := range []policy.Role{policy.RoleMember, policy.RoleApprover, policy.RoleAdmin} {
				got := grantFor(role, false).Decide(person(role), tt.action)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", role, diff)
				}
			}
		})
	}
}

func TestNobodyMayDoAnything(t *testing.T) {
	read := policy.Action{Tool: "notion-search", App: "notion", Class: policy.ClassRead, Scope: policy.ScopeAppsRead}
	good := person(policy.RoleMember)
	grant := grantFor(policy.RoleMember, false)
	without := func(change func(*policy.Principal)) policy.Principal {
		p := good
		change(&p)
		return p
	}
	for _, tt := range []struct {
		claim string
		grant policy.Grant
		who   policy.Principal
		want  policy.Decision
	}{
		{"the person the grant is for may", grant, good, policy.Decision{Effect: policy.Allow}},
		{"the zero principal may not", grant, policy.Principal{}, policy.Decision{Rule: policy.RuleNobody}},
		{"an unknown role may not", grant, without(func(p *policy.Principal) { p.Role = "owner" }), policy.Decision{Rule: policy.RuleNobody}},
		{"no role may not", grant, without(func(p *policy.Principal) { p.Role = "" }), policy.Decision{Rule: policy.RuleNobody}},
		{"no company may not", grant, without(func(p *policy.Principal) { p.Company = "" }), policy.Decision{Rule: policy.RuleNobody}},
		{"another company may not", grant, without(func(p *policy.Principal) { p.Company = "c2" }), policy.Decision{Rule: policy.RuleOtherGrant}},
		{"another membership may not", grant, without(func(p *policy.Principal) { p.Membership = "m2" }), policy.Decision{Rule: policy.RuleOtherGrant}},
		{"no scopes may not", grant, without(func(p *policy.Principal) { p.Scopes = nil }), policy.Decision{Rule: policy.RuleScope}},
		{"the zero grant allows nothing", policy.Grant{}, good, policy.Decision{Rule: policy.RuleNobody}},
		{"a grant of an unknown role allows nothing", policy.NewGrant(policy.GrantInput{
			Principal: without(func(p *policy.Principal) { p.Role = "owner" }), Apps: []string{"notion"}}), good,
			policy.Decision{Rule: policy.RuleOtherGrant}},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.grant.Decide(tt.who, read)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyAKnownRoleAsksForScopes(t *testing.T) {
	for _, role := range []policy.Role{policy.RoleMember, policy.RoleApprover, policy.RoleAdmin} {
		if diff := cmp.Diff(allScopes, role.Scopes()); diff != "" {
			t.Errorf("%s: %s", role, diff)
		}
	}
	if got := append(policy.RoleNone.Scopes(), policy.Role("owner").Scopes()...); got != nil {
		t.Errorf("nobody asks for %v", got)
	}
}

func TestASoleAdminConfirmsTheirOwnHolds(t *testing.T) {
	outside := mail(`{"para":"x@otra.com"}`)
	hold := policy.Decision{Effect: policy.Hold, Rule: "mail.outside"}
	for _, tt := range []struct {
		claim string
		role  policy.Role
		alone bool
		want  policy.Decision
	}{
		{"an admin whom nobody can check confirms", policy.RoleAdmin, true,
			policy.Decision{Effect: policy.Confirm, Rule: "mail.outside", Downgraded: true}},
		{"an admin with other approvers waits", policy.RoleAdmin, false, hold},
		{"an approver waits even when alone", policy.RoleApprover, true, hold},
		{"a member waits even when nobody can approve", policy.RoleMember, true, hold},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, grantFor(tt.role, tt.alone).Decide(person(tt.role), outside)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("an admin made member since waits", func(t *testing.T) {
		if diff := cmp.Diff(hold, grantFor(policy.RoleAdmin, true).Decide(person(policy.RoleMember), outside)); diff != "" {
			t.Error(diff)
		}
	})
}

// Whatever reference or rule is added to a grant, no decision gets looser, and the house rules hold without any reference.
func TestAddingARuleNeverLoosens(t *testing.T) {
	actions := []policy.Action{
		mail(`{"para":"x@otra.com"}`), mail(`{"para":"a@empresa.com"}`), calendar("create-event", `{"attendees":"a"}`),
		calendar("create-event", `{}`), app("gmail", "delete-email", policy.ClassDestructive),
		app("notion", "search", policy.ClassRead), app("notion", "x", policy.ClassUnknown), app("asana", "x", policy.ClassRead),
	}
	ids := []string{"", "future.rule"}
	for _, r := range policy.House() {
		ids = append(ids, r.ID)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		role := []policy.Role{policy.RoleMember, policy.RoleApprover, policy.RoleAdmin}[rng.IntN(3)]
		g := grantFor(role, rng.IntN(2) == 0)
		for range rng.IntN(3) {
			g.Rules = append(g.Rules, policy.RuleRef{ID: ids[rng.IntN(len(ids))], Effect: policy.Effect(rng.IntN(6) - 1)})
		}
		more := g
		added := policy.RuleRef{ID: ids[rng.IntN(len(ids))], Effect: policy.Effect(rng.IntN(6) - 1)}
		more.Rules = append(append([]policy.RuleRef{}, g.Rules...), added)
		if rng.IntN(2) == 0 {
			more = g
			more.Own = append(more.Own, policy.Own{ID: "own", Effect: policy.Effect(rng.IntN(6) - 1), When: []string{"", "true", "args.x > 1", "nonsense("}[rng.IntN(4)]})
		}
		for _, a := range actions {
			before, after := g.Decide(person(role), a), more.Decide(person(role), a)
			house := grantFor(role, g.SoleAdmin).Decide(person(role), a)
			if after.Effect > before.Effect || before.Effect > house.Effect {
				t.Fatalf("%s: house %v, with %v %v, with %v added %v", a.Tool, house, g.Rules, before, added, after)
			}
		}
	}
}

func TestARuleThisBinaryDoesNotKnowDeniesEverything(t *testing.T) {
	g := grantFor(policy.RoleMember, false)
	g.Rules = append(g.Rules, policy.RuleRef{ID: "future.rule", Effect: policy.Allow})
	want := policy.Decision{Effect: policy.Deny, Rule: policy.RuleUnknown}
	if diff := cmp.Diff(want, g.Decide(person(policy.RoleMember), app("notion", "search", policy.ClassRead))); diff != "" {
		t.Error(diff)
	}
}

func TestListing(t *testing.T) {
	g := grantFor(policy.RoleMember, false)
	for _, tt := range []struct {
		claim     string
		grant     policy.Grant
		tool, app string
		want      bool
	}{
		{"a connected app's tool is shown", g, "notion-search", "notion", true},
		{"a house tool is shown", g, "correo_enviar", "", true},
		{"an app that is not connected is hidden", g, "asana-create-task", "asana", false},
		{"an app connected since is shown", g.WithApps([]string{"asana"}), "asana-create-task", "asana", true},
		{"a vetoed tool is hidden", g, "gmail-send-email", "gmail", false},
		{"a tool without name is hidden", g, "", "", false},
		{"the zero grant shows nothing", policy.Grant{}, "correo_enviar", "", false},
		{"an unknown role sees nothing", grantFor("owner", false), "correo_enviar", "", false},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			if got := tt.grant.Lists(tt.tool, tt.app); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if !policy.NewGrant(policy.GrantInput{Policy: policy.Policy{Vetoes: []string{"notion-search"}}}).Vetoed("notion-search") {
		t.Error("a company's own veto is not kept")
	}
	if !(policy.Grant{}).Vetoed("gmail-send-email") {
		t.Error("the house's vetoes need a grant that lists them")
	}
}

func TestAGrantIsTheSameBytes(t *testing.T) {
	want := `{"version":"house/3","company":"c1","membership":"m1","role":"member",` +
		`"domains":["empresa.com","xn--and-6ma2c.example"],"apps":["gmail","google_calendar","notion"],` +
		`"vetoes":["gmail-send-email","google_calendar-add-attendees-to-event","google_calendar-respond-to-event"],` +
		`"sole_admin":false,"limits":{"calls":200,"writes":50,"asked":10},"rules":[{"id":"mail.send","effect":"confirm"},` +
		`{"id":"mail.outside","effect":"hold"},{"id":"event.notifies","effect":"confirm"},` +
		`{"id":"call.destructive","effect":"confirm"},{"id":"taint.unnamed","effect":"confirm"},{"id":"taint.shared","effect":"confirm"},{"id":"taint.elsewhere","effect":"confirm"},{"id":"call.unknown","effect":"confirm"}],"own":[]}`
	got, err := json.Marshal(grantFor(policy.RoleMember, true))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	var back policy.Grant
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(grantFor(policy.RoleMember, true), back); diff != "" {
		t.Error(diff)
	}
	// Without lists the JSON still has lists: null would be another grant.
	if got, _ := json.Marshal(policy.NewGrant(policy.GrantInput{})); strings.Contains(string(got), "null") {
		t.Errorf("null in %s", got)
	}
}

func TestLimits(t *testing.T) {
	l := policy.Limits{Calls: 3, Writes: 1}
	for _, tt := range []struct {
		calls, writes int
		class         policy.Class
		want          bool
	}{
		{0, 0, policy.ClassWrite, true},
		{1, 1, policy.ClassWrite, false},
		{1, 1, policy.ClassUnknown, false},
		{1, 1, policy.ClassRead, true},
		{3, 0, policy.ClassRead, false},
	} {
		if got := l.Left(tt.calls, tt.writes, tt.class); got != tt.want {
			t.Errorf("after %d calls, %d writes, one more %q: %v", tt.calls, tt.writes, tt.class, got)
		}
	}
	if (policy.Limits{}).Left(0, 0, policy.ClassRead) || (policy.Limits{}).MayAsk(0) {
		t.Error("zero limits leave something")
	}
	if l := (policy.Limits{Asked: 2}); !l.MayAsk(1) || l.MayAsk(2) {
		t.Error("a human is asked more often than twice, or less")
	}
}

func TestWhoMayPressTheButton(t *testing.T) {
	const me, other = policy.MembershipID("m1"), policy.MembershipID("m2")
	for _, tt := range []struct {
		claim               string
		role                policy.Role
		kind                policy.Effect
		requester, approver policy.MembershipID
		soleAdmin, want     bool
	}{
		{"a member confirms their own call", policy.RoleMember, policy.Confirm, me, me, false, true},
		{"an admin does not confirm for others", policy.RoleAdmin, policy.Confirm, me, other, false, false},
		{"an approver decides another's hold", policy.RoleApprover, policy.Hold, me, other, false, true},
		{"an admin decides another's hold", policy.RoleAdmin, policy.Hold, me, other, false, true},
		{"a member decides no hold", policy.RoleMember, policy.Hold, me, other, false, false},
		{"nobody decides their own hold", policy.RoleApprover, policy.Hold, me, me, false, false},
		{"an admin with others does not either", policy.RoleAdmin, policy.Hold, me, me, false, false},
		{"a sole admin decides their own", policy.RoleAdmin, policy.Hold, me, me, true, true},
		{"a sole approver does not", policy.RoleApprover, policy.Hold, me, me, true, false},
		{"an unknown role presses nothing", "owner", policy.Confirm, me, me, true, false},
		{"nobody confirms nobody's call", policy.RoleAdmin, policy.Confirm, "", "", true, false},
		{"nobody's hold is not decided", policy.RoleAdmin, policy.Hold, "", other, true, false},
		{"a denied call is not approved", policy.RoleAdmin, policy.Deny, me, other, true, false},
		{"an allowed call waits for nobody", policy.RoleAdmin, policy.Allow, me, me, true, false},
		{"an unknown kind waits for nobody", policy.RoleAdmin, policy.Effect(9), me, other, true, false},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			if got := policy.MayApprove(tt.role, tt.kind, tt.requester, tt.approver, tt.soleAdmin); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestEffectsAsText(t *testing.T) {
	for text, want := range map[string]policy.Effect{
		`"deny"`: policy.Deny, `"hold"`: policy.Hold, `"confirm"`: policy.Confirm, `"allow"`: policy.Allow,
	} {
		var got policy.Effect
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if back, err := json.Marshal(got); err != nil || string(back) != text {
			t.Errorf("%v: %s, %v", got, back, err)
		}
	}
	for _, text := range []string{`"Allow"`, `"allow "`, `""`, `3`, `true`} {
		got := policy.Allow
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s was read as %v", text, got)
		}
	}
	got := policy.Allow
	if err := got.UnmarshalText([]byte("permit")); err == nil || got != policy.Deny {
		t.Errorf("an unknown word left %v, %v", got, err)
	}
	if got := fmt.Sprint(policy.Effect(4), policy.Effect(-1)); got != "deny deny" {
		t.Errorf("values outside the four print %s", got)
	}
}
