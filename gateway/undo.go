package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"pilder/store"
)

// Undo is the call that takes back what another one did, as its connector knows from what the app answered. The gateway
// keeps it with the call and offers it, for a while, to whoever asked for that; it is performed as an approved call is.
type Undo struct {
	Tool string
	Args json.RawMessage
}

// Describer is a connector that can tell what ids in a call's arguments stand for, so that whoever decides reads the title of
// an event and not its id alone. It only reads, and a fact without text says that it could not.
type Describer interface {
	Describe(ctx context.Context, c Call) []store.Fact
}

// undo is how the store keeps a way back: of a call that was surely done, by a tool that this run has too, with arguments
// that fit it. None otherwise: a button that could not work is worse than none.
func (g *Gateway) undo(a *access, r Result) *store.Undo {
	if r.Undo == nil || r.Outcome != store.OutcomeDone || r.IsError {
		return nil
	}
	tool, ok := a.tools[r.Undo.Tool]
	if !ok {
		return nil
	}
	if wrong, err := g.schemas.check(tool.InputSchema, r.Undo.Args); err != nil || wrong != nil {
		return nil
	}
	return &store.Undo{Tool: tool.Name, App: appOf(tool.Tool), Class: tool.Class, Args: r.Undo.Args}
}

// Bounds of describing: a person waits, and a card has little room.
const (
	describePatience = 10 * time.Second
	maxFacts         = 5
	maxFact          = 300 // bytes
)

// describe asks a tool's connector what the call's ids stand for, before a human is asked about it. Whatever goes wrong, the
// card is made without.
func (g *Gateway) describe(ctx context.Context, o offer, c Call) (facts []store.Fact) {
	d, ok := o.from.(Describer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(describePatience, g.cfg.CallTimeout))
	defer cancel()
	defer g.survive(c, func() { facts = nil })
	for _, f := range d.Describe(ctx, c) {
		if len(facts) < maxFacts && f.Arg != "" {
			facts = append(facts, store.Fact{Arg: cut(f.Arg, 64), Text: cut(f.Text, maxFact)})
		}
	}
	return facts
}

// stillTheirs tells whether the account a call was frozen with is still in use; a call that needs none has nothing to lose.
func stillTheirs(account string, now []store.Account) bool {
	return account == "" || slices.ContainsFunc(now, func(a store.Account) bool { return a.Provider == account })
}
