package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pilder/store"
)

// Bounds of a process that serves many turns.
const (
	maxTurns     = 50                     // of one process; a new one begins with a clean memory
	maxMemory    = 1 << 30                // of a waiting process, bytes
	takenGap     = 200 * time.Millisecond // between two tries to end a process whose conversation somebody has
	readying     = 10 * time.Second       // to make a process ready for its next turn
	lifeSpare    = 5 * time.Minute        // of a prepared run's token, beyond the longest run
	signsGap     = 200 * time.Millisecond // between two looks for signs of life
	signsOverlap = time.Second            // a sign may be committed a moment after its time
	signsKept    = 2 * time.Minute        // a sign of life older than this is no reason to start a process
)

// pool holds the processes that wait for their conversation's next turn. Each belongs to one conversation and to a run that
// is prepared for it; killing any of them loses nothing, for the transcript is resumed. Whoever takes one out of the pool
// owns it, and must hold its conversation.
type pool struct {
	max int

	mu     sync.Mutex
	parked map[store.ConversationID]*agent
	leave  sync.WaitGroup // those that watch over them
}

// take gives the process that waits for a conversation's turn, or nil.
func (p *pool) take(c store.ConversationID) *agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.parked[c]
	if a != nil {
		delete(p.parked, c)
		close(a.unpark)
	}
	return a
}

// add puts a process in and names the one that has to go for it, if any: of the company that keeps most of them waiting,
// the one that has waited longest, so that no company can push out all others.
func (p *pool) add(a *agent) (victim store.ConversationID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.parked) >= p.max {
		victim = p.longest(func(o *agent) int { return p.of(o.company, a) })
	}
	p.parked[a.conversation] = a
	return victim
}

// of counts a company's processes, the newcomer among them.
func (p *pool) of(c store.CompanyID, newcomer *agent) int {
	n := 0
	for _, o := range p.parked {
		if o.company == c {
			n++
		}
	}
	if newcomer.company == c {
		n++
	}
	return n
}

// longest is the conversation of the highest weight whose process has waited longest.
func (p *pool) longest(weight func(*agent) int) (found store.ConversationID) {
	var best *agent
	for _, a := range p.parked {
		if best == nil || weight(a) > weight(best) || weight(a) == weight(best) && a.parked.Before(best.parked) {
			best = a
		}
	}
	if best == nil {
		return ""
	}
	return best.conversation
}

// oldest is the conversation whose process has waited longest; empty when none waits.
func (p *pool) oldest() store.ConversationID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest(func(*agent) int { return 0 })
}

// memory is what the waiting processes used when they were put in, bytes.
func (p *pool) memory() (sum int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.parked {
		sum += a.used
	}
	return sum
}

func (p *pool) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.parked) >= p.max
}

func (p *pool) conversations() []store.ConversationID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []store.ConversationID
	for c := range p.parked {
		all = append(all, c)
	}
	return all
}

// keep lets a process whose turn was answered wait for the next one, and tells whether it does. Whatever is in the way, the
// process is then the caller's to end: the next turn begins with a new one.
func (r *Runner) keep(ctx context.Context, a *agent, member store.MembershipID) bool {
	now := r.cfg.Now()
	if r.pool.max == 0 || r.box.Unsandboxed() || ctx.Err() != nil || a.turns >= maxTurns || a.launch.changed(r.cfg.AgentHome) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, readying)
	defer cancel()
	err := a.p.Sweep() // what a turn has started in the background ends with it
	if err == nil {
		a.used, err = a.p.Memory()
	}
	if err == nil && a.used > maxMemory {
		err = errors.New("too much memory")
	}
	if err == nil {
		err = r.prepare(ctx, a, member)
	}
	if err != nil {
		r.retired(a, err.Error())
		return false
	}
	r.cfg.Log.Info().Str("event", "warm.parked").Str("run", string(a.prepared.ID)).Str("conversation", string(a.conversation)).
		Int64("ms", r.cfg.Now().Sub(now).Milliseconds()).Int64("memory", a.used).Int("turns", a.turns).Send()
	r.park(ctx, a)
	return true
}

// prepare gives the process a run for the next turn, with a token of its own.
func (r *Runner) prepare(ctx context.Context, a *agent, member store.MembershipID) error {
	run, err := r.store.Prepare(ctx, a.conversation, member, a.launch.session)
	if err != nil {
		return fmt.Errorf("preparing the next run: %w", err)
	}
	a.prepared = run
	token, err := r.cfg.MintToken(run)
	if err == nil {
		a.openTools(run)
		err = a.changeToken(ctx, token)
	}
	if err != nil {
		return errors.Join(err, r.store.Retire(context.WithoutCancel(ctx), run))
	}
	return nil
}

// park puts a process into the pool and watches over it. The caller holds its conversation.
func (r *Runner) park(ctx context.Context, a *agent) {
	a.parked, a.unpark = r.cfg.Now(), make(chan struct{})
	if victim := r.pool.add(a); victim != "" {
		r.evict(ctx, victim, "full")
	}
	r.pool.leave.Go(func() { r.watch(a) })
}

// watch ends a waiting process that has waited too long or has ended by itself. When its conversation is being taken at that
// moment, the process is the taker's.
func (r *Runner) watch(a *agent) {
	idle := time.NewTimer(r.cfg.WarmIdle)
	defer idle.Stop()
	for {
		why := "ended"
		select {
		case <-a.unpark:
			return
		case <-idle.C:
			why = "idle"
		case <-a.ended:
		case <-a.noisy:
			why = "noisy"
		}
		if r.evict(context.Background(), a.conversation, why) {
			return
		}
		select { // somebody has the conversation: it will be taken, or let go again
		case <-a.unpark:
			return
		case <-time.After(takenGap):
			idle.Reset(0)
		}
	}
}

// evict ends the process that waits for a conversation, and tells whether none does now.
func (r *Runner) evict(ctx context.Context, c store.ConversationID, why string) bool {
	free, ok := r.tryOccupy(c)
	if !ok {
		return false
	}
	defer free()
	if a := r.pool.take(c); a != nil {
		r.retire(ctx, a, why)
	}
	return true
}

// retire ends a process that waits for nothing any more. It has nothing to lose, so it is not asked.
func (r *Runner) retire(ctx context.Context, a *agent, why string) {
	r.retired(a, why)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readying)
	defer cancel()
	if err := errors.Join(a.close(), r.store.Retire(ctx, a.prepared)); err != nil {
		r.cfg.Log.Error().Str("event", "warm.leftover").Str("conversation", string(a.conversation)).Err(err).Send()
	}
}

func (r *Runner) retired(a *agent, why string) {
	r.cfg.Log.Info().Str("event", "warm.retired").Str("conversation", string(a.conversation)).Str("reason", why).Int("turns", a.turns).Send()
}

// claim takes the process that waits for a turn, if it is still the one to take it.
func (r *Runner) claim(ctx context.Context, t *store.Turn) *agent {
	a := r.pool.take(t.Conversation)
	if a == nil {
		return nil
	}
	why := ""
	select {
	case <-a.ended:
		why = "ended"
	case <-a.noisy:
		why = "noisy"
	default:
		if a.launch.changed(r.cfg.AgentHome) {
			why = "agent home changed"
		}
	}
	if why != "" {
		r.retire(ctx, a, why)
		return nil
	}
	t.Prepared, t.Life = a.prepared.ID, r.cfg.RunTimeout+lifeSpare
	return a
}

// changed tells whether the agent home is another than at the process's start.
func (l launch) changed(home string) bool {
	now, err := stamp(home)
	return err != nil || now != l.home
}

// greet starts processes for people who have shown signs of life and not written yet, while there is room that nobody
// needs, until ctx ends.
func (r *Runner) greet(ctx context.Context, spaces *workspaces) {
	seen := r.cfg.Now().Add(-signsKept) // who was there just before is there still
	pause := time.NewTicker(signsGap)
	defer pause.Stop()
	for {
		wake := r.store.Wake()
		signs, err := r.store.SignsOfLife(ctx, seen.Add(-signsOverlap))
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Error().Str("event", "warm.signs_failed").Err(err).Send()
		}
		for _, s := range signs {
			seen = latest(seen, s.At)
			if r.cfg.Now().Sub(s.At) < signsKept && r.gate.idle() && !r.pool.full() && r.fits() {
				r.welcome(ctx, s, spaces)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// welcome starts a process for a conversation whose next text has not come yet.
func (r *Runner) welcome(ctx context.Context, s store.Sign, spaces *workspaces) {
	free, ok := r.tryOccupy(s.Conversation)
	if !ok || slices.Contains(r.pool.conversations(), s.Conversation) {
		if ok {
			free()
		}
		return
	}
	defer free()
	ctx, cancel := context.WithTimeout(ctx, 3*readying)
	defer cancel()
	a, err := r.startPrepared(ctx, s, spaces)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, store.ErrBusy) {
			r.cfg.Log.Warn().Str("event", "warm.not_started").Str("conversation", string(s.Conversation)).Err(err).Send()
		}
		return
	}
	r.cfg.Log.Info().Str("event", "warm.started").Str("run", string(a.prepared.ID)).Str("conversation", string(a.conversation)).
		Int64("ms", r.cfg.Now().Sub(a.began).Milliseconds()).Send()
	r.park(ctx, a)
}

// startPrepared starts a process and lets it get ready, all but the person's text.
func (r *Runner) startPrepared(ctx context.Context, s store.Sign, spaces *workspaces) (*agent, error) {
	run, err := r.store.Prepare(ctx, s.Conversation, s.Membership, s.Session)
	if err != nil {
		return nil, fmt.Errorf("preparing a first run: %w", err)
	}
	a, err := r.startAgent(ctx, run, spaces, false)
	if err != nil {
		return nil, errors.Join(err, r.store.Retire(context.WithoutCancel(ctx), run))
	}
	a.prepared = run
	a.openTools(run)
	hello, err := r.introduction(run, a.launch.mark)
	if err == nil {
		err = a.introduce(ctx, hello)
	}
	if err == nil {
		a.used, err = a.p.Memory()
	}
	if err != nil {
		return nil, errors.Join(err, a.close(), r.store.Retire(context.WithoutCancel(ctx), run))
	}
	return a, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
