package runner_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pilder/policy"
	"pilder/runner"
	"pilder/store"
	"pilder/store/storetest"
)

// patience is how long a test waits for what must happen. It is no measure: a slow machine only fails later.
const patience = 2 * time.Minute

// bot is whom the person writes to.
const bot store.BotID = 4242

// office is a store with one person, and a runner whose CLI plays a script.
type office struct {
	*store.Store
	t        *testing.T
	cfg      runner.Config
	box      runner.SandboxConfig
	data     string
	poller   store.Poller
	member   store.Membership
	log      *logBook
	updates  int64
	stopWork func()
}

// newOffice prepares one; change adjusts the configuration.
func newOffice(t *testing.T, script string, change func(*runner.Config)) *office {
	t.Helper()
	o := &office{t: t, data: folder(t), log: &logBook{}}
	o.Store = storetest.Opener(t, "sqlite")(store.Config{})
	company, err := o.CreateCompany(t.Context(), store.Company{Name: "Acme", Domains: []string{"acme.example"}, Zone: "UTC", Lang: "es"})
	if err != nil {
		t.Fatal(err)
	}
	if o.member, err = o.AddMember(t.Context(), company.ID, store.Person{Telegram: 103, Name: "Mia", Lang: "es"}, policy.RoleMember); err != nil {
		t.Fatal(err)
	}
	if o.poller, err = o.AcquirePoller(t.Context(), bot, time.Hour); err != nil {
		t.Fatal(err)
	}
	home := folder(t)
	write(t, filepath.Join(home, "CLAUDE.md"), "House rules.\n")
	write(t, filepath.Join(home, ".claude/skills/agenda/SKILL.md"), "---\nname: agenda\ndescription: x\n---\nx\n")
	o.cfg = runner.Config{
		Data: o.data, CLI: scriptedCLI(t, script), CLIVersion: "2.1.332", AgentHome: home,
		MintToken:  func(r store.Run) (store.Secret, error) { return store.NewSecret("token-of-" + string(r.ID)), nil },
		ServeTools: func(ctx context.Context, _ store.Run, l net.Listener) error { return serveText(ctx, l, "tools", nil) },
		ServeModel: func(ctx context.Context, d runner.ModelDoor, l net.Listener) error {
			return serveText(ctx, l, "model", func(r *http.Request) bool {
				d.Meter(runner.Usage{Tokens: store.Tokens{Input: 3, Output: 4}, CostUSD: 0.5})
				return store.NewSecret(r.Header.Get("X-Api-Key")).Equal(d.Key)
			})
		},
		Answer: func(r store.Run, markdown string) store.Draft {
			return store.Draft{Company: r.Principal.Company, Conversation: r.Conversation, Chat: r.Chat, Kind: store.DraftAnswer, Markdown: markdown}
		},
		Notice: func(r store.Run, key string, args map[string]string) store.Draft {
			return store.Draft{Company: r.Principal.Company, Conversation: r.Conversation, Chat: r.Chat, Kind: store.DraftNotice, Notice: key, Args: args}
		},
		Waiting: func(w store.WaitingTurn, c store.ConversationID, ahead int) store.Draft {
			return store.Draft{Chat: w.Chat, Kind: store.DraftNotice, Notice: "queue.position", Args: map[string]string{"ahead": strconv.Itoa(ahead)}}
		},
		IdleTimeout: patience, ToolTimeout: patience, KillGrace: 500 * time.Millisecond, ExitGrace: 500 * time.Millisecond,
		InterruptGrace: 5 * time.Second, Log: zerolog.New(o.log),
	}
	if change != nil {
		change(&o.cfg)
	}
	return o
}

// scriptedCLI lays out a folder in which this binary is the CLI.
func scriptedCLI(t *testing.T, script string) string {
	t.Helper()
	dir := folder(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "claude")
	if err := os.Link(exe, path); err != nil { // another file system
		text, err := os.ReadFile(exe)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "script"), script)
	return path
}

// serveText answers every request with a word until ctx ends.
func serveText(ctx context.Context, l net.Listener, word string, admit func(*http.Request) bool) error {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if admit != nil && !admit(r) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		io.WriteString(w, word)
	})}
	return serveUntil(ctx, srv, l)
}

// serveUntil serves until ctx ends, or its listener does.
func serveUntil(ctx context.Context, srv *http.Server, l net.Listener) error {
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	err := srv.Close()
	<-done
	return err
}

// work starts the runner; it is stopped with the test, or by stopWork.
func (o *office) work() {
	o.t.Helper()
	r, err := runner.New(o.cfg, o.Store, newSandbox(o.t, o.box))
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 2)
	var all sync.WaitGroup
	all.Go(func() { errs <- r.Run(ctx) })
	all.Go(func() { errs <- o.Run(ctx) })
	var once sync.Once
	o.stopWork = func() {
		once.Do(func() {
			cancel()
			all.Wait()
			for range 2 {
				if err := <-errs; err != nil && !errors.Is(err, context.Canceled) {
					o.t.Error(err)
				}
			}
		})
	}
	o.t.Cleanup(o.stopWork)
}

func (o *office) chat() store.Chat { return store.Chat{ID: o.member.Person.Telegram, Private: true} }

// write stores messages of the person, all at once.
func (o *office) write(texts ...string) store.ConversationID { return o.writeIn(o.chat(), texts...) }

func (o *office) writeIn(chat store.Chat, texts ...string) store.ConversationID {
	o.t.Helper()
	var arrivals []store.Arrival
	for _, text := range texts {
		o.updates++
		arrivals = append(arrivals, store.Arrival{
			UpdateID: o.updates, Raw: []byte(`{}`), Kind: store.ArrivalMessage, From: store.Person{Telegram: o.member.Person.Telegram},
			Chat: chat, Telegram: 1000 + o.updates, Text: text,
		})
	}
	in, err := o.Receive(o.t.Context(), o.poller, arrivals)
	if err != nil {
		o.t.Fatal(err)
	}
	return in[0].Conversation
}

// stop is the person's /stop.
func (o *office) stop() { o.stopIn(o.chat()) }

func (o *office) stopIn(chat store.Chat) {
	o.t.Helper()
	o.updates++
	_, err := o.Receive(o.t.Context(), o.poller, []store.Arrival{{UpdateID: o.updates, Raw: []byte(`{}`), Kind: store.ArrivalControl,
		From: store.Person{Telegram: o.member.Person.Telegram}, Chat: chat}})
	if err == nil {
		_, err = o.Stop(o.t.Context(), store.UpdateRef{Bot: bot, UpdateID: o.updates}, o.member.Person.Telegram, chat,
			func(store.Stopped) []store.Draft {
				return []store.Draft{{Company: o.member.Company.ID, Chat: chat, Kind: store.DraftNotice, Notice: "stopped"}}
			})
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// said is what a person got. Done and Tool are what a notice tells of calls, Wait how long they should.
type said struct{ Text, Notice, Done, Tool, Wait string }

func whatIsSaid(d store.Draft) said {
	return said{d.Markdown, d.Notice, d.Args["done"], d.Args["tool"], cmp.Or(d.Args["minutes"], d.Args["hours"])}
}

// read sends what waits in the outbox until n replies went out.
func (o *office) read(n int) []said {
	o.t.Helper()
	var all []said
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	for len(all) < n {
		wake := o.Wake()
		r, ok, _, err := o.NextReply(ctx, o.poller)
		if err != nil {
			o.t.Fatal(err)
		}
		if !ok {
			select {
			case <-wake:
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				o.t.Fatalf("only %+v came", all)
			}
			continue
		}
		if err := errors.Join(o.MarkSending(ctx, o.poller, r.ID), o.MarkSent(ctx, o.poller, r.ID, int64(len(all)+1))); err != nil {
			o.t.Fatal(err)
		}
		all = append(all, whatIsSaid(r.Draft))
	}
	return all
}

// ended waits until n runs have ended, and gives them oldest first, without what differs each time.
func (o *office) ended(n int) []store.RunView {
	o.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		runs, err := o.Runs(o.t.Context(), o.member.Company.ID, 100)
		if err != nil {
			o.t.Fatal(err)
		}
		running := slices.ContainsFunc(runs, func(r store.RunView) bool { return r.State == store.RunRunning })
		if len(runs) >= n && !running {
			slices.Reverse(runs)
			return runs
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("runs: %+v", runs)
		}
		time.Sleep(20 * time.Millisecond) // the store tells of replies, not of runs
	}
}

type end struct {
	State  store.RunState
	Reason string
}

func ends(runs []store.RunView) []end {
	var all []end
	for _, r := range runs {
		all = append(all, end{r.State, r.Reason})
	}
	return all
}

// clean checks that nothing is left of any run: no process, no workspace.
func (o *office) clean() {
	o.t.Helper()
	o.stopWork()
	if left := o.processes(); len(left) > 0 {
		o.t.Errorf("processes left: %v", left)
	}
	left, err := os.ReadDir(filepath.Join(o.data, "runs"))
	if err != nil || len(left) > 0 {
		o.t.Errorf("workspaces left: %v, %v", left, err)
	}
	if strings.Contains(o.log.String(), "use of closed network connection") {
		o.t.Errorf("a door that went with its process is called a fault: %s", o.log)
	}
	if strings.Contains(o.log.String(), "canary") || strings.Contains(o.log.String(), "token-of-") {
		o.t.Errorf("the log tells too much: %s", o.log)
	}
}

// processes lists the host's processes that have a folder of this office mounted: those inside its sandboxes.
func (o *office) processes() []string { return o.processesOf("") }

// processesOf lists those of one conversation.
func (o *office) processesOf(c store.ConversationID) []string {
	o.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		o.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(path string) bool {
		text, err := os.ReadFile(path)
		return err != nil || !strings.Contains(string(text), o.data+"/conversations/"+string(c))
	})
}

// logBook keeps what was logged.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// lines gives the logged lines of one event.
func (l *logBook) lines(event string) []object {
	var all []object
	for line := range strings.Lines(l.String()) {
		var o object
		if json.Unmarshal([]byte(line), &o) == nil && o["event"] == event {
			all = append(all, o)
		}
	}
	return all
}

// await waits until a file that a sandboxed program makes is there.
func await(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", filepath.Base(path))
		}
	}
}
