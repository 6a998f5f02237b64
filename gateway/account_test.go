package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// withWords lets the world say what people are told about accounts.
func (w *world) withWords(t *testing.T) {
	t.Helper()
	note := func(m store.Membership, text string) store.Draft {
		return store.Draft{Company: m.Company.ID, Chat: store.Chat{ID: m.Person.Telegram, Private: true}, Kind: store.DraftNotice, Notice: text}
	}
	w.cfg.Accounts = gateway.AccountWords{
		Broken: func(a store.Account, m store.Membership) store.Draft { return note(m, "broken "+a.Provider) },
		Mended: func(a store.Account, m store.Membership) store.Draft { return note(m, "mended "+a.Provider) },
		Choose: func(all []store.Account, m store.Membership) store.Draft {
			return note(m, fmt.Sprintf("choose of %d", len(all)))
		},
		Resume: func(a store.AppWait) (string, store.Draft) {
			return "go on: " + a.Asked, note(a.Member, "going on")
		},
	}
	w.build(t)
}

// account finds one of the member's accounts in use.
func (w *world) account(t *testing.T, provider string) store.Account {
	t.Helper()
	for _, a := range need(w.Accounts(t.Context(), w.member.Company.ID, w.member.ID))(t) {
		if a.Provider == provider {
			return a
		}
	}
	t.Fatalf("no account %s", provider)
	panic("unreached")
}

func (w *world) choose(t *testing.T, provider string) {
	t.Helper()
	need(w.ChooseAccount(t.Context(), w.update(t, 103), w.account(t, provider).ID, 103, func(store.Account) []store.Draft { return nil }))(t)
}

func (w *world) remove(t *testing.T, provider string) {
	t.Helper()
	need(w.RemoveAccount(t.Context(), w.update(t, 103), w.account(t, provider).ID, 103, func(store.Account) []store.Draft { return nil }))(t)
}

// at opens a run's door for an agent.
func (w *world) at(t *testing.T) (run store.Run, s *mcp.ClientSession) {
	t.Helper()
	run, _ = w.run(t)
	addr, _ := w.door(t, run)
	return run, w.agent(t, run, addr, "", nil)
}

const listEvents = "google_calendar-list-events"

func TestCallsActWithTheChosenAccountAndSayWhichOfSeveral(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.clock.Advance(time.Second)
		need(w.SeedAccount(t.Context(), w.member, "google_calendar", "apn_second", "  two\u202e@empresa.com\n"))(t)
		w.choose(t, "apn_second")
		_, s := w.at(t)
		got := call(t, s, listEvents, `{}`)
		same(t, answer{Text: "Cuenta usada: two@empresa.com\neffect 1",
			Structured: map[string]any{"status": "ok", "data": "effect 1", "account": "two@empresa.com"}}, got)
		same(t, []string{listEvents + " {} apn_second"}, w.app.performed())
	})
}

func TestSeveralAccountsAndNoneChosenAreAskedAboutOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.withWords(t)
		w.connect(t, "google_calendar", "apn_second")
		w.connect(t, "google_calendar", "apn_third")
		w.remove(t, "apn_calendar") // it was the chosen one
		run, s := w.at(t)
		for range 2 {
			got := call(t, s, listEvents, `{}`)
			if !got.IsError || got.Structured["code"] != "choose_account" || got.Structured["retry"] != "person" || got.Structured["performed"] != "no" ||
				!strings.Contains(got.Text, "Google Calendar") {
				t.Errorf("%+v", got)
			}
		}
		same(t, map[int64][]string{103: {"choose of 2"}}, w.said(t))
		same(t, []string{}, w.app.performed())
		refused := row{listEvents, policy.Deny, "", store.OutcomeRefused, "choose_account"}
		same(t, []row{refused, refused}, w.rows(t, run.ID))
	})
}

// TestG14_AnAccountThatFailsAsksToBeConnectedAgainAndItsToolsStay: the tools of an account whose access expired do not vanish.
func TestG14_AnAccountThatFailsAsksToBeConnectedAgainAndItsToolsStay(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.withWords(t)
		w.app.on(listEvents, func(context.Context, gateway.Call) (gateway.Result, error) {
			return gateway.Result{Outcome: store.OutcomeFailed, Text: "reconnect", IsError: true, Code: "reconnect",
				Structured: json.RawMessage(`{"status":"error","code":"reconnect"}`)}, nil
		})
		run, end := w.run(t)
		addr, _ := w.door(t, run)
		call(t, w.agent(t, run, addr, "", nil), listEvents, `{}`)
		end()
		same(t, store.AccountBroken, w.account(t, "apn_calendar").State)
		same(t, map[int64][]string{103: {"broken apn_calendar"}}, w.said(t))

		_, again := w.at(t)
		listed := need(again.ListTools(t.Context(), nil))(t)
		if len(listed.Tools) != 4 {
			t.Errorf("%d tools", len(listed.Tools))
		}
		before := len(w.app.performed())
		got := call(t, again, listEvents, `{}`)
		if got.Structured["code"] != "reconnect" || len(w.app.performed()) != before {
			t.Errorf("%+v", got)
		}
		same(t, map[int64][]string{}, w.said(t)) // told once
	})
}

func TestACallOfAnAppThatIsNotConnectedWaitsForIt(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.withWords(t)
		run, end := w.run(t)
		addr, _ := w.door(t, run)
		s := w.agent(t, run, addr, "", nil)
		got := call(t, s, "asana-search", `{}`)
		if got.Structured["code"] != "not_connected" || !strings.Contains(got.Text, "Asana") {
			t.Errorf("%+v", got)
		}
		unknown := call(t, s, "bank-transfer", `{}`)
		same(t, "unknown_tool", unknown.Structured["code"])
		end()
		a := need(w.SeedAccount(t.Context(), w.member, "asana", "apn_asana", "mia"))(t)
		need(w.MarkAccountBroken(t.Context(), a.Company, a.ID, "refused"))(t)
		need(w.MarkAccountHealthy(t.Context(), a.Company, a.ID, w.cfg.Accounts.Resume))(t)
		same(t, map[int64][]string{103: {"going on"}}, w.said(t))
	})
}

// checking is a world whose provider has the member's two accounts.
func checking(t *testing.T, w *world) *provider {
	t.Helper()
	p := &provider{looked: make(chan struct{}, 1)}
	w.cfg.Connect = p.connect()
	w.cfg.Connect.Accounts = func(_ context.Context, _, app string) ([]gateway.ProviderAccount, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked++
		var out []gateway.ProviderAccount
		for _, a := range p.accounts {
			if strings.HasPrefix(a.ID, "apn_"+app) {
				out = append(out, a)
			}
		}
		return out, p.fails
	}
	w.cfg.LinkCard = func(gateway.LinkCard) store.Draft { return store.Draft{} }
	w.cfg.AccountCard = func(store.Account, store.Link) store.Draft { return store.Draft{} }
	w.withWords(t)
	for _, provider := range []string{"apn_calendar", "apn_mail"} {
		w.remove(t, provider)
	}
	w.connect(t, "gmail", "apn_gmail")
	w.connect(t, "asana", "apn_asana")
	p.set(gateway.ProviderAccount{ID: "apn_gmail", Name: "mia@empresa.com", Usable: true}, gateway.ProviderAccount{ID: "apn_asana", Name: "mia@empresa.com", Usable: true})
	return p
}

func (p *provider) set(all ...gateway.ProviderAccount) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accounts = all
}

// check looks at every account again.
func (w *world) check(t *testing.T) {
	t.Helper()
	w.clock.Advance(time.Hour)
	if err := w.g.CheckAccounts(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAnAccountFoundBrokenIsToldOnceAndToldWhenItIsMended(t *testing.T) {
	fine := gateway.ProviderAccount{ID: "apn_asana", Name: "mia@empresa.com", Usable: true}
	for reason, gmail := range map[string][]gateway.ProviderAccount{
		"refused": {{ID: "apn_gmail", Name: "mia@empresa.com"}},
		"missing": nil,
		"renamed": {{ID: "apn_gmail", Name: "somebody@else.example", Usable: true}},
	} {
		t.Run(reason, func(t *testing.T) {
			each(t, func(t *testing.T, w *world) {
				p := checking(t, w)
				w.check(t)
				same(t, map[int64][]string{}, w.said(t))
				p.set(append(gmail, fine)...)
				w.check(t)
				w.check(t)
				same(t, map[int64][]string{103: {"broken apn_gmail"}}, w.said(t))
				same(t, reason, w.account(t, "apn_gmail").Reason)
				same(t, store.AccountActive, w.account(t, "apn_asana").State)
				p.set(gateway.ProviderAccount{ID: "apn_gmail", Name: "mia@empresa.com", Usable: true}, fine)
				w.check(t)
				same(t, map[int64][]string{103: {"mended apn_gmail"}}, w.said(t))
			})
		})
	}
}

// TestG19_AProviderThatLosesEverybodyAlarmsTheOperatorAndNoPeople: also what the wrong environment looks like.
func TestG19_AProviderThatLosesEverybodyAlarmsTheOperatorAndNoPeople(t *testing.T) {
	w := onSQLite(t)
	p := checking(t, w)
	for i := range 4 {
		w.connect(t, "asana", fmt.Sprint("apn_asana_", i))
	}
	p.set()
	w.check(t)
	same(t, map[int64][]string{}, w.said(t))
	same(t, true, w.log.has("accounts.wave"))

	p.set(gateway.ProviderAccount{ID: "apn_gmail", OurFault: true}, gateway.ProviderAccount{ID: "apn_asana", Name: "mia@empresa.com", Usable: true})
	for i := range 4 {
		w.remove(t, fmt.Sprint("apn_asana_", i))
	}
	w.check(t)
	same(t, map[int64][]string{}, w.said(t))
	same(t, true, w.log.has("account.provider_fault"))
}

func TestAProviderThatDoesNotAnswerBreaksNoAccountAndIsAskedOnceForEachList(t *testing.T) {
	w := onSQLite(t)
	p := checking(t, w)
	w.connect(t, "asana", "apn_asana_2")
	p.fails = errors.New("503")
	w.clock.Advance(time.Hour)
	if w.g.CheckAccounts(t.Context()) == nil {
		t.Error("nobody hears of it")
	}
	same(t, 2, p.asked) // three accounts, of two apps
	same(t, map[int64][]string{}, w.said(t))
	same(t, store.AccountActive, w.account(t, "apn_gmail").State)
}

func TestThePageShowsWhichAccountWasBound(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		p, secret := connecting(t, w)
		same(t, http.StatusSeeOther, w.browse(t, "POST", "/connect/"+secret, "Origin", "https://pilder.example").Code)
		back, ok := strings.CutPrefix(p.started[0].Success, "https://pilder.example")
		if !ok {
			t.Fatal(p.started[0].Success)
		}
		p.set(gateway.ProviderAccount{ID: "apn_before", Name: "old", Usable: true},
			gateway.ProviderAccount{ID: "apn_x", Name: "somebody<b>@asana", Usable: true}, gateway.ProviderAccount{ID: "apn_y", Name: "two@asana", Usable: true})
		body := w.browse(t, "GET", back).Body.String()
		for _, want := range []string{"somebody&lt;b&gt;@asana", "two@asana", "confirma que es tuya"} {
			if !strings.Contains(body, want) {
				t.Errorf("the page lacks %q:\n%s", want, body)
			}
		}
		if strings.Contains(body, "old") {
			t.Error("the page shows an account that was there before")
		}
		same(t, map[int64][]string{103: {"yours? somebody<b>@asana", "yours? two@asana"}}, w.said(t))
		same(t, 2, len(need(w.Accounts(t.Context(), w.member.Company.ID, w.member.ID))(t))) // neither is in use
	})
}

// TestG37_AnEmptyListComesWithItsReason: for the person through the instructions, for the operator in the log.
func TestG37_AnEmptyListComesWithItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(w *world)
		want   string
	}{
		"nothing can be read": {func(w *world) { w.app.tools = nil }, "no se pudo leer"},
		"the rules allow none": {func(w *world) {
			for slug, tools := range w.app.tools {
				for i := range tools {
					tools[i].Scope = "apps:never"
				}
				w.app.tools[slug] = tools
			}
		}, "las reglas de su empresa"},
	} {
		t.Run(name, func(t *testing.T) {
			w := onSQLite(t)
			c.breaks(w)
			_, s := w.at(t)
			same(t, 0, len(need(s.ListTools(t.Context(), nil))(t).Tools))
			if got := s.InitializeResult().Instructions; !strings.Contains(got, c.want) {
				t.Errorf("instructions: %s", got)
			}
			same(t, true, w.log.has("tools.none"))
		})
	}
}

func TestADisconnectedAppGoesFromARunThatIsGoing(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		changed := make(chan struct{}, 10)
		run, _ := w.run(t)
		addr, _ := w.door(t, run)
		s := w.agent(t, run, addr, "2025-11-25", &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		})
		call(t, s, listEvents, `{}`)
		w.remove(t, "apn_calendar")
		next(t, changed)
		for _, tool := range need(s.ListTools(t.Context(), nil))(t).Tools {
			if strings.HasPrefix(tool.Name, "google_calendar-") {
				t.Errorf("%s is still listed", tool.Name)
			}
		}
		same(t, "not_connected", call(t, s, listEvents, `{}`).Structured["code"])
		same(t, []string{listEvents + " {} apn_calendar"}, w.app.performed())
	})
}
