package gateway_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"pilder/gateway"
	"pilder/store"
	"pilder/store/storetest"
)

// life is one process of the play: a store, a gateway over an app that writes down what it is made to do, agents and people.
// It dies at a step that was chosen before.
type life struct {
	play
	s       *store.Store
	g       *gateway.Gateway
	behind  *sql.DB // the database, beside the store
	ledger  *os.File
	steps   atomic.Int64
	presses chan store.UpdateRef // updates of buttons that can be pressed
	over    sync.WaitGroup

	mu    sync.Mutex
	asked map[store.RunID]map[store.ApprovalID]bool
}

// step is a place where the process may die.
func (l *life) step() {
	if l.steps.Add(1) == l.KillAfter {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing comes after it
	}
}

// playLife is the process.
func playLife() error {
	l := &life{asked: map[store.RunID]map[store.ApprovalID]bool{}}
	if err := json.Unmarshal([]byte(os.Getenv("PILDER_TEST_PLAY")), &l.play); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	var err error
	if l.ledger, err = os.OpenFile(l.Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	driver, dsn := behindOf(l.URL)
	if l.behind, err = sql.Open(driver, dsn); err != nil {
		return err
	}
	if l.s, err = store.Open(ctx, store.Config{URL: l.URL, Key: storetest.Key()}); err != nil {
		return err
	}
	l.g, err = gateway.New(gateway.Config{
		TokenKeys: []gateway.TokenKey{{ID: "k", Secret: key("k")}},
		Card: func(a store.Approval, to store.Approver) store.Draft {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.asked[a.Run] == nil {
				l.asked[a.Run] = map[store.ApprovalID]bool{}
			}
			l.asked[a.Run][a.ID] = true // also of a transaction that is tried again
			return store.Draft{Notice: "card"}
		},
		Outcome: func(a store.Approval, o store.Outcome, text string) []store.Draft {
			return []store.Draft{{Company: a.Company, Chat: a.Chat, Kind: store.DraftNotice, Notice: string(o)}}
		},
		Lost: func(store.CallView, store.Run) []store.Draft { return nil },
	}, l.s, l.app())
	if err != nil {
		return err
	}
	loops, stop := context.WithCancel(ctx)
	all, loops := errgroup.WithContext(loops)
	l.over.Add(l.Runs)
	all.Go(func() error { return l.s.Run(loops) })
	all.Go(func() error { return l.g.ServeApproved(loops) })
	all.Go(func() error { return l.s.ServeTurns(loops, 2, patience, l.turn) })
	all.Go(func() error {
		defer stop()
		return l.write(loops)
	})
	if err := all.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return errors.Join(l.behind.Close(), l.s.Close())
}

// app is the world's app, each tool writing its effect down: first what the database says of the call at that moment.
func (l *life) app() *app {
	a := newApp()
	for _, tool := range []string{create, remove, mail} {
		a.on(tool, func(ctx context.Context, c gateway.Call) (gateway.Result, error) {
			l.step()
			if _, err := fmt.Fprintf(l.ledger, "%s %s %s %s\n", c.ID, l.decision(c), c.Tool, compact(c.Args)); err != nil {
				return gateway.Result{}, err
			}
			l.step()
			runtime.Gosched()
			r := done("x")
			if tool == create {
				r.Undo = &gateway.Undo{Tool: remove, Args: json.RawMessage(fmt.Sprintf(`{"undo":%q}`, c.ID))}
			}
			return r, nil
		})
	}
	return a
}

// decision is what stands of a call before its effect: "allow" of one that was allowed and is open, "begun" of one that
// somebody approved and that was begun, else what is wrong.
func (l *life) decision(c gateway.Call) string {
	var decision, outcome, approval string
	var begun int64
	err := l.behind.QueryRow(`SELECT c.decision, c.outcome, COALESCE(a.state, ''), COALESCE(a.begun_ms, 0)
		FROM call c LEFT JOIN approval a ON a.call_id = c.call_id WHERE c.call_id = $1`, c.ID).Scan(&decision, &outcome, &approval, &begun)
	switch {
	case err != nil:
		return "no-row"
	case decision == "allow" && outcome == "":
		return "allow"
	case outcome == "held" && approval == "approved" && begun > 0:
		return "begun"
	}
	return "undecided"
}

func compact(args json.RawMessage) string {
	var v any
	_ = json.Unmarshal(args, &v) // was checked by its schema
	out, _ := json.Marshal(v)
	return string(out)
}

// write makes the turns of this life come in, and the updates of all that will be pressed, and waits until the turns are over
// and, in the last life, until nothing approved is left to perform.
func (l *life) write(ctx context.Context) error {
	poller, err := l.s.AcquirePoller(ctx, worldBot, time.Hour)
	if err != nil {
		return err
	}
	var all []store.Arrival
	for i := range l.Runs {
		id := int64(l.Life*100_000 + i + 1)
		all = append(all, store.Arrival{UpdateID: id, Raw: []byte(`{}`), Kind: store.ArrivalMessage, From: store.Person{Telegram: 103},
			Chat: store.Chat{ID: -500, Topic: id}, Telegram: id, Text: "do it"})
	}
	l.presses = make(chan store.UpdateRef, pressesOfRun*l.Runs)
	for i := range cap(l.presses) {
		id := int64(l.Life*100_000 + 50_000 + i)
		all = append(all, store.Arrival{UpdateID: id, Raw: []byte(`{}`), Kind: store.ArrivalControl, From: store.Person{Telegram: 103},
			Chat: store.Chat{ID: 103, Private: true}})
		l.presses <- store.UpdateRef{Bot: worldBot, UpdateID: id}
	}
	if _, err := l.s.Receive(ctx, poller, all); err != nil {
		return err
	}
	l.over.Wait()
	if l.KillAfter > 0 { // all is over before the kill came
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return l.settle(ctx)
}

// storiesOfRun is how many calls are made in one turn, each the beginning of an interleaving of its own. A run may have ten
// of them decided by people.
const storiesOfRun = 40

// pressesOfRun is how much is pressed about a run at most: two times ten cards, three undos and a summary, and once more
// for a run that a killed process left.
const pressesOfRun = 50

// turn is one turn: the agent's calls, then its end, then what people press.
func (l *life) turn(ctx context.Context, turn store.Turn) error {
	run, ok, err := l.s.StartRun(ctx, turn)
	if err != nil || !ok {
		return err
	}
	if run.Chat.Topic/100_000 == int64(l.Life) && run.Attempt == 1 {
		defer l.over.Done()
	}
	l.step()
	if err := l.act(ctx, run); err != nil {
		return err
	}
	l.step()
	answer := store.Draft{Kind: store.DraftAnswer, Markdown: "ok"}
	if _, err := l.s.FinishRun(ctx, turn, run, store.Finish{State: store.RunSucceeded, Reason: "ok", Drafts: []store.Draft{answer}}); err != nil {
		return err
	}
	return l.tap(ctx, run)
}

// dice are those of one story of a turn.
func (l *life) dice(run store.Run, story int) *rand.Rand {
	return rand.New(rand.NewPCG(l.Seed, uint64(run.Chat.Topic)*1000+uint64(story)))
}

// act lets the agent make all the calls of a turn, a few at a time, behind its door.
func (l *life) act(ctx context.Context, run store.Run) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	token, err := l.g.MintToken(run)
	if err != nil {
		return err
	}
	door, shut := context.WithCancel(ctx)
	defer shut()
	closed := make(chan error, 1)
	go func() { closed <- l.g.ServeRun(door, run, listener) }()
	agent := &scripted{life: l, run: run, addr: listener.Addr().String(), token: token.Reveal()}
	var calls errgroup.Group
	calls.SetLimit(4)
	for story := range storiesOfRun {
		calls.Go(func() error { agent.act(ctx, story, l.dice(run, story)); return nil })
	}
	_ = calls.Wait() // always nil
	shut()
	return <-closed
}

// scripted is an agent behind a door.
type scripted struct {
	*life
	run   store.Run
	addr  string
	token string
}

// act is one story's beginning: a call in two spellings, made again, perhaps at once, perhaps over a connection that is cut.
func (a *scripted) act(ctx context.Context, story int, dice *rand.Rand) {
	name := fmt.Sprintf("%d-%d", a.run.Chat.Topic, story)
	tool, args := create, []string{fmt.Sprintf(`{"summary":%q}`, name), fmt.Sprintf(`{ "summary" : %q }`, name)}
	switch story % 8 {
	case 0:
		tool, args = mail, []string{fmt.Sprintf(`{"para":["%s@otra.com"]}`, name), fmt.Sprintf(`{"para": ["%s@otra.com"]}`, name)}
	case 1:
		tool, args = remove, []string{fmt.Sprintf(`{"id":%q,"x":1}`, name), fmt.Sprintf(`{"x":1,"id":%q}`, name)}
	}
	var all sync.WaitGroup
	for range 1 + dice.IntN(2) {
		spelling, cut, after := args[dice.IntN(2)], dice.IntN(3) == 0, dice.IntN(2000)
		all.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if cut {
				go func() {
					for range after {
						runtime.Gosched()
					}
					cancel()
				}()
			}
			a.call(ctx, tool, spelling)
		})
		if dice.IntN(2) == 0 {
			all.Wait() // one after the other
		}
	}
	all.Wait()
}

// call posts one tools/call; whatever comes of it, the agent goes on.
func (a *scripted) call(ctx context.Context, tool, args string) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, args)
	req, err := http.NewRequestWithContext(ctx, "POST", gateway.DoorURL, strings.NewReader(body))
	if err != nil {
		return
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool} {
		req.Header.Set(k, v)
	}
	a.step()
	resp, err := through{a.addr, "Bearer " + a.token}.RoundTrip(req)
	if err != nil {
		return // cut
	}
	defer resp.Body.Close()
	buf := make([]byte, 4096)
	for {
		if _, err := resp.Body.Read(buf); err != nil {
			break
		}
	}
	a.step()
}

// tap is what people press about a run, on cards, the summary and undo buttons, several at once, and not all of them may.
func (l *life) tap(ctx context.Context, run store.Run) error {
	// Whoever presses has the card.
	if _, err := l.behind.ExecContext(ctx, `UPDATE reply SET state = 'sent' WHERE state = 'queued' AND run_id = $1`, run.ID); err != nil {
		return err
	}
	targets, err := l.targets(ctx, run)
	if err != nil {
		return err
	}
	var people errgroup.Group
	people.SetLimit(4)
	for i, target := range targets {
		dice := l.dice(run, 100+i)
		for range 1 + dice.IntN(2) {
			who, yes, from := []int64{101, 102, 102, 103}[dice.IntN(4)], dice.IntN(10) < 7, <-l.presses
			people.Go(func() error {
				l.step()
				err := l.press(ctx, from, target, run.ID, who, yes)
				l.step()
				if expected(err) {
					return nil
				}
				return err
			})
		}
	}
	return people.Wait()
}

// targets are what there is to press: every approval of the run, every undo, and now and then the summary.
func (l *life) targets(ctx context.Context, run store.Run) (all []string, err error) {
	rows, err := l.behind.QueryContext(ctx, `SELECT undo_id FROM undo WHERE run_id = $1 AND state = 'offered' ORDER BY undo_id`, run.ID)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.asked[run.ID] {
		all = append(all, string(id))
	}
	slices.Sort(all)
	if l.dice(run, 99).IntN(3) == 0 {
		all = slices.Insert(all, len(all)/2, "together")
	}
	return all, rows.Err()
}

func (l *life) press(ctx context.Context, from store.UpdateRef, target string, run store.RunID, who int64, yes bool) error {
	none := func(store.Approval) []store.Draft { return nil }
	switch {
	case target == "together":
		_, err := l.s.DecideTogether(ctx, from, run, yes, who, none)
		return err
	case strings.HasPrefix(target, "und_"):
		_, err := l.s.TakeBack(ctx, from, target, who)
		return err
	}
	_, err := l.s.Decide(ctx, from, store.Verdict{Approval: store.ApprovalID(target), Approve: yes, Telegram: who}, none)
	return err
}

// expected tells the refusals that a press may meet.
func expected(err error) bool {
	for _, e := range []error{store.ErrNotYours, store.ErrDecided, store.ErrExpired, store.ErrNotShown, store.ErrArriving, store.ErrNotFound} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// settle waits until no turn is open and every approved call has ended.
func (l *life) settle(ctx context.Context) error {
	const left = `SELECT (SELECT COUNT(*) FROM message WHERE state IN ('queued', 'running')) + (SELECT COUNT(*) FROM call WHERE outcome = '')
		+ (SELECT COUNT(*) FROM approval a JOIN call c ON c.call_id = a.call_id WHERE a.state = 'approved' AND c.outcome = 'held')`
	for {
		wake := l.s.Wake()
		var open int
		if err := l.behind.QueryRowContext(ctx, left).Scan(&open); err != nil {
			return err
		}
		if open == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d messages and calls never came to their end", open)
		case <-wake:
		case <-time.After(500 * time.Millisecond): // what other loops do rings no bell
		}
	}
}
