package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pilder/policy"
	"pilder/sim/anthropic"
	"pilder/sim/pipedream"
	"pilder/sim/telegram"
	"pilder/store"
)

// bench is the outside of the pilder that is measured: stand-ins that note when something arrives, people, and a watch on
// the CLI's file.
type bench struct {
	b         *testing.B
	folder    string
	pilder    string // the binary, as make builds it
	cli       string
	marks     marks
	telegram  *telegram.Server
	anthropic *anthropic.Server
	environ   []string // of pilder serve
	config    Config   // the same, read
	modelURL  string
	executing *os.File // inotify
	people    []int64  // who have not written yet
	serving   *serving // nil: nobody
}

// Words of the one message of every turn and of its answer: the stand-in answers a greeting at once, without a tool.
const (
	benchSays   = "hola"
	benchAnswer = "¡Hola!"
)

const benchPatience = 2 * time.Minute // for any one step

func newBench(b *testing.B, people int) *bench {
	w := &bench{b: b, folder: b.TempDir(), marks: marks{news: make(chan struct{})}, cli: pinnedCLI(b)}
	var err error
	if w.pilder, err = filepath.Abs(filepath.Join("..", "..", "bin", "pilder")); err == nil {
		_, err = os.Stat(w.pilder)
	}
	if err != nil {
		b.Fatalf("the binary is missing; run: make bench (%v)", err)
	}
	var everyone []telegram.Person
	for i := range people {
		id := int64(2001 + i)
		w.people = append(w.people, id)
		everyone = append(everyone, telegram.Person{ID: id, Name: fmt.Sprintf("Ana %d", i+1), Language: "es"})
	}
	w.telegram = telegram.New(telegram.Config{People: everyone})
	w.anthropic = anthropic.New(anthropic.Config{})
	var appsURL string
	apps := pipedream.New(pipedream.Config{PublicURL: func() string { return appsURL }})
	appsURL = w.standIn(apps.Handler())
	w.modelURL = w.standIn(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/messages" {
			w.marks.note("model", time.Now())
		}
		w.anthropic.Handler().ServeHTTP(rw, r)
	}))
	chat := w.standIn(w.telegram.Handler())
	b.Cleanup(w.telegram.Close)
	b.Cleanup(w.anthropic.Close)
	w.environ = append(demoEnviron(filepath.Join(w.folder, "data"), chat, w.modelURL, appsURL, "127.0.0.1:0"),
		"PILDER_RUNNER_CLAUDE_PATH="+w.cli, "PATH="+os.Getenv("PATH"), "HOME="+w.folder)
	if w.config, err = LoadConfig(os.DevNull, w.environ); err != nil {
		b.Fatal(err)
	}
	w.seed(apps)
	w.watchCLI()
	return w
}

// standIn serves one of them until the end.
func (w *bench) standIn(h http.Handler) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.b.Fatal(err)
	}
	server := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	w.b.Cleanup(func() {
		server.Close()
		<-served
	})
	return "http://" + l.Addr().String()
}

// seed makes the people members of a company, each with all the demo's apps connected.
func (w *bench) seed(apps *pipedream.Server) {
	ctx := w.b.Context()
	s, err := store.Open(ctx, store.Config{URL: w.config.StoreURL, Key: w.config.StoreKey})
	if err != nil {
		w.b.Fatal(err)
	}
	defer s.Close()
	company, err := s.CreateCompany(ctx, store.Company{Name: "Empresa", Domains: []string{"empresa.com"}, Zone: demoZone, Lang: "es"})
	for i := 0; err == nil && i < len(w.people); i++ {
		var m store.Membership
		m, err = s.AddMember(ctx, company.ID, store.Person{Telegram: w.people[i], Name: fmt.Sprintf("Ana %d", i+1), Lang: "es"}, policy.RoleMember)
		for _, app := range benchApps() {
			if err == nil {
				name := fmt.Sprintf("ana%d@empresa.com", i+1)
				_, err = s.SeedAccount(ctx, m, app, apps.AddAccount(m.ExternalUser, app, name), name)
			}
		}
	}
	if err != nil {
		w.b.Fatal(err)
	}
}

func benchApps() []string { return demoPeople()[0].apps }

// watchCLI notes each time that the CLI's file is opened: the kernel does so to execute it, whoever asks and whatever name
// it has in their sandbox. It opens itself later to read what is packed in it, so of a turn the first time counts.
func (w *bench) watchCLI() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		w.executing = os.NewFile(uintptr(fd), "inotify")
		err = w.watch(w.cli)
	}
	if err != nil {
		w.b.Fatal(err)
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for events := make([]byte, 64<<10); ; {
			if _, err := w.executing.Read(events); err != nil {
				return
			}
			w.marks.note("exec", time.Now())
		}
	}()
	w.b.Cleanup(func() { w.executing.Close(); <-watched })
}

func (w *bench) watch(file string) error {
	conn, err := w.executing.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(conn.Control(func(fd uintptr) {
		_, err = unix.InotifyAddWatch(int(fd), file, unix.IN_OPEN)
	}), err)
}

// newcomer gives somebody who has not written yet, so that their conversation begins with the next message.
func (w *bench) newcomer() int64 {
	id := w.people[0]
	w.people = w.people[1:]
	return id
}

// say is one turn of a person, followed until the reply has come.
func (w *bench) say(person int64) turn {
	w.b.Helper()
	t := turn{said: time.Now()}
	w.telegram.Say(person, benchSays)
	t.stored = w.marked("message.received", t.said)
	t.started = w.marked("run.started", t.said)
	t.asked = w.marked("model", t.said)
	t.known = w.marked("run.finished", t.said)
	t.sent = w.replied(person, t.said)
	t.executed, _ = w.marks.first("exec", t.started)
	if t.executed.After(t.sent) {
		t.executed = time.Time{} // for another turn
	}
	return t
}

// cold is a turn for which an agent must be started, and whose agent is gone afterwards.
func (w *bench) cold(person int64) turn {
	w.b.Helper()
	t := w.say(person)
	if t.executed.IsZero() {
		w.b.Fatal("no CLI was executed for a cold turn")
	}
	w.gone()
	return t
}

// replied waits until the answer has come to Telegram.
func (w *bench) replied(person int64, since time.Time) time.Time {
	w.b.Helper()
	ctx, cancel := context.WithTimeout(w.b.Context(), benchPatience)
	defer cancel()
	r, err := w.telegram.WaitRequest(ctx, func(r telegram.Request) bool {
		return r.Method == "sendMessage" && r.Chat() == person && !r.Time.Before(since)
	})
	if err != nil {
		w.b.Fatalf("no reply: %v\n%s", err, w.serving.log())
	}
	if !strings.Contains(r.Params["text"], benchAnswer) {
		w.b.Fatalf("the reply is %q\n%s", r.Params["text"], w.serving.log())
	}
	return r.Time
}

// marked waits for a mark.
func (w *bench) marked(name string, since time.Time) time.Time {
	w.b.Helper()
	ctx, cancel := context.WithTimeout(w.b.Context(), benchPatience)
	defer cancel()
	at, err := w.marks.wait(ctx, name, since)
	if err != nil {
		w.b.Fatalf("%v\n%s", err, w.serving.log())
	}
	return at
}

// gone waits until nothing that pilder has started is left, as the next turn must have the machine to itself.
func (w *bench) gone() {
	w.b.Helper()
	end := time.Now().Add(benchPatience)
	for len(descendants(w.serving.cmd.Process.Pid)) > 0 { // other programs' processes: there is nothing to wait on
		if rest(w.b.Context(), 20*time.Millisecond); time.Now().After(end) {
			w.b.Fatalf("the agent's processes do not end\n%s", w.serving.log())
		}
	}
}

// serving is one `pilder serve`.
type serving struct {
	w     *bench
	cmd   *exec.Cmd
	read  chan struct{}
	mu    sync.Mutex
	lines [][]byte // the latest
}

// serve starts it with more settings, and returns once it has looked for messages.
func (w *bench) serve(settings ...string) *serving {
	w.b.Helper()
	s := &serving{w: w, cmd: exec.Command(w.pilder, "serve"), read: make(chan struct{})}
	s.cmd.Dir, s.cmd.Env = w.folder, append(slices.Clone(w.environ), settings...)
	errs, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		w.b.Fatal(err)
	}
	began := time.Now()
	w.serving = s
	go s.follow(errs)
	w.b.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.read
	})
	w.marked("pilder.started", began)
	ctx, cancel := context.WithTimeout(w.b.Context(), benchPatience)
	defer cancel()
	if _, err := w.telegram.WaitRequest(ctx, func(r telegram.Request) bool { return r.Method == "setMyCommands" && r.Time.After(began) }); err != nil {
		w.b.Fatalf("pilder does not poll: %v\n%s", err, s.log())
	}
	rest(w.b.Context(), atRest)
	return s
}

// follow reads the log, whose lines tell when the process wrote them.
func (s *serving) follow(errs io.Reader) {
	defer close(s.read)
	in := bufio.NewReader(errs)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var line struct {
			Event string
			Time  time.Time
		}
		s.mu.Lock()
		s.lines = append(s.lines, text)
		s.lines = s.lines[max(0, len(s.lines)-60):]
		s.mu.Unlock()
		if json.Unmarshal(text, &line) == nil && line.Event != "" {
			s.w.marks.note(line.Event, line.Time)
		}
	}
}

func (s *serving) log() string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.Join(s.lines, nil))
}

// stop ends it as an operator does.
func (s *serving) stop() {
	s.w.b.Helper()
	if err := s.cmd.Process.Signal(unix.SIGTERM); err != nil {
		s.w.b.Fatal(err)
	}
	<-s.read
	if err := s.cmd.Wait(); err != nil {
		s.w.b.Fatalf("pilder ended badly: %v\n%s", err, s.log())
	}
	s.w.serving = nil
}

// marks are moments by name, in the order in which they became known.
type marks struct {
	mu   sync.Mutex
	all  []mark
	news chan struct{} // closed and replaced at every mark
}

type mark struct {
	name string
	at   time.Time
}

func (m *marks) note(name string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, mark{name, at})
	close(m.news)
	m.news = make(chan struct{})
}

// first gives the earliest known moment of that name not before since, or else what tells of the next mark.
func (m *marks) first(name string, since time.Time) (at time.Time, news <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.all {
		if k.name == name && !k.at.Before(since.Truncate(time.Microsecond)) && (at.IsZero() || k.at.Before(at)) { // lines have microseconds
			at = k.at
		}
	}
	return at, m.news
}

func (m *marks) wait(ctx context.Context, name string, since time.Time) (time.Time, error) {
	for {
		at, news := m.first(name, since)
		if !at.IsZero() {
			return at, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("waiting for %s: %w", name, ctx.Err())
		}
	}
}
