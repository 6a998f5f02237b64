package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pilder/policy"
	"pilder/store"
)

const (
	// tidyEvery is how often approvals are expired and the calls of dead processes are told as lost.
	tidyEvery = time.Minute
	// approvedGrace is how long an approved call may go on once the process shuts down: less than the 30 s that the store
	// waits for it, so that its outcome can still be recorded.
	approvedGrace = 20 * time.Second
	// approvedLasts is how long a yes holds: one that was carried out days later, after a long standstill, nobody expects.
	approvedLasts = time.Hour
)

// ServeApproved performs the calls that people approved, with exactly the arguments they saw, without the model and at most
// once; it also ends approvals nobody decided in time and tells of calls whose process died. It returns when ctx ends and
// what it began is recorded.
func (g *Gateway) ServeApproved(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := g.tidy(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving approved calls: %w", err)
	}
	var tidying sync.WaitGroup
	tidying.Go(func() {
		tick := time.NewTicker(tidyEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := g.tidy(ctx); err != nil && ctx.Err() == nil {
				g.cfg.Log.Error().Str("event", "approvals.failed").Err(err).Send()
			}
		}
	})
	err := g.store.ServeApproved(ctx, g.cfg.MaxApproved, g.execute)
	cancel()
	tidying.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serving approved calls: %w", err)
	}
	return nil
}

func (g *Gateway) tidy(ctx context.Context) error {
	if _, err := g.store.RecoverCalls(ctx, g.cfg.Lost); err != nil {
		return fmt.Errorf("recovering calls: %w", err)
	}
	expired := func(a store.Approval) []store.Draft {
		return g.cfg.Outcome(a, store.OutcomeExpired, text("expired", langOf(a.Requester)))
	}
	if _, err := g.store.ExpireApprovals(ctx, expired); err != nil {
		return fmt.Errorf("expiring approvals: %w", err)
	}
	if g.cfg.Remind == nil {
		return nil
	}
	if _, err := g.store.RemindApprovals(ctx, g.cfg.Reminding, g.cfg.Remind, g.cfg.Card); err != nil {
		return fmt.Errorf("reminding of approvals: %w", err)
	}
	return nil
}

// execute performs one approved call. A shutdown does not cut it at once; when it does, the call is recorded as what that
// makes it.
func (g *Gateway) execute(ctx context.Context, a store.Approval) error {
	halt := &halt{}
	defer context.AfterFunc(ctx, func() { time.AfterFunc(approvedGrace, halt.now) })()
	ctx = context.WithoutCancel(ctx)
	ok, err := g.store.BeginApproved(ctx, a)
	if err != nil {
		return fmt.Errorf("beginning approved call %s: %w", a.Call, err)
	}
	if !ok {
		return nil // begun before: by a process that lives, or by one whose call is unknown by now
	}
	began := time.Now()
	result, undo := g.performApproved(ctx, a, halt)
	end := store.Ended{Outcome: result.Outcome, Code: result.Code, Text: result.Text, Undo: undo}
	err = g.store.EndApproved(ctx, a, end, g.cfg.Outcome(a, result.Outcome, result.Text)...)
	if err != nil {
		return fmt.Errorf("ending approved call %s: %w", a.Call, err)
	}
	g.cfg.Log.Info().Str("event", "approval.executed").Str("call", string(a.Call)).Str("run", string(a.Run)).
		Str("company", string(a.Company)).Str("tool", a.Tool).Str("app", a.App).Str("outcome", string(result.Outcome)).
		Str("code", result.Code).Int64("ms", time.Since(began).Milliseconds()).Send()
	return nil
}

// performApproved takes the approval as the decision, and looks again at all that may have changed since it was asked for:
// the person's membership, their accounts, the tool and its schema, what the rules of today forbid. undo is how what it did
// can be taken back; what takes something back itself has none.
func (g *Gateway) performApproved(ctx context.Context, a store.Approval, halt *halt) (r Result, undo *store.Undo) {
	lang := langOf(a.Requester)
	today, err := g.store.AsOfNow(ctx, a.Company, a.Requester.ID)
	if errors.Is(err, store.ErrNotFound) {
		return failure("membership_gone", "never", lang, store.OutcomeRefused), nil
	}
	if err != nil {
		return g.brokenApproval(a, err), nil
	}
	today.ID, today.Principal.Run, today.Chat = a.Run, a.Run, a.Chat
	now := g.accessFor(ctx, today, today.Accounts, nil, nil)
	tool, ok := now.tools[a.Tool]
	if !ok {
		return failure("unknown_tool", "never", lang, store.OutcomeFailed), nil
	}
	wrong, err := g.schemas.check(tool.InputSchema, a.Args)
	if err != nil {
		return g.brokenApproval(a, fmt.Errorf("checking arguments: %w", err)), nil
	}
	if wrong != nil {
		result := badArguments(wrong, lang)
		result.Outcome = store.OutcomeFailed
		return result, nil
	}
	switch d := now.judge.Decide(today.Principal, g.action(tool.Tool, a.Args, store.Background{})); {
	case d.Effect == policy.Deny:
		return denied(now.grant.Sentence(d, lang)), nil
	case d.Effect < a.Kind: // what needs more by now than it was given
		return failure("rules_stricter", "never", lang, store.OutcomeRefused), nil
	}
	if !a.Decided.IsZero() && g.cfg.Now().Sub(a.Decided) > approvedLasts {
		return failure("too_late", "never", lang, store.OutcomeFailed), nil
	}
	if !stillTheirs(a.Account, today.Accounts) {
		return failure("account_gone", "person", lang, store.OutcomeFailed), nil
	}
	// The account is the one of that time, not of today: what was shown is what is done.
	r = g.perform(ctx, tool, Call{ID: a.Call, Caller: now.caller, Tool: a.Tool, Args: a.Args, Account: a.Account}, halt)
	for _, acc := range today.Accounts {
		if a.Account != "" && acc.Provider == a.Account && (r.Code == "reconnect" || r.Code == "not_connected") {
			g.tellBroken(ctx, acc, a.Requester, "refused")
		}
	}
	if a.Rule != store.RuleUndo {
		undo = g.undo(now, r)
	}
	return r, undo
}

func (g *Gateway) brokenApproval(a store.Approval, err error) Result {
	g.cfg.Log.Error().Str("event", "call.broken").Str("call", string(a.Call)).Str("tool", a.Tool).Err(err).Send()
	return failure("gateway_problem", "never", langOf(a.Requester), store.OutcomeFailed)
}
