package model

import (
	"cmp"
	"context"
	"math"
	"sync"
)

// Budget bounds what one run may spend. A field that is zero bounds nothing.
type Budget struct {
	Tokens  int64 // plain input, output and cache writes; what is read from the cache is bounded by its price
	CostUSD float64
}

// spend is tokens and money.
type spend struct {
	tokens int64
	usd    float64
}

// purse counts against a budget. What requests under way will come to is held back by a guess that is high: near the end of
// the budget they go one after the other, and none is refused for a guess. So a door overspends by one request at most.
type purse struct {
	budget Budget

	mu       sync.Mutex
	spent    spend
	held     spend
	underway int
	changed  chan struct{} // closed and replaced when a request has ended
}

func newPurse(b, spent Budget) *purse {
	return &purse{budget: b, spent: spend{spent.Tokens, spent.CostUSD}, changed: make(chan struct{})}
}

// take admits a request with what it may come to at most, or tells that the budget is used up. It waits while that depends
// on requests under way; the error is the context's. pay must follow.
func (p *purse) take(ctx context.Context, most spend) (ok bool, err error) {
	for {
		p.mu.Lock()
		if p.empty() {
			p.mu.Unlock()
			return false, nil
		}
		if p.underway == 0 || p.leaves(most) {
			p.underway++
			p.held.tokens += most.tokens
			p.held.usd += most.usd
			p.mu.Unlock()
			return true, nil
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// pay puts what a request came to in the place of what was held back for it.
func (p *purse) pay(most, came spend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underway--
	p.held.tokens -= most.tokens
	p.held.usd -= most.usd
	p.spent.tokens += came.tokens
	p.spent.usd += came.usd
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *purse) empty() bool {
	b := p.budget
	return b.Tokens > 0 && p.spent.tokens >= b.Tokens || b.CostUSD > 0 && p.spent.usd >= b.CostUSD
}

// leaves tells whether there is room for a request beside those under way, all at their most.
func (p *purse) leaves(most spend) bool {
	b := p.budget
	return (b.Tokens == 0 || p.spent.tokens+p.held.tokens+most.tokens <= b.Tokens) && (b.CostUSD == 0 || p.spent.usd+p.held.usd+most.usd <= b.CostUSD)
}

// Guesses of what a request comes to, high on purpose.
const (
	bytesPerToken   = 3   // of a body; English has about four
	tokensPerSecond = 200 // of an answer; current models say 50 to 150
)

// most is what a request may come to: its body as if it were all new text, and every token it asks for.
func (d *Doors) most(a asked, body int) spend {
	in := int64(body/bytesPerToken + 1)
	t := tally{cacheWrite: in, hour: in, output: a.maxTokens} // the dearest kind of input
	return spend{t.new(), t.cost(d.price(a.model))}
}

// price is what a model costs as far as the budget is concerned: one without a price costs the highest of each kind.
func (d *Doors) price(model string) Price {
	if p, ok := priceOf(model, d.cfg.Prices); ok {
		return p
	}
	var top Price
	for _, p := range d.cfg.Prices {
		long := p.times(math.MaxInt64)
		top.Input, top.Output, top.CacheRead = max(top.Input, p.Input*long), max(top.Output, p.Output*long), max(top.CacheRead, p.CacheRead*long)
		top.CacheWrite, top.CacheWrite1h = max(top.CacheWrite, p.CacheWrite*long), max(top.CacheWrite1h, p.CacheWrite1h*long)
	}
	return top
}

// came is what a request has come to. Where the answer does not tell, because it broke off or its reader went away, it is
// guessed from the body and the time: nobody spends unseen by hanging up early.
func (d *Doors) came(m *meter, a asked, body int) spend {
	if !m.billed() {
		return spend{}
	}
	t := m.tally()
	if m.counted.Input == nil {
		t.input = int64(body/bytesPerToken + 1)
	}
	if !m.whole {
		t.output = max(t.output, min(a.maxTokens, int64(m.total.Seconds()*tokensPerSecond)))
	}
	return spend{t.new(), t.cost(d.price(cmp.Or(m.model, a.model)))}
}
