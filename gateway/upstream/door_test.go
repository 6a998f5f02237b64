package upstream_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/policy"
	"pilder/sim/mcp"
	"pilder/store"
)

// house is a run of a member whose door offers an upstream's tools, and the agent at that door.
type house struct {
	*world
	run   store.Run
	agent *sdk.ClientSession
}

// newHouse starts it. own is the company's policy; empty: the house's alone.
func newHouse(t *testing.T, own string, change func(*upstream.Spec, *upstream.Config), tools ...mcp.Tool) *house {
	t.Helper()
	h := &house{world: newWorld(t, mcp.New(mcp.Config{}, tools...), change)}
	s := h.store
	company := need(s.CreateCompany(t.Context(), store.Company{Name: "Empresa", Zone: "UTC", Lang: "en"}))(t)
	need(s.AddMember(t.Context(), company.ID, store.Person{Telegram: 103, Name: "Ana", Lang: "en"}, policy.RoleMember))(t)
	if own != "" {
		need(s.SetPolicy(t.Context(), store.UpdateRef{}, company.ID, "", 0, own))(t)
	}
	g := need(gateway.New(gateway.Config{
		TokenKeys: []gateway.TokenKey{{ID: "k", Secret: store.NewSecret(strings.Repeat("k", 32))}},
		Open: func(policy.CompanyID) []gateway.App {
			return []gateway.App{{Slug: "notes", Name: policy.Text{ES: "Notas", EN: "Notes"}}, {Slug: "other", Name: policy.Text{ES: "Otra", EN: "Other"}}}
		},
		Changes: h.Changes,
		Card:    func(a store.Approval, _ store.Approver) store.Draft { return store.Draft{Notice: a.Tool} },
		Outcome: func(store.Approval, store.Outcome, string) []store.Draft { return nil },
		Lost:    func(store.CallView, store.Run) []store.Draft { return nil },
		Now:     h.clock.Now,
	}, s, h.Connector))(t)
	h.run = h.begin(t)
	h.agent = h.enter(t, g)
	return h
}

// begin starts a run of the member, and ends it with the test.
func (h *house) begin(t *testing.T) store.Run {
	t.Helper()
	poller := need(h.store.AcquirePoller(t.Context(), 77, time.Hour))(t)
	need(h.store.Receive(t.Context(), poller, []store.Arrival{{UpdateID: 1, Raw: []byte(`{}`), Kind: store.ArrivalMessage,
		From: store.Person{Telegram: 103}, Chat: store.Chat{ID: 103, Private: true}, Telegram: 1001, Text: "do it"}}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	began, finish, served := make(chan store.Run, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		served <- h.store.ServeTurns(ctx, 1, patience, func(ctx context.Context, turn store.Turn) error {
			run, ok, err := h.store.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			began <- run
			<-finish
			_, err = h.store.FinishRun(ctx, turn, run, store.Finish{State: store.RunSucceeded, Reason: "ok"})
			cancel()
			return err
		})
	}()
	t.Cleanup(func() {
		close(finish)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	select {
	case run := <-began:
		return run
	case <-time.After(patience):
		t.Fatal("no run began")
		panic("unreached")
	}
}

// enter opens the run's door and an agent's MCP session at it.
func (h *house) enter(t *testing.T, g *gateway.Gateway) *sdk.ClientSession {
	t.Helper()
	l := need(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.ServeRun(ctx, h.run, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	token := need(g.MintToken(h.run))(t)
	client := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil)
	session := need(client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: gateway.DoorURL, MaxRetries: -1,
		HTTPClient: &http.Client{Transport: through{l.Addr().String(), "Bearer " + token.Reveal()}}}, nil))(t)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// through reaches a listener under the door's own address and adds the run's token.
type through struct{ addr, authorization string }

func (p through) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host, r.URL.Host = r.URL.Host, p.addr
	r.Header.Set("Authorization", p.authorization)
	return http.DefaultTransport.RoundTrip(r)
}

// use calls a tool as the agent does, and gives the structured part.
func (h *house) use(t *testing.T, tool, args string) map[string]any {
	t.Helper()
	r := need(h.agent.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(args)}))(t)
	structured, _ := r.StructuredContent.(map[string]any)
	return structured
}

// rows are the run's calls: tool, app, decision and outcome.
func (h *house) rows(t *testing.T) []string {
	t.Helper()
	rows := []string{}
	for _, c := range need(h.store.RunByID(t.Context(), h.run.ID))(t).Calls {
		rows = append(rows, strings.Join([]string{c.Tool, c.App, c.Decision.String(), string(c.Outcome), c.Code}, " "))
	}
	slices.Sort(rows)
	return rows
}

func TestG04_OneRequestIsOneExecutionOneRowAndOneCount(t *testing.T) {
	h := newHouse(t, "limits: {writes: 1}\n", nil, mcp.Simple("write"))
	var calling sync.WaitGroup
	for range 8 { // the same request, retried by an impatient client
		calling.Go(func() { h.use(t, "notes-write", `{"text":"once"}`) })
	}
	calling.Wait()
	if n := len(h.sim.Performed()); n != 1 {
		t.Errorf("performed %d times", n)
	}
	var decided int
	for _, row := range need(h.store.Audit(t.Context(), h.run.Principal.Company, 100))(t) {
		if row.Action == "call.ended" {
			decided++
		}
	}
	if decided != 1 {
		t.Errorf("%d outcomes in the audit", decided)
	}
	done := slices.DeleteFunc(h.rows(t), func(row string) bool { return strings.Contains(row, "limit") })
	same(t, "rows", []string{"notes-write notes allow done ok"}, done)
}

func TestG29_ARuleForOneAppNeverTouchesAnothersToolOfTheSameName(t *testing.T) {
	other := mcp.New(mcp.Config{}, mcp.Simple("write"))
	listens := serve(t, other)
	h := newHouse(t, "rules:\n  - {id: own.notes, effect: deny, apps: [notes], reason: {es: no, en: not in notes}}\n",
		func(_ *upstream.Spec, cfg *upstream.Config) {
			cfg.Upstreams = []upstream.Spec{{Slug: "other", Name: policy.Text{ES: "Otra"}, URL: listens, Tools: map[string]policy.Class{"write": policy.ClassWrite}}}
		}, mcp.Simple("write"))
	same(t, "in the app that is barred", "not_allowed", h.use(t, "notes-write", `{}`)["code"])
	same(t, "in the other", "ok", h.use(t, "other-write", `{}`)["status"])
	if a, b := len(h.sim.Performed()), len(other.Performed()); a != 0 || b != 1 {
		t.Errorf("performed %d and %d", a, b)
	}
}

func TestG35_ArgumentsThatDoNotFitNeverReachTheUpstream(t *testing.T) {
	schema := `{"type":"object","additionalProperties":false,"required":["who"],"properties":{
		"who":{"$ref":"#/$defs/who"},"many":{"anyOf":[{"type":"integer","minimum":1},{"type":"null"}]}},"$defs":{"who":{"type":"string","pattern":"^[a-z]+$"}}}`
	h := newHouse(t, "", nil, withInput("read", schema))
	before := len(h.sim.Requests())
	for args, path := range map[string]string{
		`{}`: "", `{"who":"ANA"}`: "/who", `{"who":"ana","many":0}`: "/many", `{"who":"ana","more":1}`: "", `{"who":7}`: "/who",
	} {
		got := h.use(t, "notes-read", args)
		problems, _ := got["problems"].([]any)
		if got["code"] != "bad_arguments" || got["retry"] != "fix" || len(problems) == 0 {
			t.Errorf("%s: %v", args, got)
			continue
		}
		if first := problems[0].(map[string]any); first["path"] != path {
			t.Errorf("%s: told of %q", args, first["path"])
		}
	}
	if n := len(h.sim.Requests()) - before; n != 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
	same(t, "arguments that fit", "ok", h.use(t, "notes-read", `{"who":"ana","many":null}`)["status"])
}

func TestAnUnknownToolOfAnUpstreamIsConfirmedByItsPerson(t *testing.T) {
	h := newHouse(t, "", nil, mcp.Simple("mystery"))
	same(t, "answer", "pending", h.use(t, "notes-mystery", `{}`)["status"])
	same(t, "rows", []string{"notes-mystery notes confirm held "}, h.rows(t))
	if len(h.sim.Performed()) != 0 {
		t.Error("performed without a button")
	}
}
