package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// Limits of one upstream's list.
const (
	maxPages = 50
	maxTools = 500
)

// maxCatalogues bounds the lists kept of one upstream where each person has an own one; beyond it all are read anew.
const maxCatalogues = 1000

// catalogueKey is whose list it is: one for all where all are the same to the upstream, else a person's own.
type catalogueKey struct {
	company    policy.CompanyID
	membership policy.MembershipID
}

// catalogue is one list of tools: the last good one, whatever became of the upstream since.
type catalogue struct {
	looking chan struct{} // holds one: an upstream is asked for its list by one at a time

	mu     sync.Mutex
	tools  []*tool
	known  bool // there is a list, if only from before the last restart
	listed time.Time
	tried  time.Time
	stale  bool // the upstream has said that it changed
	looks  int  // that have ended
}

// catalogueFor gives the list a caller sees.
func (u *server) catalogueFor(who gateway.Caller) (*catalogue, catalogueKey) {
	var key catalogueKey
	if u.Auth == AuthOAuth {
		key = catalogueKey{who.Principal.Company, who.Principal.Membership}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	cat := u.catalogues[key]
	if cat == nil {
		if len(u.catalogues) >= maxCatalogues {
			clear(u.catalogues)
		}
		cat = &catalogue{looking: make(chan struct{}, 1)}
		u.catalogues[key] = cat
	}
	return cat, key
}

// lister is who asks for a list: nobody where all see the same, since it is nobody's in particular.
func (u *server) lister(who gateway.Caller) gateway.Caller {
	if u.Auth == AuthOAuth {
		return who
	}
	return gateway.Caller{}
}

// listChanged marks every list of the upstream as out of date, and has the one that all share looked at.
func (u *server) listChanged() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, cat := range u.catalogues {
		cat.mu.Lock()
		cat.stale = true
		cat.mu.Unlock()
	}
	select {
	case u.changed <- struct{}{}:
	default: // it is looked at anyway
	}
}

// toolsFor gives what a caller is offered, after a look at the upstream where one is due.
func (u *server) toolsFor(ctx context.Context, who gateway.Caller) []*tool {
	cat, key := u.catalogueFor(who)
	if !cat.isKnown() {
		u.recall(ctx, cat, key)
	}
	if u.lookDue(cat) {
		u.look(ctx, cat, key, u.lister(who))
	}
	cat.mu.Lock()
	defer cat.mu.Unlock()
	return slices.Clone(cat.tools)
}

// toolNamed finds a listed tool, without asking the upstream where a list is known.
func (u *server) toolNamed(ctx context.Context, who gateway.Caller, name string) *tool {
	cat, _ := u.catalogueFor(who)
	tools := func() []*tool { cat.mu.Lock(); defer cat.mu.Unlock(); return cat.tools }
	if !cat.isKnown() {
		u.toolsFor(ctx, who)
	}
	for _, t := range tools() {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (cat *catalogue) isKnown() bool {
	cat.mu.Lock()
	defer cat.mu.Unlock()
	return cat.known
}

// lookDue tells whether whoever lists now has to wait for a look: there is no list yet, or the upstream has said that it
// changed. A list that has merely become old is looked after by Run where all see the same.
func (u *server) lookDue(cat *catalogue) bool {
	now := u.c.cfg.Now()
	cat.mu.Lock()
	defer cat.mu.Unlock()
	since := func(t time.Time, d time.Duration) bool { return t.IsZero() || now.Sub(t) >= d }
	switch {
	case u.resting(now):
		return false
	case cat.stale:
		return true
	case !cat.known:
		return since(cat.tried, time.Second) || len(cat.looking) > 0 // somebody is looking: their list is waited for
	}
	return u.Auth == AuthOAuth && since(cat.listed, u.c.cfg.ListEvery) && since(cat.tried, u.c.cfg.ListEvery/10)
}

// recall takes the list of the last time from the store, so that an upstream that is away at start has its tools all the
// same.
func (u *server) recall(ctx context.Context, cat *catalogue, key catalogueKey) {
	known, err := u.c.store.UpstreamTools(ctx, u.Slug, key.company)
	if err != nil {
		u.c.cfg.Log.Error().Str("event", "upstream.unread").Str("app", u.Slug).Err(err).Send()
		return
	}
	tools := u.offer(known)
	cat.mu.Lock()
	defer cat.mu.Unlock()
	if !cat.known && len(known) > 0 {
		cat.tools, cat.known = tools, true
	}
}

// look asks the upstream for its list and takes it over; what fails leaves the list as it was. Of several who look at once
// one asks, and the others have its list.
func (u *server) look(ctx context.Context, cat *catalogue, key catalogueKey, who gateway.Caller) {
	ctx, cancel := context.WithTimeout(ctx, u.c.cfg.ListTimeout)
	defer cancel()
	cat.mu.Lock()
	before := cat.looks
	cat.mu.Unlock()
	select {
	case cat.looking <- struct{}{}:
		defer func() { <-cat.looking }()
	case <-ctx.Done():
		return
	}
	cat.mu.Lock()
	stale, looked := cat.stale, cat.looks != before
	if stale || !looked {
		cat.stale, cat.tried = false, u.c.cfg.Now()
	}
	cat.mu.Unlock()
	if looked && !stale {
		return
	}
	defer func() {
		cat.mu.Lock()
		defer cat.mu.Unlock()
		cat.looks++
	}()
	list, err := u.list(ctx, who)
	if err == nil {
		err = u.takeOver(ctx, cat, key, list)
	}
	if err != nil && ctx.Err() != context.Canceled {
		cat.mu.Lock()
		cat.stale = cat.stale || stale
		cat.mu.Unlock()
		u.c.cfg.Log.Warn().Str("event", "upstream.unlisted").Str("app", u.Slug).Str("code", string(u.codeOf(err))).Send()
	}
}

// takeOver remembers a list and offers what of it was accepted.
func (u *server) takeOver(ctx context.Context, cat *catalogue, key catalogueKey, list map[string]store.ToolDefinition) error {
	seen, err := u.c.store.SeeUpstreamTools(ctx, u.Slug, key.company, list, u.ReviewAll)
	if err != nil {
		u.c.cfg.Log.Error().Str("event", "upstream.unread").Str("app", u.Slug).Err(err).Send()
		return err
	}
	for _, t := range seen.Held {
		u.c.cfg.Log.Warn().Str("event", "tool.changed").Str("app", u.Slug).Str("tool", toolName(u.Slug, t.Tool)).
			Str("was", t.Accepted.Hash).Str("is", t.Held.Hash).Send()
	}
	if u.Auth == AuthOAuth { // of a company's people each has only their own, and none loses it by what another is shown
		for i := range seen.Tools {
			t := &seen.Tools[i]
			if t.Listed = list[t.Tool].Hash == t.Accepted.Hash; t.Listed {
				t.Held = store.ToolDefinition{}
			}
		}
	}
	tools := u.offer(seen.Tools)
	cat.mu.Lock()
	defer cat.mu.Unlock()
	changed := !cat.known || !slices.EqualFunc(cat.tools, tools, func(a, b *tool) bool { return a.name == b.name && a.hash == b.hash })
	cat.tools, cat.known, cat.listed = tools, true, u.c.cfg.Now()
	if changed {
		u.c.changes.Add(1)
		u.c.cfg.Log.Info().Str("event", "upstream.listed").Str("app", u.Slug).Int("tools", len(tools)).Send()
	}
	return nil
}

// list reads an upstream's whole list, by name. A tool that cannot be read costs nobody else.
func (u *server) list(ctx context.Context, who gateway.Caller) (map[string]store.ToolDefinition, error) {
	found := map[string]store.ToolDefinition{}
	cursor := ""
	for range maxPages {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		raw, err := u.ask(ctx, who, "", question{method: "tools/list", params: params, read: true})
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if json.Unmarshal(raw, &page) != nil {
			return nil, errLie
		}
		for _, t := range page.Tools {
			name, d, err := define(t)
			switch _, twice := found[name]; {
			case err != nil:
				u.leftOut("", err)
			case !twice && len(found) < maxTools:
				found[name] = d
			}
		}
		if page.Next == "" || page.Next == cursor {
			return found, nil
		}
		cursor = page.Next
	}
	return found, nil
}

// define reads what one tool says of itself, reduced to what anybody goes by and in one spelling, so that its hash changes
// when the tool does and not otherwise.
func define(raw json.RawMessage) (string, store.ToolDefinition, error) {
	var d definition
	if json.Unmarshal(raw, &d) != nil || d.Name == "" || len(d.Name) > 200 {
		return "", store.ToolDefinition{}, errors.New("it has no name")
	}
	d.Input, d.Output = sorted(d.Input), sorted(d.Output)
	text, err := encode(d)
	if err != nil {
		return "", store.ToolDefinition{}, errors.New("it is no JSON")
	}
	sum := sha256.Sum256(text)
	return d.Name, store.ToolDefinition{Hash: hex.EncodeToString(sum[:]), Text: text}, nil
}

// sorted spells JSON with its members in order.
func sorted(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	out, err := encode(decode(raw))
	if err != nil {
		return nil
	}
	return out
}

// offer makes tools of what was accepted and is listed, by name. What cannot be offered is left out and told to the
// operator; so is the later of two that would have one name.
func (u *server) offer(known []store.UpstreamTool) []*tool {
	var tools []*tool
	taken := map[string]bool{}
	for _, k := range known {
		if !k.Listed || k.Accepted.Hash == "" || k.Held.Hash != "" {
			continue
		}
		t, err := u.compile(k.Accepted)
		switch {
		case err != nil:
			u.leftOut(toolName(u.Slug, k.Tool), err)
		case taken[strings.ToLower(t.name)]:
			u.leftOut(t.name, errors.New("another tool has its name"))
		default:
			taken[strings.ToLower(t.name)] = true
			tools = append(tools, t)
		}
	}
	return tools
}

// leftOut tells the operator of a tool that nobody is offered.
func (u *server) leftOut(name string, why error) {
	u.c.cfg.Log.Warn().Str("event", "upstream.tool_left_out").Str("app", u.Slug).Str("tool", name).Str("err", why.Error()).Send()
}
