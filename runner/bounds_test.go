package runner_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"pilder/runner"
	"pilder/store"
)

// let gives a conversation's process the word it waits for.
func (o *office) let(c store.ConversationID) {
	o.t.Helper()
	work := filepath.Join(o.data, "conversations", string(c), "work")
	if err := os.MkdirAll(work, 0o777); err != nil {
		o.t.Fatal(err)
	}
	write(o.t, filepath.Join(work, "word"), "go")
}

// inTopic writes to another conversation of the person.
func (o *office) inTopic(topic int64, text string) store.ConversationID {
	o.t.Helper()
	chat := o.chat()
	chat.Topic = topic
	return o.writeIn(chat, text)
}

// TestThePoolIsNeverOverfull: a process whose conversation's next turn waits at the gate cannot be ended by others, so
// nobody may be put in beside it.
func TestThePoolIsNeverOverfull(t *testing.T) {
	o := warmOffice(t, "waits for a word", func(cfg *runner.Config) {
		cfg.WarmMax, cfg.MaxRuns, cfg.QueuePatience = 1, 1, 20*time.Millisecond
	})
	o.work()
	a := o.write("a one")
	o.let(a)
	o.awaitLog("warm.parked", 1)
	b := o.inTopic(7, "b one")
	await(t, filepath.Join(o.data, "conversations", string(b), "work/waiting"))
	o.write("a two")
	o.awaitLog("queue.waiting", 1)
	o.let(b)
	o.read(4) // three answers, and a word on waiting
	o.ended(3)
	o.awaitLog("warm.parked", 2)
	for _, line := range o.log.lines("warm.parked") {
		if line["conversation"] == string(b) {
			t.Errorf("there was no room, and yet: %v\n%s", line, o.log)
		}
	}
	o.clean()
}

// TestNobodyWaitsForTheMemoryOfProcessesThatWait: neither for that of others, though the oldest of them cannot be ended
// now, nor for that of its own conversation's.
func TestNobodyWaitsForTheMemoryOfProcessesThatWait(t *testing.T) {
	o := warmOffice(t, "waits for a word", func(cfg *runner.Config) {
		cfg.MaxRuns, cfg.QueuePatience, cfg.Memory = 2, 20*time.Millisecond, 601<<20
	})
	o.work()
	a := o.write("a one")
	o.let(a)
	o.awaitLog("warm.parked", 1)
	c := o.inTopic(8, "c one")
	o.let(c)
	o.awaitLog("warm.parked", 2)
	b := o.inTopic(7, "b one")
	await(t, filepath.Join(o.data, "conversations", string(b), "work/waiting"))
	o.write("a two")
	for last := ""; last != "a two"; { // while b is still at work
		last = o.read(1)[0].Text
	}
	o.let(b)
	o.read(1)
	o.ended(4)
	o.clean()
}

func TestAChangeOfWhatIsAllowedRetiresAProcessEvenWithinItsTurn(t *testing.T) {
	o := warmOffice(t, "waits for a word and tells", nil)
	o.work()
	c := o.write("one")
	await(t, filepath.Join(o.data, "conversations", string(c), "work/waiting"))
	if _, err := o.SeedAccount(t.Context(), o.member, "gmail", "p1", "mia@acme.example"); err != nil {
		t.Fatal(err)
	}
	o.let(c)
	o.hear()
	if second := o.say("two"); second.PID != 2 || second.Turn != 1 {
		t.Errorf("the second turn: %+v", second)
	}
	o.awaitLog("warm.parked", 1)
	if third := o.say("three"); third.PID != 2 || third.Turn != 2 {
		t.Errorf("the third turn: %+v", third)
	}
	o.clean()
}

// TestATurnOfNothingLeavesNoDoorOpen: what serves a run's tools ends with the run, also when the process was not asked.
func TestATurnOfNothingLeavesNoDoorOpen(t *testing.T) {
	var serving atomic.Int64
	o := warmOffice(t, "takes turns", func(cfg *runner.Config) {
		serve := cfg.ServeTools
		cfg.ServeTools = func(ctx context.Context, r store.Run, l net.Listener) error {
			serving.Add(1)
			defer serving.Add(-1)
			return serve(ctx, r, l)
		}
	})
	o.work()
	o.say("one")
	for i := range 3 {
		o.awaitLog("warm.parked", i+1)
		o.write("  ")
		o.read(1)
	}
	o.awaitLog("warm.parked", 4)
	if n := serving.Load(); n != 1 {
		t.Errorf("%d runs are served their tools, and one is prepared", n)
	}
	o.clean()
	if n := serving.Load(); n != 0 {
		t.Errorf("%d runs are served their tools for ever", n)
	}
}

func TestAProcessThatToldAToolItsMarkIsNotKept(t *testing.T) {
	o := warmOffice(t, "tells a tool its mark", nil)
	o.work()
	o.say("one")
	o.awaitLog("warm.parked", 1)
	if second := o.say("two"); second.PID != 1 {
		t.Errorf("the second turn: %+v", second)
	}
	if third := o.say("three"); third.PID != 2 {
		t.Errorf("the third turn: %+v", third)
	}
	o.clean()
}
