package pipedream

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"sync"
	"time"
)

// Limits of what is kept about choices.
const (
	choicesLife = 10 * time.Minute
	maxCursors  = 2000
	maxLabels   = 20_000
)

// choices keeps where lists of options go on, and the labels people's agents saw. Another process does not know them: a
// cursor is then unknown, and asked for again.
type choices struct {
	now func() time.Time

	mu      sync.Mutex
	cursors map[string]optionCursor
	labels  map[labelKey]map[string]string
	count   int
}

// optionCursor is a place in a list, bound to everything the list depends on.
type optionCursor struct {
	key     string
	number  int
	context json.RawMessage // the provider's; never shown
	seen    map[string]bool // values given so far, so that a list that starts over is noticed
	ends    time.Time
}

// labelKey names the field of an action for one person's account.
type labelKey struct{ externalUser, account, action, prop string }

func newChoices(now func() time.Time) *choices {
	return &choices{now: now, cursors: map[string]optionCursor{}, labels: map[labelKey]map[string]string{}}
}

// pageKey binds a cursor to person, account, action, version, field, query and the values before the field.
func pageKey(externalUser, account, action, version, prop, query string, before earlier) string {
	raw, err := json.Marshal([]any{externalUser, account, action, version, prop, query, before.values})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// resume gives the place a cursor stands for, the beginning for none; false when it is unknown, old or of another question.
func (c *choices) resume(cursor, key string) (optionCursor, bool) {
	if cursor == "" {
		return optionCursor{key: key, seen: map[string]bool{}}, key != ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.cursors[cursor]
	if !ok || p.key != key || !c.now().Before(p.ends) {
		return optionCursor{}, false
	}
	p.seen = maps.Clone(p.seen) // the same cursor may be asked for twice
	return p, true
}

// keep remembers a place under a new opaque cursor.
func (c *choices) keep(p optionCursor) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if len(c.cursors) >= maxCursors {
		maps.DeleteFunc(c.cursors, func(_ string, p optionCursor) bool { return !now.Before(p.ends) })
	}
	if len(c.cursors) >= maxCursors {
		clear(c.cursors)
	}
	p.ends = now.Add(choicesLife)
	name := rand.Text()
	c.cursors[name] = p
	return name
}

// label remembers what a value is called.
func (c *choices) label(k labelKey, id, label string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count >= maxLabels {
		clear(c.labels)
		c.count = 0
	}
	if c.labels[k] == nil {
		c.labels[k] = map[string]string{}
	}
	c.labels[k][id] = label
	c.count++
}

// labelFor gives what a value was called, "" when nobody asked.
func (c *choices) labelFor(k labelKey, id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.labels[k][id]
}
