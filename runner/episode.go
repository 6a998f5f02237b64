package runner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"pilder/store"
)

// outcome is how a turn ended, as far as the runner can tell.
type outcome struct {
	state       store.RunState
	reason      string // content-free
	answer      string // of a success
	partial     string // the last words of a process that had no result to give
	session     string // to resume next time; empty: the one from before
	turns       int
	tools       int  // tools the process began
	began       bool // the process took the turn up
	resumed     bool // the process went on with a session
	contextLost bool // the person must hear that the conversation begins anew
	leaked      bool // the answer, or what a tool was given, showed the process's mark
}

// Reasons that the runner itself acts on.
const (
	reasonNoTools = "tools_missing"
	reasonUntold  = "untold" // a process that waited did not take the turn up

	reasonCrashed  = "crashed"   // it ended before it took the turn up
	reasonNoResult = "no_result" // it ended without a result
	reasonIdle     = "idle"      // it was silent for too long
)

// episode is one run from start to commit: with one process or, where that could not begin, with another.
type episode struct {
	*Runner
	run    store.Run
	began  time.Time
	spaces *workspaces

	agent *agent    // the process that is there; nil when none is
	last  *dialogue // the latest turn with a process
	mu    sync.Mutex
	usage Usage // summed; RetryAfter is the longest, Refused the last
}

// play runs the turn, in the process that waited for it or, where there is none, in a new one. A process that could not begin is
// replaced: a waiting one by a new one on the same session, one without its tools likewise, and one whose session is not to
// be resumed by one in a new session. A process that has begun a tool is never replaced.
func (e *episode) play(ctx context.Context) outcome {
	waited := e.agent != nil
	if turnText(e.run) == "" {
		return outcome{state: store.RunSucceeded, reason: "empty"}
	}
	if e.box.Unsandboxed() && !e.run.Chat.Private {
		return outcome{state: store.RunFailed, reason: "unsandboxed"} // not for whoever is in a group
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.RunTimeout, errRunTimeout)
	defer cancel()
	o := e.attempt(ctx, false)
	if waited && e.again(ctx, o, slices.Contains([]string{reasonUntold, reasonNoTools, reasonCrashed, reasonNoResult, reasonMemory, "door"}, o.reason)) {
		o = e.attempt(ctx, false)
	}
	if e.again(ctx, o, o.reason == reasonNoTools) {
		return e.attempt(ctx, false)
	}
	if e.again(ctx, o, o.blamesSession()) {
		return e.afresh(ctx, o.reason)
	}
	return o
}

// blamesSession tells whether the session that was resumed may be why a turn failed.
func (o outcome) blamesSession() bool {
	switch o.reason {
	case reasonSessionGone, reasonRejected:
		return o.resumed
	case "failed":
		return o.resumed && o.turns == 0
	case reasonCrashed, reasonMemory, reasonIdle:
		return o.resumed && !o.began
	}
	return false
}

// afresh leaves the session behind and tries without. Where the same happens again, the session was not to blame, and is
// kept: a bad hour of the machine must not cost anybody their conversation.
func (e *episode) afresh(ctx context.Context, reason string) outcome {
	o := e.attempt(ctx, true)
	o.contextLost = o.reason != reason || reason == reasonSessionGone
	if !o.contextLost {
		o.session = ""
	}
	return o
}

// again tells whether a failed turn begins once more, and leaves a line if it does.
func (e *episode) again(ctx context.Context, o outcome, useful bool) bool {
	failed := o.state == store.RunFailed || o.state == store.RunTimedOut && o.reason == reasonIdle
	if !useful || !failed || o.tools > 0 || ctx.Err() != nil {
		return false
	}
	e.event("run.again", e.run).Str("reason", o.reason).Send()
	return true
}

// attempt runs the turn in one process. After a success only the doors are closed: the answer is committed before anything
// is done about the process. In any other case everything is gone on return.
func (e *episode) attempt(ctx context.Context, fresh bool) outcome {
	warm := e.agent != nil
	if !warm {
		a, err := e.startAgent(ctx, e.run, e.spaces, fresh)
		if err != nil {
			if ctx.Err() != nil {
				return ended(ctx)
			}
			e.cfg.Log.Error().Str("event", "run.not_started").Str("run", string(e.run.ID)).Err(err).Send()
			return outcome{state: store.RunFailed, reason: "sandbox"}
		}
		a.openTools(e.run)
		e.agent = a
	}
	a := e.agent
	e.working(a, true)
	defer e.working(a, false)
	a.turns++
	a.openRest(e.run, e.spent(), e.meter)
	watched, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a.doors.onFailure(func(err error) { stop(fmt.Errorf("%w: %w", errDoor, err)) })
	if err := e.store.ChildStarted(ctx, e.run); err != nil {
		stop(err)
	}
	unwatch := e.watchFiles(watched, stop)
	e.last = a.dialogue(e.run, warm)
	o := e.judged(e.last.talk(watched))
	unwatch()
	if o.state == store.RunSucceeded {
		e.leftover(a.shut())
		return o
	}
	e.leftover(a.end(false))
	e.agent = nil
	if o.state == store.RunFailed && a.p.OutOfMemory() {
		o.reason = reasonMemory
	}
	if o.reason == reasonDisk {
		e.trim(a.ws)
	}
	return o
}

// watchFiles ends the run when its conversation's files get over their quota. The caller runs unwatch before anything else
// is done with them.
func (e *episode) watchFiles(ctx context.Context, stop context.CancelCauseFunc) (unwatch func()) {
	ctx, cancel := context.WithCancel(ctx)
	ws := e.agent.ws
	var watching sync.WaitGroup
	watching.Go(func() {
		use, err := e.cfg.Quota.Watch(ctx, ws.work, ws.state)
		if use.Over == "" && err == nil {
			return
		}
		e.cfg.Log.Warn().Str("event", "run.files_over").Str("run", string(e.run.ID)).Str("over", string(use.Over)).
			Int64("bytes", use.Bytes).Int64("files", use.Files).Err(err).Send()
		stop(errDisk)
	})
	return func() { cancel(); watching.Wait() }
}

// trim brings the conversation's files back under their quota, so that its next turn can work.
func (e *episode) trim(ws workspace) {
	ctx, cancel := context.WithTimeout(context.Background(), trimming)
	defer cancel()
	use, err := e.cfg.Quota.Trim(ctx, e.began, ws.work, ws.state)
	e.leftover(err)
	e.event("run.files_trimmed", e.run).Int64("bytes", use.Bytes).Int64("files", use.Files).Send()
}

// trimming is how long the conversation's next turn waits for that at most.
const trimming = time.Minute

// pickUp takes what the agent has put into its outbox. It is kept on the host, out of every agent's reach.
func (e *episode) pickUp(ctx context.Context) {
	if e.agent == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), picking)
	defer cancel()
	picked, err := e.out.Pick(ctx, string(e.run.ID), e.agent.ws.work)
	e.leftover(err)
	var bytes int64
	refused := 0
	for _, p := range picked {
		bytes += p.Size
		if p.Err != nil {
			refused++
		}
	}
	if len(picked) > 0 {
		e.event("run.outbox", e.run).Int("files", len(picked)-refused).Int("refused", refused).Int64("bytes", bytes).Send()
	}
}

// picking bounds what a full outbox may cost its conversation in time.
const picking = 20 * time.Second

// working notes whose memory counts as an agent's at work.
func (r *Runner) working(a *agent, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is {
		r.agents[a] = true
	} else {
		delete(r.agents, a)
	}
}

// end lets the process of an ended run go, if it is there.
func (e *episode) end() {
	if e.agent != nil {
		e.leftover(e.agent.end(true))
		e.agent = nil
	}
}

// leftover logs what could not be ended properly; there is nobody to return it to who could do more.
func (e *episode) leftover(err error) {
	if err != nil {
		e.cfg.Log.Error().Str("event", "run.leftover").Str("run", string(e.run.ID)).Err(err).Send()
	}
}

// meter adds one request to the model.
func (e *episode) meter(u Usage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.usage.CostUSD += u.CostUSD
	e.usage.Counted.CostUSD += u.Counted.CostUSD
	e.usage.Counted.Tokens += u.Counted.Tokens
	e.usage.Tokens.Input += u.Tokens.Input
	e.usage.Tokens.Output += u.Tokens.Output
	e.usage.Tokens.CacheRead += u.Tokens.CacheRead
	e.usage.Tokens.CacheWrite += u.Tokens.CacheWrite
	e.usage.RetryAfter = max(e.usage.RetryAfter, u.RetryAfter)
	e.usage.Refused = cmp.Or(u.Refused, e.usage.Refused)
}

// spent is what the run has spent so far, as its budget counts.
func (e *episode) spent() Budget {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.usage.Counted
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
