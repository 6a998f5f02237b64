package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivertype"
	"github.com/rs/zerolog"
)

// River is the queue, and only a wake-up: order, ownership, cancellation and outbox live in our rows, and the sweeper
// rebuilds every lost job from them. No type of River leaves this folder.

// turnArgs wakes a conversation: one unique job per conversation, one job is one turn.
type turnArgs struct {
	Conversation ConversationID `json:"conversation" river:"unique"`
}

func (turnArgs) Kind() string { return "turn" }

// approvedArgs wakes the execution of an approved call.
type approvedArgs struct {
	Call CallID `json:"call" river:"unique"`
}

func (approvedArgs) Kind() string { return "approved" }

// jobOptions makes a job unique among those not ended. River's default also counts completed ones, which swallows a
// second message within a day (measured). Attempts are as good as endless: an error must not strand a conversation.
func jobOptions(queue string) *river.InsertOpts {
	return &river.InsertOpts{
		Queue:       queue,
		MaxAttempts: 1000,
		UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning,
			rivertype.JobStateScheduled, rivertype.JobStateRetryable,
		}},
	}
}

// enqueueTurn wakes a conversation. added is false when its job exists already, which is right everywhere but after the
// conversation's own job was completed in this very transaction.
func (s *Store) enqueueTurn(ctx context.Context, tx *sql.Tx, c ConversationID) (added bool, err error) {
	r, err := s.queue.InsertTx(ctx, tx, turnArgs{c}, jobOptions("turn"))
	if err != nil {
		return false, fmt.Errorf("waking %s: %w", c, err)
	}
	return !r.UniqueSkippedAsDuplicate, nil
}

// enqueueApproved wakes the execution of an approved call.
func (s *Store) enqueueApproved(ctx context.Context, tx *sql.Tx, c CallID) error {
	if _, err := s.queue.InsertTx(ctx, tx, approvedArgs{c}, jobOptions("approved")); err != nil {
		return fmt.Errorf("waking %s: %w", c, err)
	}
	return nil
}

// retry is the wait before an attempt after an error: 0.2 s growing to 5 s, beyond which only River's leader would move
// the job.
func retry(attempt int) time.Time {
	wait := 5 * time.Second
	if attempt >= 0 && attempt < 5 {
		wait = min(wait, 200*time.Millisecond<<attempt)
	}
	return time.Now().Add(wait)
}

type turnWorker struct {
	river.WorkerDefaults[turnArgs]
	work func(ctx context.Context, job *river.Job[turnArgs]) error
}

func (w *turnWorker) Work(ctx context.Context, job *river.Job[turnArgs]) error {
	return w.work(ctx, job)
}
func (w *turnWorker) Timeout(*river.Job[turnArgs]) time.Duration   { return -1 } // the run has its own
func (w *turnWorker) NextRetry(job *river.Job[turnArgs]) time.Time { return retry(job.Attempt) }

type approvedWorker struct {
	river.WorkerDefaults[approvedArgs]
	work func(ctx context.Context, job *river.Job[approvedArgs]) error
}

func (w *approvedWorker) Work(ctx context.Context, job *river.Job[approvedArgs]) error {
	return w.work(ctx, job)
}
func (w *approvedWorker) Timeout(*river.Job[approvedArgs]) time.Duration   { return -1 }
func (w *approvedWorker) NextRetry(job *river.Job[approvedArgs]) time.Time { return retry(job.Attempt) }

// errElsewhere is given to River by a client that knows a kind only so that its leader does not discard stuck jobs of it.
var errElsewhere = errors.New("this client does not work on this kind")

// workers registers both kinds, as every started client must.
func workers(turn func(context.Context, *river.Job[turnArgs]) error, approved func(context.Context, *river.Job[approvedArgs]) error) *river.Workers {
	if turn == nil {
		turn = func(context.Context, *river.Job[turnArgs]) error { return errElsewhere }
	}
	if approved == nil {
		approved = func(context.Context, *river.Job[approvedArgs]) error { return errElsewhere }
	}
	w := river.NewWorkers()
	river.AddWorker(w, &turnWorker{work: turn})
	river.AddWorker(w, &approvedWorker{work: approved})
	return w
}

// approvedSuffix tells the client of approved calls from that of turns: two running clients need two ids.
const approvedSuffix = ".approved"

// liveTurn is a job that this process works on.
type liveTurn struct {
	job    *river.Job[turnArgs]
	ctx    context.Context // River's own, without its end: completing the job needs the client in it
	cancel context.CancelCauseFunc
	run    RunID // once StartRun made one
	done   bool  // the job was completed in a committed transaction
}

// ErrLater is what run may return from a turn that it did not start: the turn is offered again in half a second, here or to
// another instance. It counts as no failure.
var ErrLater = errors.New("the turn is to be offered again later")

// laterWait is short enough for River to leave the job available meanwhile, so that no leader is needed to bring it back.
const laterWait = 500 * time.Millisecond

// ErrWished is the cause of a turn's cancelled context when its person asked to stop.
var ErrWished = errors.New("the person asked to stop")

// Wished tells whether a turn's context ended because its person asked to stop, and not because the process stops.
func Wished(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, ErrWished) || errors.Is(cause, rivertype.ErrJobCancelledRemotely)
}

// ServeTurns blocks and calls run for each conversation that has a turn to take, at most max at once in this process,
// until ctx ends; then running turns get a cancelled context and are waited for, at most drain. run must go through
// StartRun and FinishRun; an error is retried with back-off, ErrLater is not an error. max may be larger than what can be
// worked on at once, when run lets turns wait before their StartRun: Waiting tells whose they are. cancelled contexts also
// carry a person's wish to stop: see Wished.
func (s *Store) ServeTurns(ctx context.Context, max int, drain time.Duration, run func(ctx context.Context, t Turn) error) error {
	work := func(ctx context.Context, job *river.Job[turnArgs]) error { return s.workOn(ctx, job, run) }
	driver := s.driver
	if s.pool != nil {
		// LISTEN takes its connection out of the pool for good, so it has a pool of its own.
		c := s.pool.Config().Copy()
		c.MaxConns, c.MinConns, c.MinIdleConns = 1, 0, 0
		listen, err := pgxpool.NewWithConfig(ctx, c)
		if err != nil {
			return fmt.Errorf("connecting to listen: %w", err)
		}
		defer listen.Close()
		driver = riverdatabasesql.NewWithPgxListener(s.db, listen)
	}
	client, err := river.NewClient(driver, &river.Config{
		ID:                          s.instance,
		Queues:                      map[string]river.QueueConfig{"turn": {MaxWorkers: max}},
		Workers:                     workers(work, nil),
		FetchCooldown:               5 * time.Millisecond, // the default costs 50 ms a start (measured)
		FetchPollInterval:           time.Second,
		CompletedJobRetentionPeriod: time.Hour,
		Logger:                      s.riverLog(),
	})
	if err != nil {
		return fmt.Errorf("preparing the queue: %w", err)
	}
	s.turns.Add(1)
	defer s.turns.Add(-1)
	return s.serve(ctx, client, drain)
}

// servesTurns tells whether this process takes turns, and is to go on with it.
func (s *Store) servesTurns() bool { return s.turns.Load() > 0 && !s.isStopping() }

// workOn gives one job to run and judges by our rows, not by run's word, whether it is over.
func (s *Store) workOn(ctx context.Context, job *river.Job[turnArgs], run func(ctx context.Context, t Turn) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &liveTurn{job: job, ctx: context.WithoutCancel(ctx), cancel: cancel}
	s.mu.Lock()
	s.live[job.ID] = l
	s.mu.Unlock()
	defer s.forget(job.ID) // also after a panic, which River turns into an error
	err := run(ctx, Turn{Conversation: job.Args.Conversation, Job: job.ID})
	s.mu.Lock()
	done, started := l.done, l.run != ""
	s.mu.Unlock()
	switch {
	case done:
		return nil
	case errors.Is(err, ErrLater) && !started:
		return river.JobSnooze(laterWait)
	case err == nil:
		// River would complete the job now, outside any transaction of ours: the naive form stranded 1 of 150
		// conversations (measured).
		return fmt.Errorf("turn of %s ended without FinishRun", job.Args.Conversation)
	}
	return err
}

func (s *Store) forget(job int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, job)
}

// ServeApproved blocks and calls execute for each approved call, at most max at once, until ctx ends. execute begins with
// BeginApproved and ends with EndApproved.
func (s *Store) ServeApproved(ctx context.Context, max int, execute func(ctx context.Context, a Approval) error) error {
	work := func(ctx context.Context, job *river.Job[approvedArgs]) error {
		a, err := s.approvedCall(ctx, job.Args.Call)
		if errors.Is(err, ErrNotFound) {
			return nil // decided otherwise or ended since: nothing to do
		}
		if err != nil {
			return err
		}
		return execute(ctx, a)
	}
	client, err := river.NewClient(s.driver, &river.Config{
		ID:                          s.instance + approvedSuffix,
		Queues:                      map[string]river.QueueConfig{"approved": {MaxWorkers: max}},
		Workers:                     workers(nil, work),
		FetchCooldown:               5 * time.Millisecond,
		FetchPollInterval:           200 * time.Millisecond, // a person just pressed a button; nothing here is cancelled
		PollOnly:                    true,
		LeaderElectionDisabled:      true,
		CompletedJobRetentionPeriod: time.Hour,
		Logger:                      s.riverLog(),
	})
	if err != nil {
		return fmt.Errorf("preparing the queue: %w", err)
	}
	return s.serve(ctx, client, 30*time.Second)
}

// startTries is how often the queue is started before it is given up: its own patience with a busy database is ten seconds.
const startTries = 6

func (s *Store) startQueue(ctx context.Context, client *river.Client[*sql.Tx]) error {
	for try := 1; ; try++ {
		err := client.Start(context.WithoutCancel(ctx))
		if err == nil || try == startTries || ctx.Err() != nil {
			return err
		}
		s.log.Warn().Str("event", "queue.not_started").Int("try", try).Err(err).Send()
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// serve runs a client until ctx ends, and then gives its work at most drain.
func (s *Store) serve(ctx context.Context, client *river.Client[*sql.Tx], drain time.Duration) error {
	s.beginServing()
	defer s.endServing()
	if err := s.beat(ctx); err != nil { // before anything is taken under this name
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	// Started without the end of ctx, so that the end is ours to time.
	if err := s.startQueue(ctx, client); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("starting the queue: %w", err)
	}
	select {
	case <-ctx.Done():
	case <-client.Stopped():
		return errors.New("the queue stopped by itself")
	}
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := client.StopAndCancel(stop); err != nil {
		return fmt.Errorf("draining the queue: %w", err)
	}
	return nil
}

func (s *Store) beginServing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving++; s.serving == 1 {
		s.quiet, s.stopping = make(chan struct{}), false
	}
}

func (s *Store) endServing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving--; s.serving == 0 {
		close(s.quiet)
		s.quiet = nil
	}
}

// served waits until every Serve verb has returned.
func (s *Store) served(ctx context.Context) error {
	s.mu.Lock()
	quiet := s.quiet
	s.mu.Unlock()
	if quiet == nil {
		return nil
	}
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	return nil
}

// isStopping tells whether turns end because this process is being stopped.
func (s *Store) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// turn gives the job this process works on, unless it has given its work up.
func (s *Store) turn(job int64) (*liveTurn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.live[job]; l != nil && !s.fenced {
		return l, nil
	}
	return nil, fmt.Errorf("job %d is not served here: %w", job, ErrLost)
}

// holdJob locks a job that is about to become a run, if it still is the one to be worked on. A worker that was frozen
// between the fetch and here finds it discarded: somebody else has the conversation, and must not be taken for dead. Whoever
// locks a job and then more holds its conversation, so taking it this early closes no circle.
func (s *Store) holdJob(ctx context.Context, tx *sql.Tx, job int64) error {
	var yes int
	err := tx.QueryRowContext(ctx, `SELECT 1 FROM river_job WHERE id = $1 AND state = 'running'`+s.d.forUpdate, job).Scan(&yes)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrLost
	}
	return err
}

// completeJob ends the turn's job in the transaction that ends its run. River reports no error for a row that does not
// run any more and returns it as it is, so the state is compared. Called after the fence was compared.
func (s *Store) completeJob(tx *sql.Tx, l *liveTurn) error {
	job, err := river.JobCompleteTx[*jobDriver](l.ctx, tx, l.job)
	if errors.Is(err, rivertype.ErrNotFound) {
		return ErrLost
	}
	if err != nil {
		return fmt.Errorf("completing job %d: %w", l.job.ID, err)
	}
	if job.State != rivertype.JobStateCompleted {
		return ErrLost // discarded by a reaper
	}
	return nil
}

// jobDriver satisfies JobCompleteTx's type parameter, which it uses for nothing but its transaction type: the driver it
// works with is the client's (river 0.51.2, read).
type jobDriver = riverdatabasesql.Driver

// riverLog passes on what River warns of. Its records hold job ids and errors; our args hold ids only.
func (s *Store) riverLog() *slog.Logger { return slog.New(riverHandler{s.log}) }

type riverHandler struct{ log zerolog.Logger }

func (h riverHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h riverHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h riverHandler) WithGroup(string) slog.Handler                { return h }
func (h riverHandler) Handle(_ context.Context, r slog.Record) error {
	e := h.log.Warn().Str("event", "store.queue").Str("said", r.Message)
	r.Attrs(func(a slog.Attr) bool {
		e.Str("queue_"+a.Key, a.Value.String())
		return true
	})
	e.Send()
	return nil
}
