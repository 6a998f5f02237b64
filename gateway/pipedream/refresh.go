package pipedream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"pilder/store"
)

// WatchDefinitions looks now and then at what the registry says of the offered actions, until ctx ends. What changed is kept
// for review and told to the operator; nothing of it is taken over.
func (c *Connector) WatchDefinitions(ctx context.Context) error {
	for {
		every := c.cfg.RefreshEvery
		timer := time.NewTimer(every*4/5 + rand.N(every*2/5)) // processes that started together must not ask together
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if err := c.Refresh(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn().Str("event", "pipedream.refresh_failed").Err(err).Send()
		}
	}
}

// Refresh looks once, one action after the other, and takes over what an operator accepted since. The error is the first of
// what could not be looked at.
func (c *Connector) Refresh(ctx context.Context) error {
	var failed error
	for _, a := range c.apps {
		for _, o := range c.offersOf(a.Slug) {
			if err := c.defs.refresh(ctx, o); err != nil && failed == nil {
				failed = err
			}
		}
	}
	return errors.Join(failed, c.defs.load(ctx, c.table))
}

// refresh compares what the registry has of one action with what is in use.
func (d *definitions) refresh(ctx context.Context, o *offer) error {
	newest, err := d.ask(ctx, o, "")
	if err != nil {
		return err
	}
	if newest.Version != o.Version {
		if err := d.propose(ctx, o, newest); err != nil {
			return err
		}
		if newest, err = d.ask(ctx, o, o.Version); err != nil {
			return err
		}
	}
	a, err := d.keep(ctx, o, newest)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready[o.key] == nil {
		d.ready[o.key] = a
	}
	return nil
}

// propose keeps a newer version for review.
func (d *definitions) propose(ctx context.Context, o *offer, def registered) error {
	fresh := d.told[o.key] != def.Version // without a store the process remembers
	if d.store != nil {
		var err error
		fresh, err = d.store.ProposeDefinition(ctx, store.Definition{Action: o.key, Version: def.Version, Hash: hashOf(def.raw), Text: def.raw})
		if errors.Is(err, store.ErrNotFound) {
			return nil // the pinned one comes first
		}
		if err != nil {
			return fmt.Errorf("keeping a newer version of %s: %w", o.key, err)
		}
	}
	d.told[o.key] = def.Version
	if fresh {
		d.client.log.Warn().Str("event", "pipedream.newer_version").Str("tool", o.tool).Str("version", o.Version).Str("newest", clean(def.Version, 40)).Send()
	}
	return nil
}

// registered is a definition as the registry gave it.
type registered struct {
	definition
	raw json.RawMessage
}

// ask fetches a definition by key, at a version or at the newest one.
func (d *definitions) ask(ctx context.Context, o *offer, version string) (registered, error) {
	q := url.Values{}
	if version != "" {
		q.Set("version", version)
	}
	r, err := d.client.read(ctx, ask{method: http.MethodGet, path: d.client.inProject("actions", o.key), query: q})
	var in struct {
		Data json.RawMessage `json:"data"`
	}
	if err := expect(r, err, "reading action "+o.key, &in); err != nil {
		return registered{}, err
	}
	if in.Data == nil {
		in.Data = r.body // a bare component
	}
	got := registered{raw: in.Data}
	if err := json.Unmarshal(in.Data, &got.definition); err != nil {
		return registered{}, fmt.Errorf("reading action %s: decoding the definition: %w", o.key, err)
	}
	if got.Key != o.key || version != "" && got.Version != version {
		return registered{}, fmt.Errorf("reading action %s: %w", o.key, errOtherVersion)
	}
	return got, nil
}

// keep files what the registry says of the pinned version and compiles what was accepted of it: the same, or what was there
// before it changed.
func (d *definitions) keep(ctx context.Context, o *offer, def registered) (*action, error) {
	hash := hashOf(def.raw)
	accepted := store.Definition{Hash: hash, Text: def.raw}
	changed := false
	if d.store != nil {
		kept, fresh, err := d.store.KeepDefinition(ctx, store.Definition{Action: o.key, Version: o.Version, Hash: hash, Text: def.raw})
		if err != nil {
			return nil, fmt.Errorf("keeping action %s: %w", o.key, err)
		}
		accepted, changed = kept, fresh
	} else if a := d.known(o); a != nil && a.hash != hash {
		changed = d.told[o.key] != hash
		d.told[o.key] = hash
	}
	if changed {
		d.client.log.Error().Str("event", "pipedream.definition_changed").Str("tool", o.tool).Str("version", o.Version).Str("hash", hash).Send()
	}
	return compileText(o, accepted)
}

func compileText(o *offer, d store.Definition) (*action, error) {
	var def definition
	if err := json.Unmarshal(d.Text, &def); err != nil {
		return nil, fmt.Errorf("decoding the kept definition of %s: %w", o.key, err)
	}
	return compile(o, def, d.Hash)
}

// load takes what was accepted of the pinned versions out of the store, so that a restart lists without asking anybody.
func (d *definitions) load(ctx context.Context, table map[string]*offer) error {
	if d.store == nil {
		return nil
	}
	kept, err := d.store.Definitions(ctx)
	if err != nil {
		return fmt.Errorf("loading definitions: %w", err)
	}
	for _, k := range kept {
		o := table[k.Action]
		if o == nil || o.Version != k.Version {
			continue
		}
		if a := d.known(o); a != nil && a.hash == k.Hash {
			continue
		}
		a, err := compileText(o, k)
		if err != nil {
			d.client.log.Error().Str("event", "pipedream.action_unavailable").Str("tool", o.tool).Str("version", o.Version).Err(err).Send()
			continue
		}
		d.mu.Lock()
		d.ready[k.Action] = a
		d.mu.Unlock()
	}
	return nil
}
