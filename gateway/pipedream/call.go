package pipedream

import (
	"context"
	"errors"
	"net/http"

	"pilder/gateway"
	"pilder/policy"
)

// ready is a call that nothing stands in the way of.
type ready struct {
	action  *action
	account string
	loaded
}

// prepare does everything before the run: the tool, the arguments, the account, the fields that depend on them. Nothing
// of it changes anything anywhere.
func (c *Connector) prepare(ctx context.Context, call gateway.Call) (ready, *trouble) {
	o := c.offerOf(call.Tool, call.Caller.Apps)
	if o == nil {
		return ready{}, c.notOffered(call)
	}
	named := func(t *trouble) *trouble {
		t.app, t.class = o.app.Name.In(call.Caller.Lang), o.Class
		return t
	}
	if err := c.defs.fetch(ctx, []*offer{o}); err != nil || c.defs.known(o) == nil {
		return ready{}, named(&trouble{code: codeUnavailable})
	}
	a := c.defs.known(o)
	args, problems := a.read(call.Args)
	if len(problems) > 0 {
		return ready{}, named(a.bad(problems...))
	}
	account := ""
	if a.appProp != "" {
		var problem *trouble
		if account, problem = c.accountFor(ctx, call, o); problem != nil {
			return ready{}, named(problem)
		}
	}
	l := loaded{fields: a.fields, values: args.values}
	if a.reloads {
		var problem *trouble
		if l, problem = c.load(ctx, call, a, account, args); problem != nil {
			return ready{}, named(problem)
		}
	}
	return ready{a, account, l}, nil
}

// notOffered says why a tool is not there: its app is not connected, or there is no such tool.
func (c *Connector) notOffered(call gateway.Call) *trouble {
	for _, o := range c.table {
		if o.tool == call.Tool {
			return &trouble{code: codeNotConnected, class: o.Class, app: o.app.Name.In(call.Caller.Lang)}
		}
	}
	return &trouble{code: codeBadArguments, problems: []string{"no such tool"}}
}

// runAsk is the body of actions/run. It never has a stash_id: no files are taken out of the provider.
type runAsk struct {
	ID           string         `json:"id"`
	Version      string         `json:"version"`
	ExternalUser string         `json:"external_user_id"`
	Props        map[string]any `json:"configured_props"`
	Dynamic      string         `json:"dynamic_props_id,omitempty"`
}

// perform runs a prepared call: once, unless it is a read, which is repeated once when the provider or the app was at
// fault or busy, or the provider asked for the account it has, which comes before any effect.
func (c *Connector) perform(ctx context.Context, call gateway.Call, r ready) gateway.Result {
	body := c.askFor(call, r)
	done, problem := c.run(ctx, r.action.Class, body)
	if problem != nil && problem.again && ctx.Err() == nil {
		done, problem = c.run(ctx, r.action.Class, body)
	}
	if problem != nil && r.action.Class == policy.ClassRead && ctx.Err() == nil {
		again := problem.code == codeUnavailable || problem.code == codeBusy && c.client.wait(ctx, problem.after)
		if again {
			done, problem = c.run(ctx, r.action.Class, body)
		}
	}
	if problem == nil {
		result := r.action.report(call.Caller.Lang, done)
		result.Undo = r.action.undo(call.Args, done.ret)
		return result
	}
	if problem.code == codeReconnect {
		c.accounts.forget(call.Caller.ExternalUser)
	}
	problem.app = r.action.app.Name.In(call.Caller.Lang)
	return c.say(call, problem)
}

// askFor is the request of a prepared call.
func (c *Connector) askFor(call gateway.Call, r ready) ask {
	return ask{method: http.MethodPost, path: c.client.inProject("actions", "run"), body: runAsk{
		ID: r.action.key, Version: r.action.Version, ExternalUser: call.Caller.ExternalUser, Dynamic: r.dynamic,
		Props: r.action.configured(r.account, r.fields, r.values, c.labelOf(call, r.account, r.action.offer)),
	}}
}

// run is one run. A request that certainly was not sent is a failure and nothing worse, whatever the class.
func (c *Connector) run(ctx context.Context, class policy.Class, body ask) (performed, *trouble) {
	r, err := c.client.once(ctx, body, c.cfg.RunTimeout)
	if errors.Is(err, errNotSent) {
		return performed{}, c.troubleOf(class, err)
	}
	done, problem := decodeRun(class, r, err)
	if problem != nil && problem.code == codeBusy {
		problem.after = c.client.retryAfter(r)
	}
	return done, problem
}

// accountFor finds the account a call acts with and checks, within the last minute, that it is the caller's own, of the
// right app and in good health. The provider's project token can act for anybody, so this is the wall between people.
func (c *Connector) accountFor(ctx context.Context, call gateway.Call, o *offer) (string, *trouble) {
	problem := func(code code) *trouble {
		return &trouble{code: code, class: o.Class, app: o.app.Name.In(call.Caller.Lang)}
	}
	id := call.Account
	if id == "" && c.cfg.Account != nil {
		var err error
		id, err = c.cfg.Account(ctx, call.Caller, o.app.Slug)
		switch {
		case errors.Is(err, gateway.ErrChooseAccount):
			return "", problem(codeChooseAccount)
		case errors.Is(err, gateway.ErrReconnect):
			return "", problem(codeReconnect)
		case err != nil:
			t := problem(codeGatewayProblem)
			t.operator = "looking up the account in use"
			return "", t
		}
		if id == "" {
			return "", problem(codeNotConnected)
		}
	}
	if id == "" {
		return c.onlyAccount(ctx, call, o, problem)
	}
	a, err := c.accounts.get(ctx, call.Caller.ExternalUser, id)
	switch {
	case errors.Is(err, errNoAccount):
		return "", problem(codeNotConnected)
	case err != nil:
		return "", c.troubleOf(o.Class, err)
	case a.ExternalUser != call.Caller.ExternalUser || a.App != o.app.Slug:
		t := problem(codeGatewayProblem)
		t.security = "security.foreign_account"
		return "", t
	}
	return c.healthy(a, problem)
}

// onlyAccount takes the caller's only usable account of an app.
func (c *Connector) onlyAccount(ctx context.Context, call gateway.Call, o *offer, problem func(code) *trouble) (string, *trouble) {
	found, err := c.accounts.ofApp(ctx, call.Caller.ExternalUser, o.app.Slug)
	if err != nil {
		return "", c.troubleOf(o.Class, err)
	}
	var usable []Account
	for _, a := range found {
		if a.Usable() {
			usable = append(usable, a)
		}
	}
	switch {
	case len(usable) == 1:
		return usable[0].ID, nil
	case len(usable) > 1:
		return "", problem(codeChooseAccount)
	case len(found) > 0:
		return c.healthy(found[0], problem)
	}
	return "", problem(codeNotConnected)
}

// healthy lets a usable account through. One the provider cannot refresh through its own fault is the operator's matter:
// nobody is sent to reconnect for it.
func (c *Connector) healthy(a Account, problem func(code) *trouble) (string, *trouble) {
	switch {
	case a.Usable():
		return a.ID, nil
	case a.OurFault:
		t := problem(codeGatewayProblem)
		t.operator = "provider refuses its own app registration"
		return "", t
	}
	return "", problem(codeReconnect)
}
