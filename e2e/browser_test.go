package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
)

// patience is how long a step of a browser test may take on a machine that is busy with other things.
const patience = 2 * time.Minute

// performed is a line of the Pipedream stand-in's ledger.
type performed struct {
	Key          string         `json:"key"`
	ExternalUser string         `json:"external_user_id"`
	Props        map[string]any `json:"props"`
}

// TestAPersonAsksForAMeetingInTheBrowser is the demo as a person uses it: open the page, write, see the typing sign, read
// the answer. The ledger shows that it happened exactly once, for exactly that person.
func TestAPersonAsksForAMeetingInTheBrowser(t *testing.T) {
	demo := startDemo(t)
	page := openPage(t, demo.Telegram+"/")

	// The sign may be gone before a slow browser looks: the page itself remembers that it was shown.
	do(t, page, "watch", chromedp.Evaluate[chromedp.Void](`(() => {
		const sign = document.querySelector("#typing");
		const look = () => { if (sign.checkVisibility()) document.body.dataset.sawTyping = "yes"; };
		new MutationObserver(look).observe(sign, {attributes: true});
		look();
	})()`))
	do(t, page, "write", chromedp.WaitVisible("#composer"),
		chromedp.SendKeys("#composer", "guardame una reunión mañana a las 10"),
		chromedp.Click("#send"))
	do(t, page, "answer", chromedp.WaitVisible(`.message[data-from="bot"] .text`))
	answer := read(t, page, chromedp.Text(`.message[data-from="bot"] .text`))
	if saw := read(t, page, chromedp.Evaluate[string](`document.body.dataset.sawTyping ?? "no"`)); saw != "yes" {
		t.Error("the typing sign was never shown")
	}
	if !strings.Contains(answer, "10:00") {
		t.Errorf("the answer does not tell the time of the meeting: %q", answer)
	}

	var ledger []performed
	demo.get(t, demo.Pipedream+"/_sim/ledger", &ledger)
	keys := []string{}
	for _, p := range ledger {
		keys = append(keys, p.Key)
	}
	if diff := cmp.Diff([]string{"google_calendar-create-event"}, keys); diff != "" {
		t.Errorf("performed (-want +got):\n%s", diff)
	}
}

// runningDemo is a demo process and where its stand-ins are.
type runningDemo struct {
	Telegram, Anthropic, Pipedream, Data string
}

// startDemo starts `pilder demo` and waits until it has published its addresses. It is ended with the test, and must then
// end well.
func startDemo(t *testing.T) runningDemo {
	t.Helper()
	file := filepath.Join(t.TempDir(), "demo.json")
	cmd := exec.Command(filepath.Join(binary, "pilder"), "demo", "--listen", "127.0.0.1:0", "--publish", file)
	cmd.Env = append(os.Environ(), "PILDER_RUNNER_CLAUDE_PATH="+claude(t))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("demo ended with %v\n%s", err, log.String())
			}
		case <-time.After(patience):
			cmd.Process.Kill()
			t.Errorf("demo did not end\n%s", log.String())
		}
	})
	var d runningDemo
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) { // an outside process: there is nothing to wait on
		body, err := os.ReadFile(file)
		if err == nil {
			if err := json.Unmarshal(body, &d); err != nil {
				t.Fatal(err)
			}
			return d
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("demo ended at once: %v\n%s", err, log.String())
		default:
		}
		if time.Since(began) > patience {
			t.Fatal("demo did not start")
		}
	}
}

func (d runningDemo) get(t *testing.T, url string, into any) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%s: %v: %s", url, err, body)
	}
}

// openPage opens a page in a headless Chromium of phone width, without anything that talks to the world.
func openPage(t *testing.T, url string) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if errors.Is(err, exec.ErrNotFound) {
		path, err = exec.LookPath("google-chrome")
	}
	if err != nil {
		t.Fatal("Chromium is missing; install it: apt-get install chromium")
	}
	options := slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(390, 844),
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-quic", true), chromedp.Flag("lang", "es"),
		chromedp.WSURLReadTimeout(patience),
	})
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	page, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	// Without a limit of its own: the browser lives as long as the context of the first step.
	if err := chromedp.Do(page, chromedp.Navigate(url)); err != nil {
		t.Fatalf("opening %s: %v", url, err)
	}
	return page
}

// do runs steps and says which of them failed.
func do(t *testing.T, page context.Context, name string, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(page, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// read asks the page for something.
func read[T any](t *testing.T, page context.Context, ask chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(page, patience)
	defer cancel()
	got, err := chromedp.Run(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
