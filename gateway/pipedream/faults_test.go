package pipedream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/gateway"
	"pilder/gateway/pipedream"
	sim "pilder/sim/pipedream"
	"pilder/store"
)

const labels = "gmail-list-labels"

var (
	reconnect = verdict{store.OutcomeFailed, "reconnect", "no", "person"}
	ours      = verdict{store.OutcomeFailed, "gateway_problem", "no", "never"}
	busy      = verdict{store.OutcomeFailed, "busy", "no", "wait"}
)

// providerFault is one thing that the provider is known, or feared, to do; its number is that of the contract's list.
type providerFault struct {
	number int
	claim  string
	check  func(t *testing.T)
}

// faulty opens a house where a fault waits, calls a tool and wants a verdict and what the ledger then has.
func faulty(f sim.Fault, tool, args string, want verdict, ledger ...string) func(t *testing.T) {
	return func(t *testing.T) {
		h := open(t, func(_ *sim.Config, c *pipedream.Config) { c.RunTimeout = 500 * time.Millisecond })
		h.tools(caller())
		if f.Path == "" {
			f.Path = "actions/run"
		}
		h.sim.Fault(f)
		wantVerdict(t, h.call(tool, args), want)
		wantLedger(t, h, ledger...)
	}
}

func wantLedger(t *testing.T, h *house, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, h.performed()); diff != "" {
		t.Errorf("ledger:\n%s", diff)
	}
}

// TestProviderFaults walks the contract's list of faults one by one.
func TestProviderFaults(t *testing.T) {
	seen := map[int]bool{}
	for _, faults := range [][]providerFault{faultsOfAccess(), faultsOfChoices(), faultsOfRuns(), faultsOfThePath(), faultsAround()} {
		for _, f := range faults {
			seen[f.number] = true
			t.Run(fmt.Sprintf("13.%d %s", f.number, f.claim), f.check)
		}
	}
	for n := 1; n <= 20; n++ {
		if !seen[n] {
			t.Errorf("13.%d is not proved", n)
		}
	}
}

func faultsOfAccess() []providerFault {
	return []providerFault{
		{1, "a token that dies between two requests of a call is replaced", faulty(sim.Fault{Shape: sim.ExpireToken}, createEvent, lunch, done, createEvent)},
		{1, "a token of two seconds is renewed and asked for once at a time", func(t *testing.T) {
			h := open(t, func(s *sim.Config, _ *pipedream.Config) { s.TokenLife = 2 * time.Second })
			h.call(labels, `{}`)
			before := h.sim.TokenCalls()
			h.pass(3 * time.Second)
			wantVerdict(t, h.call(labels, `{}`), done)
			if got := h.sim.TokenCalls() - before; got != 1 {
				t.Errorf("%d token requests", got)
			}
		}},
		{2, "the wrong environment looks empty and nothing runs", TestTheWrongEnvironmentLooksEmptyAndNothingRuns},
		{2, "without an environment nothing is begun", func(t *testing.T) {
			_, err := pipedream.New(pipedream.Config{ClientID: "x", ClientSecret: store.NewSecret("y"), ProjectID: "proj_z", Apps: nil})
			if err == nil || !strings.Contains(err.Error(), "environment") {
				t.Errorf("%v", err)
			}
		}},
		{3, "lists end whatever their cursors and totals say", TestAccountListsOfAnyLengthAndFormEnd},
		{4, "accounts come bare, wrapped, legacy, without name and with dead as null, false and true", func(t *testing.T) {
			for _, set := range []func(*sim.Switches){func(*sim.Switches) {}, func(s *sim.Switches) { s.WrapAccount = true }, func(s *sim.Switches) { s.LegacyAccounts = true }} {
				h := open(t)
				h.sim.Set(set)
				wantVerdict(t, h.send(gateway.Call{Caller: caller(), Tool: labels, Args: json.RawMessage(`{}`), Account: "apn_gmail01"}), done)
				got, err := h.conn.Accounts(context.Background(), "person-1", "calendly_v2")
				want := []gateway.ProviderAccount{{ID: "apn_calendly01"}, {ID: "apn_calendly02", Name: "Example team", Usable: true}}
				if diff := cmp.Diff(want, got); diff != "" || err != nil {
					t.Errorf("%v %s", err, diff)
				}
			}
		}},
		{4, "413 on the account list is the operator's trouble", func(t *testing.T) {
			h := open(t)
			h.sim.Fault(sim.Fault{Path: "accounts", Shape: sim.TooLarge, Count: -1})
			wantVerdict(t, h.call(labels, `{}`), ours)
			wantLedger(t, h)
		}},
		{5, "neither a newer version nor a changed definition is taken over", TestANewerVersionIsToldOnceAndNeverTakenOver},
		{5, "a list without props changes nothing: each action is fetched by key", func(t *testing.T) {
			h, plain := open(t), open(t)
			h.sim.Set(func(s *sim.Switches) { s.ListWithout = true })
			if diff := cmp.Diff(plain.tools(caller()), h.tools(caller())); diff != "" {
				t.Error(diff)
			}
		}},
	}
}

// pages wants a walk through choices to have so many pages.
func pages(f *sim.Fault, args string, want int) func(t *testing.T) {
	return func(t *testing.T) {
		h := open(t)
		if f != nil {
			f.Path, f.Count = "actions/configure", -1
			h.sim.Fault(*f)
		}
		got := h.walk(args)
		if len(got) != want {
			t.Errorf("%d pages, want %d: %v", len(got), want, got)
		}
		seen := map[string]bool{}
		for _, page := range got {
			if seen[page] && f == nil {
				t.Errorf("a page came twice: %s", page)
			}
			seen[page] = true
		}
	}
}

func faultsOfChoices() []providerFault {
	options := func(shape sim.Shape, want verdict) func(t *testing.T) {
		return faulty(sim.Fault{Path: "actions/configure", Shape: shape, Count: -1}, "retrieve_options", calendars, want)
	}
	refused := verdict{store.OutcomeFailed, "app_refused", "no", "fix"}
	return []providerFault{
		{6, "choices depend on earlier fields", TestChoicesDependOnEarlierFieldsDefaultsIncluded},
		{6, "numbers, nulls, texts and labels in values are cleaned", TestChoicesOfStrangeKindsAreCleaned},
		{6, "a 202 is a failure", options(sim.Async, unavailble)},
		{6, "a 200 with errors is a failure", options(sim.OptionErrors, refused)},
		{6, "a 200 with an error observed is a failure", options(sim.OptionObserved, refused)},
		{7, "a false token ends", pages(nil, calendars, 2)},
		{7, "a null token ends and does not start over", pages(nil, `{"action":"notion-retrieve-page","prop":"pageId","query":"trimestre"}`, 1)},
		{7, "an absent token ends and does not start over", pages(nil, `{"action":"gmail-archive-email","prop":"message"}`, 2)},
		{7, "a token that never changes ends", pages(&sim.Fault{Shape: sim.OptionToken}, calendars, 2)},
		{7, "a new token every time with the same values ends", pages(&sim.Fault{Shape: sim.OptionSame}, calendars, 2)},
		{7, "new values without end are ended after ten pages", pages(&sim.Fault{Shape: sim.OptionEndless}, calendars, 10)},
		{8, "an old id behaves as if none were sent: fields are loaded anew", func(t *testing.T) {
			h := open(t)
			h.call("notion-create-page", newPage+`}`)
			h.pass(11 * time.Minute)
			wantVerdict(t, h.call("notion-create-page", newPage+`,"more_fields":{"cover":"https://img.example.com/a.png"}}`), done)
			if h.sim.Ledger()[0].Props["cover"] == nil {
				t.Error("the field was lost with the id")
			}
		}},
		{8, "free-text and colliding names stay apart", TestFreeTextNamesAreMadeSafeAndSentAsTheyAre},
		{8, "hidden fields made visible are asked for", TestHiddenFieldsBecomeVisibleWhenChosen},
		{8, "errors in a 200 run nothing", TestAReloadThatFailsRunsNothing},
		{8, "fields that change between two reloads are asked for again", TestFieldsThatChangedSinceTheApprovalAreAskedForAgain},
	}
}

func faultsOfRuns() []providerFault {
	all := []providerFault{
		{9, "good answers of every form are read", TestGoodAnswersOfEveryForm},
		{10, "an error beside a good return is a success with a warning", faulty(sim.Fault{Shape: sim.ErrorBeside}, createEvent, lunch, done, createEvent)},
		{10, "an upstream error shows nothing of its debug part", TestMarkersOfTheStandInNeverShow},
		{10, "a 202 of a write is unknown", faulty(sim.Fault{Shape: sim.Async}, createEvent, lunch, notKnown)},
	}
	for shape, claim := range map[sim.Shape]string{sim.EnvelopeA: "envelope A", sim.EnvelopeB: "envelope B", sim.Details: "a status with details"} {
		all = append(all, providerFault{10, claim + " is the caller's to fix", faulty(sim.Fault{Shape: shape}, createEvent, lunch, verdict{store.OutcomeFailed, "bad_arguments", "no", "fix"})})
	}
	return append(all, []providerFault{
		{10, "a bare string of a write may have happened", faulty(sim.Fault{Shape: sim.BareString}, createEvent, lunch, verdict{store.OutcomeUnknown, "app_refused", "unknown", "never"})},
		{10, "the plan's refusal is the operator's trouble", faulty(sim.Fault{Shape: sim.Plan}, createEvent, lunch, ours)},
		{10, "413 is the operator's trouble", faulty(sim.Fault{Shape: sim.TooLarge}, createEvent, lunch, ours)},
		{11, "429 with seconds performs nothing", faulty(sim.Fault{Shape: sim.Throttled, Seconds: 30}, createEvent, lunch, busy)},
		{11, "429 with a date performs nothing", faulty(sim.Fault{Shape: sim.ThrottleDate, Seconds: 30}, createEvent, lunch, busy)},
		{11, "429 with a reset only performs nothing", faulty(sim.Fault{Shape: sim.ThrottleBare, Seconds: 30}, createEvent, lunch, busy)},
	}...)
}

func faultsOfThePath() []providerFault {
	var all []providerFault
	for _, status := range []int{500, 502, 503, 504} {
		before, after := sim.Fault{Shape: sim.Status, Status: status}, sim.Fault{Shape: sim.Status, Status: status, Performed: true}
		all = append(all,
			providerFault{12, fmt.Sprintf("%d before performing is unknown", status), faulty(before, createEvent, lunch, notKnown)},
			providerFault{12, fmt.Sprintf("%d after performing is unknown, and performed once", status), faulty(after, createEvent, lunch, notKnown, createEvent)})
	}
	for shape, claim := range map[sim.Shape]string{sim.Empty: "an empty body", sim.HTML: "an HTML page", sim.Truncated: "half a JSON"} {
		all = append(all, providerFault{12, claim + " after performing is unknown, and performed once",
			faulty(sim.Fault{Shape: shape, Performed: true}, createEvent, lunch, notKnown, createEvent)})
	}
	for shape, claim := range map[sim.Shape]string{sim.Hang: "an answer that never comes", sim.Drip: "an answer that drips"} {
		all = append(all, providerFault{13, claim + " is unknown after its time", faulty(sim.Fault{Shape: shape, Performed: true}, createEvent, lunch, notKnown, createEvent)})
	}
	return append(all, []providerFault{
		{13, "a read that hangs twice is unavailable", faulty(sim.Fault{Shape: sim.Hang, Count: 2}, labels, `{}`, unavailble)},
		{14, "a cut after performing is unknown, and performed once", faulty(sim.Fault{Shape: sim.Cut, Performed: true}, createEvent, lunch, notKnown, createEvent)},
		{14, "a cut before performing is unknown too", faulty(sim.Fault{Shape: sim.Cut}, createEvent, lunch, notKnown)},
		{14, "a cut within the answer, also on a reused connection, is unknown", TestAWriteCutWithinItsAnswerIsUnknown},
		{14, "a cut on a reused connection is not repeated by the transport", func(t *testing.T) {
			h := open(t)
			for range 3 {
				h.call(labels, `{}`)
			}
			h.asked()
			h.sim.Fault(sim.Fault{Path: "actions/run", Shape: sim.Cut, Performed: true})
			wantVerdict(t, h.call(createEvent, lunch), notKnown)
			runs := 0
			for _, r := range h.asked() {
				if r == "POST actions/run" {
					runs++
				}
			}
			if runs != 1 {
				t.Errorf("%d runs were sent", runs)
			}
			wantLedger(t, h, labels, labels, labels, createEvent)
		}},
	}...)
}

func faultsAround() []providerFault {
	return []providerFault{
		{15, "the ledger tells person, account, key, version and props", func(t *testing.T) {
			h := open(t)
			h.call(createEvent, lunch)
			got := h.sim.Ledger()[0]
			if got.ExternalUser != "person-1" || got.Account != "apn_gcal01" || got.Key != createEvent || got.Version == "" || got.Props["summary"] != "Comida" {
				t.Errorf("%+v", got)
			}
		}},
		{16, "another person's and another app's account are refused though the provider would run them", TestAForeignAccountIsRefusedWhateverTheProviderThinks},
		{16, "a deleted account is not connected", func(t *testing.T) {
			h := open(t)
			if err := h.conn.DeleteAccount(context.Background(), "person-1", "apn_gmail01"); err != nil {
				t.Fatal(err)
			}
			r := h.send(gateway.Call{Caller: caller(), Tool: labels, Args: json.RawMessage(`{}`), Account: "apn_gmail01"})
			wantVerdict(t, r, verdict{store.OutcomeFailed, "not_connected", "no", "person"})
		}},
		{16, "an account that turns unhealthy between check and run asks to be connected again, and is looked up anew", func(t *testing.T) {
			h := open(t)
			h.sim.Fault(sim.Fault{Path: "actions/run", Shape: sim.TurnsUnwell})
			wantVerdict(t, h.call(createEvent, lunch), reconnect)
			h.asked()
			wantVerdict(t, h.call(createEvent, lunch), reconnect) // by the check now, which did not believe what it had seen
			for _, r := range h.asked() {
				if r == "POST actions/run" {
					t.Error("it was run with an account known to be unwell")
				}
			}
			wantLedger(t, h)
		}},
		{17, "a link connects once, for its person", TestALinkConnectsTheAppForItsPersonAlone},
		{17, "whatever the webhook does, the account list has the word", faultyWebhooks},
		{18, "nothing that fails loudly is ever sent", func(t *testing.T) {
			h := open(t)
			h.call(createEvent, lunch)
			h.call("retrieve_options", calendars)
			h.call("notion-create-page", newPage+`}`)
			if v := h.sim.Violations(); len(v) != 0 {
				t.Error(v)
			}
		}},
		{18, "no marker secret reaches an agent", TestNothingOfTheProvidersIsPassedOn},
		{19, "unknown fields and kinds change nothing", TestUnknownFieldsAndKindsChangeNothing},
		{20, "the clock rules: an account is believed for a minute at most", TestAnAccountIsBelievedForAMinuteAtMost},
		{20, "a reset leaves a stand-in that answers the same", func(t *testing.T) {
			h := open(t)
			first := h.call(createEvent, lunch)
			h.sim.Reset()
			h.pass(2 * time.Minute)
			wantVerdict(t, h.call(createEvent, lunch), verdictOf(first))
			wantLedger(t, h, createEvent)
		}},
	}
}

// faultyWebhooks: nothing of the connector depends on a webhook; the account is there, once, and belongs to its person.
func faultyWebhooks(t *testing.T) {
	for name, set := range map[string]func(*sim.Switches){
		"never": func(s *sim.Switches) { s.WebhookNever = true }, "late": func(s *sim.Switches) { s.WebhookLate = true },
		"twice": func(s *sim.Switches) { s.WebhookTwice = true }, "after the redirect": func(s *sim.Switches) { s.WebhookAfter = true },
		"forged": func(s *sim.Switches) { s.WebhookForged = true }, "odd": func(s *sim.Switches) { s.WebhookDocs = true },
		"an error though it worked": func(s *sim.Switches) { s.WebhookEventErr = true },
	} {
		h := open(t)
		h.sim.Set(set)
		started, err := h.conn.StartConnect(context.Background(), gateway.StartConnect{ExternalUser: "person-9", App: "notion", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.sim.OpenLink(started.URL.Reveal(), "Notas"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := h.conn.Accounts(context.Background(), "person-9", "notion")
		if err != nil || len(got) != 1 || got[0].Name != "Notas" || !got[0].Usable {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := h.sim.OpenLink(started.URL.Reveal(), "Otra"); !errors.Is(err, sim.ErrLinkUsed) {
			t.Errorf("%s: used twice: %v", name, err)
		}
	}
}

// TestG18_AnAccountAskedForThoughItIsThereIsTriedOnceMoreAndNeverASuccess: PipedreamHQ/pipedream 21104.
func TestG18_AnAccountAskedForThoughItIsThereIsTriedOnceMoreAndNeverASuccess(t *testing.T) {
	const wish = `Account required. Connect your account here: https://pipedream.com/_static/connect.html?token=ctok_0123&app=gmail`
	for form, body := range map[string]string{
		"a text":        `{"exports":{},"os":[],"ret":"` + wish + `"}`,
		"a tool result": `{"exports":{},"os":[],"ret":{"content":[{"type":"text","text":"` + wish + `"}],"isError":false}}`,
	} {
		for _, times := range []int{1, 2} {
			for tool, args := range map[string]string{labels: `{}`, createEvent: lunch} {
				h := open(t)
				left := times
				h.mu.Lock()
				h.replace = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, "/actions/run") || left == 0 {
						return false
					}
					left--
					_, _ = io.WriteString(w, body)
					return true
				}
				h.mu.Unlock()
				r := h.call(tool, args)
				want, ledger := done, []string{tool}
				if times == 2 {
					want, ledger = reconnect, nil
				}
				if tool == createEvent { // it may be what the action gave back: a change is not tried again
					want, ledger = verdict{store.OutcomeUnknown, "outcome_unknown", "unknown", "never"}, nil
				}
				wantVerdict(t, r, want)
				wantLedger(t, h, ledger...)
				if strings.Contains(r.Text+string(r.Structured), "ctok_") {
					t.Errorf("%s: the link is passed on: %s", form, r.Text)
				}
			}
		}
	}
	// A mail that speaks of such a link is a mail.
	h := open(t)
	h.answerRuns(200, `{"exports":{"$summary":"Found 1 mail"},"os":[],"ret":"`+wish+`"}`)
	wantVerdict(t, h.call(labels, `{}`), done)
}
