package bot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pilder/bot"
	"pilder/policy"
	"pilder/sim/telegram"
	"pilder/store"
	"pilder/store/storetest"
)

// The people of the tests.
const (
	ana      = 7001 // member, Spanish
	bruno    = 7002 // approver, English
	carla    = 7003 // admin, Spanish
	dario    = 7004 // member, Spanish
	stranger = 7999 // nobody's, Portuguese
)

const patience = 60 * time.Second

// world is a company, its people in a simulated Telegram, and one bot between them.
type world struct {
	t       *testing.T
	sim     *telegram.Server
	http    *httptest.Server
	store   *store.Store
	company store.Company
	who     map[int64]store.Membership
	log     *logs
	lives   *store.Store // whose loops run
	stop    func()       // of the bot started last
}

// logs is what the bot logged.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *logs) String() string              { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// has tells whether an event was logged.
func (l *logs) has(event string) bool { return strings.Contains(l.String(), `"event":"`+event+`"`) }

// each runs a test on both databases. Worlds share nothing, so they live at the same time: most of one is waiting.
func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	storetest.Each(t, func(t *testing.T, open func(store.Config) *store.Store) {
		t.Parallel()
		f(t, newWorld(t, open(store.Config{})))
	})
}

// alone is each on SQLite only: for what has nothing to do with the database.
func alone(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorld(t, storetest.Opener(t, "sqlite")(store.Config{}))
}

func newWorld(t *testing.T, s *store.Store) *world {
	t.Helper()
	w := &world{t: t, store: s, who: map[int64]store.Membership{}, log: &logs{}}
	w.sim = telegram.New(telegram.Config{Seed: 1, People: []telegram.Person{
		{ID: ana, Name: "Ana Torres", Username: "ana", Language: "es"}, {ID: bruno, Name: "Bruno Lee", Language: "en"},
		{ID: carla, Name: "Carla", Language: "es-AR"}, {ID: dario, Name: "Darío", Language: "es"}, {ID: stranger, Name: "Zé", Username: "carla", Language: "pt"},
	}})
	w.http = httptest.NewServer(w.sim.Handler())
	t.Cleanup(func() { w.sim.Close(); w.http.Close(); w.honest() })
	var err error
	w.company, err = s.CreateCompany(t.Context(), store.Company{Name: "Empresa", Domains: []string{"empresa.com"}, Zone: "America/Argentina/Buenos_Aires", Lang: "es"})
	must(t, err)
	for _, p := range []struct {
		id   int64
		name string
		lang string
		role policy.Role
	}{{ana, "Ana Torres", "es", policy.RoleMember}, {bruno, "Bruno Lee", "en", policy.RoleApprover}, {carla, "Carla", "es", policy.RoleAdmin}, {dario, "Darío", "es", policy.RoleMember}} {
		w.who[p.id], err = s.AddMember(t.Context(), w.company.ID, store.Person{Telegram: p.id, Name: p.name, Lang: p.lang}, p.role)
		must(t, err)
	}
	return w
}

// honest checks what must hold after every test, asked or not.
func (w *world) honest() {
	w.t.Helper()
	for _, v := range w.sim.Violations() {
		w.t.Errorf("violation: %s", v)
	}
	_, secret, _ := strings.Cut(telegram.DefaultToken, ":")
	if strings.Contains(w.log.String(), secret) {
		w.t.Error("the bot token was logged")
	}
	for _, r := range w.sim.Requests() {
		switch r.Method {
		case "sendMessage", "editMessageText":
			if !strings.Contains(r.Params["link_preview_options"], `"is_disabled":true`) {
				w.t.Errorf("%s with a link preview", r.Method)
			}
		case "deleteWebhook":
			if r.Params["drop_pending_updates"] == "true" {
				w.t.Error("pending updates were dropped")
			}
		}
	}
	if w.t.Failed() {
		w.t.Log(w.log.String())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// named is a name that is the same in both languages.
func named(name string) policy.Text { return policy.Text{ES: name, EN: name} }

func (w *world) config() bot.Config {
	return bot.Config{
		Token: store.NewSecret(" " + telegram.DefaultToken + "\n"), APIURL: w.http.URL, Log: zerolog.New(w.log), PollTimeout: 20 * time.Second,
		Retry: 20 * time.Millisecond, ChatRate: 1000,
		Apps: []bot.App{{Slug: "google_calendar", Name: named("Google Calendar")}, {Slug: "gmail", Name: named("Gmail")}, {Slug: "notion", Name: named("Notion")}},
		Connect: func(ctx context.Context, m store.Membership, app string, from store.UpdateRef, chat store.Chat) error {
			return w.store.CreateLink(ctx, from, m, app, chat, time.Minute, func(secret store.Secret) store.Draft {
				return bot.LinkDraft(m, app, chat, store.NewSecret("https://pilder.example/connect/"+secret.Reveal()))
			})
		},
	}
}

// start runs a bot; stop ends it as a clean shutdown does.
func (w *world) start(change ...func(*bot.Config)) (stop func()) {
	w.t.Helper()
	cfg := w.config()
	for _, c := range change {
		c(&cfg)
	}
	b, err := bot.New(cfg, w.store)
	must(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					w.t.Error(err)
				}
			case <-time.After(patience):
				w.t.Error("the bot does not stop")
			}
		})
	}
	w.t.Cleanup(stop)
	w.stop = stop
	return stop
}

// agent serves turns: answer makes what is said, and an empty run state means succeeded.
func (w *world) agent(answer func(ctx context.Context, r store.Run) string) {
	w.t.Helper()
	w.turns(func(ctx context.Context, r store.Run) store.Finish {
		return store.Finish{State: store.RunSucceeded, Reason: "ok", Drafts: []store.Draft{bot.Answer(r, answer(ctx, r))}}
	})
}

// live runs the store's own loops, once, until after everything that was started later.
func (w *world) live() {
	w.t.Helper()
	if w.lives == w.store {
		return
	}
	w.lives = w.store
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := w.store
	go func() { done <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) turns(work func(ctx context.Context, r store.Run) store.Finish) (stop func()) {
	w.t.Helper()
	w.live()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		err := w.store.ServeTurns(ctx, 8, patience, func(ctx context.Context, turn store.Turn) error {
			r, ok, err := w.store.StartRun(ctx, turn)
			if err != nil || !ok {
				return err
			}
			_, err = w.store.FinishRun(ctx, turn, r, work(ctx, r))
			return err
		})
		if err != nil {
			w.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	w.t.Cleanup(stop)
	return stop
}

// echo answers with the messages of the turn.
func echo(_ context.Context, r store.Run) string {
	var all []string
	for _, m := range r.Messages {
		all = append(all, m.Text)
	}
	return "eco: " + strings.Join(all, " | ")
}

// reads waits until somebody reads a message of the bot that holds the text.
func (w *world) reads(person int64, text string) telegram.Message {
	w.t.Helper()
	return w.readsAfter(person, 0, text)
}

// readsAfter is reads of what comes after a message.
func (w *world) readsAfter(person, after int64, text string) telegram.Message {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := w.sim.WaitMessage(ctx, person, func(m telegram.Message) bool { return m.Bot && m.ID > after && strings.Contains(m.Text, text) })
	if err != nil {
		w.t.Fatalf("%d never reads %q; their chat: %q\n%s", person, text, w.seen(person), w.log)
	}
	return m
}

// seen are the bot's texts in a chat.
func (w *world) seen(person int64) []string {
	var all []string
	for _, m := range w.sim.Transcript(person) {
		if m.Bot {
			all = append(all, m.Text)
		}
	}
	return all
}

// until waits for something to become true; nothing in it depends on speed.
func (w *world) until(what string, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !done(); {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s\n%s", what, w.log)
		}
		select {
		case <-w.store.Wake():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// fates are the fates in a chat, oldest first.
func (w *world) fates(person int64) []store.Fate {
	w.t.Helper()
	b, err := bot.New(w.config(), w.store)
	must(w.t, err)
	all, err := w.store.MessageFates(w.t.Context(), b.ID(), person, 50)
	must(w.t, err)
	var out []store.Fate
	for _, f := range all {
		out = append(out, f.Fate)
	}
	slices.Reverse(out)
	return out
}

// replies are the outbox's states of the newest runs' replies.
func (w *world) replies() []store.ReplyState {
	w.t.Helper()
	runs, err := w.store.Runs(w.t.Context(), w.company.ID, 50)
	must(w.t, err)
	var out []store.ReplyState
	for _, r := range runs {
		for _, p := range r.Replies {
			out = append(out, p.State)
		}
	}
	return out
}

// calls are the calls of a method.
func (w *world) calls(method string) []telegram.Request {
	var out []telegram.Request
	for _, r := range w.sim.Requests() {
		if r.Method == method {
			out = append(out, r)
		}
	}
	return out
}

// push puts raw updates into Telegram's queue.
func (w *world) push(body string) int64 { return w.sim.Push(json.RawMessage(body)) }

// gate is a TCP way to the simulator that can be shut and opened at one address: the network.
type gate struct {
	t    *testing.T
	addr string
	h    http.Handler
	s    *http.Server
}

func newGate(t *testing.T, h http.Handler) *gate {
	g := &gate{t: t, addr: "127.0.0.1:0", h: h}
	g.open()
	t.Cleanup(g.shut)
	return g
}

func (g *gate) open() {
	g.t.Helper()
	l, err := net.Listen("tcp", g.addr)
	must(g.t, err)
	g.addr = l.Addr().String()
	g.s = &http.Server{Handler: g.h}
	go g.s.Serve(l)
}

func (g *gate) shut() { g.s.Close() }
