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
)

// call is the one way from an agent's wish to an effect: find the tool, check the arguments, decide, commit the call, act,
// commit what came of it, answer. Every wish leaves a row, the refused ones too.
//
// The caller may go away at any moment. A read is then given up; a write that was begun is finished and recorded, because
// an effect nobody knows about is worse than a late one.
func (g *Gateway) call(ctx context.Context, a *access, name string, args json.RawMessage) Result {
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage(`{}`)
	}
	tool, listed := a.tools[name]
	if app, ok := g.lacking(a, name); !listed && ok {
		g.Await(ctx, a.caller, app)
		return g.refuse(ctx, a, a.unlisted(name), args, whyUnknownTool, g.wants("not_connected", app, a.lang()))
	}
	if !listed {
		return g.refuse(ctx, a, a.unlisted(name), args, whyUnknownTool, failure("unknown_tool", "never", a.lang(), store.OutcomeRefused))
	}
	wrong, err := g.schemas.check(tool.InputSchema, args)
	if err != nil {
		return g.broken(a, tool.Tool, fmt.Errorf("checking arguments of %s: %w", tool.Name, err))
	}
	if wrong != nil {
		return g.refuse(ctx, a, tool.Tool, args, whyBadArguments, badArguments(wrong, a.lang()))
	}

	before, err := a.ledger.before(ctx, g.store, a.run)
	if err != nil {
		return g.broken(a, tool.Tool, err)
	}
	decision := a.judge.Decide(a.run.Principal, g.action(tool.Tool, args, before))
	if decision.Effect != policy.Deny && !a.ledger.take(a.grant.Limits, tool.Class, decision.Effect) {
		return g.refuse(ctx, a, tool.Tool, args, whyLimit, failure("limit", "never", a.lang(), store.OutcomeRefused))
	}
	if tool.Class != policy.ClassRead {
		done, err := a.ledger.turn(ctx, tool.Name, args)
		if err != nil {
			return failure("under_way", "wait", a.lang(), store.OutcomeUnknown)
		}
		defer done()
	}

	acc, err := a.account(tool.Tool)
	if err != nil && decision.Effect != policy.Deny {
		answer := g.unready(ctx, a, usesOf(tool.Tool), err)
		return g.refuse(ctx, a, tool.Tool, args, answer.Code, answer)
	}
	account := acc.Provider
	if decision.Effect == policy.Confirm || decision.Effect == policy.Hold {
		if problem := g.obstacle(ctx, tool, Call{Caller: a.caller, Tool: tool.Name, Args: args, Account: account}); problem != nil {
			g.learn(ctx, a, acc, *problem)
			return g.refuse(ctx, a, tool.Tool, args, problem.Code, *problem)
		}
	}
	begun, err := g.begin(ctx, a, tool.Tool, args, decision, acc, "")
	switch {
	case errors.Is(err, store.ErrAccountGone): // disconnected since the list was made
		return g.refuse(ctx, a, tool.Tool, args, "not_connected", g.wants("not_connected", acc.App, a.lang()))
	case errors.Is(err, store.ErrRunOver):
		return failure("run_over", "never", a.lang(), store.OutcomeRefused)
	case err != nil:
		return g.broken(a, tool.Tool, err)
	case begun.Repeat:
		return again(begun, decision, a)
	}

	switch decision.Effect {
	case policy.Allow:
		c := Call{ID: begun.ID, Caller: a.caller, Tool: tool.Name, Args: args, Account: account}
		return g.act(ctx, a, tool, acc, c)
	case policy.Confirm, policy.Hold:
		g.cfg.Log.Info().Str("event", "approval.asked").Str("call", string(begun.ID)).Str("run", string(a.run.ID)).
			Str("kind", decision.Effect.String()).Send()
		return a.naming(acc, again(store.BegunCall{Outcome: store.OutcomeHeld, Approval: begun.Approval}, decision, a))
	default:
		return denied(a.grant.Sentence(decision, a.lang()))
	}
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
func (g *Gateway) refuse(ctx context.Context, a *access, t Tool, args json.RawMessage, why string, answer Result) Result {
	_, err := g.begin(ctx, a, t, args, policy.Decision{Effect: policy.Deny}, store.Account{}, why)
	switch {
	case errors.Is(err, store.ErrRunOver):
		return failure("run_over", "never", a.lang(), store.OutcomeRefused)
	case err != nil:
		return g.broken(a, t, err)
	}
	return answer
}

// begin commits the call before anything happens. It does not end with the caller's patience: a row that was perhaps
// written, of a call that was certainly not begun, would stay open for good.
func (g *Gateway) begin(ctx context.Context, a *access, t Tool, args json.RawMessage, d policy.Decision, acc store.Account, why string) (store.BegunCall, error) {
	begun, err := g.store.BeginCall(context.WithoutCancel(ctx), store.NewCall{
		Run: a.run, Tool: t.Name, App: appOf(t), Class: t.Class, Args: args, Decision: d, Account: acc.Provider, With: acc.ID, Why: why,
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

// act performs an allowed call and commits what came of it before the agent hears of it.
func (g *Gateway) act(ctx context.Context, a *access, t offer, acc store.Account, c Call) Result {
	began := time.Now()           // the monotonic clock: how long, not when
	a.ledger.taint(appOf(t.Tool)) // before the agent can have read a word of it
	result := a.naming(acc, g.perform(ctx, t, c, a.halt))
	g.learn(ctx, a, acc, result)
	err := g.store.EndCall(context.WithoutCancel(ctx), a.run.Principal.Company, c.ID, result.Outcome, result.Code, keep(result))
	if err != nil {
		g.cfg.Log.Error().Str("event", "call.unrecorded").Str("call", string(c.ID)).Str("run", string(a.run.ID)).
			Str("outcome", string(result.Outcome)).Err(err).Send()
		return lost(t.Class, a.lang())
	}
	g.cfg.Log.Info().Str("event", "call.ended").Str("call", string(c.ID)).Str("run", string(a.run.ID)).
		Str("tool", t.Name).Str("app", t.App).Str("outcome", string(result.Outcome)).Str("code", result.Code).
		Int64("ms", time.Since(began).Milliseconds()).Send()
	return result
}

// perform runs a committed call at its connector, once and under the gateway's own deadline. Whatever the connector does,
// panic included, becomes a result: unknown for anything that may have been performed.
func (g *Gateway) perform(ctx context.Context, o offer, c Call, halt <-chan struct{}) (r Result) {
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
func (g *Gateway) patience(ctx context.Context, class policy.Class, halt <-chan struct{}) (context.Context, context.CancelFunc) {
	if class != policy.ClassRead {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.CallTimeout)
	go func() { // ends with the call: its owner always cancels
		select {
		case <-halt:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
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
