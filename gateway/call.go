package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"pilder/policy"
	"pilder/store"
)

// Reasons of refusals that come before any decision: content-free, for the call's row.
const (
	whyUnknownTool  = "unknown_tool"
	whyBadArguments = "bad_arguments"
	whyLimit        = "limit"
	whyBusy         = "busy"
)

// maxRefusals is how many refused wishes of a run have rows; maxRefused is how long the arguments of one may be, in bytes.
const (
	maxRefusals = 500
	maxRefused  = 4 << 10
)

// codeRunOver is the result's code when its run had ended, or was not begun, by the time of the call.
const codeRunOver = "run_over"

func overResult(lang string) Result { return failure(codeRunOver, "never", lang, store.OutcomeRefused) }

// wish is what an agent asks for.
type wish struct {
	tool     string
	args     json.RawMessage // empty: none
	progress func(Progress)  // nil: the caller wants none
}

// call is the one way from an agent's wish to an effect: find the tool, check the arguments, decide, commit the call, act,
// commit what came of it, answer. Every wish leaves a row, the refused ones too.
//
// The caller may go away at any moment. A read is then given up; a write that was begun is finished and recorded, because
// an effect nobody knows about is worse than a late one.
func (g *Gateway) call(ctx context.Context, a *access, w wish) Result {
	if len(w.args) == 0 || string(w.args) == "null" {
		w.args = json.RawMessage(`{}`)
	}
	tool, no := g.find(ctx, a, w)
	if no != nil {
		return *no
	}
	decision, no := g.decide(ctx, a, tool, w.args)
	if no != nil {
		return *no
	}
	if tool.Class != policy.ClassRead {
		done, err := a.ledger.turn(ctx, tool.Name, w.args)
		if err != nil {
			return failure("under_way", "wait", a.lang(), store.OutcomeUnknown)
		}
		defer done()
	}
	acc, err := a.account(tool.Tool)
	if err != nil && decision.Effect != policy.Deny {
		answer := g.unready(ctx, a, usesOf(tool.Tool), err)
		return g.refuse(ctx, a, tool.Tool, w.args, answer.Code, answer)
	}
	c := Call{Caller: a.caller, Tool: tool.Name, Args: w.args, Account: acc.Provider, Progress: w.progress, Cancelled: ctx.Done()}
	switch decision.Effect {
	case policy.Allow:
		return g.allowed(ctx, a, tool, acc, decision, c)
	case policy.Confirm, policy.Hold:
		return g.propose(ctx, a, tool, acc, decision, c)
	}
	if _, no := g.commit(ctx, a, tool, acc, decision, c); no != nil {
		return *no
	}
	return denied(a.grant.Sentence(decision, a.lang()))
}

// find gives the wished tool once its arguments are valid.
func (g *Gateway) find(ctx context.Context, a *access, w wish) (offer, *Result) {
	no := func(t Tool, why string, answer Result) (offer, *Result) {
		answer = g.refuse(ctx, a, t, w.args, why, answer)
		return offer{}, &answer
	}
	tool, listed := a.tools[w.tool]
	if app, ok := g.lacking(a, w.tool); !listed && ok {
		g.Await(ctx, a.caller, app)
		return no(a.unlisted(w.tool), whyUnknownTool, g.wants("not_connected", app, a.lang()))
	}
	if !listed {
		return no(a.unlisted(w.tool), whyUnknownTool, failure("unknown_tool", "never", a.lang(), store.OutcomeRefused))
	}
	wrong, err := g.schemas.check(tool.InputSchema, w.args)
	if err != nil {
		answer := g.broken(a, tool.Tool, fmt.Errorf("checking arguments of %s: %w", tool.Name, err))
		return offer{}, &answer
	}
	if wrong != nil {
		return no(tool.Tool, whyBadArguments, badArguments(wrong, a.lang()))
	}
	return tool, nil
}

// decide asks policy, and counts what it does not deny.
func (g *Gateway) decide(ctx context.Context, a *access, tool offer, args json.RawMessage) (policy.Decision, *Result) {
	before, err := a.ledger.before(ctx, g.store, a.run)
	if err != nil {
		answer := g.broken(a, tool.Tool, err)
		return policy.Decision{}, &answer
	}
	d := a.judge.Decide(a.run.Principal, g.action(tool.Tool, args, before))
	if d.Effect != policy.Deny && !a.ledger.take(a.grant.Limits, tool.Class, d.Effect) {
		answer := g.refuse(ctx, a, tool.Tool, args, whyLimit, failure("limit", "never", a.lang(), store.OutcomeRefused))
		return policy.Decision{}, &answer
	}
	return d, nil
}

// allowed performs a call that needs nobody, as soon as the bounds let it in.
func (g *Gateway) allowed(ctx context.Context, a *access, tool offer, acc store.Account, d policy.Decision, c Call) Result {
	leave, retry := g.counters.enter(ctx, a.run.Principal, appOf(tool.Tool), tool.Class)
	if leave == nil {
		a.ledger.giveBack(tool.Class) // it is to be tried again
		return g.refuse(ctx, a, tool.Tool, c.Args, whyBusy, busy(retry, a.lang()))
	}
	defer leave()
	begun, no := g.commit(ctx, a, tool, acc, d, c)
	if no != nil {
		return *no
	}
	c.ID = begun.ID
	return g.act(ctx, a, tool, acc, c)
}

// propose lays a call before whoever is to decide it, unless it could not work anyway.
func (g *Gateway) propose(ctx context.Context, a *access, tool offer, acc store.Account, d policy.Decision, c Call) Result {
	if alive, err := g.alive(ctx, a.run); err == nil && !alive { // a connector is not asked for the sake of a dead run
		return overResult(a.lang())
	}
	c.Progress, c.Cancelled = nil, nil         // whoever asks does not wait for it
	a.ledger.taint(answers(tool.Tool, c.Args)) // an obstacle is told in the app's words
	if problem := g.obstacle(ctx, tool, c); problem != nil {
		g.learn(ctx, a, acc, *problem)
		return g.refuse(ctx, a, tool.Tool, c.Args, problem.Code, *problem)
	}
	facts := g.describe(ctx, tool, c)
	if name := a.oneOfSeveral(acc); name != "" {
		facts = append(facts, store.Fact{Text: name})
	}
	begun, no := g.commit(ctx, a, tool, acc, d, c, facts...)
	if no != nil {
		return *no
	}
	g.cfg.Log.Info().Str("event", "approval.asked").Str("call", string(begun.ID)).Str("run", string(a.run.ID)).
		Str("kind", d.Effect.String()).Send()
	return a.naming(acc, again(store.BegunCall{Outcome: store.OutcomeHeld, Approval: begun.Approval}, d, a))
}

// commit writes a decided call; no is the answer when nothing was begun: the run is over, its account was disconnected since
// the list was made, or it made the call before.
func (g *Gateway) commit(ctx context.Context, a *access, tool offer, acc store.Account, d policy.Decision, c Call, facts ...store.Fact) (begun store.BegunCall, no *Result) {
	begun, err := g.begin(ctx, a, tool.Tool, c.Args, d, acc, "", facts...)
	var answer Result
	switch {
	case errors.Is(err, store.ErrAccountGone):
		answer = g.refuse(ctx, a, tool.Tool, c.Args, "not_connected", g.wants("not_connected", acc.App, a.lang()))
	case errors.Is(err, store.ErrRunOver):
		answer = overResult(a.lang())
	case err != nil:
		answer = g.broken(a, tool.Tool, err)
	case begun.Repeat:
		answer = again(begun, d, a)
	default:
		return begun, nil
	}
	return begun, &answer
}

// obstacle asks a tool's connector what would keep a call from working, before a human is asked about it.
func (g *Gateway) obstacle(ctx context.Context, o offer, c Call) (found *Result) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.CallTimeout)
	defer cancel()
	defer g.survive(c, func() {
		r := failure("gateway_problem", "wait", c.Caller.Lang, store.OutcomeRefused)
		found = &r
	})
	problem := o.from.Check(ctx, c)
	if problem == nil {
		return nil
	}
	r := fit(*problem, o.Class, c.Caller.Lang)
	r.Outcome = store.OutcomeRefused
	return &r
}

// refuse records a wish that came to nothing before it was decided upon, and answers it.
//
// There are so many of them in a run that somebody can read, and none keeps more than a little of what was asked.
func (g *Gateway) refuse(ctx context.Context, a *access, t Tool, args json.RawMessage, why string, answer Result) Result {
	if !a.ledger.mayRefuse() {
		return failure("limit", "never", a.lang(), store.OutcomeRefused)
	}
	if len(args) > maxRefused {
		args = fmt.Appendf(nil, `{"omitted_bytes":%d}`, len(args))
	}
	_, err := g.begin(ctx, a, t, args, policy.Decision{Effect: policy.Deny}, store.Account{}, why)
	switch {
	case errors.Is(err, store.ErrRunOver):
		return overResult(a.lang())
	case err != nil:
		return g.broken(a, t, err)
	}
	return answer
}

// begin commits the call before anything happens. It does not end with the caller's patience: a row that was perhaps
// written, of a call that was certainly not begun, would stay open for good.
func (g *Gateway) begin(ctx context.Context, a *access, t Tool, args json.RawMessage, d policy.Decision, acc store.Account, why string, facts ...store.Fact) (store.BegunCall, error) {
	begun, err := g.store.BeginCall(context.WithoutCancel(ctx), store.NewCall{
		Run: a.run, Tool: t.Name, App: answers(t, args), Class: t.Class, Args: args, Decision: d, Account: acc.Provider, With: acc.ID, Why: why, Facts: facts,
	}, g.cfg.Card)
	if err != nil {
		return store.BegunCall{}, fmt.Errorf("beginning call of %s: %w", t.Name, err)
	}
	g.cfg.Log.Info().Str("event", "call.decided").Str("call", string(begun.ID)).Str("run", string(a.run.ID)).
		Str("conversation", string(a.run.Conversation)).Str("company", string(a.run.Principal.Company)).
		Str("person", string(a.run.Principal.Person)).Str("tool", t.Name).Str("app", t.App).
		Str("decision", d.Effect.String()).Str("rule", d.Rule).Str("why", why).Bool("repeat", begun.Repeat).Send()
	return begun, nil
}

// act performs an allowed call and commits what came of it before the agent hears of it; the outcome of a read, which changed
// nothing, may share a later commit.
func (g *Gateway) act(ctx context.Context, a *access, t offer, acc store.Account, c Call) Result {
	began := time.Now()                     // the monotonic clock: how long, not when
	a.ledger.taint(answers(t.Tool, c.Args)) // before the agent can have read a word of it
	result := a.naming(acc, g.once(ctx, a, t, c))
	g.learn(ctx, a, acc, result)
	if err := g.end(ctx, a, t.Class, c.ID, result); err != nil {
		g.cfg.Log.Error().Str("event", "call.unrecorded").Str("call", string(c.ID)).Str("run", string(a.run.ID)).
			Str("outcome", string(result.Outcome)).Err(err).Send()
		return lost(t.Class, a.lang())
	}
	g.cfg.Log.Info().Str("event", "call.ended").Str("call", string(c.ID)).Str("run", string(a.run.ID)).
		Str("tool", t.Name).Str("app", t.App).Str("outcome", string(result.Outcome)).Str("code", result.Code).
		Int64("ms", time.Since(began).Milliseconds()).Send()
	return result
}

func (g *Gateway) end(ctx context.Context, a *access, class policy.Class, id store.CallID, r Result) error {
	ctx = context.WithoutCancel(ctx)
	if class == policy.ClassRead {
		return g.store.EndRead(ctx, a.run.Principal.Company, id, r.Outcome, r.Code)
	}
	return g.store.EndCall(ctx, a.run.Principal.Company, id, r.Outcome, r.Code, keep(r), g.undo(a, r))
}

// once performs a call; a read joins the identical one of its run that is under way.
func (g *Gateway) once(ctx context.Context, a *access, t offer, c Call) Result {
	if t.Class != policy.ClassRead {
		return g.perform(ctx, t, c, a.halt)
	}
	perform := func(ctx context.Context) Result {
		c.Cancelled = ctx.Done() // not before the last who waits has gone
		return g.perform(ctx, t, c, a.halt)
	}
	gone := func() Result { return lost(t.Class, a.lang()) }
	return a.ledger.reads.do(ctx, readKey(t.Name, c.Account, c.Args), perform, gone)
}

// perform runs a committed call at its connector, once and under the gateway's own deadline. Whatever the connector does,
// panic included, becomes a result: unknown for anything that may have been performed.
func (g *Gateway) perform(ctx context.Context, o offer, c Call, halt *halt) (r Result) {
	ctx, cancel := g.patience(ctx, o.Class, halt)
	defer cancel()
	defer g.survive(c, func() { r = lost(o.Class, c.Caller.Lang) })
	result, err := o.from.Call(ctx, c)
	if err != nil {
		g.cfg.Log.Error().Str("event", "call.broken").Str("call", string(c.ID)).Str("tool", o.Name).Err(err).Send()
		return lost(o.Class, c.Caller.Lang)
	}
	return fit(result, o.Class, c.Caller.Lang)
}

// survive, deferred, keeps a connector's panic from ending the process, and every run with it: answer is what then stands.
// The panic's value may hold people's text; the stack does not.
func (g *Gateway) survive(c Call, answer func()) {
	if recover() == nil {
		return
	}
	g.cfg.Log.Error().Str("event", "call.panicked").Str("call", string(c.ID)).Str("tool", c.Tool).
		Str("stack", string(debug.Stack())).Send()
	answer()
}

// patience is how long a call may take: until the deadline or the halt, and a read no longer than its caller waits.
func (g *Gateway) patience(ctx context.Context, class policy.Class, halt *halt) (context.Context, context.CancelFunc) {
	if class != policy.ClassRead {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.CallTimeout)
	forget := halt.watch(cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}

// broken is the answer when the gateway itself is at fault before anything was begun.
func (g *Gateway) broken(a *access, t Tool, err error) Result {
	g.cfg.Log.Error().Str("event", "call.broken").Str("run", string(a.run.ID)).Str("tool", t.Name).Err(err).Send()
	return failure("gateway_problem", "wait", a.lang(), store.OutcomeFailed)
}

// unlisted stands for a tool this run does not have. Its name is the agent's own text, which may say anything: only that of
// a tool that exists and is barred is kept, so that rows and logs stay content-free.
func (a *access) unlisted(name string) Tool {
	if !a.barred[name] {
		name = "unknown"
	}
	return Tool{Name: name, Class: policy.ClassUnknown}
}
