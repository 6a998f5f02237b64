package pipedream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"pilder/store"
)

// retryDefinition is how long a definition that could not be had is left alone, so that no listing waits for it again.
const retryDefinition = 30 * time.Second

// definition is an action as the registry describes it at one version.
type definition struct {
	Key         string          `json:"key"`
	Version     string          `json:"version"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Props       []prop          `json:"configurable_props"`
	Stash       json.RawMessage `json:"stash"`
}

// prop is one parameter of an action. Flags may be absent or null, which is false.
type prop struct {
	Name          string          `json:"name"`
	Type          string          `json:"type"`
	App           string          `json:"app"`
	Label         string          `json:"label"`
	Description   string          `json:"description"`
	Format        string          `json:"format"`
	Optional      flag            `json:"optional"`
	Hidden        flag            `json:"hidden"`
	Secret        flag            `json:"secret"`
	Disabled      flag            `json:"disabled"`
	ReadOnly      flag            `json:"readOnly"`
	RemoteOptions flag            `json:"remoteOptions"`
	UseQuery      flag            `json:"useQuery"`
	ReloadProps   flag            `json:"reloadProps"`
	WithLabel     flag            `json:"withLabel"`
	Default       json.RawMessage `json:"default"`
	Options       json.RawMessage `json:"options"`
	Min           json.RawMessage `json:"min"`
	Max           json.RawMessage `json:"max"`
}

// flag is true only for JSON true.
type flag bool

// UnmarshalJSON never fails: an unknown kind of flag is no flag.
func (f *flag) UnmarshalJSON(raw []byte) error {
	*f = string(raw) == "true"
	return nil
}

// Reasons for which an action of the house table is not offered.
var (
	errOtherVersion = errors.New("registry answered another version than the pinned one")
	errNotOfferable = errors.New("action cannot be offered")
)

// definitions keeps the compiled actions of the house table. Another definition under the same version needs a human: what
// is here changes only when one accepted it.
type definitions struct {
	client *client
	store  *store.Store // nil: nothing outlives the process
	now    func() time.Time
	told   map[string]string // of the one refresh at a time: what the operator has heard of, by action

	mu     sync.Mutex
	ready  map[string]*action
	broken map[string]time.Time // not to be tried before
	flying map[string]chan struct{}
}

func newDefinitions(c *client, cfg Config) *definitions {
	return &definitions{client: c, store: cfg.Store, now: cfg.Now, told: map[string]string{}, ready: map[string]*action{}, broken: map[string]time.Time{}, flying: map[string]chan struct{}{}}
}

// known gives a compiled action, nil when there is none.
func (d *definitions) known(o *offer) *action {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ready[o.key]
}

// hashes gives the hash of every definition that is there, by key.
func (d *definitions) hashes() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]string, len(d.ready))
	for key, a := range d.ready {
		out[key] = a.hash
	}
	return out
}

// fetch gets what is missing, a few at a time and each key once however many ask. It logs what cannot be had and gives
// the first error.
func (d *definitions) fetch(ctx context.Context, offers []*offer) error {
	var missing []*offer
	d.mu.Lock()
	for _, o := range offers {
		if d.ready[o.key] == nil && !d.now().Before(d.broken[o.key]) {
			missing = append(missing, o)
		}
	}
	d.mu.Unlock()
	var group errgroup.Group // a plain one: one key that fails costs no other
	group.SetLimit(4)
	for _, o := range missing {
		group.Go(func() error { return d.one(ctx, o) })
	}
	return group.Wait()
}

// one fetches one definition, or waits for the one who does.
func (d *definitions) one(ctx context.Context, o *offer) error {
	for {
		d.mu.Lock()
		if d.ready[o.key] != nil || d.now().Before(d.broken[o.key]) {
			d.mu.Unlock()
			return nil // there, or logged by whoever tried just now
		}
		wait := d.flying[o.key]
		if wait == nil {
			break
		}
		d.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	done := make(chan struct{})
	d.flying[o.key] = done
	d.mu.Unlock()

	a, err := d.get(ctx, o)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.flying, o.key)
	close(done)
	switch {
	case err == nil:
		d.ready[o.key] = a
	case ctx.Err() == nil:
		d.broken[o.key] = d.now().Add(retryDefinition)
		d.client.log.Error().Str("event", "pipedream.action_unavailable").Str("tool", o.tool).Str("version", o.Version).Err(err).Send()
	}
	return err
}

// get fetches a definition by key and pinned version, and compiles what is accepted of it.
func (d *definitions) get(ctx context.Context, o *offer) (*action, error) {
	def, err := d.ask(ctx, o, o.Version)
	if err != nil {
		return nil, err
	}
	return d.keep(ctx, o, def)
}

// hashOf is the hash of what people reviewed: description, props, annotations and stash, in canonical JSON.
func hashOf(raw json.RawMessage) string {
	var v struct {
		Description any `json:"description"`
		Props       any `json:"configurable_props"`
		Annotations any `json:"annotations"`
		Stash       any `json:"stash"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return ""
	}
	canonical, err := json.Marshal(v) // maps are sorted
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// stashRequired tells whether the action gives a file and nothing else, which is not offered.
func (d definition) stashRequired() bool { return string(d.Stash) == `"required"` }
