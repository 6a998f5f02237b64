// Package runner turns one conversation's turn into one run of the agent: workspace, sandbox, process, stream, outcome. It
// refuses to run an agent outside a sandbox unless an operator said so twice, to give it any secret that is worth something
// outside its run, and to show anybody what a failing agent printed.
package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"pilder/prompt"
	"pilder/store"
)

// Config says how agents are run. Fields without a default are required.
type Config struct {
	// Data is the folder of the conversations' files and the runs' workspaces. It is made with access for pilder's user only.
	Data string
	// CLI is the path of the pinned agent CLI; its folder is mounted. The caller has checked its digest.
	CLI string
	// CLIVersion is the version it must tell of itself; any other ends the run before it acts. Empty: not compared.
	CLIVersion string
	// AgentHome is the folder with CLAUDE.md, .claude/rules and .claude/skills. Empty: none.
	AgentHome string
	// ManagedSettings is the CLI's managed-settings.json. Empty: none.
	ManagedSettings []byte
	// Model is the name given to the CLI. Default "sonnet".
	Model string
	// Quota bounds the files of each conversation. Its zero value is the default one.
	Quota Quota
	// MaxRuns bounds the agents at work at once. Default 4.
	MaxRuns int
	// RunTimeout is the wall clock of a run, all of its processes together. Default 15 min; at most 50, well under the hour
	// of its token.
	RunTimeout time.Duration
	// Budget is what one run may spend on the model. The zero value sets no bound.
	Budget Budget
	// IdleTimeout is the longest silence of the CLI, from its start on, and ToolTimeout the same while a tool is at work.
	// Defaults 3 min and 6 min.
	IdleTimeout, ToolTimeout time.Duration
	// InterruptGrace is the wait for the CLI to answer an interrupt, ExitGrace for it to end by itself after the end of its
	// input, KillGrace for it to end after SIGTERM. Defaults 2 s, 10 s, 5 s.
	InterruptGrace, ExitGrace, KillGrace time.Duration
	// QueuePatience is the wait after which a person hears that others are before them. Default 2 s.
	QueuePatience time.Duration
	// Memory is what all agents together may use before further turns wait, bytes. Default: three quarters of the machine's.
	Memory int64
	// WarmMax bounds the processes that wait for their conversation's next turn, kept after one or started at a person's first
	// sign of life, and WarmIdle how long they wait. 0: none do. WarmIdle is 10 min by default, and less where a run of
	// RunTimeout would outlive the token prepared for it.
	WarmMax  int
	WarmIdle time.Duration
	// WarmPatience is the wait for a process that waited to take its turn up, before a new one does. Default 5 s.
	WarmPatience time.Duration
	// Drain is how long running turns may take to end when the process stops. Default 20 s.
	Drain time.Duration
	// MaxLine bounds one line of the CLI's output, bytes; a longer one is read past, and one of 16 times as much ends the
	// process. Default 64 MiB.
	MaxLine int

	// MintToken makes the run's token for its tools door.
	MintToken func(store.Run) (store.Secret, error)
	// ServeTools and ServeModel serve one run's doors until ctx ends, and return when nothing of them is left.
	ServeTools func(ctx context.Context, run store.Run, l net.Listener) error
	ServeModel func(ctx context.Context, d ModelDoor, l net.Listener) error
	// ServeWeb does the same for the web door. Nil: there is none, and no tool that reads pages.
	ServeWeb func(ctx context.Context, run store.Run, l net.Listener) error
	// WebNames are the names that the web door opens for, as they are told to the agent.
	WebNames []string
	// Search gives the agent the CLI's web search. It is the model's provider that searches, so it passes by the model door.
	Search bool
	// Answer and Notice word what the person reads: the agent's answer, and a sentence of the house by its key.
	Answer func(run store.Run, markdown string) store.Draft
	Notice func(run store.Run, key string, args map[string]string) store.Draft
	// Waiting words what a person reads whose turn has to wait for others.
	Waiting func(w store.WaitingTurn, c store.ConversationID, ahead int) store.Draft
	// AppName tells an app's display name. Default: its slug.
	AppName func(slug, lang string) string
	// Preference words which app a person means by a category, or that they have not said. Default: as the store has it.
	Preference func(p store.Preference, lang string) prompt.Preference

	// Now is the clock of what is written and measured. Default time.Now.
	Now func() time.Time
	// Log gets one content-free line per event. Default: none.
	Log zerolog.Logger
}

// ModelDoor is what the model door of one run needs to know.
type ModelDoor struct {
	Run store.Run
	// Key is the key of the process that the run's turn goes to, in its environment.
	Key store.Secret
	// Search allows the provider's web search.
	Search bool
	// Budget is what the run may spend, and Spent what it has spent in a process before this one. The zero value of Budget
	// sets no bound.
	Budget, Spent Budget
	// Meter is told of every request that reached the model or was refused for the budget. It may be called from several
	// goroutines.
	Meter func(Usage)
}

// Budget bounds what one run may spend on the model. A field that is zero bounds nothing.
type Budget struct {
	Tokens  int64 // plain input, output and cache writes; what is read from the cache is bounded by its price
	CostUSD float64
}

// Usage is what one request to the model came to.
type Usage struct {
	Tokens     store.Tokens
	CostUSD    float64
	Counted    Budget        // what the run's budget counts it as: more than it came to where that is not known
	Refused    string        // "budget": it was kept from the model because the budget is used up; "" when it went there
	RetryAfter time.Duration // how long a busy provider asks to be left alone; 0 when it did not say
}

// Runner takes turns and runs agents.
type Runner struct {
	cfg   Config
	store *store.Store
	box   *Sandbox
	gate  *gate
	pool  *pool
	out   Outbox

	mu     sync.Mutex
	busy   map[store.ConversationID]chan struct{} // closed when nobody has the conversation any more
	agents map[*agent]bool                        // at work
}

// New checks the configuration and makes the folders. It starts nothing.
func New(cfg Config, s *store.Store, box *Sandbox) (*Runner, error) {
	if cfg.MintToken == nil || cfg.ServeTools == nil || cfg.ServeModel == nil || cfg.Answer == nil || cfg.Notice == nil || cfg.Waiting == nil {
		return nil, errors.New("runner config: a function is missing")
	}
	cfg.setDefaults()
	if cfg.RunTimeout > 50*time.Minute {
		return nil, fmt.Errorf("runner config: a run of %s would outlive its token", cfg.RunTimeout)
	}
	cfg.WarmIdle = min(cfg.WarmIdle, time.Hour-lifeSpare-cfg.RunTimeout) // so would one prepared too long before
	if cfg.Memory == 0 {
		var err error
		if cfg.Memory, err = machineMemory(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	for _, path := range []*string{&cfg.Data, &cfg.CLI, &cfg.AgentHome} {
		if *path == "" && path == &cfg.AgentHome {
			continue
		}
		real, err := realPath(*path)
		if err != nil {
			return nil, fmt.Errorf("runner config: %w", err)
		}
		*path = real
	}
	r := &Runner{
		out: Outbox{Dir: filepath.Join(cfg.Data, "outbox")},
		cfg: cfg, store: s, box: box, busy: map[store.ConversationID]chan struct{}{}, agents: map[*agent]bool{},
		pool: &pool{max: cfg.WarmMax, parked: map[store.ConversationID]*agent{}},
	}
	r.gate = newGate(cfg.MaxRuns, r.fits)
	return r, nil
}

func (cfg *Config) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&cfg.RunTimeout, 15 * time.Minute}, {&cfg.IdleTimeout, 3 * time.Minute}, {&cfg.ToolTimeout, 6 * time.Minute},
		{&cfg.InterruptGrace, 2 * time.Second}, {&cfg.ExitGrace, 10 * time.Second}, {&cfg.KillGrace, 5 * time.Second},
		{&cfg.Drain, 20 * time.Second}, {&cfg.QueuePatience, 2 * time.Second}, {&cfg.WarmIdle, 10 * time.Minute}, {&cfg.WarmPatience, 5 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if cfg.Model == "" {
		cfg.Model = "sonnet"
	}
	if cfg.MaxRuns == 0 {
		cfg.MaxRuns = 4
	}
	if cfg.MaxLine == 0 {
		cfg.MaxLine = 64 << 20
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.AppName == nil {
		cfg.AppName = func(slug, _ string) string { return slug }
	}
	if cfg.Preference == nil {
		cfg.Preference = func(p store.Preference, _ string) prompt.Preference {
			return prompt.Preference{Category: p.Category, App: p.App}
		}
	}
}

// realPath resolves what an operator wrote, once: the sandbox mounts no path with a symbolic link in it.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// Run takes turns until ctx ends; then running agents are stopped and waited for. It refuses to start on a machine whose
// sandbox is weaker than required.
func (r *Runner) Run(ctx context.Context) error {
	found, err := r.box.Ready(ctx)
	if ctx.Err() != nil {
		return nil // stopped before it had begun
	}
	for _, f := range found {
		r.cfg.Log.Warn().Str("event", "sandbox.finding").Str("check", f.Check).Str("problem", f.Problem).Str("remedy", f.Remedy).Send()
	}
	if err != nil {
		return fmt.Errorf("starting the runner: %w", err)
	}
	spaces, err := openWorkspaces(r.cfg.Data)
	if err != nil {
		return fmt.Errorf("starting the runner: %w", err)
	}
	defer spaces.close()
	if err := r.out.Tidy(ctx, r.cfg.Now().Add(-outboxKept)); err != nil && ctx.Err() == nil {
		r.cfg.Log.Error().Str("event", "outbox.not_tidied").Err(err).Send()
	}
	greeting, stop := context.WithCancel(ctx)
	var greeters sync.WaitGroup
	if r.pool.max > 0 && !r.box.Unsandboxed() {
		greeters.Go(func() { r.greet(greeting, spaces) })
	}
	defer r.letGo()
	defer greeters.Wait()
	defer stop()
	err = r.store.ServeTurns(ctx, r.cfg.MaxRuns+waitingTurns, r.cfg.Drain, func(ctx context.Context, t store.Turn) error {
		return r.take(ctx, t, spaces)
	})
	if err != nil {
		return fmt.Errorf("serving turns: %w", err)
	}
	return nil
}

// outboxKept is how long a picked file stays.
const outboxKept = 7 * 24 * time.Hour

// waitingTurns bounds the turns that wait at the gate; further ones wait in the queue, in the order they came.
const waitingTurns = 1000

// letGo ends the processes that wait.
func (r *Runner) letGo() {
	for _, c := range r.pool.conversations() {
		if a := r.pool.take(c); a != nil {
			r.retire(context.Background(), a, "stopping")
		}
	}
	r.pool.leave.Wait()
}

// take makes one run of one conversation's turn. An answer is committed as soon as there is one; the process may need a
// moment longer to end or to get ready for the next turn, and until then that turn waits here: two processes on one session
// lose a turn.
func (r *Runner) take(ctx context.Context, t store.Turn, spaces *workspaces) error {
	free, err := r.occupy(ctx, t.Conversation)
	if err != nil {
		return err
	}
	defer free()
	leave, err := r.admit(ctx, t)
	if err != nil {
		return err
	}
	defer leave()
	e := &episode{Runner: r, began: r.cfg.Now(), spaces: spaces, agent: r.claim(ctx, &t)}
	defer e.end() // whoever has a process ends it, also in a panic, which the queue survives
	run, ok, err := r.store.StartRun(ctx, t)
	if a := e.agent; a != nil && (err != nil || !ok || run.ID != a.prepared.ID) {
		e.agent = nil
		r.retire(ctx, a, "not_for_this_turn")
	}
	if err != nil || !ok {
		return err
	}
	e.run, e.began = run, r.cfg.Now()
	r.event("run.started", run).Int("messages", len(run.Messages)).Int("attempt", run.Attempt).Bool("warm", e.agent != nil).
		Bool("unsandboxed", r.box.Unsandboxed()).Send()
	o := e.play(ctx)
	err = r.finish(ctx, t, e, o)
	e.pickUp(ctx)
	if err == nil && o.state == store.RunSucceeded && !o.leaked && e.agent != nil && r.keep(ctx, e.agent, run.Member.ID) {
		e.agent = nil
	}
	return err
}

// occupy waits until nobody has the conversation, and takes it: whoever has it may start and end its processes.
func (r *Runner) occupy(ctx context.Context, c store.ConversationID) (free func(), err error) {
	for {
		free, ok := r.tryOccupy(c)
		if ok {
			return free, nil
		}
		r.mu.Lock()
		before := r.busy[c]
		r.mu.Unlock()
		if before == nil {
			continue
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryOccupy takes the conversation if nobody has it.
func (r *Runner) tryOccupy(c store.ConversationID) (free func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[c] != nil {
		return nil, false
	}
	mine := make(chan struct{})
	r.busy[c] = mine
	return func() {
		r.mu.Lock()
		delete(r.busy, c)
		r.mu.Unlock()
		close(mine)
	}, true
}

// event begins a log line about a run.
func (r *Runner) event(name string, run store.Run) *zerolog.Event {
	return r.cfg.Log.Info().Str("event", name).Str("run", string(run.ID)).Str("conversation", string(run.Conversation)).
		Str("company", string(run.Principal.Company)).Str("person", string(run.Principal.Person))
}
