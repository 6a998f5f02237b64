package runner

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"pilder/policy"
	"pilder/store"
)

// finish commits how the run ended, again and again until it is committed or the run is somebody else's.
func (r *Runner) finish(ctx context.Context, t store.Turn, e *episode, o outcome) error {
	f := e.finishOf(ctx, o)
	known := r.cfg.Now()
	for {
		state, err := r.store.FinishRun(context.WithoutCancel(ctx), t, e.run, f)
		switch {
		case err == nil:
			e.logFinished(state, f, r.cfg.Now().Sub(known))
			return nil
		case errors.Is(err, store.ErrLost) || ctx.Err() != nil || r.cfg.Now().After(e.run.Expires):
			return err // the store has tried for a minute each time
		}
		r.event("run.finish_retried", e.run).Err(err).Send()
	}
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
	switch {
	case o.contextLost && (o.state == store.RunCancelled || o.state == store.RunInterrupted):
		f.Session = e.run.Session // such a run says nothing: the next one finds out again, and does
	case o.contextLost:
		f.Session = o.session // the one before is not tried again
		f.Drafts = append(f.Drafts, e.cfg.Notice(e.run, "run.context_lost", nil))
	}
	if d := e.last; d != nil && !d.ready.IsZero() {
		f.Stages.Spawn = d.ready.Sub(e.began).Milliseconds()
		f.Stages.Tools = d.toolTime.Milliseconds()
		if !d.firstText.IsZero() {
			f.Stages.FirstToken = d.firstText.Sub(d.ready).Milliseconds()
		}
	}
	switch o.state {
	case store.RunSucceeded:
		f.Drafts = append(f.Drafts, e.cfg.Answer(e.run, o.answer))
	case store.RunCancelled: // whoever stopped it has been told what was done
	default:
		key, args := notice(o, e.usage.RetryAfter)
		if o.partial != "" { // the agent's own last words, for what they are
			f.Drafts = append(f.Drafts, e.cfg.Answer(e.run, o.partial))
			key = "run.cut"
		}
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
	reasonMemory = "memory" // its process was ended because the run or the machine had no memory left
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
