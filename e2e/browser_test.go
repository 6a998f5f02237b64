package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	if diff := cmp.Diff([]string{"google_calendar-create-event"}, demo.performed(t)); diff != "" {
		t.Errorf("performed (-want +got):\n%s", diff)
	}
}

// TestSomebodyNewConnectsAnAppAndTheirRequestGoesOn walks the whole connect flow: the agent offers the link in the person's own chat,
// pilder's page leads to the provider's, and the account counts only when the person has said in their chat that it is
// theirs. Then what they had asked for goes on by itself.
func TestSomebodyNewConnectsAnAppAndTheirRequestGoesOn(t *testing.T) {
	demo := startDemo(t)
	page := openPage(t, demo.Telegram+"/?who=1004")
	do(t, page, "ask", chromedp.WaitVisible("#composer"),
		chromedp.SendKeys("#composer", "guardame una reunión mañana a las 10"), chromedp.Click("#send"),
		chromedp.WaitVisible(`.message button[data-url*="/connect/"]`))
	link := read(t, page, chromedp.Evaluate[string](`document.querySelector('.message button[data-url*="/connect/"]').dataset.url`))

	do(t, page, "pilder's page", chromedp.Navigate(link), wait(`document.querySelector("form button")`))
	title := read(t, page, chromedp.Evaluate[string](`document.body.innerText`))
	for _, part := range []string{"Google Calendar", "Nico", "Empresa"} {
		if !strings.Contains(title, part) {
			t.Errorf("the page does not say %q: %s", part, title)
		}
	}
	do(t, page, "provider's page", script(`document.querySelector("form button").click()`), wait(`document.querySelector("[name=name]")`),
		script(`document.querySelector("[name=name]").value = "nico@empresa.com"; document.querySelector("[value=connect]").click()`),
		wait(`location.pathname.startsWith("/connect/done/")`), waitText("nico@empresa.com"), waitText("confirma que es tuya"))

	const mine = `.message button[data-label="Sí, es mía"]`
	do(t, page, "the card", chromedp.Navigate(demo.Telegram+"/?who=1004"), chromedp.WaitVisible(mine))
	if card := read(t, page, chromedp.Text(`.message:has(button[data-label="Sí, es mía"]) .text`)); !strings.Contains(card, "nico@empresa.com") {
		t.Errorf("the card does not name the account: %q", card)
	}
	do(t, page, "confirm", chromedp.Click(mine), waitText("Listo, cuenta conectada"), waitText("Sigo con lo que me pediste"),
		waitText("de 10:00 a 10:30")) // nobody has to ask again
	if diff := cmp.Diff([]string{"google_calendar-create-event"}, demo.performed(t)); diff != "" {
		t.Errorf("performed (-want +got):\n%s", diff)
	}
}

// TestAnApproverPressesAndTheMailGoesOutOnce shows a hold to the end: nothing is sent before the press, exactly the frozen
// mail after it, and both chats hear of it.
func TestAnApproverPressesAndTheMailGoesOutOnce(t *testing.T) {
	demo := startDemo(t)
	page := openPage(t, demo.Telegram+"/?who=1001")
	do(t, page, "ask", chromedp.WaitVisible("#composer"),
		chromedp.SendKeys("#composer", "mandale un correo a juan@otra.com diciendo nos vemos el lunes"), chromedp.Click("#send"),
		waitText("Pendiente de aprobación: el destinatario es externo a la empresa. No se envió."))
	if diff := cmp.Diff([]string{}, demo.performed(t)); diff != "" {
		t.Errorf("performed before the press (-want +got):\n%s", diff)
	}
	const approve = `.message button[data-label*="Aprobar"]`
	do(t, page, "the card", chromedp.Navigate(demo.Telegram+"/?who=1002"), chromedp.WaitVisible(approve))
	card := read(t, page, chromedp.Text(`.message:has(button[data-label*="Aprobar"])`))
	for _, part := range []string{"juan@otra.com", "nos vemos el lunes", "Ana"} {
		if !strings.Contains(card, part) {
			t.Errorf("the card does not show %q: %s", part, card)
		}
	}
	do(t, page, "press", chromedp.Click(approve))
	do(t, page, "the outcome", chromedp.Navigate(demo.Telegram+"/?who=1001"), waitText("Hecho"))
	if diff := cmp.Diff([]string{"gmail-send-email"}, demo.performed(t)); diff != "" {
		t.Errorf("performed (-want +got):\n%s", diff)
	}
}

// waitText waits until the page shows a text.
func waitText(text string) chromedp.Action[chromedp.Void] {
	quoted, _ := json.Marshal(text)
	return wait(`document.body.innerText.includes(` + string(quoted) + `)`)
}

// wait waits until an expression is true. It asks the page itself, whatever page that is by now: a click may lead to another
// site, and what was asked of the page before is lost with it.
func wait(expression string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		for {
			ok, err := chromedp.Evaluate[bool](`!!(document.body && (`+expression+`))`)(ctx, target)
			if ok && err == nil {
				return chromedp.Void{}, nil
			}
			select {
			case <-ctx.Done():
				return chromedp.Void{}, fmt.Errorf("never true: %s (%v): %w", expression, err, ctx.Err())
			case <-time.After(50 * time.Millisecond): // the browser is an outside process
			}
		}
	}
}

// script runs statements in the page and does not wait for what they lead to.
func script(statements string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](`void setTimeout(() => {` + statements + `})`)
}

// performed gives the keys of the ledger, in order.
func (d runningDemo) performed(t *testing.T) []string {
	t.Helper()
	var ledger []struct {
		Key string `json:"key"`
	}
	d.get(t, d.Pipedream+"/_sim/ledger", &ledger)
	keys := []string{}
	for _, p := range ledger {
		keys = append(keys, p.Key)
	}
	return keys
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
