package runner

import (
	"cmp"
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
	maxTurns        = 50                     // of one process; a new one begins with a clean memory
	maxParkedMemory = 1 << 30                // of a waiting process, bytes
	takenGap        = 200 * time.Millisecond // between two tries to end a process whose conversation somebody has
	readying        = 10 * time.Second       // to make a process ready for its next turn
	lifeSpare       = 5 * time.Minute        // of a prepared run's token, beyond the longest run
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

// add puts a process in, unless the pool is full.
func (p *pool) add(a *agent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.parked) >= p.max {
		return false
	}
	p.parked[a.conversation] = a
	return true
}

// rivals are the conversations whose processes may have to go for a newcomer, in the order in which they go: those of the
// company that keeps most waiting first, and of it who has waited longest. A company that keeps fewer than the newcomer's
// is spared, so that none can push out all others.
func (p *pool) rivals(newcomer *agent) []store.ConversationID {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.of(newcomer.company, newcomer)
	return p.sorted(func(a *agent) (weight int, ok bool) {
		weight = p.of(a.company, newcomer)
		return weight, weight >= mine
	})
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

// sorted gives conversations by the weight of their processes, highest first, and then by how long these have waited.
func (p *pool) sorted(weight func(*agent) (int, bool)) []store.ConversationID {
	type rival struct {
		*agent
		weight int
	}
	var all []rival
	for _, a := range p.parked {
		if w, ok := weight(a); ok {
			all = append(all, rival{a, w})
		}
	}
	slices.SortFunc(all, func(a, b rival) int { return cmp.Or(b.weight-a.weight, a.parkedAt.Compare(b.parkedAt)) })
	var found []store.ConversationID
	for _, r := range all {
		found = append(found, r.conversation)
	}
	return found
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

// conversations are those for which a process waits, the one that has waited longest first.
func (p *pool) conversations() []store.ConversationID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sorted(func(*agent) (int, bool) { return 0, true })
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
	if err == nil && (a.used > maxParkedMemory || r.memory() > r.cfg.Memory) {
		r.retired(a, "memory", nil) // those that wait must not be what others wait for
		return false
	}
	if err == nil {
		err = r.prepare(ctx, a, member)
	}
	if err != nil {
		r.retired(a, whyNotKept(err), err)
		return false
	}
	if !r.park(ctx, a) {
		r.retired(a, "full", r.store.Retire(context.WithoutCancel(ctx), a.prepared))
		return false
	}
	r.cfg.Log.Info().Str("event", "warm.parked").Str("run", string(a.prepared.ID)).Str("conversation", string(a.conversation)).
		Int64("ms", r.cfg.Now().Sub(now).Milliseconds()).Int64("memory", a.used).Int("turns", a.turns).Send()
	return true
}

// whyNotKept is the code of an error that keeps a process from waiting.
func whyNotKept(err error) string {
	switch {
	case errors.Is(err, errAllowed):
		return "changed"
	case errors.Is(err, errEnded):
		return "ended"
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrLost):
		return "overtaken" // by another run or another session
	}
	return "not_ready"
}

// errAllowed is a process that was started for somebody who might do something else.
var errAllowed = errors.New("policy, role or accounts changed")

// prepare gives the process a run for the next turn, with a token of its own.
func (r *Runner) prepare(ctx context.Context, a *agent, member store.MembershipID) error {
	run, err := r.store.Prepare(ctx, a.conversation, member, a.launch.session)
	if err != nil {
		return fmt.Errorf("preparing the next run: %w", err)
	}
	a.prepared = run
	if err := r.handOver(ctx, a); err != nil {
		return errors.Join(err, r.store.Retire(context.WithoutCancel(ctx), run))
	}
	return nil
}

// handOver makes the process the prepared run's, if what it was started with still holds: the store compares what is allowed
// later with what it was at this run's preparation, and not with what it was at the process's start.
func (r *Runner) handOver(ctx context.Context, a *agent) error {
	switch now, err := allowed(a.prepared); {
	case err != nil:
		return err
	case now != a.launch.allowed:
		return errAllowed
	}
	token, err := r.cfg.MintToken(a.prepared)
	if err == nil {
		err = a.shut() // a run that had nothing to do has left its own open
	}
	if err != nil {
		return err
	}
	a.openTools(a.prepared)
	return a.changeToken(ctx, token)
}

// park puts a process into the pool and watches over it, unless there is no room and none can be made. The caller holds its
// conversation.
func (r *Runner) park(ctx context.Context, a *agent) bool {
	unpark := make(chan struct{})
	a.parkedAt, a.unpark = r.cfg.Now(), unpark
	for !r.pool.add(a) {
		if !r.evictOne(ctx, r.pool.rivals(a), "full") {
			return false
		}
	}
	r.pool.leave.Go(func() { r.watch(a, unpark) })
	return true
}

// evictOne ends the first of the waiting processes that nobody is about to take. A conversation is held by a turn for as
// long as that waits at the gate, so there may be none.
func (r *Runner) evictOne(ctx context.Context, of []store.ConversationID, why string) bool {
	return slices.ContainsFunc(of, func(c store.ConversationID) bool { return r.evict(ctx, c, why) })
}

// watch ends a waiting process that has waited too long or has ended by itself. When its conversation is being taken at that
// moment, the process is the taker's.
func (r *Runner) watch(a *agent, unpark <-chan struct{}) {
	idle := time.NewTimer(r.cfg.WarmIdle)
	defer idle.Stop()
	for {
		why := "ended"
		select {
		case <-unpark:
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
		case <-unpark:
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
	r.retired(a, why, nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readying)
	defer cancel()
	if err := errors.Join(a.close(), r.store.Retire(ctx, a.prepared)); err != nil {
		r.cfg.Log.Error().Str("event", "warm.leftover").Str("conversation", string(a.conversation)).Err(err).Send()
	}
}

func (r *Runner) retired(a *agent, why string, err error) {
	r.cfg.Log.Info().Str("event", "warm.retired").Str("conversation", string(a.conversation)).Str("reason", why).Int("turns", a.turns).Err(err).Send()
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
			why = "agent_home_changed"
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
