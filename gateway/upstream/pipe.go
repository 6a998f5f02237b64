package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"pilder/gateway"
	"pilder/store"
)

// startAgain is how soon after its start a process that died is started again, and it doubles with each death in a row: a
// program that cannot run is not run all the time.
const startAgain = time.Second

// pipeLink is one person's process, or the one that all share. It is started at the first question and again when it died.
type pipeLink struct {
	u     *server
	who   gateway.Caller
	owner string

	starting chan struct{} // holds one: it is started by one caller at a time
	mu       sync.Mutex
	now      *process // nil: none runs
	deaths   int      // in a row, without an answer between
	started  time.Time
}

func newPipeLink(u *server, who gateway.Caller, key linkKey) *pipeLink {
	owner := string(key.membership)
	switch {
	case owner != "":
	case u.Shared:
		owner = "shared"
	default:
		owner = "house" // only ever looks at the list
	}
	return &pipeLink{u: u, who: who, owner: owner, starting: make(chan struct{}, 1)}
}

// ask sends one request to the process. What could not be written was not performed; once it is written, a death before the
// answer proves nothing, and only what changes nothing is asked again.
func (l *pipeLink) ask(ctx context.Context, q question) (json.RawMessage, error) {
	for try := 0; ; try++ {
		p, err := l.running(ctx)
		if err != nil {
			return nil, err
		}
		raw, err := p.ask(ctx, q)
		if !errors.Is(err, errLost) && !errors.Is(err, errNotSent) {
			l.lives()
			return raw, err
		}
		if ctx.Err() != nil || errors.Is(err, errCancelled) {
			if p.isOver() || errors.Is(ctx.Err(), context.DeadlineExceeded) && p.isSilent() {
				l.died(p)
			}
			return nil, err
		}
		l.died(p)
		if try > 0 || !q.read && !errors.Is(err, errNotSent) {
			return nil, err
		}
	}
}

// running gives the process, started and introduced if none is.
func (l *pipeLink) running(ctx context.Context) (*process, error) {
	if p := l.current(); p != nil {
		return p, nil
	}
	select {
	case l.starting <- struct{}{}:
		defer func() { <-l.starting }()
	case <-ctx.Done():
		return nil, errors.Join(errNotSent, ctx.Err())
	}
	if p := l.current(); p != nil {
		return p, nil
	}
	if l.tooSoon() {
		return nil, errNotSent
	}
	p, err := l.start(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = p
	return p, nil
}

func (l *pipeLink) current() *process {
	l.mu.Lock()
	p := l.now
	l.mu.Unlock()
	if p != nil && p.isOver() {
		l.died(p)
		return nil
	}
	return p
}

// tooSoon tells whether the process has just died, and notes the next start.
func (l *pipeLink) tooSoon() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.u.c.cfg.Now()
	if l.deaths > 1 && now.Sub(l.started) < startAgain<<min(l.deaths-2, 8) {
		return true
	}
	l.started = now
	return false
}

func (l *pipeLink) lives() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaths = 0
}

func (l *pipeLink) died(p *process) {
	l.mu.Lock()
	if l.now == p {
		l.now = nil
		l.deaths++
	}
	l.mu.Unlock()
	p.end()
}

// start starts the process and introduces pilder. A stdio server of the modern revision answers the older handshake too.
func (l *pipeLink) start(ctx context.Context) (*process, error) {
	secret, err := l.u.secret(ctx, l.who, "")
	if err != nil {
		return nil, err
	}
	c := Command{Upstream: l.u.Slug, Owner: l.owner, Argv: l.u.Command, Folder: l.u.Folder}
	for name, value := range l.u.Env {
		c.Env = append(c.Env, name+"="+value)
	}
	slices.Sort(c.Env)
	if !secret.IsZero() {
		name := l.u.Header
		if name == "" {
			name = "TOKEN"
		}
		c.Env = append(c.Env, name+"="+secret.Reveal())
	}
	pipe, err := l.u.c.cfg.Start(ctx, c)
	if err != nil {
		l.u.c.cfg.Log.Error().Str("event", "upstream.not_started").Str("app", l.u.Slug).Err(err).Send()
		return nil, errNotSent
	}
	p := newProcess(l.u, pipe, secret)
	raw, err := p.ask(ctx, question{method: "initialize", params: l.u.introduction(), read: true})
	if err == nil {
		_, err = l.u.introduced(raw)
	}
	if err == nil {
		err = p.write(notice("notifications/initialized", map[string]any{}))
	}
	if err != nil {
		l.died(p)
		l.mu.Lock()
		l.deaths++
		l.mu.Unlock()
		return nil, errors.Join(errNotSent, ctx.Err())
	}
	return p, nil
}

// close ends the process.
func (l *pipeLink) close(context.Context) {
	l.mu.Lock()
	p := l.now
	l.now = nil
	l.mu.Unlock()
	if p != nil {
		p.end()
	}
}

// process is a running stdio server: one reader, any number of askers.
type process struct {
	u       *server
	pipe    io.ReadWriteCloser
	secret  store.Secret // in its environment: it may say it aloud
	reading sync.WaitGroup
	writing sync.Mutex

	mu      sync.Mutex
	waiting map[int64]*waiter
	silent  int // deadlines in a row that no answer met
	over    bool
}

// maxSilent deadlines in a row without any answer mean that a process hangs: one may be a slow question, so it is asked once
// more.
const maxSilent = 2

// waiter is a question that waits for its answer.
type waiter struct {
	question
	answer chan message // holds one; closed when none will come
}

func newProcess(u *server, pipe io.ReadWriteCloser, secret store.Secret) *process {
	p := &process{u: u, pipe: pipe, secret: secret, waiting: map[int64]*waiter{}}
	p.reading.Go(p.read)
	return p
}

func (p *process) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// isSilent notes a deadline that no answer met, and tells whether it was one too many.
func (p *process) isSilent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent++
	return p.silent >= maxSilent
}

// ask writes a question and waits for its answer. One that its caller gives up or takes back is cancelled at the process; a
// write that was taken back has a moment to say what it came to.
func (p *process) ask(ctx context.Context, q question) (json.RawMessage, error) {
	id := p.u.ids.Add(1)
	body, err := q.envelope(id, nil)
	if err != nil {
		return nil, errors.Join(errNotSent, err)
	}
	w := &waiter{question: q, answer: make(chan message, 1)}
	if !p.await(id, w) {
		return nil, errNotSent
	}
	defer p.forget(id)
	if err := p.write(body); err != nil {
		return nil, errLost // a part of the line may have been read
	}
	var cause error
	select {
	case m, came := <-w.answer:
		return answered(m, came)
	case <-q.cancelled:
		cause = errCancelled
	case <-ctx.Done():
		cause = ctx.Err()
	}
	_ = p.write(notice("notifications/cancelled", map[string]any{"requestId": id})) // a failed one ends the process
	if cause == errCancelled {
		grace := time.NewTimer(p.u.c.cfg.Grace)
		defer grace.Stop()
		select {
		case m, came := <-w.answer:
			return answered(m, came)
		case <-grace.C:
		case <-ctx.Done():
		}
	}
	return nil, errors.Join(errLost, cause)
}

func answered(m message, came bool) (json.RawMessage, error) {
	if !came {
		return nil, errLost
	}
	return m.outcome()
}

func (p *process) await(id int64, w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.waiting[id] = w
	}
	return !p.over
}

func (p *process) forget(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// write writes one message as one line. Where that fails a part of the line may stand there, and the next message would go
// on with it: the process is over, whatever the message was.
func (p *process) write(body []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.pipe.Write(append(body, '\n'))
	if err != nil {
		p.mu.Lock()
		p.over = true
		p.mu.Unlock()
		_ = p.pipe.Close() // the reader tells who waits; it may be the one that writes here
	}
	return err
}

// read hands the process's messages on until it ends, or says something that is too long to be a message.
func (p *process) read() {
	lines := events{r: bufio.NewReader(p.pipe), limit: 0}
	for {
		line, err := lines.line(p.u.c.cfg.MaxAnswer + margin)
		if err != nil {
			break
		}
		if m, err := decodeMessage(hide(line, p.secret)); err == nil { // servers print other things too
			p.take(m)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for id, w := range p.waiting {
		close(w.answer)
		delete(p.waiting, id)
	}
}

// take gives one message to whoever it is for.
func (p *process) take(m message) {
	if m.Method != "" && len(m.ID) > 0 {
		_ = p.write(answerTo(m)) // a failed one ends the process
		return
	}
	p.mu.Lock()
	for id, w := range p.waiting {
		if m.isAnswer(id) {
			w.answer <- m
			p.silent = 0
			delete(p.waiting, id)
			break
		}
		if r, is := m.progressOf(id); is && w.progress != nil {
			w.progress(r) // never blocks; under the lock, so that none comes once its caller has left
		}
	}
	p.mu.Unlock()
	if m.Method == "notifications/tools/list_changed" {
		p.u.listChanged()
	}
}

// end closes the pipe, which ends the process and all it started, and waits for the reader.
func (p *process) end() {
	_ = p.pipe.Close() // however it ended
	p.reading.Wait()
}
