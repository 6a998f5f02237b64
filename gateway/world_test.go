package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

const (
	worldBot = store.BotID(77)
	patience = time.Minute // how long a test waits for what must come; nothing relies on its being short
)

// world is a company with an admin, an approver and a member who has a calendar and mail, over a real store.
type world struct {
	*store.Store
	clock   *storetest.Clock
	g       *gateway.Gateway
	cfg     gateway.Config
	app     *app
	log     *events
	member  store.Membership
	other   store.Membership // the approver
	poller  store.Poller
	updates int64
	answer  []store.Draft // what a run says at its end
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) { f(t, newWorld(t, open)) })
}

// onSQLite is for what does not depend on the database.
func onSQLite(t *testing.T) *world { return newWorld(t, storetest.Opener(t, "sqlite")) }

// named is a name that is the same in both languages.
func named(name string) policy.Text { return policy.Text{ES: name, EN: name} }

func newWorld(t *testing.T, open func(store.Config) *store.Store) *world {
	t.Helper()
	w := &world{clock: storetest.NewClock(), app: newApp(), log: &events{}}
	w.Store = open(store.Config{Now: w.clock.Now})
	ctx := t.Context()
	company := need(w.CreateCompany(ctx, store.Company{Name: "Empresa <b>", Domains: []string{"empresa.com"}, Zone: "America/Argentina/Buenos_Aires", Lang: "es"}))(t)
	add := func(telegram int64, name string, role policy.Role) store.Membership {
		return need(w.AddMember(ctx, company.ID, store.Person{Telegram: telegram, Name: name, Lang: "es"}, role))(t)
	}
	add(101, "Ana", policy.RoleAdmin)
	w.other = add(102, "Abel", policy.RoleApprover)
	w.member = add(103, "Mía & Co", policy.RoleMember)
	w.connect(t, "google_calendar", "apn_calendar")
	w.connect(t, "gmail", "apn_mail")
	w.poller = need(w.AcquirePoller(ctx, worldBot, time.Hour))(t)
	w.cfg = gateway.Config{
		TokenKeys: []gateway.TokenKey{{ID: "new", Secret: key("new")}, {ID: "old", Secret: key("old")}},
		Version:   "1.2.3",
		Apps:      []gateway.App{{Slug: "google_calendar", Name: named("Google Calendar")}, {Slug: "gmail", Name: named("Gmail")}, {Slug: "asana", Name: named("Asana")}},
		Card: func(a store.Approval, to store.Approver) store.Draft {
			return store.Draft{Notice: "card " + a.Tool}
		},
		Outcome: func(a store.Approval, o store.Outcome, text string) []store.Draft {
			return []store.Draft{{Company: a.Company, Chat: a.Chat, Kind: store.DraftNotice, Notice: fmt.Sprintf("%s: %s", o, text)}}
		},
		Lost:         func(store.CallView, store.Run) []store.Draft { return nil },
		Instructions: func(in gateway.Instructions) string { return fmt.Sprintf("%+v", in) },
		Now:          w.clock.Now,
		Log:          zerolog.New(w.log),
	}
	w.build(t)
	return w
}

// build makes the gateway anew from w.cfg.
func (w *world) build(t *testing.T) {
	t.Helper()
	w.g = need(gateway.New(w.cfg, w.Store, w.app))(t)
}

func (w *world) connect(t *testing.T, slug, provider string) {
	t.Helper()
	need(w.SeedAccount(t.Context(), w.member, slug, provider, "mia@empresa.com"))(t)
}

func key(name string) store.Secret {
	return store.NewSecret("a key of at least 32 bytes, named " + name)
}

func need[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want, got:\n%s", diff)
	}
}

func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreached")
	}
}

// run starts a run of the member; end finishes it.
func (w *world) run(t *testing.T) (run store.Run, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	began, finish, served := make(chan store.Run, 1), make(chan struct{}), make(chan error, 1)
	w.updates++
	need(w.Receive(t.Context(), w.poller, []store.Arrival{{
		UpdateID: w.updates, Raw: []byte(`{}`), Kind: store.ArrivalMessage, From: store.Person{Telegram: 103},
		Chat: store.Chat{ID: 103, Private: true}, Telegram: 1000 + w.updates, Text: "do it",
	}}))(t)
	go func() {
		served <- w.ServeTurns(ctx, 1, patience, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			began <- r
			<-finish
			_, err = w.FinishRun(ctx, turn, r, store.Finish{State: store.RunSucceeded, Reason: "ok", Drafts: w.answer})
			cancel()
			return err
		})
	}()
	run = next(t, began)
	end = sync.OnceFunc(func() {
		close(finish)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return run, end
}

// door serves a run's door and gives its address; shut closes it and waits.
func (w *world) door(t *testing.T, run store.Run) (addr string, shut func()) {
	t.Helper()
	l := need(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.g.ServeRun(ctx, run, l) }()
	shut = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(shut)
	return l.Addr().String(), shut
}

// eras are the two kinds of MCP client, by the revision they ask for.
func eras() map[string]string { return map[string]string{"modern": "", "legacy": "2025-11-25"} }

// agent is an MCP client at a run's door, as the CLI is.
func (w *world) agent(t *testing.T, run store.Run, addr, revision string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	token := need(w.g.MintToken(run))(t)
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, opts)
	transport := &mcp.StreamableClientTransport{Endpoint: gateway.DoorURL, HTTPClient: &http.Client{Transport: through{addr, "Bearer " + token.Reveal()}}, MaxRetries: -1}
	session := need(client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision}))(t)
	t.Cleanup(func() { _ = session.Close() }) // a door that closed first has ended it already
	return session
}

// through reaches a listener under the door's own address and adds a header, as the sandbox and the mcp-config do.
type through struct{ addr, authorization string }

func (p through) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host, r.URL.Host = r.URL.Host, p.addr
	if p.authorization != "" {
		r.Header.Set("Authorization", p.authorization)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// call calls a tool and gives its text, structured part and whether it is an error.
func call(t *testing.T, s *mcp.ClientSession, tool, args string) answer {
	t.Helper()
	r := need(s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)}))(t)
	return answerOf(t, r)
}

type answer struct {
	Text       string
	Structured map[string]any
	IsError    bool
}

func answerOf(t *testing.T, r *mcp.CallToolResult) answer {
	t.Helper()
	a := answer{IsError: r.IsError}
	for _, c := range r.Content {
		a.Text += c.(*mcp.TextContent).Text
	}
	a.Structured, _ = r.StructuredContent.(map[string]any)
	return a
}

// row is what a call's row says.
type row struct {
	Tool     string
	Decision policy.Effect
	Rule     string
	Outcome  store.Outcome
	Code     string
}

// rows gives a run's calls, by tool and code: the tests' clock stands still, so their order says nothing.
func (w *world) rows(t *testing.T, run store.RunID) []row {
	t.Helper()
	var all []row
	for _, c := range need(w.RunByID(t.Context(), run))(t).Calls {
		all = append(all, row{c.Tool, c.Decision, c.Rule, c.Outcome, c.Code})
	}
	slices.SortStableFunc(all, func(a, b row) int { return strings.Compare(a.Tool+" "+a.Code, b.Tool+" "+b.Code) })
	return all
}

// said empties the outbox: what each chat was told.
func (w *world) said(t *testing.T) map[int64][]string {
	t.Helper()
	all := map[int64][]string{}
	for {
		r, ok, _, err := w.NextReply(t.Context(), w.poller)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		if err := w.MarkSending(t.Context(), w.poller, r.ID); err != nil {
			t.Fatal(err)
		}
		w.updates++
		if err := w.MarkSent(t.Context(), w.poller, r.ID, w.updates); err != nil {
			t.Fatal(err)
		}
		all[r.Draft.Chat.ID] = append(all[r.Draft.Chat.ID], r.Draft.Notice)
	}
}

// update files a control update, as a button press is.
func (w *world) update(t *testing.T, telegram int64) store.UpdateRef {
	t.Helper()
	w.updates++
	need(w.Receive(t.Context(), w.poller, []store.Arrival{{
		UpdateID: w.updates, Raw: []byte(`{}`), Kind: store.ArrivalControl, From: store.Person{Telegram: telegram},
		Chat: store.Chat{ID: telegram, Private: true},
	}}))(t)
	return store.UpdateRef{Bot: worldBot, UpdateID: w.updates}
}

// events collects the names of logged events.
type events struct {
	mu  sync.Mutex
	all []map[string]any
	raw []byte
}

func (e *events) Write(line []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var m map[string]any
	if err := json.Unmarshal(line, &m); err != nil {
		return 0, err
	}
	e.all = append(e.all, m)
	e.raw = append(e.raw, line...)
	if testing.Verbose() {
		os.Stderr.Write(line)
	}
	return len(line), nil
}

func (e *events) has(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.all, func(m map[string]any) bool { return m["event"] == name })
}

func (e *events) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.raw)
}

// app is a scripted source of tools that counts its effects: the one thing tests put behind the gateway.
type app struct {
	mu      sync.Mutex
	effects []gateway.Call
	script  map[string]func(context.Context, gateway.Call) (gateway.Result, error)
	tools   map[string][]gateway.Tool // by app

	checks map[string]func() *gateway.Result // what Check says of a tool
}

func newApp() *app {
	tool := func(name, slug string, class policy.Class, scope policy.Scope, schema string) gateway.Tool {
		return gateway.Tool{
			Name: name, Title: "Title of " + name, Description: "Description of " + name, App: slug, Connector: "test",
			Class: class, Scope: scope, InputSchema: json.RawMessage(schema),
			OutputSchema: json.RawMessage(`{"type":"object","required":["status","data"],"properties":{"status":{"const":"ok"}}}`),
			Annotations: gateway.Annotations{
				ReadOnly: class == policy.ClassRead, Destructive: class == policy.ClassDestructive, OpenWorld: true,
			},
		}
	}
	event := `{"type":"object","additionalProperties":false,"required":["summary"],"properties":{
		"summary":{"type":"string"},"attendees":{"type":"array","items":{"type":"string"}},"minutes":{"type":"integer","minimum":1}}}`
	mail := tool("correo_enviar", gateway.HouseApp, policy.ClassWrite, policy.ScopeMailSend,
		`{"type":"object","additionalProperties":false,"required":["para"],"properties":{"para":{"type":"array","items":{"type":"string"}}}}`)
	mail.Uses, mail.AlwaysLoad = "gmail", true
	return &app{
		script: map[string]func(context.Context, gateway.Call) (gateway.Result, error){},
		tools: map[string][]gateway.Tool{
			"google_calendar": {
				tool("google_calendar-list-events", "google_calendar", policy.ClassRead, policy.ScopeAppsRead, `{"type":"object","properties":{"q":{"type":"string"}}}`),
				tool("google_calendar-create-event", "google_calendar", policy.ClassWrite, policy.ScopeAppsWrite, event),
				tool("google_calendar-delete-event", "google_calendar", policy.ClassDestructive, policy.ScopeAppsWrite, `{"type":"object"}`),
				tool("google_calendar-respond-to-event", "google_calendar", policy.ClassWrite, policy.ScopeAppsWrite, `{"type":"object"}`),
			},
			"gmail": {mail, tool("gmail-send-email", "gmail", policy.ClassWrite, policy.ScopeAppsWrite, `{"type":"object"}`)},
			"asana": {tool("asana-search", "asana", policy.ClassRead, policy.ScopeAppsRead, `{"type":"object"}`)},
		},
	}
}

func (a *app) Tools(_ context.Context, c gateway.Caller) ([]gateway.Tool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []gateway.Tool
	for _, slug := range c.Apps {
		all = append(all, a.tools[slug]...)
	}
	return all, nil
}

func (a *app) Check(_ context.Context, c gateway.Call) *gateway.Result {
	if check := a.checks[c.Tool]; check != nil {
		return check()
	}
	return nil
}

func (a *app) Call(ctx context.Context, c gateway.Call) (gateway.Result, error) {
	a.mu.Lock()
	a.effects = append(a.effects, c)
	n, script := len(a.effects), a.script[c.Tool]
	a.mu.Unlock()
	if script != nil {
		return script(ctx, c)
	}
	return done(fmt.Sprintf("effect %d", n)), nil
}

func done(text string) gateway.Result {
	return gateway.Result{Outcome: store.OutcomeDone, Text: text, Code: "ok",
		Structured: json.RawMessage(fmt.Sprintf(`{"status":"ok","data":%q}`, text))}
}

// on scripts a tool.
func (a *app) on(tool string, f func(context.Context, gateway.Call) (gateway.Result, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.script[tool] = f
}

// performed gives the calls that reached the app, as tool and arguments.
func (a *app) performed() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := []string{}
	for _, c := range a.effects {
		all = append(all, c.Tool+" "+string(c.Args)+" "+c.Account)
	}
	return all
}
