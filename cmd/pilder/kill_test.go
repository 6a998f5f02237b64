package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"pilder/runner"
	"pilder/sim/anthropic"
	"pilder/sim/pipedream"
	"pilder/sim/telegram"
	"pilder/store"
	"pilder/store/storetest"
)

// serveAs makes the test binary be `pilder serve`; its value is the log event at which it stops for good, after it has
// written the event's name to descriptor 3. That is exact: the line is written by the goroutine that has just done the step.
const serveAs = "KILLTEST_STOP_AT"

// serveWith is the configuration file of that process; empty: none.
const serveWith = "KILLTEST_CONFIG"

func TestMain(m *testing.M) {
	if code, inside := runner.Reexec(os.Args); inside {
		os.Exit(code)
	}
	if part, child := os.LookupEnv(benchPlays); child {
		os.Exit(playBench(part))
	}
	if at, child := os.LookupEnv(serveAs); child {
		os.Exit(serveUntil(at))
	}
	os.Exit(m.Run())
}

func serveUntil(at string) int {
	var log io.Writer = os.Stderr
	if at != "" {
		log = &stopAt{event: []byte(`"event":"` + at + `"`), name: at, tell: os.NewFile(3, "tell"), log: os.Stderr}
	}
	os.Unsetenv(serveAs)
	cfg, err := LoadConfig(cmp.Or(os.Getenv(serveWith), os.DevNull), os.Environ())
	if err == nil {
		err = serve(context.Background(), cfg, houseOptions{role: "all"}, log)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// stopAt is a log whose writer of one event never returns.
type stopAt struct {
	event []byte
	name  string
	tell  *os.File
	log   io.Writer
}

func (s *stopAt) Write(line []byte) (int, error) {
	if bytes.Contains(line, s.event) {
		fmt.Fprintln(s.tell, s.name)
		select {}
	}
	return s.log.Write(line)
}

// gate stands before a stand-in. Once armed it stops the first request that fits: before it is performed, or after it was
// performed and before its answer goes out.
type gate struct {
	next http.Handler
	mu   sync.Mutex
	stop *stopRequest
}

type stopRequest struct {
	path   string // end of the path
	body   string // part of the request's body; empty: any
	answer string // part of the answer's body (after only); empty: any
	nth    int    // the nth that fits; 0 means the first
	after  bool
	hit    chan struct{}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	stop := g.stop
	g.mu.Unlock()
	if stop == nil || !strings.HasSuffix(r.URL.Path, stop.path) {
		g.next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !bytes.Contains(body, []byte(stop.body)) {
		g.next.ServeHTTP(w, r)
		return
	}
	if !stop.after {
		if g.reached(stop) {
			<-r.Context().Done()
			return
		}
		g.next.ServeHTTP(w, r)
		return
	}
	rec := httptest.NewRecorder()
	g.next.ServeHTTP(rec, r)
	if bytes.Contains(rec.Body.Bytes(), []byte(stop.answer)) && g.reached(stop) {
		<-r.Context().Done()
		return
	}
	for key, values := range rec.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes())
}

// reached tells whether this is the request to stop, once.
func (g *gate) reached(stop *stopRequest) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop != stop {
		return false
	}
	if stop.nth > 1 {
		stop.nth--
		return false
	}
	g.stop = nil
	close(stop.hit)
	return true
}

// killCase is one moment of design step 1 to 9 at which `serve` gets SIGKILL.
type killCase struct {
	say   string
	press string       // label to press on the person's or approver's card first
	event string       // stop after the step that logs this …
	at    string       // … or at a request to telegram, anthropic or pipedream
	stop  *stopRequest // which
	fate  []store.Fate // how the message may end
	done  map[string]int
	told  []string // parts of texts, one of which the person must have read
	cut   bool     // the kill hit the send of the answer, which ends uncertain
}

const (
	meeting = "guardame una reunión mañana a las 10"
	mail    = "mandale un correo a bruno@empresa.com diciendo hola"
	created = "google_calendar-create-event"
	sent    = "gmail-send-email"
)

func killCases() map[string]killCase {
	answered, either := []store.Fate{store.FateAnswered}, []store.Fate{store.FateAnswered, store.FateFailed}
	failed := []store.Fate{store.FateFailed}
	once, never := map[string]int{created: 1}, map[string]int{}
	return map[string]killCase{
		"1 polled and not stored": {say: meeting, at: "telegram", stop: &stopRequest{path: "/getUpdates", answer: "guardame", after: true},
			fate: answered, done: once, told: []string{"10:00"}},
		"2 stored and not confirmed": {say: meeting, event: "message.received", fate: answered, done: once, told: []string{"10:00"}},
		"3 run started, no process":  {say: meeting, event: "run.started", fate: answered, done: once, told: []string{"10:00"}},
		"4 agent at work, nothing begun": {say: meeting, at: "anthropic", stop: &stopRequest{path: "/v1/messages"},
			fate: answered, done: once, told: []string{"10:00"}},
		"5 tools listed": {say: meeting, event: "run.init", fate: answered, done: once, told: []string{"10:00"}},
		"6 decided and not performed": {say: meeting, event: "call.decided", fate: failed, done: never,
			told: []string{"no sé si", "No sé si", "Comprueba", "comprueba", "interrump"}},
		"6 performed and not recorded": {say: meeting, at: "pipedream", stop: &stopRequest{path: "/actions/run", body: created, after: true},
			fate: failed, done: once, told: []string{"no sé si", "No sé si", "Comprueba", "comprueba", "interrump"}},
		"6 recorded and not told": {say: meeting, event: "call.ended", fate: failed, done: once, told: []string{"interrump"}},
		"7 pressed and not performed": {say: mail, press: "Enviar", event: "approval.decided", fate: answered,
			done: map[string]int{sent: 1}, told: []string{"Hecho", "hecho", "envi"}},
		"7 performed and not recorded": {say: mail, press: "Enviar", at: "pipedream", stop: &stopRequest{path: "/actions/run", body: sent, after: true},
			fate: answered, done: map[string]int{sent: 1}, told: []string{"no sé", "No sé", "seguro"}},
		"7 performed and recorded": {say: mail, press: "Enviar", event: "approval.executed", fate: answered,
			done: map[string]int{sent: 1}, told: []string{"Hecho", "hecho", "envi"}},
		"8 answered and not finished": {say: meeting, at: "anthropic", stop: &stopRequest{path: "/v1/messages", nth: 3, after: true},
			fate: failed, done: once, told: []string{"interrump"}},
		"8 finished and not sent": {say: meeting, event: "run.finished", fate: answered, done: once, told: []string{"10:00"}},
		"9 sending, not performed": {say: meeting, at: "telegram", stop: &stopRequest{path: "/sendMessage", body: "10:00"},
			fate: answered, done: once, cut: true},
		"9 sent and not marked": {say: meeting, at: "telegram", stop: &stopRequest{path: "/sendMessage", body: "10:00", after: true},
			fate: answered, done: once, told: []string{"10:00"}, cut: true},
		"9 marked": {say: meeting, event: "reply.sent", fate: either, done: once, told: []string{"10:00"}},
	}
}

// TestKilledAtEachStepNothingIsLostAndNothingHappensTwice kills the serving process with -9 at each step of a message's way
// and starts it again: every message ends answered or honestly failed, no action twice, no reply twice.
func TestKilledAtEachStepNothingIsLostAndNothingHappensTwice(t *testing.T) {
	for _, database := range storetest.Databases() {
		for name, c := range killCases() {
			if database == "postgres" && !slices.Contains(onBoth, name) {
				continue
			}
			t.Run(database+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, database)
				w.serveAndKill(c)
				w.serveUntilSettled(c)
				w.check(c)
			})
		}
	}
}

// onBoth are the cases that PostgreSQL shows as well: there the dead process is found by its missing beat and the poller's
// lease runs out, which takes its time. The store's own kill loop covers both databases alike.
var onBoth = []string{"2 stored and not confirmed", "3 run started, no process", "6 performed and not recorded",
	"7 performed and not recorded", "8 finished and not sent", "9 sent and not marked"}

// world is the outside of one pilder: stand-ins behind gates, a data folder, and the people of the demo.
type world struct {
	t         *testing.T
	data      string
	telegram  *telegram.Server
	anthropic *anthropic.Server
	pipedream *pipedream.Server
	gates     map[string]*gate
	urls      map[string]string
	environ   []string
	store     store.Config
}

func newWorld(t *testing.T, database string, scripts ...anthropic.Script) *world {
	w := &world{t: t, data: t.TempDir(), store: store.Config{URL: storetest.Fresh(t, database), Key: storetest.Key()}, gates: map[string]*gate{}, urls: map[string]string{}}
	w.telegram = telegram.New(telegram.Config{People: demoChatPeople()})
	w.anthropic = anthropic.New(anthropic.Config{Scripts: scripts})
	w.pipedream = pipedream.New(pipedream.Config{PublicURL: func() string { return w.urls["pipedream"] }})
	for name, h := range map[string]http.Handler{"telegram": w.telegram.Handler(), "anthropic": w.anthropic.Handler(), "pipedream": w.pipedream.Handler()} {
		w.gates[name] = &gate{next: h}
		server := httptest.NewServer(w.gates[name])
		t.Cleanup(server.Close)
		w.urls[name] = server.URL
	}
	t.Cleanup(w.telegram.Close)
	t.Cleanup(w.anthropic.Close)
	w.environ = append(demoEnviron(w.data, w.urls["telegram"], w.urls["anthropic"], w.urls["pipedream"], "127.0.0.1:0"),
		"PILDER_RUNNER_CLAUDE_PATH="+pinnedCLI(t), "PATH="+os.Getenv("PATH"), "HOME="+w.data,
		"PILDER_STORE_URL="+w.store.URL, "PILDER_STORE_KEY="+w.store.Key.Reveal())
	s, err := store.Open(t.Context(), w.store)
	if err != nil {
		t.Fatal(err)
	}
	if err := seedDemo(t.Context(), s, w.pipedream); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return w
}

// guest opens the store beside the serving process.
func (w *world) guest(ctx context.Context) *store.Store {
	w.t.Helper()
	c := w.store
	c.Guest = true
	s, err := store.Open(ctx, c)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// pinnedCLI is the CLI that make test has fetched.
func pinnedCLI(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", claudePath(Config{})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the CLI is missing; run: bin/pilder cli fetch (%v)", err)
	}
	return path
}

// child is one `pilder serve`.
type child struct {
	cmd   *exec.Cmd
	tell  *os.File
	log   *bytes.Buffer
	ended chan struct{}
}

func (w *world) start(stopAt string) *child {
	w.t.Helper()
	tell, told, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	defer told.Close()
	c := &child{cmd: exec.Command(os.Args[0]), tell: tell, log: &bytes.Buffer{}, ended: make(chan struct{})}
	c.cmd.Env = append(slices.Clone(w.environ), serveAs+"="+stopAt)
	c.cmd.Stderr, c.cmd.ExtraFiles = c.log, []*os.File{told}
	if err := c.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { c.cmd.Wait(); close(c.ended) }()
	w.t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-c.ended
		tell.Close()
		if w.t.Failed() {
			w.t.Logf("log of a serving process (stopped at %q):\n%s", stopAt, c.log)
		}
	})
	return c
}

// demoBot is the stand-in's bot, anaID its admin.
const (
	demoBot = store.BotID(100001)
	anaID   = 1001
)

const patience = 3 * time.Minute // generous: the machine may be busy with everything else

// serveAndKill lets the case's message in and kills the process at the case's step.
func (w *world) serveAndKill(c killCase) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if c.stop != nil {
		c.stop.hit = make(chan struct{})
		if c.press == "" {
			w.gates[c.at].arm(c.stop)
		}
	}
	p := w.start(c.event)
	w.telegram.Say(anaID, c.say)
	if c.press != "" {
		card, err := w.telegram.WaitMessage(ctx, anaID, func(m telegram.Message) bool { return len(m.Buttons) > 0 })
		if err != nil {
			w.t.Fatalf("no card: %v", err)
		}
		if _, err := w.telegram.WaitMessage(ctx, anaID, func(m telegram.Message) bool { return m.Bot && m.ID != card.ID }); err != nil {
			w.t.Fatalf("no answer: %v", err)
		}
		if c.stop != nil {
			w.gates[c.at].arm(c.stop)
		}
		if w.telegram.PressLabel(anaID, card.ID, card.Buttons[0][0].Text) == "" {
			w.t.Fatal("no such button")
		}
	}
	reached := make(chan struct{})
	if c.stop != nil {
		reached = c.stop.hit
	} else {
		go func() {
			if n, _ := p.tell.Read(make([]byte, 64)); n > 0 {
				close(reached)
			}
		}()
	}
	select {
	case <-reached:
	case <-p.ended:
		w.t.Fatalf("serve ended before the step\n%s", p.log)
	case <-ctx.Done():
		w.t.Fatalf("the step was never reached\n%s", p.log)
	}
	p.cmd.Process.Kill()
	<-p.ended
}

func (g *gate) arm(stop *stopRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop = stop
}

// serveUntilSettled starts the process again and waits until every message has its fate, nothing waits to be sent and no
// call is open.
func (w *world) serveUntilSettled(c killCase) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	p := w.start("")
	s := w.guest(ctx)
	defer s.Close()
	tick := time.NewTicker(50 * time.Millisecond) // another process writes: there is nothing to wait on
	defer tick.Stop()
	for state := ""; ; {
		select {
		case <-tick.C:
		case <-p.ended:
			w.t.Fatalf("serve ended\n%s", p.log)
		case <-ctx.Done():
			w.t.Fatalf("not settled: %s\n%s", state, p.log)
		}
		if state = w.unsettled(ctx, s, c); state == "" {
			return
		}
	}
}

// unsettled says what is still open; empty when nothing is.
func (w *world) unsettled(ctx context.Context, s *store.Store, c killCase) string {
	fates, err := s.MessageFates(ctx, demoBot, anaID, 10)
	if err != nil {
		return err.Error()
	}
	want := 1
	if c.press != "" {
		want = 2 // the message, and the press
	}
	if len(fates) < want {
		return fmt.Sprintf("%d of %d updates arrived", len(fates), want)
	}
	for _, f := range fates {
		if slices.Contains([]store.Fate{store.FateReceived, store.FateQueued, store.FateRunning}, f.Fate) {
			return "an update is " + string(f.Fate)
		}
		if f.Run == "" {
			continue
		}
		run, err := s.RunByID(ctx, f.Run)
		if err != nil {
			return err.Error()
		}
		for _, call := range run.Calls {
			if call.Outcome == store.OutcomeOpen || c.press != "" && call.Outcome == store.OutcomeHeld {
				return "a call is " + string(call.Outcome)
			}
		}
	}
	for _, p := range demoPeople() {
		if n, err := s.OutboxWaiting(ctx, demoBot, p.id); err != nil || n > 0 {
			return fmt.Sprintf("%d replies wait for %s (%v)", n, p.name, err)
		}
	}
	return ""
}

// check compares what the outside saw with what may have happened.
func (w *world) check(c killCase) {
	t := w.t
	done := map[string]int{}
	for _, p := range w.pipedream.Ledger() {
		done[p.Key]++
	}
	if diff := gocmp.Diff(c.done, done); diff != "" {
		t.Errorf("performed (-want +got):\n%s", diff)
	}
	s := w.guest(t.Context())
	defer s.Close()
	fates, err := s.MessageFates(t.Context(), demoBot, anaID, 10)
	if err != nil {
		t.Fatal(err)
	}
	if got := fates[len(fates)-1]; !slices.Contains(c.fate, got.Fate) {
		t.Errorf("the message is %s (%s), want %v", got.Fate, got.Reason, c.fate)
	}
	uncertain := w.uncertain(s, fates[len(fates)-1].Run)
	if c.cut && uncertain != 1 {
		t.Errorf("%d replies are uncertain, want the one whose send was hit", uncertain)
	}
	var texts []string
	for _, m := range w.telegram.Transcript(anaID) {
		if m.Bot {
			texts = append(texts, m.Text)
		}
	}
	// The sender works beside the step that a log line stops: a kill there may hit a send as well, and then an uncertain reply
	// is the honest end.
	certain := c.cut || uncertain == 0
	if certain && len(c.told) > 0 && !slices.ContainsFunc(c.told, func(part string) bool { return strings.Contains(strings.Join(texts, "\n"), part) }) {
		t.Errorf("the person read %q, which has none of %q", texts, c.told)
	}
	if twice := w.telegram.Duplicates(); len(twice) > 0 {
		t.Errorf("said twice: %q", twice)
	}
	if bad := w.telegram.Violations(); len(bad) > 0 {
		t.Errorf("against the Bot API's rules: %q", bad)
	}
	if bad := w.pipedream.Violations(); len(bad) > 0 {
		t.Errorf("against Pipedream's rules: %q", bad)
	}
	if t.Failed() {
		said, _ := json.Marshal(texts)
		t.Logf("chat: %s", said)
	}
}

// uncertain counts a run's replies whose send was cut. Every other reply must have been sent.
func (w *world) uncertain(s *store.Store, run store.RunID) int {
	w.t.Helper()
	if run == "" {
		return 0
	}
	view, err := s.RunByID(w.t.Context(), run)
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, r := range view.Replies {
		switch r.State {
		case store.ReplySent:
		case store.ReplyUncertain:
			n++
		default:
			w.t.Errorf("reply %s is %s", r.ID, r.State)
		}
	}
	return n
}
