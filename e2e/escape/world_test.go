//go:build linux

package escape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pilder/policy"
	"pilder/sim/anthropic"
	"pilder/sim/pipedream"
	"pilder/sim/telegram"
	"pilder/store"
)

// suite is the world around one pilder, and what has been seen in it.
type suite struct {
	evidence evidence
	canaries canaries
	rows     []row

	dir, data string
	cli       string // the pinned CLI
	telegram  *telegram.Server
	anthropic *anthropic.Server
	pipedream *pipedream.Server
	urls      map[string]string
	environ   []string
	orders    orders
	host      *host

	log     *journal // what pilder has logged
	spoken  journal  // what sandbox exec has said
	serving *exec.Cmd
	ended   chan struct{}
}

// person is somebody with a chat; each has a conversation, and so a sandbox, of their own. Their names are unlike anything
// that a machine's own files say.
type person string

// The people, by what happens in their chat.
const (
	anacleta  person = "Anacleta"  // most attempts
	brunilda  person = "Brunilda"  // whose files and secrets others are after
	casimira  person = "Casimira"  // what is left behind
	dagoberto person = "Dagoberto" // what is planted for later
	eduviges  person = "Eduviges"  // what is laid into folders
	fulgencio person = "Fulgencio" // what a person can write, and the web
	genoveva  person = "Genoveva"  // who is there when pilder is killed
)

func people() []person {
	return []person{anacleta, brunilda, casimira, dagoberto, eduviges, fulgencio, genoveva}
}

// id is the person's at Telegram.
func (p person) id() int64 { return int64(1001 + slices.Index(people(), p)) }

// address is their own at the company.
func (p person) address() string { return strings.ToLower(string(p)) + "@empresa.com" }

const company = "Quetzalera"

// journal is a log that is written by one process and read by the test.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// newSuite makes the world; pilder does not serve yet.
func newSuite(t *testing.T) *suite {
	dir, err := os.MkdirTemp("", "pilder-escape-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &suite{dir: dir, data: filepath.Join(dir, "data"), urls: map[string]string{}, log: &journal{}, cli: claude(t)}
	s.orders.all, s.orders.progress = map[string]anthropic.Script{}, t.Logf
	token, key, secret := "100001:"+s.canaries.make("bot token", "SIM-"), s.canaries.make("model key", "sk-ant-"), s.canaries.make("app secret", "pd-")
	var folk []telegram.Person
	for _, p := range people() {
		folk = append(folk, telegram.Person{ID: p.id(), Name: string(p), Language: "es"})
	}
	s.telegram = telegram.New(telegram.Config{People: folk, Token: token})
	s.anthropic = anthropic.New(anthropic.Config{Key: key, Scripts: []anthropic.Script{s.orders.script()}})
	s.pipedream = pipedream.New(pipedream.Config{ClientSecret: secret, PublicURL: func() string { return s.urls["pipedream"] }})
	for name, h := range map[string]http.Handler{"telegram": s.telegram.Handler(), "anthropic": s.anthropic.Handler(), "pipedream": s.pipedream.Handler()} {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		s.urls[name] = server.URL
	}
	t.Cleanup(s.telegram.Close)
	t.Cleanup(s.anthropic.Close)
	s.environ = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir,
		"TELEGRAM_BOT_TOKEN=" + token, "ANTHROPIC_API_KEY=" + key, "PILDER_PIPEDREAM_CLIENT_SECRET=" + secret,
		"PILDER_DATA=" + s.data, "PILDER_TELEGRAM_API_URL=" + s.urls["telegram"], "PILDER_MODEL_URL=" + s.urls["anthropic"],
		"PILDER_PIPEDREAM_URL=" + s.urls["pipedream"], "PILDER_PIPEDREAM_CLIENT_ID=sim-client", "PILDER_PIPEDREAM_PROJECT_ID=proj_test1",
		"PILDER_PIPEDREAM_ENVIRONMENT=development", "PILDER_GATEWAY_LISTEN=127.0.0.1:0", "PILDER_RUNNER_MAX_RUNS=7", "PILDER_RUNNER_WARM_MAX=0", "PILDER_RUNNER_QUOTA_BYTES=64MiB", "PILDER_RUNNER_QUOTA_FILES=2000",
		"PILDER_RUNNER_CLAUDE_PATH=" + s.cli,
	}, s.secretVariables()...)
	if err := errors.Join(
		s.canaries.plant("file in the data folder", filepath.Join(s.data, "canary")),
		s.canaries.plant("another agent home", filepath.Join(dir, "agent-home", "CLAUDE.md")),
		s.seed(t.Context()),
	); err != nil {
		t.Fatal(err)
	}
	if s.host, err = newHost(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.host.close)
	t.Cleanup(s.stop)
	return s
}

// secretVariables are what else stands in the environment of a house: secrets under names that nobody could list.
func (s *suite) secretVariables() []string {
	var all []string
	for _, name := range []string{"ESCAPE_CANARY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "PGPASSWORD", "NPM_TOKEN",
		"CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN", "SSH_AUTH_SOCK", "BASH_ENV", "NODE_EXTRA_CA_CERTS", "LC_SECRET", "TZ_SECRET", "lower_secret"} {
		all = append(all, name+"="+s.canaries.make("variable "+name, "/canary-"))
	}
	return all
}

// claude is the pinned CLI, where `pilder cli fetch` puts it; without it there is nothing to test.
func claude(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../configs/claude-cli.json")
	if err != nil {
		t.Fatal(err)
	}
	var pin struct{ Version string }
	if err := json.Unmarshal(text, &pin); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(filepath.Join("../../.tools/claude-code", pin.Version, "claude"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the CLI is missing; run: bin/pilder cli fetch (%v)", err)
	}
	return path
}

// seed makes the company, its people, and an account of each that others may want to use.
func (s *suite) seed(ctx context.Context) error {
	house, err := store.Open(ctx, store.Config{URL: "sqlite:" + filepath.Join(s.data, "pilder.db")})
	if err != nil {
		return err
	}
	made, err := house.CreateCompany(ctx, store.Company{Name: company, Domains: []string{"empresa.com"}, Zone: "America/Argentina/Buenos_Aires", Lang: "es"})
	for _, p := range people() {
		if err != nil {
			break
		}
		role := policy.RoleMember
		if p == anacleta {
			role = policy.RoleAdmin
		}
		var m store.Membership
		if m, err = house.AddMember(ctx, made.ID, store.Person{Telegram: p.id(), Name: string(p), Lang: "es"}, role); err == nil {
			account := s.pipedream.AddAccount(m.ExternalUser, "google_calendar", p.address())
			_, err = house.SeedAccount(ctx, m, "google_calendar", account, p.address())
		}
	}
	return errors.Join(err, house.Close())
}

// serve starts pilder.
func (s *suite) serve() error {
	s.serving, s.ended = exec.Command(filepath.Join(built, "pilder"), "serve"), make(chan struct{})
	s.serving.Env, s.serving.Dir, s.serving.Stderr = s.environ, s.dir, s.log
	if err := s.serving.Start(); err != nil {
		return fmt.Errorf("starting pilder: %w", err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // how it ended is in the log
		close(ended)
	}(s.serving, s.ended)
	return nil
}

// stop ends pilder in peace.
func (s *suite) stop() {
	if s.serving == nil {
		return
	}
	_ = s.serving.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(patience):
		_ = s.serving.Process.Kill()
		<-s.ended
	}
}

// say is a person writing; hear waits for the first thing the bot says after it.
func (s *suite) say(p person, text string) int64 { return s.telegram.Say(p.id(), text) }

func (s *suite) hear(ctx context.Context, p person, after int64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := s.telegram.WaitMessage(ctx, p.id(), func(m telegram.Message) bool { return m.Bot && m.ID > after })
	if err != nil {
		return "", fmt.Errorf("%s hears nothing: %w", p, err)
	}
	return m.Text, nil
}

// ask is both. An answer that is not what was expected is an error: then the attempt was not made as it was meant.
func (s *suite) ask(ctx context.Context, p person, text, want string) error {
	got, err := s.hear(ctx, p, s.say(p, text))
	if err == nil && !strings.Contains(got, want) {
		err = fmt.Errorf("%s asked %q and heard %q, want %q", p, text, got, want)
	}
	return err
}

// conversation is the folder of a person's conversation on the host: the one whose work folder says whose it is.
func (s *suite) conversation(p person) (string, error) {
	all, err := filepath.Glob(filepath.Join(s.data, "conversations", "*", "work", "who"))
	if err != nil {
		return "", err
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == string(p) {
			return filepath.Dir(filepath.Dir(path)), nil
		}
	}
	return "", fmt.Errorf("no conversation of %s among %d", p, len(all))
}
