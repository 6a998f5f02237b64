package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"pilder/store"
)

// agent is one process of the CLI at work on one conversation's session. It takes turns one after the other, each for a run
// of its own; between two turns it waits in the pool.
type agent struct {
	*Runner
	conversation store.ConversationID
	company      store.CompanyID
	launch       launch
	p            *Process
	ws           workspace
	relays       map[string]*relay
	began        time.Time // when the process was started

	prepared store.Run // of the next turn, while the process waits for it
	doors    *doors    // of the run whose turn it is, or will be
	turns    int
	parkedAt time.Time
	unpark   chan struct{} // closed by whoever takes it out of the pool
	used     int64         // memory when it was parked, bytes
	gauge    gauge         // of its memory, while it is at work

	ear     atomic.Pointer[ear]
	ended   chan struct{} // closed when its output has ended, or is not heard any more, and all before was heard
	noisy   chan struct{} // closed when it talks though nobody asked
	unheard int           // lines since somebody listened; the reader's own
	lines   chan []byte   // to be written to it
	ids     atomic.Int64  // of control requests
	readers sync.WaitGroup
	skipped atomic.Int64 // lines too long
	garbage atomic.Int64 // lines that are not events
	stderr  tail
}

// ear is somebody who listens to the process for a while.
type ear struct {
	events chan event
	gone   chan struct{}
}

// linesWaiting bounds what is still to be written to a process that does not read.
const linesWaiting = 16

// startAgent starts a process for a run whose turn begins now, or is prepared. It is told nothing yet.
func (r *Runner) startAgent(ctx context.Context, run store.Run, spaces *workspaces, fresh bool) (*agent, error) {
	a := &agent{
		Runner: r, conversation: run.Conversation, company: run.Principal.Company, relays: map[string]*relay{}, began: r.cfg.Now(),
		ended: make(chan struct{}), noisy: make(chan struct{}), lines: make(chan []byte, linesWaiting),
	}
	if err := a.start(ctx, run, spaces, fresh); err != nil {
		return nil, errors.Join(err, a.ws.remove())
	}
	for name, l := range a.p.Doors {
		a.relays[name] = newRelay(l)
	}
	a.readers.Go(func() { _, _ = io.Copy(&a.stderr, a.p.Stderr) }) // ends with the process
	a.readers.Go(a.read)
	a.readers.Go(a.write)
	return a, nil
}

func (a *agent) start(ctx context.Context, run store.Run, spaces *workspaces, fresh bool) (err error) {
	if a.ws, err = spaces.open(run); err != nil {
		return err
	}
	token, err := a.cfg.MintToken(run)
	if err != nil {
		return fmt.Errorf("making the run token: %w", err)
	}
	if err := a.ws.writeMCPConfig(token); err != nil {
		return err
	}
	if a.launch, err = a.launchFor(run, a.ws, fresh); err != nil {
		return err
	}
	a.p, err = a.box.Start(ctx, a.launch.Launch)
	return err
}

// read passes events on to whoever listens, until the process has closed its output or says nothing but a line without an
// end. It reads at once and always: a process whose output is not drained ends without a word.
func (a *agent) read() {
	defer close(a.ended)
	lines := lineReader{r: bufio.NewReaderSize(a.p.Stdout, 64<<10), max: a.cfg.MaxLine, skipped: &a.skipped}
	for {
		line, err := lines.next()
		if err != nil {
			return
		}
		ear := a.ear.Load()
		if ear == nil {
			if a.unheard++; a.unheard == noise {
				close(a.noisy)
			}
			continue
		}
		if a.unheard < noise {
			a.unheard = 0
		}
		e, ok := parse(line)
		if !ok {
			if len(line) > 0 {
				a.garbage.Add(1)
			}
			continue
		}
		select {
		case ear.events <- e:
		case <-ear.gone:
		}
	}
}

// noise is how many lines a process may say between two turns: a healthy one says a handful.
const noise = 1000

// listen makes the caller the one who hears the process, until it calls deaf.
func (a *agent) listen() (events <-chan event, deaf func()) {
	e := &ear{events: make(chan event), gone: make(chan struct{})}
	a.ear.Store(e)
	return e.events, func() {
		a.ear.CompareAndSwap(e, nil)
		close(e.gone)
	}
}

// write writes what tell was given, in order. It fails when the process ends first, which the reader sees.
func (a *agent) write() {
	for {
		select {
		case line := <-a.lines:
			_, _ = a.p.Stdin.Write(line)
		case <-a.ended:
			return
		}
	}
}

// errUnread is a process that has stopped to read.
var errUnread = errors.New("the process does not read")

// tell has lines written to the process; it does not wait for that.
func (a *agent) tell(lines []byte) error {
	select {
	case a.lines <- lines:
		return nil
	default:
		return errUnread
	}
}

// Errors of ask.
var (
	errRefused = errors.New("the process refused")
	errEnded   = errors.New("the process ended")
)

// ask makes a control request and waits for its answer. What else the process says meanwhile is not heard, so this is for
// between turns. It gives the answer's body.
func (a *agent) ask(ctx context.Context, request map[string]any) (json.RawMessage, error) {
	id := "ask-" + strconv.FormatInt(a.ids.Add(1), 10)
	line, err := json.Marshal(map[string]any{"type": "control_request", "request_id": id, "request": request})
	if err != nil {
		return nil, err
	}
	events, deaf := a.listen()
	defer deaf()
	if err := a.tell(append(line, '\n')); err != nil {
		return nil, err
	}
	return a.answer(ctx, events, id)
}

// introduce writes a process its first line and waits until it has taken it.
func (a *agent) introduce(ctx context.Context, hello []byte) error {
	events, deaf := a.listen()
	defer deaf()
	if err := a.tell(hello); err != nil {
		return err
	}
	_, err := a.answer(ctx, events, requestInit)
	return err
}

// answer waits for the answer to a control request.
func (a *agent) answer(ctx context.Context, events <-chan event, id string) (json.RawMessage, error) {
	for {
		select {
		case e := <-events:
			if e.Type != "control_response" || e.Response.Request != id {
				continue
			}
			if e.Response.Subtype != "success" {
				return nil, errRefused
			}
			return e.Response.Body, nil
		case <-a.ended:
			return nil, errEnded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// changeToken puts the next run's token where the last one's was: the CLI connects anew with it and lists the tools. Its
// answer comes when that is done (CLI 2.1.332, measured: 0.05 to 0.15 s).
func (a *agent) changeToken(ctx context.Context, token store.Secret) error {
	body, err := a.ask(ctx, map[string]any{"subtype": "mcp_set_servers", "servers": servers(token)})
	if err != nil {
		return fmt.Errorf("changing the token: %w", err)
	}
	var said struct {
		Added  []string
		Errors map[string]any
	}
	if err := json.Unmarshal(body, &said); err != nil || len(said.Errors) > 0 || len(said.Added) != 1 {
		return errors.Join(errors.New("changing the token: the server was not taken"), err) // its texts may hold the token
	}
	return nil
}

// end lets the process go: the end of its input, then SIGTERM, then SIGKILL for everything inside. politely is for one whose
// turn has ended. First the process, then its doors: a call under way ends as it will, and is recorded. What it does not do by
// itself is logged: an exit code of 143 or 137 with no such line came from elsewhere.
func (a *agent) end(politely bool) error {
	_ = a.p.Stdin.Close() // also ends a writer that hangs on a full socket
	grace := time.Duration(0)
	if politely {
		grace = a.cfg.ExitGrace
	}
	if !a.gone(grace) {
		a.killed("term")
		_ = a.p.Terminate() // a process that is gone is what is wanted
		if !a.gone(a.cfg.KillGrace) {
			a.killed("kill")
		}
	}
	return a.close()
}

func (a *agent) killed(signal string) {
	a.cfg.Log.Info().Str("event", "run.killed").Str("conversation", string(a.conversation)).Str("signal", signal).Send()
}

// close kills what is left of the process, without a word, and everything that was made for it.
func (a *agent) close() error {
	err := a.p.Close() // what has closed its streams and not ended is killed here
	a.readers.Wait()
	return errors.Join(err, a.shut(), a.ws.remove())
}

// shut closes the doors of the run whose turn it was.
func (a *agent) shut() error {
	if a.doors == nil {
		return nil
	}
	err := a.doors.close()
	a.doors = nil
	return err
}

// gone tells whether the process has ended, within a while.
func (a *agent) gone(wait time.Duration) bool {
	select {
	case <-a.p.Done():
		return true
	default:
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-a.p.Done():
		return true
	case <-t.C:
		return false
	}
}

// gauge tells what a process uses without waiting for it long: many large processes make a look slow, and all who want to
// begin a turn ask.
type gauge struct {
	mu      sync.Mutex
	looking chan struct{} // closed when the look under way has ended; nil: there is none
	last    int64         // of the last look that has
}

// lookPatience is the wait for a look. After that the one before counts.
const lookPatience = 100 * time.Millisecond

// look is the memory of a process, bytes; 0 while it is not known.
func (g *gauge) look(p *Process) int64 {
	g.mu.Lock()
	if g.looking == nil {
		g.looking = make(chan struct{})
		go g.measure(p) // ends with the process at the latest
	}
	ended := g.looking
	g.mu.Unlock()
	enough := time.NewTimer(lookPatience)
	defer enough.Stop()
	select {
	case <-ended:
	case <-enough.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

func (g *gauge) measure(p *Process) {
	used, err := p.Memory()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.last = used
	}
	close(g.looking)
	g.looking = nil
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
