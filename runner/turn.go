package runner

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pilder/store"
)

// dialogue is the talk with one process of the CLI: from its start to its result.
type dialogue struct {
	*Runner
	run  store.Run
	p    *Process
	call call

	events  chan event
	quit    chan struct{} // closed when nobody takes events any more; the reader then only drains
	readers sync.WaitGroup
	skipped atomic.Int64 // lines too long
	garbage atomic.Int64 // lines that are not events
	stderr  tail

	began     time.Time // when the process was started
	ready     time.Time // when its init line came
	firstText time.Time
	known     map[string]bool     // names of the tools there are
	open      map[string]openTool // tools at work, by id
	tools     int                 // tools begun
	toolTime  time.Duration
	text      string // the last text of the main thread
}

type openTool struct {
	name  string
	since time.Time
}

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailKept = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailKept; over > 0 {
		t.text = append([]byte(nil), t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.text)
}

// startDialogue begins to read and write at once: a process whose output is not drained ends without a word.
func startDialogue(r *Runner, run store.Run, p *Process, c call) *dialogue {
	d := &dialogue{
		Runner: r, run: run, p: p, call: c, began: r.cfg.Now(), open: map[string]openTool{}, known: map[string]bool{},
		events: make(chan event), quit: make(chan struct{}),
	}
	d.readers.Go(func() { _, _ = io.Copy(&d.stderr, p.Stderr) }) // ends with the process
	d.readers.Go(d.read)
	d.readers.Go(func() { _, _ = p.Stdin.Write(c.input) }) // fails when the process ends first, which the reader sees
	return d
}

// read passes events on until the process has closed its output.
func (d *dialogue) read() {
	defer close(d.events)
	lines := lineReader{r: bufio.NewReaderSize(d.p.Stdout, 64<<10), max: d.cfg.MaxLine, skipped: &d.skipped}
	for {
		line, err := lines.next()
		if err != nil {
			return
		}
		e, ok := parse(line)
		if !ok {
			if len(line) > 0 {
				d.garbage.Add(1)
			}
			continue
		}
		select {
		case d.events <- e:
		case <-d.quit:
		}
	}
}

// talk follows the process until it is known how the turn ended. It leaves the process as it is.
func (d *dialogue) talk(ctx context.Context) outcome {
	defer close(d.quit)
	idle := time.NewTimer(d.cfg.IdleTimeout) // from the start on
	defer idle.Stop()
	for {
		select {
		case e, ok := <-d.events:
			if !ok {
				return d.silentEnd()
			}
			if o := d.take(e); o != nil {
				return *o
			}
			idle.Reset(d.allowance())
		case <-idle.C:
			return d.interrupt(outcome{state: store.RunTimedOut, reason: "idle"})
		case <-ctx.Done():
			return d.interrupt(ended(ctx))
		}
	}
}

// allowance is how long the process may be silent now.
func (d *dialogue) allowance() time.Duration {
	if len(d.open) > 0 {
		return d.cfg.ToolTimeout
	}
	return d.cfg.IdleTimeout
}

// take handles one event; an outcome ends the talk.
func (d *dialogue) take(e event) *outcome {
	switch {
	case e.Type == "system" && e.Subtype == "init":
		return d.begin(e)
	case e.Type == "control_response":
		if e.Response.Request == requestInit && e.Response.Subtype != "success" {
			return d.failure("cli_refused")
		}
	case e.Type == "stream_event":
		if d.firstText.IsZero() && e.Event.Type == "content_block_delta" {
			d.firstText = d.cfg.Now()
		}
	case e.Type == "assistant":
		d.said(e)
	case e.Type == "user":
		d.answered(e)
	case e.Type == "result":
		return d.result(e)
	}
	return nil // anything else tells of things that do not concern the turn
}

// begin is the gate: a process that is not what it should be is ended before it acts.
func (d *dialogue) begin(e event) *outcome {
	if !d.ready.IsZero() {
		return nil // a later turn within the process, as after a compaction
	}
	d.ready = d.cfg.Now()
	for _, name := range e.Tools {
		d.known[name] = true
	}
	d.event("run.init", d.run).Str("version", e.Version).Bool("connected", e.connected()).Bool("resumed", d.call.resumed).
		Int64("ms", d.ready.Sub(d.began).Milliseconds()).Send()
	switch {
	case d.cfg.CLIVersion != "" && e.Version != d.cfg.CLIVersion:
		return d.failure("cli_version")
	case !e.connected():
		return d.failure(reasonNoTools)
	}
	return nil
}

// said notes the text of the main thread and the tools it begins.
func (d *dialogue) said(e event) {
	for _, b := range e.Message.blocks() {
		switch {
		case b.Type == "tool_use":
			d.tools++
			d.open[b.ID] = openTool{b.Name, d.cfg.Now()}
		case b.Type == "text" && e.Parent == nil && strings.TrimSpace(b.Text) != "":
			d.text = b.Text
		}
	}
}

// answered notes the tools that have ended.
func (d *dialogue) answered(e event) {
	for _, b := range e.Message.blocks() {
		t, ok := d.open[b.Answer]
		if b.Type != "tool_result" || !ok {
			continue
		}
		delete(d.open, b.Answer)
		took := d.cfg.Now().Sub(t.since)
		d.toolTime += took
		d.event("run.tool", d.run).Str("tool", d.toolName(t.name)).Int64("ms", took.Milliseconds()).Send()
	}
}

// toolName keeps a name that the model has made up out of the log: it may say anything.
func (d *dialogue) toolName(name string) string {
	if !d.known[name] {
		return "other"
	}
	return name
}

func (d *dialogue) result(e event) *outcome {
	o := outcome{state: store.RunFailed, reason: e.reason(), turns: e.Turns}
	if o.reason == "ok" {
		o.state, o.answer = store.RunSucceeded, e.resultText()
		if strings.TrimSpace(o.answer) == "" {
			o.answer = d.text // the answer may be in the assistant's event alone
		}
		if strings.TrimSpace(o.answer) == "" {
			o.reason = "empty"
		}
	}
	return d.closed(o)
}

func (d *dialogue) failure(reason string) *outcome {
	return d.closed(outcome{state: store.RunFailed, reason: reason})
}

// closed adds what the dialogue knows to an outcome.
func (d *dialogue) closed(o outcome) *outcome {
	o.tools, o.resumed = d.tools, d.call.resumed
	if o.state == store.RunSucceeded || o.tools > 0 || o.turns > 0 {
		o.session = d.call.session // what was done is in its transcript, and is resumed
	}
	return &o
}

// interrupt asks the CLI to break off, so that its transcript is whole, and waits a moment for its word. A result that
// comes meanwhile is an answer all the same.
func (d *dialogue) interrupt(o outcome) outcome {
	d.readers.Go(func() {
		_, _ = d.p.Stdin.WriteString(`{"type":"control_request","request_id":"` + requestStop + `","request":{"subtype":"interrupt"}}` + "\n")
	})
	grace := time.NewTimer(d.cfg.InterruptGrace)
	defer grace.Stop()
	for {
		select {
		case e, ok := <-d.events:
			if !ok {
				return *d.closed(o)
			}
			if e.Type != "result" {
				_ = d.take(e) // for what it tells of tools
				continue
			}
			if last := d.result(e); last.state == store.RunSucceeded {
				return *last
			}
			return *d.closed(o)
		case <-grace.C:
			return *d.closed(o)
		}
	}
}

// silentEnd is a process that ended without a result: whatever it did, nobody can say it worked.
func (d *dialogue) silentEnd() outcome {
	exit := -1
	if d.gone(d.cfg.KillGrace) { // its output is closed, but it may go on
		exit, _ = d.p.Wait() // leftovers are Close's to report
	}
	reason := "no_result"
	switch {
	case exit == 127 && d.ready.IsZero():
		reason = "cli_missing"
	case d.ready.IsZero():
		reason = "crashed"
	}
	d.event("run.silent_end", d.run).Int("exit", exit).Int64("garbage", d.garbage.Load()).Int64("too_long", d.skipped.Load()).
		Int("stderr_bytes", d.stderr.len()).Send()
	return *d.failure(reason)
}

// end lets the process go: the end of its input, then SIGTERM, then SIGKILL for everything inside. politely is for a
// process whose turn has ended.
func (d *dialogue) end(politely bool) error {
	_ = d.p.Stdin.Close() // also ends a writer that hangs on a full socket
	waits := []struct {
		before func() error
		wait   time.Duration
	}{{func() error { return nil }, d.cfg.ExitGrace}, {d.p.Terminate, d.cfg.KillGrace}}
	if !politely {
		waits = waits[1:]
	}
	for _, w := range waits {
		_ = w.before() // a process that is gone is what is wanted
		if d.gone(w.wait) {
			break
		}
	}
	// What has closed its streams and not ended is killed here.
	err := d.p.Close()
	d.readers.Wait()
	return err
}

func (d *dialogue) gone(wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-d.p.Done():
		return true
	case <-t.C:
		return false
	}
}

// Causes of a run's end that are not its person's wish.
var (
	errRunTimeout = errors.New("run took too long")
	errDoor       = errors.New("a door failed")
)

// ended is the outcome of a run whose context has ended.
func ended(ctx context.Context) outcome {
	switch cause := context.Cause(ctx); {
	case store.Wished(ctx):
		return outcome{state: store.RunCancelled, reason: "cancelled"}
	case errors.Is(cause, errRunTimeout):
		return outcome{state: store.RunTimedOut, reason: "time"}
	case errors.Is(cause, errDoor):
		return outcome{state: store.RunFailed, reason: "door"}
	case errors.Is(cause, store.ErrLost):
		return outcome{state: store.RunInterrupted, reason: "lost"}
	}
	return outcome{state: store.RunInterrupted, reason: "stopped"}
}
