package runner

import (
	"context"
	"errors"
	"strings"
	"time"

	"pilder/store"
)

// dialogue is one turn's talk with a process of the CLI: from the person's text to the result.
type dialogue struct {
	*agent
	run  store.Run
	warm bool // the process was there before the turn

	began     time.Time // when the turn began
	ready     time.Time // when its init line came
	firstText time.Time
	known     map[string]bool     // names of the tools there are
	open      map[string]openTool // tools at work, by id
	tools     int                 // tools begun
	toolTime  time.Duration
	lastTool  string // id of the last one the main thread began
	text      string // what the main thread has said since
	leaked    bool   // the house's mark went to a tool, and so perhaps out of the house
}

type openTool struct {
	name  string
	since time.Time
}

func (a *agent) dialogue(run store.Run, warm bool) *dialogue {
	return &dialogue{agent: a, run: run, warm: warm, began: a.cfg.Now(), known: map[string]bool{}, open: map[string]openTool{}}
}

// talk tells the process what the person wrote and follows it until it is known how the turn ended. It leaves the process
// as it is.
func (d *dialogue) talk(ctx context.Context) outcome {
	events, deaf := d.listen()
	defer deaf()
	if err := d.tellTurn(); err != nil {
		d.event("run.untold", d.run).Err(err).Send()
		return *d.failure(reasonUntold)
	}
	idle := time.NewTimer(d.cfg.IdleTimeout) // from the start on
	defer idle.Stop()
	uptake := time.NewTimer(d.cfg.WarmPatience)
	defer uptake.Stop()
	for {
		select {
		case e := <-events:
			if o := d.take(e); o != nil {
				return *o
			}
			idle.Reset(d.allowance())
		case <-d.ended:
			return d.silentEnd()
		case <-uptake.C:
			if d.warm && d.ready.IsZero() {
				return *d.failure(reasonUntold)
			}
		case <-idle.C:
			return d.interrupt(events, outcome{state: store.RunTimedOut, reason: reasonIdle})
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errDisk) {
				return *d.closed(ended(ctx)) // each moment costs more
			}
			return d.interrupt(events, ended(ctx))
		}
	}
}

// tellTurn writes the turn, behind the introduction if the process has had none.
func (d *dialogue) tellTurn() error {
	text, err := d.turnLine(d.run, d.launch.mark, !d.warm)
	if err == nil && !d.warm {
		var hello []byte
		hello, err = d.introduction(d.run, d.launch.mark)
		text = append(hello, text...)
	}
	if err != nil {
		return err
	}
	return d.tell(text)
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
	case d.warm && d.ready.IsZero():
		return nil // of the turn before: each begins with a line of its own
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
	d.event("run.init", d.run).Str("version", e.Version).Bool("connected", e.connected()).Bool("warm", d.warm).Bool("resumed", d.launch.resumed).
		Int64("ms", d.ready.Sub(d.began).Milliseconds()).Send()
	switch {
	case d.cfg.CLIVersion != "" && e.Version != d.cfg.CLIVersion:
		return d.failure("cli_version")
	case !e.connected():
		return d.failure(reasonNoTools)
	}
	return nil
}

// said notes what the main thread says and the tools that begin.
func (d *dialogue) said(e event) {
	for _, b := range e.Message.blocks() {
		switch {
		case b.Type == "tool_use":
			d.tools++
			d.leaked = d.leaked || strings.Contains(string(b.Input), d.launch.mark)
			d.open[b.ID] = openTool{b.Name, d.cfg.Now()}
			if e.Parent == nil {
				d.lastTool, d.text = b.ID, "" // what was said before a tool is no answer
			}
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

// result is the outcome that a result tells of. Nil: an answer of another session, which is nobody's here.
func (d *dialogue) result(e event) *outcome {
	o := outcome{state: store.RunFailed, reason: e.reason(), turns: e.Turns}
	if o.reason == "ok" && e.Session != "" && e.Session != d.launch.session {
		d.event("run.foreign_result", d.run).Send()
		return nil
	}
	if o.reason == "ok" {
		o.state, o.answer = store.RunSucceeded, e.resultText()
		if strings.TrimSpace(o.answer) == "" {
			o.answer = d.text // the answer may be in the assistant's event alone
		}
		o.answer, o.leaked = d.withoutMark(o.answer)
		o.leaked = o.leaked || d.leaked
		_, open := d.open[d.lastTool]
		switch {
		case strings.TrimSpace(o.answer) != "":
		case open:
			o.state, o.reason = store.RunFailed, "incomplete" // its last word was that it would use a tool
		default:
			o.reason = "empty"
		}
	}
	return d.closed(o)
}

// withoutMark keeps the house's mark out of the chat: whoever knows it could write as the house in the next turn.
func (d *dialogue) withoutMark(text string) (clean string, leaked bool) {
	for _, part := range []string{"<pilder-" + d.launch.mark + ">", "</pilder-" + d.launch.mark + ">", d.launch.mark} {
		if strings.Contains(text, part) {
			text, leaked = strings.ReplaceAll(text, part, ""), true
		}
	}
	return text, leaked
}

func (d *dialogue) failure(reason string) *outcome {
	return d.closed(outcome{state: store.RunFailed, reason: reason})
}

// closed adds what the dialogue knows to an outcome.
func (d *dialogue) closed(o outcome) *outcome {
	o.tools, o.resumed, o.began = d.tools, d.launch.resumed, !d.ready.IsZero()
	if o.reason == reasonNoResult || o.reason == reasonIdle {
		o.partial, _ = d.withoutMark(d.text)
	}
	if o.state == store.RunSucceeded || o.tools > 0 || o.turns > 0 {
		o.session = d.launch.session // what was done is in its transcript, and is resumed
	}
	return &o
}

// interrupt asks the CLI to break off, so that its transcript is whole, and waits a moment for its word. A result that
// comes meanwhile is an answer all the same.
func (d *dialogue) interrupt(events <-chan event, o outcome) outcome {
	_ = d.tell([]byte(`{"type":"control_request","request_id":"` + requestStop + `","request":{"subtype":"interrupt"}}` + "\n")) // one that does not read is ended soon
	grace := time.NewTimer(d.cfg.InterruptGrace)
	defer grace.Stop()
	for {
		select {
		case <-d.ended:
			return *d.closed(o)
		case e := <-events:
			if e.Type != "result" || d.warm && d.ready.IsZero() {
				_ = d.take(e) // for what it tells of tools
				continue
			}
			switch last := d.result(e); {
			case last == nil:
				continue
			case last.state == store.RunSucceeded:
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
	reason := reasonNoResult
	switch {
	case exit == 137: // SIGKILL: that is how the kernel, or the watch over a run's memory, ends it; nobody else here has yet
		reason = reasonMemory
	case exit == 127 && d.ready.IsZero():
		reason = "cli_missing"
	case d.ready.IsZero():
		reason = reasonCrashed
	}
	d.event("run.silent_end", d.run).Int("exit", exit).Int64("garbage", d.garbage.Load()).Int64("too_long", d.skipped.Load()).
		Int("stderr_bytes", d.stderr.len()).Send()
	return *d.failure(reason)
}

// Causes of a run's end that are not its person's wish.
var (
	errRunTimeout = errors.New("run took too long")
	errDoor       = errors.New("a door failed")
	errDisk       = errors.New("the conversation's files are over their quota")
)

// ended is the outcome of a run whose context has ended.
func ended(ctx context.Context) outcome {
	switch cause := context.Cause(ctx); {
	case store.Wished(ctx):
		return outcome{state: store.RunCancelled, reason: "cancelled"}
	case errors.Is(cause, errRunTimeout):
		return outcome{state: store.RunTimedOut, reason: "time"}
	case errors.Is(cause, errDisk):
		return outcome{state: store.RunFailed, reason: reasonDisk}
	case errors.Is(cause, errDoor):
		return outcome{state: store.RunFailed, reason: "door"}
	case errors.Is(cause, store.ErrLost):
		return outcome{state: store.RunInterrupted, reason: "lost"}
	}
	return outcome{state: store.RunInterrupted, reason: "stopped"}
}
