package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"pilder/gateway"
	"pilder/policy"
)

// tidyEvery is how often idle links are looked for, or oftener where they may not be idle for long.
const tidyEvery = time.Minute

// linkKey is whose link it is. Nobody's credentials are part of it: two people with one secret still have two.
type linkKey struct {
	upstream   string
	membership policy.MembershipID // empty: the house's own, for looking at the list, or one that all people share
	account    string              // which of a person's accounts; empty: the one in use, or the upstream has none
}

// pool keeps links between calls, bounded in number and in idle time.
type pool struct {
	max  int
	idle time.Duration
	now  func() time.Time

	mu       sync.Mutex
	links    map[linkKey]*kept
	goodbyes []link        // let go of and not closed yet; a process that is left out here would never end
	waiting  chan struct{} // holds one while there are goodbyes to say
}

// kept is a link with what the pool knows of its use.
type kept struct {
	link
	busy int
	used time.Time
}

func newPool(cfg Config) *pool {
	return &pool{max: cfg.MaxSessions, idle: cfg.Idle, now: cfg.Now, links: map[linkKey]*kept{}, waiting: make(chan struct{}, 1)}
}

// take gives the link of a key, made at first use; give is called when the caller needs it no more. errFull: all are in use.
func (p *pool) take(key linkKey, begin func() link) (l link, give func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.links[key]
	if k == nil {
		if len(p.links) >= p.max && !p.evict() {
			return nil, nil, errFull
		}
		k = &kept{link: begin()}
		p.links[key] = k
	}
	k.busy++
	return k.link, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		k.busy--
		k.used = p.now()
	}, nil
}

// evict lets go of the unused link that has waited longest; false when all are in use.
func (p *pool) evict() bool {
	var oldest linkKey
	found := false
	for key, k := range p.links {
		if k.busy == 0 && (!found || k.used.Before(p.links[oldest].used)) {
			oldest, found = key, true
		}
	}
	if found {
		p.drop(oldest)
	}
	return found
}

func (p *pool) drop(key linkKey) {
	p.goodbyes = append(p.goodbyes, p.links[key].link)
	delete(p.links, key)
	select {
	case p.waiting <- struct{}{}:
	default: // whoever looks takes all
	}
}

// tidy lets go of every link that was idle for too long; with a negative time of all that nobody uses.
func (p *pool) tidy(idle time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, k := range p.links {
		if k.busy == 0 && p.now().Sub(k.used) > idle {
			p.drop(key)
		}
	}
}

// serve tidies and says goodbyes until ctx ends, and then says all that are left.
func (p *pool) serve(ctx context.Context) {
	tick := time.NewTicker(max(min(tidyEvery, p.idle/2), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.waiting:
			p.farewell(ctx)
		case <-tick.C:
			p.tidy(p.idle)
		case <-ctx.Done():
			p.tidy(-1)
			p.farewell(context.WithoutCancel(ctx))
			return
		}
	}
}

// farewell closes what waits to be closed, all at once.
func (p *pool) farewell(ctx context.Context) {
	p.mu.Lock()
	leaving := p.goodbyes
	p.goodbyes = nil
	p.mu.Unlock()
	var closing sync.WaitGroup
	for _, l := range leaving {
		closing.Go(func() { goodbye(ctx, l) })
	}
	closing.Wait()
}

func goodbye(ctx context.Context, l link) {
	ctx, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	l.close(ctx)
}

// ask asks on a caller's own link, with one of their accounts.
func (u *server) ask(ctx context.Context, who gateway.Caller, account string, q question) (json.RawMessage, error) {
	key := linkKey{upstream: u.Slug, membership: who.Principal.Membership, account: account}
	if u.Shared && len(u.Command) > 0 {
		key.membership = ""
	}
	l, give, err := u.c.pool.take(key, func() link { return u.newLink(who, key) })
	if err != nil {
		return nil, err
	}
	defer give()
	raw, err := l.ask(ctx, q)
	var refusal *rpcError
	switch {
	case isOutage(err):
		u.failed()
	case err == nil || errors.As(err, &refusal):
		u.worked()
	}
	return raw, err
}

func (u *server) newLink(who gateway.Caller, key linkKey) link {
	if len(u.Command) > 0 {
		return newPipeLink(u, who, key)
	}
	return newHTTPLink(u, who, key.account)
}

// health is a breaker: an upstream that failed thrice in a row is left alone for a while, so that nobody waits for it.
type health struct {
	mu       sync.Mutex
	failures int
	until    time.Time
}

// maxFailures in a row make an upstream rest.
const maxFailures = 3

// failed notes that the upstream was not reached, or is broken.
func (u *server) failed() {
	u.health.mu.Lock()
	defer u.health.mu.Unlock()
	u.failures++
	if u.failures >= maxFailures {
		if u.failures == maxFailures {
			u.c.cfg.Log.Warn().Str("event", "upstream.unavailable").Str("app", u.Slug).Send()
		}
		u.until = u.c.cfg.Now().Add(u.c.cfg.Pause)
	}
}

// worked notes an answer.
func (u *server) worked() {
	u.health.mu.Lock()
	defer u.health.mu.Unlock()
	if u.failures >= maxFailures {
		u.c.cfg.Log.Info().Str("event", "upstream.available").Str("app", u.Slug).Send()
	}
	u.failures, u.until = 0, time.Time{}
}

// resting tells whether the upstream is to be left alone now.
func (u *server) resting(now time.Time) bool {
	u.health.mu.Lock()
	defer u.health.mu.Unlock()
	return now.Before(u.until)
}

// isOutage tells whether an error says that the upstream itself is not there, is broken, or takes too long: in the handshake
// as in the call.
func isOutage(err error) bool {
	var shaking *handshakeError
	if errors.As(err, &shaking) {
		err = shaking.err
	}
	var status *statusError
	switch {
	case errors.Is(err, errNoSecret), errors.Is(err, context.Canceled), errors.Is(err, errCancelled):
		return false
	case errors.As(err, &status):
		return status.status >= 500
	}
	return errors.Is(err, errNotSent) || errors.Is(err, errLost) || errors.Is(err, context.DeadlineExceeded)
}
