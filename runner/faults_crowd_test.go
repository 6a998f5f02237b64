package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pilder/runner"
	"pilder/store"
)

// crowdChats is how many conversations one office has.
const crowdChats = 25

// crowdScripts are what a crowd's conversations do, one after the other. Those of stopped are ended by their person.
var (
	crowdScripts = []string{
		"echo", "answers and never exits", "waits to be stopped", "is killed", "echo again", "answers and leaves a daemon",
		"hangs in a tool", "echo", "waits and cannot be stopped", "works and has no result", "floods with events", "talks for ever",
		"echo", "answers when it is stopped", "two results", "closes its output", "busy", "crashes at the start",
	}
	stopped = []string{"waits to be stopped", "waits and cannot be stopped", "answers when it is stopped"}
)

// TestFaultsInCrowdsLeaveNothing has 100 runs of all kinds (200 in make faults), several at a time, in processes that serve one turn and in those
// that wait for more. Some are stopped by their person, some by the clock, some with the runner.
func TestFaultsInCrowdsLeaveNothing(t *testing.T) {
	t.Run("all", func(t *testing.T) {
		for name, warm := range map[string]int{"cold": 0, "warm": 4} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := newOffice(t, "as written", func(cfg *runner.Config) {
					cfg.WarmMax, cfg.MaxRuns, cfg.RunTimeout, cfg.Drain = warm, 6, 6*time.Second, patience
					cfg.IdleTimeout, cfg.ToolTimeout, cfg.InterruptGrace = 3*time.Second, 2*time.Second, 200*time.Millisecond
					cfg.ExitGrace, cfg.KillGrace = 200*time.Millisecond, 200*time.Millisecond
				})
				o.crowd()
			})
		}
	})
	if left := children(t); len(left) > 0 {
		t.Errorf("processes of this one are left: %v", left)
	}
}

// crowdRounds is 4, for 200 runs in all, where PILDER_CROWD says so, as make faults does; else 2, for half of them.
func crowdRounds(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("PILDER_CROWD"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 2
}

// crowd plays all rounds, and one more in the middle of which the runner is closed.
func (o *office) crowd() {
	t := o.t
	o.work()
	rounds := crowdRounds(t)
	for round := range rounds {
		o.round(round)
		for i := range crowdChats {
			o.settle(crowdChat(i))
		}
		heard := o.readAll()
		for i := range crowdChats {
			if len(heard[crowdChat(i).ID]) == 0 {
				t.Errorf("round %d: nobody answered %q", round, crowdScript(i, round))
			}
		}
	}
	for i := range crowdChats {
		o.writeIn(crowdChat(i), "waits and cannot be stopped")
	}
	o.eventually("runs at work", func() bool { return o.running() >= 4 && len(o.processes()) > 0 })
	o.clean()
	states := map[store.RunState]int{}
	for _, r := range o.runs() {
		states[r.State]++
	}
	for _, s := range []store.RunState{store.RunSucceeded, store.RunFailed, store.RunTimedOut, store.RunCancelled, store.RunInterrupted} {
		if states[s] == 0 {
			t.Errorf("no run was %s: %v", s, states)
		}
	}
	if n := len(o.runs()); n < crowdChats*rounds || states[store.RunRunning] > 0 {
		t.Errorf("%d runs: %v", n, states)
	}
	if testing.Verbose() {
		fmt.Printf("%s: %d runs, %v, no process left\n", t.Name(), len(o.runs()), states)
	}
}

func crowdChat(i int) store.Chat      { return store.Chat{ID: int64(-2000 - i)} }
func crowdScript(i, round int) string { return crowdScripts[(i+7*round)%len(crowdScripts)] }
func (o *office) runs() []store.RunView {
	o.t.Helper()
	runs, err := o.Runs(o.t.Context(), o.member.Company.ID, 1000)
	if err != nil {
		o.t.Fatal(err)
	}
	return runs
}

// runsOf are those of one conversation, oldest first.
func (o *office) runsOf(c store.ConversationID) []store.RunView {
	o.t.Helper()
	all := slices.DeleteFunc(o.runs(), func(r store.RunView) bool { return r.Conversation != c })
	slices.Reverse(all)
	return all
}

func (o *office) running() (n int) {
	for _, r := range o.runs() {
		if r.State == store.RunRunning {
			n++
		}
	}
	return n
}

// round lets every conversation write, and stops those that are to be stopped.
func (o *office) round(n int) {
	waiting := map[string]store.Chat{}
	for i := range crowdChats {
		c := o.writeIn(crowdChat(i), crowdScript(i, n))
		if slices.Contains(stopped, crowdScript(i, n)) {
			waiting[filepath.Join(o.folder(c), "waiting")] = crowdChat(i)
		}
	}
	for path, chat := range waiting {
		o.eventually(path, func() bool { return os.Remove(path) == nil || o.settled(chat) })
		o.stopIn(chat)
	}
}

// settled tells whether the last things that were written in a chat have come to their end.
func (o *office) settled(chat store.Chat) bool {
	o.t.Helper()
	fates, err := o.MessageFates(o.t.Context(), bot, chat.ID, 3)
	if err != nil {
		o.t.Fatal(err)
	}
	return len(fates) > 0 && !slices.ContainsFunc(fates, func(f store.MessageFate) bool {
		return slices.Contains([]store.Fate{store.FateReceived, store.FateQueued, store.FateRunning}, f.Fate)
	})
}

func (o *office) settle(chat store.Chat) {
	o.t.Helper()
	o.eventually("the end of what was written", func() bool { return o.settled(chat) })
}

// readAll sends all that waits in the outbox, and gives it by chat.
func (o *office) readAll() map[int64][]said {
	o.t.Helper()
	all := map[int64][]said{}
	for {
		r, more, _, err := o.NextReply(o.t.Context(), o.poller)
		if err == nil && !more {
			return all
		}
		if err == nil {
			err = o.MarkSending(o.t.Context(), o.poller, r.ID)
		}
		if err == nil {
			err = o.MarkSent(o.t.Context(), o.poller, r.ID, 1)
		}
		if err != nil {
			o.t.Fatal(err)
		}
		all[r.Draft.Chat.ID] = append(all[r.Draft.Chat.ID], whatIsSaid(r.Draft))
	}
}

// eventually waits for what must come about.
func (o *office) eventually(what string, holds func() bool) {
	o.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatalf("%s: does not come\n%s", what, o.log)
		}
	}
}

// children lists this process's own.
func children(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	mine := fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())
	return slices.DeleteFunc(all, func(path string) bool {
		text, err := os.ReadFile(path)
		return err != nil || !strings.Contains(string(text), mine)
	})
}

// TestFaultsTranscriptsAreNeverShared: what a conversation leaves is there for its own next turn, and for no other's.
func TestFaultsTranscriptsAreNeverShared(t *testing.T) {
	o := newOffice(t, "writes a diary", nil)
	o.work()
	group := store.Chat{ID: -3000}
	for _, x := range []struct {
		chat       store.Chat
		text, want string
	}{
		{o.chat(), "one", "|"}, {group, "two", "|"}, {o.chat(), "three", "one;|one;"}, {group, "four", "two;|two;"},
	} {
		o.writeIn(x.chat, x.text)
		if got := o.read(1)[0].Text; got != x.want {
			t.Errorf("at %q the process found %q, not %q", x.text, got, x.want)
		}
	}
	o.clean()
}
