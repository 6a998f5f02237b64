package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pilder/store"
)

// runReserve is the memory that a run is counted with at least, bytes: what an idle CLI holds, and room to work.
const runReserve = 300 << 20

// gate lets turns begin: at most so many at once, and of those that wait always one of the company, and within it of the
// person, that has the fewest at work and whose last one began longest ago. A turn that waits keeps its place; none is
// refused.
type gate struct {
	max  int
	fits func() bool // whether the machine has room for one more

	mu      sync.Mutex
	waiting []*ticket // as they came
	served  served
}

// served is who has turns at work, and in which order turns began.
type served struct {
	working map[*ticket]bool
	begun   int
	company map[store.CompanyID]int // the number of its last
	person  map[store.PersonID]int
}

// ticket is one turn's place.
type ticket struct {
	company store.CompanyID
	person  store.PersonID
	let     chan struct{} // closed when it may begin
}

func newGate(max int, fits func() bool) *gate {
	return &gate{max: max, fits: fits, served: served{working: map[*ticket]bool{}, company: map[store.CompanyID]int{}, person: map[store.PersonID]int{}}}
}

// enter takes a place: t.let is closed when the turn may begin. The caller leaves, whether it has begun or not.
func (g *gate) enter(c store.CompanyID, p store.PersonID) *ticket {
	t := &ticket{company: c, person: p, let: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, t)
	g.mu.Unlock()
	g.open()
	return t
}

func (g *gate) leave(t *ticket) {
	g.mu.Lock()
	delete(g.served.working, t)
	g.waiting = slices.DeleteFunc(g.waiting, func(o *ticket) bool { return o == t })
	g.mu.Unlock()
	g.open()
}

// open lets in who may come in now. With nobody at work one is always let in, whatever the memory says: it has to be tried.
func (g *gate) open() {
	room := g.fits()
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.waiting) > 0 && len(g.served.working) < g.max && (room || len(g.served.working) == 0) {
		i := g.served.next(g.waiting)
		t := g.waiting[i]
		g.waiting = slices.Delete(g.waiting, i, i+1)
		g.served.begin(t)
		close(t.let)
		room = false // one at a time: what it will need is not in the figures yet
		if len(g.waiting) > 0 {
			g.mu.Unlock()
			room = g.fits()
			g.mu.Lock()
		}
	}
}

func (s *served) begin(t *ticket) {
	s.begun++
	s.working[t], s.company[t.company], s.person[t.person] = true, s.begun, s.begun
}

// next chooses from those that wait.
func (s *served) next(waiting []*ticket) int {
	best, least := 0, []int{math.MaxInt}
	for i, t := range waiting {
		company, person := 0, 0
		for w := range s.working {
			if w.company == t.company {
				company++
			}
			if w.person == t.person {
				person++
			}
		}
		if n := []int{company, s.company[t.company], person, s.person[t.person]}; slices.Compare(n, least) < 0 {
			best, least = i, n
		}
	}
	return best
}

// countedExactly is up to how many waiting turns ahead plays through who goes when; that takes the square of their number.
const countedExactly = 100

// ahead counts the turns that will begin before t if nobody else comes; in a crowd, those that came before.
func (g *gate) ahead(t *ticket) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > countedExactly {
		return max(0, slices.Index(g.waiting, t))
	}
	waiting := slices.Clone(g.waiting)
	s := served{working: maps.Clone(g.served.working), begun: g.served.begun, company: maps.Clone(g.served.company), person: maps.Clone(g.served.person)}
	for n := 0; len(waiting) > 0; n++ {
		i := s.next(waiting)
		if waiting[i] == t {
			return n
		}
		s.begin(waiting[i])
		waiting = slices.Delete(waiting, i, i+1)
	}
	return 0
}

// idle tells whether one more could begin at once.
func (g *gate) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting) == 0 && len(g.served.working) < g.max
}

// hasPlace tells whether those that wait do so for memory.
func (g *gate) hasPlace() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.served.working) < g.max
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.served.working)
}

// admit waits until a turn may begin. One that has to wait is told how many are before it; where other instances serve
// turns too, it is given back after a while, so that one of them can take it.
func (r *Runner) admit(ctx context.Context, t store.Turn) (leave func(), err error) {
	w, ok, err := r.store.Waiting(ctx, t.Conversation)
	if err != nil {
		return nil, fmt.Errorf("admitting a turn: %w", err)
	}
	if !ok {
		return func() {}, nil // nothing waits: StartRun finds that out and ends the job
	}
	place := r.gate.enter(w.Company, w.Person)
	look := time.NewTicker(r.cfg.QueuePatience)
	defer look.Stop()
	for told := w.Told; ; {
		select {
		case <-place.let:
			return func() { r.gate.leave(place) }, nil
		case <-ctx.Done():
			r.gate.leave(place)
			return nil, ctx.Err()
		case <-look.C:
		}
		r.gate.open() // memory may have become free
		r.giveUp(ctx, t.Conversation)
		select {
		case <-place.let: // just now
			return func() { r.gate.leave(place) }, nil
		default:
		}
		if !told {
			if told, err = r.tellWaiting(ctx, t, w, place); err != nil {
				r.cfg.Log.Error().Str("event", "queue.untold").Str("conversation", string(t.Conversation)).Err(err).Send()
			}
		}
		if others, err := r.store.OtherInstances(ctx); err == nil && others > 0 {
			select {
			case <-place.let: // just now
				return func() { r.gate.leave(place) }, nil
			default:
				r.gate.leave(place)
				return nil, store.ErrLater
			}
		}
	}
}

func (r *Runner) tellWaiting(ctx context.Context, t store.Turn, w store.WaitingTurn, place *ticket) (bool, error) {
	ahead := r.gate.ahead(place) + r.gate.count()
	r.cfg.Log.Info().Str("event", "queue.waiting").Str("conversation", string(t.Conversation)).Str("company", string(w.Company)).
		Int("ahead", ahead).Send()
	return r.store.TellWaiting(ctx, t, w.Message, r.cfg.Waiting(w, t.Conversation, ahead))
}

// fits tells whether one more run has room in the memory budget; waiting processes make room first.
func (r *Runner) fits() bool {
	for !r.hasRoom() {
		if !r.evictOne(context.Background(), r.pool.conversations(), "memory") {
			return false
		}
	}
	return true
}

func (r *Runner) hasRoom() bool { return r.memory()+runReserve <= r.cfg.Memory }

// giveUp ends the process that waits for a turn which itself waits, and only for memory: the turn is better off with a new
// process now than with this one later.
func (r *Runner) giveUp(ctx context.Context, c store.ConversationID) {
	if !r.gate.hasPlace() || r.hasRoom() {
		return
	}
	if a := r.pool.take(c); a != nil {
		r.retire(ctx, a, "memory")
		r.gate.open()
	}
}

// memory is what all agents use, bytes; one at work is counted with its reserve at least.
func (r *Runner) memory() int64 {
	sum := r.pool.memory()
	r.mu.Lock()
	working := slices.Collect(maps.Keys(r.agents))
	r.mu.Unlock()
	for _, a := range working { // and nobody waits for r.mu meanwhile: how long a look takes is in the agent's hands
		sum += max(a.gauge.look(a.p), runReserve)
	}
	return sum + int64(max(0, r.gate.count()-len(working)))*runReserve // let in, not started yet
}

// machineMemory is three quarters of what the machine has, bytes.
func machineMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("asking for the machine's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("asking for the machine's memory: %w", err)
			}
			return kib << 10 / 4 * 3, nil
		}
	}
	return 0, errors.New("asking for the machine's memory: no MemTotal")
}
