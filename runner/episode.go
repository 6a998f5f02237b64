package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pilder/policy"
	"pilder/store"
)

// outcome is how a turn ended, as far as the runner can tell.
type outcome struct {
	state       store.RunState
	reason      string // content-free
	answer      string // of a success
	session     string // to resume next time; empty: the one from before
	turns       int
	tools       int  // tools the process began
	resumed     bool // the process went on with a session
	contextLost bool // the person must hear that the conversation begins anew
}

const reasonNoTools = "tools_missing"

// episode is one run from start to commit, with one process or, where the first could not begin, two.
type episode struct {
	*Runner
	run    store.Run
	began  time.Time
	spaces *workspaces

	ends  []func() error // what still has to be ended when the outcome is committed, newest first
	last  *dialogue
	mu    sync.Mutex
	usage Usage // summed; RetryAfter is the longest, Refused the last
}

// play runs the turn. A process that could not begin is replaced by one more: with the same session if its tools were
// missing, in a new one if its session was not to be resumed. A process that has begun a tool is never replaced.
func (e *episode) play(ctx context.Context) outcome {
	if turnText(e.run) == "" {
		return outcome{state: store.RunSucceeded, reason: "empty"}
	}
	if e.box.Unsandboxed() && !e.run.Chat.Private {
		return outcome{state: store.RunFailed, reason: "unsandboxed"} // not for whoever is in a group
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.RunTimeout, errRunTimeout)
	defer cancel()
	o := e.process(ctx, false)
	if o.state != store.RunFailed || o.tools > 0 || ctx.Err() != nil {
		return o
	}
	switch {
	case o.reason == reasonNoTools:
		e.event("run.again", e.run).Str("reason", o.reason).Send()
		e.end()
		return e.process(ctx, false)
	case o.resumed && o.turns == 0 && (o.reason == reasonSessionGone || o.reason == "crashed" || o.reason == "failed"):
		e.event("run.again", e.run).Str("reason", o.reason).Send()
		e.end()
		o = e.process(ctx, true)
		o.contextLost = true
		return o
	}
	return o
}

// process runs the turn in one process. After a success only the doors are closed: the answer is committed before the
// process has ended. In any other case everything is gone on return.
func (e *episode) process(ctx context.Context, fresh bool) outcome {
	d, shut, err := e.start(ctx, fresh)
	if err != nil {
		e.end()
		if ctx.Err() != nil {
			return ended(ctx)
		}
		e.cfg.Log.Error().Str("event", "run.not_started").Str("run", string(e.run.ID)).Err(err).Send()
		return outcome{state: store.RunFailed, reason: "sandbox"}
	}
	e.last = d
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	shut.onFailure(func(err error) { stop(fmt.Errorf("%w: %w", errDoor, err)) })
	if err := e.store.ChildStarted(ctx, e.run); err != nil {
		stop(err)
	}
	o := e.judged(d.talk(watched))
	success := o.state == store.RunSucceeded
	if !success {
		e.leftover(d.end(false)) // first the process, then its doors: a call under way ends as it will, and is recorded
	}
	e.leftover(shut.close())
	if success {
		e.ends = append(e.ends, func() error { return d.end(true) })
	} else {
		e.end()
	}
	return o
}

// start makes the workspace and starts a process with its doors open.
func (e *episode) start(ctx context.Context, fresh bool) (*dialogue, *doors, error) {
	ws, err := e.spaces.open(e.run)
	e.ends = append(e.ends, ws.remove)
	if err != nil {
		return nil, nil, err
	}
	token, err := e.cfg.MintToken(e.run)
	if err != nil {
		return nil, nil, fmt.Errorf("making the run token: %w", err)
	}
	if err := ws.writeMCPConfig(token); err != nil {
		return nil, nil, err
	}
	key := store.RandomSecret("pk-")
	c, err := e.callFor(e.run, ws, key, fresh)
	if err != nil {
		return nil, nil, err
	}
	p, err := e.box.Start(ctx, c.launch)
	if err != nil {
		return nil, nil, err
	}
	shut := e.serveDoors(ctx, p, key)
	return startDialogue(e.Runner, e.run, p, c), shut, nil
}

// end ends what is left of the episode's processes.
func (e *episode) end() {
	for i := len(e.ends) - 1; i >= 0; i-- {
		e.leftover(e.ends[i]())
	}
	e.ends = nil
}

// leftover logs what could not be ended properly; there is nobody to return it to who could do more.
func (e *episode) leftover(err error) {
	if err != nil {
		e.cfg.Log.Error().Str("event", "run.leftover").Str("run", string(e.run.ID)).Err(err).Send()
	}
}

// doors are those of one process, being served.
type doors struct {
	cancel context.CancelFunc
	served sync.WaitGroup
	mu     sync.Mutex
	errs   []error
	failed func(error)
}

// serveDoors serves them until close, whatever becomes of ctx: calls under way when a run is cancelled still have to be
// recorded.
func (e *episode) serveDoors(ctx context.Context, p *Process, key store.Secret) *doors {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &doors{cancel: cancel}
	s.served.Go(func() { s.note(ctx, p, e.cfg.ServeTools(ctx, e.run, p.Doors[doorTools])) })
	s.served.Go(func() {
		s.note(ctx, p, e.cfg.ServeModel(ctx, ModelDoor{Run: e.run, Key: key, Search: e.canSearch(), Budget: e.cfg.Budget, Meter: e.meter}, p.Doors[doorModel]))
	})
	if l := p.Doors[doorWeb]; l != nil {
		s.served.Go(func() { s.note(ctx, p, e.cfg.ServeWeb(ctx, e.run, l)) })
	}
	return s
}

// note keeps the error of a door. One that ends before it was told to, or before its process, has failed in any case.
func (s *doors) note(ctx context.Context, p *Process, err error) {
	over := ctx.Err() != nil
	select {
	case <-p.Done():
		over = true // and has taken its listeners along
	default:
	}
	switch {
	case err == nil && !over:
		err = errors.New("door closed by itself")
	case errors.Is(err, net.ErrClosed) && over:
		err = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.errs = append(s.errs, err)
		if s.failed != nil {
			s.failed(err)
		}
	}
}

// onFailure tells f of a door that fails, or has failed.
func (s *doors) onFailure(f func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = f
	if len(s.errs) > 0 {
		f(s.errs[0])
	}
}

func (s *doors) close() error {
	s.cancel()
	s.served.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// meter adds one request to the model.
func (e *episode) meter(u Usage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.usage.CostUSD += u.CostUSD
	e.usage.Tokens.Input += u.Tokens.Input
	e.usage.Tokens.Output += u.Tokens.Output
	e.usage.Tokens.CacheRead += u.Tokens.CacheRead
	e.usage.Tokens.CacheWrite += u.Tokens.CacheWrite
	e.usage.RetryAfter = max(e.usage.RetryAfter, u.RetryAfter)
	e.usage.Refused = cmp.Or(u.Refused, e.usage.Refused)
}

// judged is a failure by its cause, where the model door knows it better than the process that was refused.
func (e *episode) judged(o outcome) outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.state == store.RunFailed && e.usage.Refused == reasonBudget {
		o.reason = reasonBudget
	}
	return o
}

// finishOf is what is committed of an outcome, and what the person reads.
func (e *episode) finishOf(ctx context.Context, o outcome) store.Finish {
	var done []string
	var unsure []store.CallView
	if o.state == store.RunFailed || o.state == store.RunTimedOut { // of an interrupted one the store tells
		done, unsure = e.effects(ctx)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f := store.Finish{
		State: o.state, Reason: o.reason, Session: cmp.Or(o.session, e.run.Session), Turns: o.turns,
		Tokens: e.usage.Tokens, CostUSD: e.usage.CostUSD,
		Stages: store.Stages{Total: e.cfg.Now().Sub(e.began).Milliseconds()},
	}
	if o.contextLost {
		f.Session = o.session // the one from before cannot be resumed
	}
	if d := e.last; d != nil && !d.ready.IsZero() {
		f.Stages.Spawn = d.ready.Sub(e.began).Milliseconds()
		f.Stages.Tools = d.toolTime.Milliseconds()
		if !d.firstText.IsZero() {
			f.Stages.FirstToken = d.firstText.Sub(d.ready).Milliseconds()
		}
	}
	if o.contextLost && o.state == store.RunSucceeded {
		f.Drafts = append(f.Drafts, e.cfg.Notice(e.run, "run.context_lost", nil))
	}
	switch o.state {
	case store.RunSucceeded:
		f.Drafts = append(f.Drafts, e.cfg.Answer(e.run, o.answer))
	case store.RunCancelled: // whoever stopped it has been told what was done
	default:
		key, args := notice(o, e.usage.RetryAfter)
		args["done"] = strings.Join(done, ", ")
		f.Drafts = append(f.Drafts, e.cfg.Notice(e.run, key, args))
		for _, c := range unsure {
			f.Drafts = append(f.Drafts, e.cfg.Notice(e.run, "call.unknown", map[string]string{"tool": c.Tool, "app": c.App}))
		}
	}
	return f
}

// effects are what the run has changed, as tools, and what it may have: a person who is asked to try again must know both.
func (e *episode) effects(ctx context.Context) (done []string, unsure []store.CallView) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) // ctx has often ended with the run
	defer cancel()
	run, err := e.store.RunByID(ctx, e.run.ID)
	if err != nil {
		e.cfg.Log.Error().Str("event", "run.effects_unknown").Str("run", string(e.run.ID)).Err(err).Send()
		return nil, nil
	}
	for _, c := range run.Calls {
		switch {
		case c.Class == policy.ClassRead:
		case c.Outcome == store.OutcomeDone:
			done = append(done, c.Tool)
		case c.Outcome == store.OutcomeUnknown || c.Outcome == store.OutcomeOpen:
			unsure = append(unsure, c)
		}
	}
	return done, unsure
}

// Reasons that have a sentence of their own, beside those of a result.
const (
	reasonBusy   = "busy"
	reasonMemory = "memory" // the kernel ended it for want of memory
	reasonDisk   = "disk"   // the conversation's files have reached their quota
	reasonBudget = "budget" // the run may spend no more
)

// notice is the sentence for an outcome that is no answer, and its values: a person learns what they can do, not what
// broke.
func notice(o outcome, wait time.Duration) (key string, args map[string]string) {
	args = map[string]string{}
	switch o.state {
	case store.RunTimedOut:
		return "run.timed_out", args
	case store.RunInterrupted:
		return "run.interrupted", args
	}
	switch o.reason {
	case reasonBusy:
		return busy(wait)
	case "too_long":
		return "run.too_long", args
	case reasonMemory, reasonDisk, reasonBudget:
		return "run." + o.reason, args
	case "model_auth", "model_unknown", "sandbox", "cli_missing", "cli_version", "cli_refused", reasonNoTools, "door", "unsandboxed":
		return "run.not_ready", args
	}
	return "run.failed", args
}

// busy says when to come back, as far as the provider has: rounded up, and never "1 minutes".
func busy(wait time.Duration) (key string, args map[string]string) {
	in := func(unit time.Duration) string { return strconv.Itoa(max(2, int((wait+unit-1)/unit))) }
	switch {
	case wait <= 0:
		return "run.busy", map[string]string{}
	case wait <= 90*time.Minute:
		return "run.busy_minutes", map[string]string{"minutes": in(time.Minute)}
	}
	return "run.busy_hours", map[string]string{"hours": in(time.Hour)}
}

// logFinished is the line an operator reads about a run. Delivery is from the answer's being known to its being committed in
// the outbox; how long the network then took stands in reply.sent and in `pilder runs show`.
func (e *episode) logFinished(state store.RunState, f store.Finish, delivery time.Duration) {
	e.event("run.finished", e.run).Str("state", string(state)).Str("reason", f.Reason).Int("turns", f.Turns).
		Dict("tokens", zerolog.Dict().Int64("input", f.Tokens.Input).Int64("output", f.Tokens.Output).
			Int64("cache_read", f.Tokens.CacheRead).Int64("cache_write", f.Tokens.CacheWrite)).
		Float64("cost_usd", f.CostUSD).
		Dict("ms", zerolog.Dict().Int64("queue", e.waited().Milliseconds()).Int64("spawn", f.Stages.Spawn).
			Int64("first_token", f.Stages.FirstToken).Int64("tools", f.Stages.Tools).
			Int64("delivery", delivery.Milliseconds()).Int64("total", f.Stages.Total)).Send()
}

// waited is how long the turn's first message waited for its run.
func (e *episode) waited() time.Duration {
	if len(e.run.Messages) == 0 {
		return 0
	}
	return e.run.Started.Sub(e.run.Messages[0].Received)
}
