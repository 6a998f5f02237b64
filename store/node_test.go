package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"pilder/policy"
	"pilder/store"
)

// script is what all processes of one kill loop know. It stays the same over every kill, so what comes from outside does.
type script struct {
	URL     string
	Seed    uint64
	Updates int       // how many come
	Begin   time.Time // when the first comes
	Every   time.Duration
	Logs    string // folder of what happened outside the database
	TTL     time.Duration
	People  []int64 // Telegram ids of members
}

const loopBot store.BotID = 99

const (
	loopChats = 5
	loopFD    = 3 // held by every process of a node: the harness sees it closed when all of them are gone
)

func readScript() (script, error) {
	var s script
	err := json.Unmarshal([]byte(os.Getenv("PILDER_TEST_SCRIPT")), &s)
	return s, err
}

// arrival is the i-th update that comes, the same each time it is asked for. Every 17th is a wish to stop.
func (s script) arrival(i int) store.Arrival {
	r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
	a := store.Arrival{
		UpdateID: int64(i), Raw: []byte("{}"), Kind: store.ArrivalMessage, Telegram: int64(i),
		From: store.Person{Telegram: s.People[r.IntN(len(s.People))]}, Chat: store.Chat{ID: -1 - int64(r.IntN(loopChats))},
	}
	a.Text = fmt.Sprintf("%d/%d", i, a.From.Telegram)
	if i%17 == 0 {
		a.Kind = store.ArrivalControl
		a.Raw = fmt.Appendf(nil, "%d %d", a.From.Telegram, a.Chat.ID)
	}
	return a
}

// poll gives what has come by now from offset on, as getUpdates would.
func (s script) poll(offset int64) []store.Arrival {
	var all []store.Arrival
	for i := int(max(offset, 1)); i <= s.Updates && len(all) < 20; i++ {
		if time.Now().Before(s.Begin.Add(time.Duration(i) * s.Every)) {
			break
		}
		all = append(all, s.arrival(i))
	}
	return all
}

// note appends one line to a log of the outside, in one write, so that lines of several processes do not mix.
func (s script) note(log, format string, args ...any) error {
	f, err := os.OpenFile(filepath.Join(s.Logs, log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

// node is one process of pilder as far as the store sees it: poller, control lane, runner, sender.
type node struct {
	script
	*store.Store
	kept  *kept
	alive *os.File // kept here, for a file that nobody refers to is closed by the garbage collector
}

func playNode() error {
	sc, err := readScript()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	log, err := os.OpenFile(filepath.Join(sc.Logs, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s, err := store.Open(ctx, store.Config{URL: sc.URL, Key: store.NewSecret(os.Getenv("PILDER_TEST_KEY")), BeatTTL: sc.TTL, Log: zerolog.New(log)})
	if ctx.Err() != nil {
		return nil // told to stop before it began
	}
	if err != nil {
		return err
	}
	defer s.Close()
	n := &node{sc, s, &kept{runs: map[store.ConversationID]store.RunID{}}, os.NewFile(loopFD, "alive")}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Run(ctx) })
	g.Go(func() error { return s.ServeTurns(ctx, 4, patience, n.turn) })
	g.Go(func() error { return n.bot(ctx) })
	return g.Wait()
}

// bot polls, settles and sends for as long as it holds the bot, and tries again when it does not.
func (n *node) bot(ctx context.Context) error {
	for ctx.Err() == nil {
		p, err := n.AcquirePoller(ctx, loopBot, n.TTL)
		if err == nil {
			if _, err = n.RecoverReplies(ctx, p); err == nil {
				err = n.hold(ctx, p)
			}
		}
		var held *store.HeldError
		if err != nil && !errors.As(err, &held) && !errors.Is(err, store.ErrLost) && ctx.Err() == nil {
			return err
		}
		rest(ctx, 50*time.Millisecond)
	}
	return nil
}

func (n *node) hold(ctx context.Context, p store.Poller) error {
	renew := time.Now()
	for ctx.Err() == nil {
		if time.Since(renew) > n.TTL/3 {
			q, err := n.AcquirePoller(ctx, loopBot, n.TTL)
			if err != nil || q.Fence != p.Fence {
				return errors.Join(err, store.ErrLost)
			}
			renew = time.Now()
		}
		if batch := n.poll(p.Offset); len(batch) > 0 {
			if _, err := n.Receive(ctx, p, batch); err != nil {
				return err
			}
			p.Offset = batch[len(batch)-1].UpdateID + 1
		}
		if err := n.control(ctx); err != nil {
			return err
		}
		sent, err := n.sendNext(ctx, p)
		if err != nil {
			return err
		}
		if !sent {
			rest(ctx, 10*time.Millisecond)
		}
	}
	return n.ReleasePoller(context.WithoutCancel(ctx), p)
}

// control carries out the wishes to stop.
func (n *node) control(ctx context.Context) error {
	open, err := n.OpenUpdates(ctx, loopBot, 10)
	if err != nil {
		return err
	}
	for _, u := range open {
		var from, chat int64
		if _, err := fmt.Sscan(string(u.Raw), &from, &chat); err != nil {
			return err
		}
		_, err := n.Stop(ctx, u.Ref, from, store.Chat{ID: chat}, func(store.Stopped) []store.Draft { return nil })
		if err != nil && !errors.Is(err, store.ErrSettled) {
			return err
		}
	}
	return nil
}

// sendNext performs one send: the line in the log is what the chat would have seen.
func (n *node) sendNext(ctx context.Context, p store.Poller) (bool, error) {
	r, ok, _, err := n.NextReply(ctx, p)
	if err != nil || !ok {
		return false, err
	}
	if err := n.MarkSending(ctx, p, r.ID); err != nil {
		return false, err
	}
	if err := n.note("sent", "%s %d", r.ID, r.Draft.Chat.ID); err != nil {
		return false, err
	}
	return true, n.MarkSent(ctx, p, r.ID, 1)
}

// kept are the runs that a node has ready.
type kept struct {
	mu   sync.Mutex
	runs map[store.ConversationID]store.RunID
}

func (k *kept) take(c store.ConversationID) store.RunID {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.runs[c]
	delete(k.runs, c)
	return r
}

func (k *kept) put(r store.Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs[r.Conversation] = r.ID
}

// turn is a run: a child process that works for a while and has one effect. Every sixth or so is put off first, and after
// most of them the next is prepared.
func (n *node) turn(ctx context.Context, t store.Turn) error {
	if rand.IntN(6) == 0 {
		return store.ErrLater
	}
	if rand.IntN(2) == 0 { // while the turn waits at a gate
		head, ok, err := n.Waiting(ctx, t.Conversation)
		if err == nil && ok {
			err = n.prepare(ctx, t.Conversation, head.Member.ID)
		}
		if err != nil {
			return err
		}
	}
	t.Prepared = n.kept.take(t.Conversation)
	r, ok, err := n.StartRun(ctx, t)
	if err != nil || !ok {
		return err
	}
	state, err := n.work(ctx, r)
	if err != nil {
		return err
	}
	_, err = n.FinishRun(ctx, t, r, store.Finish{State: state, Reason: "loop", Drafts: []store.Draft{{Kind: store.DraftAnswer, Markdown: "done"}}})
	if errors.Is(err, store.ErrLost) {
		return nil
	}
	if err != nil || rand.IntN(4) == 0 {
		return err
	}
	return n.prepare(context.WithoutCancel(ctx), r.Conversation, r.Member.ID)
}

// prepare keeps a run ready, unless somebody was quicker.
func (n *node) prepare(ctx context.Context, c store.ConversationID, m store.MembershipID) error {
	r, err := n.Prepare(ctx, c, m, "")
	switch {
	case err == nil:
		n.kept.put(r)
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrLost):
		return nil
	}
	return err
}

func (n *node) work(ctx context.Context, r store.Run) (store.RunState, error) {
	var all []string
	for _, m := range r.Messages {
		all = append(all, m.Text)
	}
	dice := rand.New(rand.NewPCG(n.Seed, uint64(r.Messages[0].Telegram)+uint64(r.Attempt)<<32))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PILDER_TEST_PLAYS=agent", "PILDER_TEST_MS="+strconv.Itoa(60+dice.IntN(200)),
		"PILDER_TEST_TURN="+fmt.Sprintf("%d %d %s", r.Chat.ID, r.Member.Person.Telegram, strings.Join(all, ",")))
	cmd.ExtraFiles = []*os.File{n.alive}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	// The agent dies with this process: the signal belongs to the thread that started it, so that is kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if err := n.ChildStarted(ctx, r); err != nil {
		return n.cut(ctx, err)
	}
	if dice.IntN(3) == 0 { // early, so that many a kill comes after it
		if err := n.effect(ctx, r); err != nil {
			return n.cut(ctx, err)
		}
	}
	ended := make(chan error, 1)
	go func() { // reads until the agent is gone
		line, err := bufio.NewReader(said).ReadString('\n')
		if err == nil && line != "worked\n" {
			err = fmt.Errorf("agent said %q", line)
		}
		ended <- err
	}()
	select {
	case <-ctx.Done():
		cmd.Process.Kill()
		<-ended
		return n.cut(ctx, ctx.Err())
	case err := <-ended:
		if err != nil {
			return "", err
		}
	}
	return store.RunSucceeded, nil
}

// cut is how a run ends that was stopped, by a wish or by the end of the process.
func (n *node) cut(ctx context.Context, err error) (store.RunState, error) {
	switch {
	case store.Wished(ctx):
		return store.RunCancelled, nil
	case ctx.Err() != nil:
		return store.RunInterrupted, nil
	}
	return "", err
}

// effect performs a write of the outside: once at most for each message.
func (n *node) effect(ctx context.Context, r store.Run) error {
	c, err := n.BeginCall(ctx, store.NewCall{
		Run: r, Tool: "gmail-send", App: "gmail", Class: policy.ClassWrite, Args: json.RawMessage(`{}`), Decision: policy.Decision{Effect: policy.Allow},
	}, nil)
	if err != nil || c.Repeat {
		return err
	}
	if err := n.note("effects", "%d", r.Messages[0].Telegram); err != nil {
		return err
	}
	return n.EndCall(context.WithoutCancel(ctx), r.Principal.Company, c.ID, store.OutcomeDone, "", json.RawMessage(`{}`), nil)
}

// playAgent works on a turn: evidence outside the database of what ran when. A lock of the kernel's tells whether another
// agent works in the same conversation.
func playAgent() error {
	sc, err := readScript()
	if err != nil {
		return err
	}
	turn := os.Getenv("PILDER_TEST_TURN")
	chat, _, _ := strings.Cut(turn, " ")
	lock, err := os.Create(filepath.Join(sc.Logs, "chat"+chat))
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(sc.note("agents", "overlap %s", turn), err)
	}
	if err := sc.note("agents", "start %s", turn); err != nil {
		return err
	}
	ms, err := strconv.Atoi(os.Getenv("PILDER_TEST_MS"))
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(ms) * time.Millisecond) // the work
	if os.Getppid() == 1 {
		return sc.note("agents", "orphan %s", turn)
	}
	if err := sc.note("agents", "end %s", turn); err != nil {
		return err
	}
	_, err = fmt.Println("worked")
	return err
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
