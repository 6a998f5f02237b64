package gateway

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"pilder/policy"
)

// Bounds keep one person, company or app from taking everything: how many allowed calls are under way at once, and how many
// may begin in a minute. They count within one process; what a human approved is not counted.
type Bounds struct {
	Person  Bound // default 8 at once, 120 a minute
	Company Bound // default 64 at once, 1,200 a minute
	App     Bound // of one app in one company; default 32 at once, 600 a minute
	// Patience is how long a read waits for its turn before it is answered "busy"; a change never waits. Default 10 s.
	Patience time.Duration
}

// Bound is one of them; a zero field is the default.
type Bound struct {
	AtOnce    int
	PerMinute int
}

func (b Bounds) withDefaults() Bounds {
	for _, f := range []struct {
		b    *Bound
		once int
		per  int
	}{{&b.Person, 8, 120}, {&b.Company, 64, 1200}, {&b.App, 32, 600}} {
		if f.b.AtOnce <= 0 {
			f.b.AtOnce = f.once
		}
		if f.b.PerMinute <= 0 {
			f.b.PerMinute = f.per
		}
	}
	orDefault(&b.Patience, 10*time.Second)
	return b
}

// maxCounters is how many idle counters are kept: those over it are forgotten when they are full again.
const maxCounters = 10_000

// counters hold the bounds.
type counters struct {
	bounds Bounds
	now    func() time.Time

	mu   sync.Mutex
	of   map[string]*counter
	left chan struct{} // closed and made anew whenever a call ends
}

// counter counts the calls of one person, company or app.
type counter struct {
	Bound
	inside int
	rate   *rate.Limiter
}

func newCounters(b Bounds, now func() time.Time) *counters {
	return &counters{bounds: b.withDefaults(), now: now, of: map[string]*counter{}, left: make(chan struct{})}
}

// enter lets a call in, unless one of its bounds is reached; then a read waits for a while. The caller runs leave when it is
// over; without one, retry is how long to wait before another try.
func (c *counters) enter(ctx context.Context, p policy.Principal, app string, class policy.Class) (leave func(), retry time.Duration) {
	leave, retry, left := c.try(p, app)
	if leave != nil || class != policy.ClassRead {
		return leave, retry
	}
	patience := time.NewTimer(c.bounds.Patience)
	defer patience.Stop()
	for leave == nil {
		again := time.NewTimer(retry)
		select {
		case <-left:
		case <-again.C:
		case <-patience.C:
			again.Stop()
			return nil, retry
		case <-ctx.Done():
			again.Stop()
			return nil, retry
		}
		again.Stop()
		leave, retry, left = c.try(p, app)
	}
	return leave, 0
}

// try takes a place in each counter, or in none.
func (c *counters) try(p policy.Principal, app string) (leave func(), retry time.Duration, left <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	company := string(p.Company)
	mine := []*counter{c.counter("c:"+company, c.bounds.Company), c.counter("p:"+company+" "+string(p.Membership), c.bounds.Person)}
	if app != "" {
		mine = append(mine, c.counter("a:"+company+" "+app, c.bounds.App))
	}
	now := c.now()
	for _, m := range mine {
		if m.inside >= m.AtOnce {
			return nil, time.Second, c.left
		}
	}
	var taken []*rate.Reservation
	for _, m := range mine {
		taken = append(taken, m.rate.ReserveN(now, 1))
		retry = max(retry, taken[len(taken)-1].DelayFrom(now))
	}
	if retry > 0 {
		for _, t := range taken {
			t.CancelAt(now)
		}
		return nil, retry, c.left
	}
	for _, m := range mine {
		m.inside++
	}
	return sync.OnceFunc(func() { c.leave(mine) }), 0, nil
}

func (c *counters) leave(mine []*counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range mine {
		m.inside--
	}
	close(c.left)
	c.left = make(chan struct{})
	if len(c.of) > maxCounters {
		c.forget()
	}
}

// forget drops the counters that know nothing worth keeping.
func (c *counters) forget() {
	now := c.now()
	for name, m := range c.of {
		if m.inside == 0 && m.rate.TokensAt(now) >= float64(m.rate.Burst()) {
			delete(c.of, name)
		}
	}
}

func (c *counters) counter(name string, b Bound) *counter {
	m := c.of[name]
	if m == nil {
		m = &counter{Bound: b, rate: rate.NewLimiter(rate.Limit(float64(b.PerMinute)/60), b.PerMinute)}
		c.of[name] = m
	}
	return m
}
