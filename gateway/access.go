package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"pilder/policy"
	"pilder/store"
)

// access is what one run may reach at this moment: its person, the policy frozen for it, and the tools that both allow.
// It never changes; when an account comes or goes the run gets a new one over the same ledger.
type access struct {
	run      store.Run
	caller   Caller
	grant    policy.Grant
	judge    *policy.Judge // of grant
	accounts []store.Account
	tools    map[string]offer
	barred   map[string]bool // tools that exist for the person and are not for the agent
	partial  bool            // a connector could not list its tools
	changes  uint64          // Config.Changes when the tools were listed
	ledger   *ledger
	halt     *halt // nil: calls have all their time
}

// offer is a tool and who performs it.
type offer struct {
	Tool
	from Connector
}

// accessFor gives a run the tools of the accounts. A connector that cannot list is left out and told to the operator: the
// others are none of its business.
func (g *Gateway) accessFor(ctx context.Context, run store.Run, accounts []store.Account, l *ledger, halt *halt) *access {
	apps := appsOf(accounts)
	for _, app := range g.cfg.Open(run.Principal.Company) {
		apps = append(apps, app.Slug)
	}
	slices.Sort(apps)
	apps = slices.Compact(apps)
	a := &access{
		run:      run,
		grant:    run.Grant.WithApps(apps),
		accounts: accounts,
		tools:    map[string]offer{},
		barred:   map[string]bool{},
		changes:  g.cfg.Changes(),
		ledger:   l,
		halt:     halt,
		caller: Caller{
			Principal:    run.Principal,
			ExternalUser: run.Member.ExternalUser,
			Lang:         langOf(run.Member),
			Apps:         apps,
		},
	}
	a.judge = a.grant.Judge()
	for _, conn := range g.connectors {
		tools, err := conn.Tools(ctx, a.caller)
		if err != nil {
			g.cfg.Log.Error().Str("event", "tools.failed").Str("run", string(run.ID)).Err(err).Send()
			a.partial = true
			continue
		}
		for _, t := range tools {
			if !a.grant.Lists(t.Name, appOf(t)) || !run.Principal.Can(t.Scope) {
				a.barred[t.Name] = true
				continue
			}
			if err := g.schemas.checkTool(t); err != nil {
				g.cfg.Log.Error().Str("event", "tools.unfit").Str("tool", t.Name).Err(err).Send()
				continue
			}
			if _, taken := a.tools[t.Name]; !taken {
				a.tools[t.Name] = offer{t, conn}
			}
		}
	}
	return a
}

// empty says why no tool of any connected app is there, if there is none; empty without such apps. An agent that is not told
// takes an empty list for a working one.
func (a *access) empty() string {
	barred := false
	for _, o := range a.tools {
		if o.App != HouseApp || o.Uses != "" {
			return ""
		}
	}
	for name := range a.barred {
		barred = barred || strings.Contains(name, "-")
	}
	switch {
	case len(a.caller.Apps) == 0 && len(a.tools) > 0:
		return ""
	case a.partial:
		return text("empty_partial", a.lang())
	case barred || len(a.tools) == 0 && len(a.barred) > 0:
		return text("empty_barred", a.lang())
	case len(a.caller.Apps) == 0:
		return text("empty_apps", a.lang())
	}
	return text("empty_partial", a.lang())
}

// lang is the language of everything said to the run's person.
func (a *access) lang() string { return a.caller.Lang }

func appsOf(accounts []store.Account) []string {
	apps := []string{}
	for _, a := range accounts {
		if a.State == store.AccountActive || a.State == store.AccountBroken { // tools do not vanish with an account's health
			apps = append(apps, a.App)
		}
	}
	return apps
}

func langOf(m store.Membership) string {
	if m.Person.Lang != "" {
		return m.Person.Lang
	}
	return m.Company.Lang
}

// ledger is what a run has spent, which of its writes are under way, and what its calls are judged before.
type ledger struct {
	mu      sync.Mutex
	back    *store.Background // nil until the first call: a prepared run has none
	calls   int
	writes  int
	asked   int
	refused int
	writing map[[32]byte]chan struct{}
	reads   *sharedReads // under way
}

func newLedger() *ledger {
	return &ledger{writing: map[[32]byte]chan struct{}{}, reads: newSharedReads()}
}

// take counts a call that was not refused; false when the run has spent its limit.
func (l *ledger) take(limits policy.Limits, class policy.Class, effect policy.Effect) bool {
	asks := effect == policy.Confirm || effect == policy.Hold
	l.mu.Lock()
	defer l.mu.Unlock()
	if !limits.Left(l.calls, l.writes, class) || asks && !limits.MayAsk(l.asked) {
		return false
	}
	if asks {
		l.asked++
	}
	l.calls++
	if class != policy.ClassRead {
		l.writes++
	}
	return true
}

// mayRefuse counts a refused wish; false when the run has had more than enough.
func (l *ledger) mayRefuse() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
	return l.refused <= maxRefusals
}

// giveBack uncounts a call that needed nobody and was not begun.
func (l *ledger) giveBack(class policy.Class) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if class != policy.ClassRead {
		l.writes--
	}
}

// before gives what the run's calls are judged before, as it is now.
func (l *ledger) before(ctx context.Context, s *store.Store, run store.Run) (store.Background, error) {
	l.mu.Lock()
	known := l.back
	l.mu.Unlock()
	if known == nil {
		b, err := s.Background(ctx, run.Principal.Company, run.ID)
		if err != nil {
			return store.Background{}, err
		}
		known = &b
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back == nil {
		l.back = known
	}
	return store.Background{Said: l.back.Said, Taint: slices.Clone(l.back.Taint)}, nil
}

// taint notes that the run takes in an app's words.
func (l *ledger) taint(app string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if app != "" && !slices.Contains(l.back.Taint, app) {
		l.back.Taint = append(l.back.Taint, app)
	}
}

// turn lets identical writes of a run go one after the other, so that the second finds the first one's result in the
// store. The caller runs done when its own is recorded. An error means that ctx ended while waiting.
func (l *ledger) turn(ctx context.Context, tool string, args json.RawMessage) (done func(), err error) {
	key := sha256.Sum256(append([]byte(tool+"\x00"), args...))
	for {
		l.mu.Lock()
		busy, ok := l.writing[key]
		if !ok {
			mine := make(chan struct{})
			l.writing[key] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.writing, key)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
