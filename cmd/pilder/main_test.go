package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ran is what became of one command.
type ran struct {
	code      int
	out, errs string
}

// pilder runs one command as a shell would.
func pilder(t *testing.T, stdin string, args ...string) ran {
	t.Helper()
	return pilderIn(t.Context(), stdin, args...)
}

func pilderIn(ctx context.Context, stdin string, args ...string) ran {
	var out, errs page
	code := Main(ctx, args, strings.NewReader(stdin), &out, &errs)
	return ran{code, out.text.String(), errs.text.String()}
}

// page is a stream that many parts of a process write to, as they do to a file.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *page) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(line)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// quiet keeps the machine's own settings out of a test's commands.
func quiet(t *testing.T) {
	t.Helper()
	for _, line := range os.Environ() {
		name, _, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, "PILDER_") || name == "TELEGRAM_BOT_TOKEN" || name == "ANTHROPIC_API_KEY" {
			t.Setenv(name, "")
		}
	}
	t.Chdir(t.TempDir()) // no pilder.yaml of the checkout either
}

// TestExitCodesTellWhoHasToActAndWhy: 1 try again or look closer, 2 the command line, 78 the machine or the configuration.
func TestExitCodesTellWhoHasToActAndWhy(t *testing.T) {
	quiet(t)
	const token = "telegram:\n  token: \"100001:SIM-demo-token-opens-nothing-real-0000\"\n"
	for name, c := range map[string]struct {
		file  string
		args  string
		code  int
		errs  string // pattern
		notes int    // lines said before the error
	}{
		"a command that works":         {args: "version", code: exitOK},
		"a command without subcommand": {args: "runs", code: exitOK},
		"an empty store":               {args: "company list", code: exitOK},

		"no such company":    {args: "audit list Nobody", code: exitError, errs: `pilder: no company "Nobody"; .*company list`},
		"no such run":        {args: "runs show run_none", code: exitError, errs: "pilder: run run_none: "},
		"nobody at the door": {args: "cli fetch --registry http://127.0.0.1:1 --into tools", code: exitError, errs: "fetching the CLI", notes: 1},

		"a misspelt command":         {args: "srve", code: exitUsage, errs: `pilder: pilder has no command "srve"; did you mean serve\?`},
		"a word no command knows":    {args: "zzzzzzzz", code: exitUsage, errs: "pilder --help"},
		"a misspelt subcommand":      {args: "runs lst", code: exitUsage, errs: `pilder runs has no command "lst"; did you mean list\?`},
		"a flag that does not exist": {args: "serve --fast", code: exitUsage, errs: "unknown flag: --fast"},
		"a flag of the wrong kind":   {args: "runs list --limit many", code: exitUsage, errs: `invalid argument "many"`},
		"an argument too many":       {args: "doctor now", code: exitUsage, errs: `unknown command "now"`},
		"an argument missing":        {args: "invite", code: exitUsage, errs: "accepts 1 arg"},
		"a role that is none":        {args: "invite Acme --role boss", code: exitUsage, errs: "--role must be"},
		"a part that is none":        {file: token, args: "serve --role sender", code: exitUsage, errs: "--role must be"},
		"a zone that is none":        {args: "company add Acme --zone Mars/Base", code: exitUsage, errs: "is no IANA time zone"},
		"a language we lack":         {args: "company add Acme --lang fr", code: exitUsage, errs: "--lang must be"},
		"a company without a name":   {args: "company add \u00a0", code: exitUsage, errs: "needs a name"},
		"a check that is none":       {args: "doctor --only weather", code: exitUsage, errs: `nothing called "weather"`},
		"somebody not in the demo":   {args: "demo --as nobody", code: exitUsage, errs: "--as must be"},
		"a demo for everybody":       {args: "demo --listen 0.0.0.0:8090", code: exitUsage, errs: "--listen must be"},
		"a stand-in for everybody":   {args: "sim pipedream --listen :8083", code: exitUsage, errs: "--listen must be"},

		"no such file":             {args: "--config nowhere.yaml doctor", code: exitMachine, errs: "nowhere.yaml"},
		"a misspelt key":           {file: "modle:\n  key: x\n", args: "doctor", code: exitMachine, errs: `did you mean "model.key"`},
		"a bot without a token":    {args: "serve", code: exitMachine, errs: "telegram.token is not set"},
		"agents without a model":   {file: token, args: "serve", code: exitMachine, errs: "model.key is not set"},
		"a worker without one":     {file: token, args: "serve --role worker", code: exitMachine, errs: "model.key is not set"},
		"a key that is none":       {file: "store:\n  key: abc\n", args: "company list", code: exitMachine, errs: "opening the store"},
		"a token key that is none": {file: "token:\n  keys: [\"k1:abc\"]\n", args: "company list", code: exitMachine, errs: `token.keys\[0\] must be`},
	} {
		t.Run(name, func(t *testing.T) {
			args := strings.Split(c.args, " ")
			if !strings.Contains(c.args, "--config") {
				args = append([]string{"--config", write(t, "data: "+t.TempDir()+"\n"+c.file)}, args...)
			}
			got := pilder(t, "", args...)
			if got.code != c.code || !regexp.MustCompile(c.errs).MatchString(got.errs) {
				t.Errorf("exit code %d, want %d; it said %q, want %q", got.code, c.code, got.errs, c.errs)
			}
			lines := strings.SplitAfter(strings.TrimSpace(got.errs), "\n")
			if c.code != exitOK && (!strings.HasPrefix(lines[len(lines)-1], "pilder: ") || len(lines) > 1+c.notes || strings.Contains(got.errs, "abc")) {
				t.Errorf("not one line without secrets: %q", got.errs)
			}
		})
	}
}

// TestStagesStopInOrder shows the two ends of a serving process: it is told to stop, or a part fails, be it at once.
func TestStagesStopInOrder(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fail string // the part that ends by itself at its start
		with error
		want error
	}{
		"told to stop":                   {},
		"the first fails":                {fail: "talk", with: broken, want: broken},
		"the middle fails":               {fail: "work", with: broken, want: broken},
		"the last fails":                 {fail: "store", with: broken, want: broken},
		"one ends without a word":        {fail: "work", want: errEnded},
		"one gives up of its own accord": {fail: "work", with: context.Canceled, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan string, 4)
			began := make(chan struct{}, 4)
			part := func(name string) []func(context.Context) error {
				return []func(context.Context) error{func(ctx context.Context) error {
					began <- struct{}{}
					defer func() { ended <- name }()
					if name == c.fail {
						return c.with
					}
					<-ctx.Done()
					return ctx.Err()
				}}
			}
			if c.fail == "" {
				go func() {
					for range 3 {
						<-began
					}
					stop()
				}()
			}
			err := runStages(ctx, [][]func(context.Context) error{part("talk"), part("work"), nil, part("store")})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
			close(ended)
			var order, want []string
			for name := range ended {
				order = append(order, name)
			}
			if c.fail != "" {
				want = append(want, c.fail)
			}
			for _, name := range []string{"talk", "work", "store"} {
				if name != c.fail {
					want = append(want, name)
				}
			}
			if diff := cmp.Diff(want, order); diff != "" {
				t.Errorf("order of the ends (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAStageIsWaitedForBeforeTheNextIsStopped: a run that still drains has its doors and its store.
func TestAStageIsWaitedForBeforeTheNextIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		open := make(chan context.Context, 1)
		err := runStages(ctx, [][]func(context.Context) error{
			{func(ctx context.Context) error {
				doors := <-open
				stop()
				<-ctx.Done()
				time.Sleep(time.Minute) // of the bubble's clock: whatever would happen meanwhile has happened
				if doors.Err() != nil {
					return errors.New("too early")
				}
				return nil
			}},
			{func(ctx context.Context) error { open <- ctx; <-ctx.Done(); return nil }},
		})
		if err != nil {
			t.Errorf("the doors were stopped while the run drained: %v", err)
		}
	})
}

// TestTheTourNamesFilesThatExist: doc.go and the README send people to files and folders.
func TestTheTourNamesFilesThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	for file, shape := range map[string]string{
		"cmd/pilder/doc.go": `\b[a-z]+(?:/[a-z0-9_]+)+\.go\b`,
		"README.md":         "(?m)^\\| `([a-z0-9/]+)` \\||\\]\\(([a-z][^):]*)\\)",
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(shape).FindAllStringSubmatch(string(text), -1)
		if len(found) < 10 {
			t.Errorf("%s names %d places only: the test no longer sees them", file, len(found))
		}
		for _, m := range found {
			place := m[0]
			for _, group := range m[1:] {
				if group != "" {
					place = group
				}
			}
			if _, err := os.Stat(filepath.Join(root, place)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
