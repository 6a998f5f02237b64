package bot

import (
	"sync"
	"time"
)

// Budgets. Telegram publishes no exact numbers; these stay below what is known: about one message a second in a private
// chat with short bursts, about thirty a second for the bot.
const (
	chatRate  = 1.0
	chatBurst = 3.0
	botRate   = 25.0
	botBurst  = 25.0
)

// pace is the one budget of everything that shows something in a chat, and the memory of Telegram's penalties. A penalty
// is waited out in full, however long.
type pace struct {
	now      func() time.Time
	chatRate float64

	mu      sync.Mutex
	bot     bucket
	chats   map[int64]*bucket
	blocked map[int64]time.Time
	all     time.Time
	last    struct { // the last chat that was refused for its pace
		chat int64
		at   time.Time
	}
}

// bucket holds tokens as of a time.
type bucket struct {
	tokens float64
	at     time.Time
}

func newPace(now func() time.Time, chatRate float64) *pace {
	return &pace{now: now, chatRate: chatRate, chats: map[int64]*bucket{}, blocked: map[int64]time.Time{}, bot: bucket{botBurst, now()}}
}

// free tells whether a penalty lies on the chat or the bot; until is when it ends.
func (p *pace) free(chat int64) (until time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freeLocked(chat)
}

func (p *pace) freeLocked(chat int64) (time.Time, bool) {
	now, until := p.now(), p.all
	if u := p.blocked[chat]; u.After(until) {
		until = u
	}
	if !until.After(now) {
		delete(p.blocked, chat)
		return now, true
	}
	return until, false
}

// take spends one visible call. When it may not be made now nothing is spent, and until tells when to ask again;
// whole tells that all chats wait.
func (p *pace) take(chat int64) (until time.Time, whole, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if until, free := p.freeLocked(chat); !free {
		return until, p.all.After(now), false
	}
	if len(p.chats) > 10_000 { // buckets that are full again say nothing
		clear(p.chats)
	}
	c := p.chats[chat]
	if c == nil {
		c = &bucket{chatBurst, now}
		p.chats[chat] = c
	}
	c.fill(now, p.chatRate, chatBurst)
	p.bot.fill(now, botRate, botBurst)
	if p.bot.tokens < 1 {
		return now.Add(p.bot.wait(botRate)), true, false
	}
	if c.tokens < 1 {
		return now.Add(c.wait(p.chatRate)), false, false
	}
	c.tokens--
	p.bot.tokens--
	return now, false, true
}

// block lays a penalty on a chat, or on everything when another chat was refused within the last ten seconds, and tells
// which.
func (p *pace) block(chat int64, until time.Time) (whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	whole = p.last.chat != 0 && p.last.chat != chat && now.Sub(p.last.at) < 10*time.Second
	p.last.chat, p.last.at = chat, now
	if whole {
		p.all = later(p.all, until)
		return true
	}
	p.blocked[chat] = later(p.blocked[chat], until)
	return false
}

// blockAll lays a penalty on everything.
func (p *pace) blockAll(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = later(p.all, until)
}

func (b *bucket) fill(now time.Time, rate, burst float64) {
	if d := now.Sub(b.at); d > 0 {
		b.tokens = min(burst, b.tokens+d.Seconds()*rate)
	}
	b.at = now
}

func (b *bucket) wait(rate float64) time.Duration {
	return time.Duration((1 - b.tokens) / rate * float64(time.Second)).Round(time.Millisecond)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// throttle lets one remark per key through in a while.
type throttle struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time
}

// pass tells whether the key was quiet for d, and marks it.
func (t *throttle) pass(key string, d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if at, ok := t.last[key]; ok && now.Sub(at) < d {
		return false
	}
	if len(t.last) > 10_000 {
		clear(t.last)
	}
	t.last[key] = now
	return true
}
