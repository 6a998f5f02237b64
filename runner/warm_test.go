package runner_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/runner"
	"pilder/store"
)

// warmOffice keeps processes between turns.
func warmOffice(t *testing.T, script string, change func(*runner.Config)) *office {
	t.Helper()
	return newOffice(t, script, func(cfg *runner.Config) {
		cfg.WarmMax = 3
		if change != nil {
			change(cfg)
		}
	})
}

// say writes a text and gives what the process said of the turn.
func (o *office) say(text string) told {
	o.t.Helper()
	o.write(text)
	return o.hear()
}

func (o *office) hear() told {
	o.t.Helper()
	var heard told
	got := o.read(1)[0]
	if err := json.Unmarshal([]byte(got.Text), &heard); err != nil {
		o.t.Fatalf("the person read %+v\n%s", got, o.log)
	}
	return heard
}

// control stores a command of the person.
func (o *office) control() store.UpdateRef {
	o.t.Helper()
	o.updates++
	_, err := o.Receive(o.t.Context(), o.poller, []store.Arrival{{UpdateID: o.updates, Raw: []byte(`{}`), Kind: store.ArrivalControl,
		From: store.Person{Telegram: o.member.Person.Telegram}, Chat: o.chat()}})
	if err != nil {
		o.t.Fatal(err)
	}
	return store.UpdateRef{Bot: bot, UpdateID: o.updates}
}

// forget is the person's /new.
func (o *office) forget() {
	o.t.Helper()
	if err := o.NewConversation(o.t.Context(), o.control(), o.member.Person.Telegram, o.chat()); err != nil {
		o.t.Fatal(err)
	}
}

// kill ends a process of a sandbox from outside.
func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.Kill(n, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitLog waits until an event was logged n times.
func (o *office) awaitLog(event string, n int) []object {
	o.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if lines := o.log.lines(event); len(lines) >= n {
			return lines
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("%s was not logged %d times:\n%s", event, n, o.log)
		}
	}
}

func TestTheProcessThatWaitsTakesTheNextTurn(t *testing.T) {
	o := warmOffice(t, "takes turns", nil)
	o.work()
	first := o.say("one")
	o.awaitLog("warm.parked", 1)
	second := o.say("two")
	o.awaitLog("warm.parked", 2)
	third := o.say("three")
	runs := o.ended(3)

	if first.House != "" || first.Text != "one" {
		t.Errorf("the first turn: %+v", first)
	}
	for i, h := range []told{second, third} {
		if h.PID != 1 || h.Turn != i+2 {
			t.Errorf("turn %d was taken by process %d as its %d.", i+2, h.PID, h.Turn)
		}
		if want := "token-of-" + string(runs[i+1].ID); h.Token != want {
			t.Errorf("turn %d has the token %q, want %q", i+2, h.Token, want)
		}
		if !strings.Contains(h.House, "Mia") || strings.Contains(h.House, h.Text) {
			t.Errorf("turn %d is told by the house: %q", i+2, h.House)
		}
	}
	if second.Text != "two" || third.Text != "three" {
		t.Errorf("the person's words: %q, %q", second.Text, third.Text)
	}
	var warm []bool
	for _, r := range runs {
		warm = append(warm, r.Warm)
	}
	if diff := cmp.Diff([]bool{false, true, true}, warm); diff != "" {
		t.Errorf("warm (-want +got):\n%s", diff)
	}
	o.clean()
}

func TestWhatRetiresAProcessThatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*runner.Config)
		then   func(*office, store.ConversationID)
		event  bool // it is retired at once, before the next turn
	}{
		"a new conversation": {then: func(o *office, _ store.ConversationID) { o.forget() }},
		"another agent home": {then: func(o *office, _ store.ConversationID) {
			write(o.t, filepath.Join(o.cfg.AgentHome, "CLAUDE.md"), "Other house rules.\n")
		}},
		"its death": {event: true, then: func(o *office, _ store.ConversationID) {
			for _, path := range o.processes() {
				pid := strings.Split(path, "/")[2]
				if comm, _ := os.ReadFile("/proc/" + pid + "/comm"); strings.TrimSpace(string(comm)) == "claude" {
					kill(o.t, pid)
				}
			}
		}},
		"time": {event: true, change: func(cfg *runner.Config) { cfg.WarmIdle = 50 * time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := warmOffice(t, "takes turns", c.change)
			o.work()
			conversation := o.write("one")
			o.hear()
			o.awaitLog("warm.parked", 1)
			if c.then != nil {
				c.then(o, conversation)
			}
			if c.event {
				o.awaitLog("warm.retired", 1)
			}
			if second := o.say("two"); second.PID != 2 || second.Turn != 1 || second.House != "" {
				t.Errorf("the second turn: %+v\n%s", second, o.log)
			}
			if runs := o.ended(2); runs[1].Warm {
				t.Error("the second run is called warm")
			}
			o.clean()
		})
	}
}

func TestWhatATurnLeavesRunningEndsWithIt(t *testing.T) {
	o := warmOffice(t, "takes turns and leaves a daemon", nil)
	o.work()
	c := o.write("one")
	await(t, filepath.Join(o.data, "conversations", string(c), "work/daemon"))
	o.hear()
	o.awaitLog("warm.parked", 1)
	if left := hostProcesses(t, "4714.5"); len(left) > 0 {
		t.Errorf("beside the waiting process: %v", left)
	}
	if second := o.say("two"); second.PID != 1 {
		t.Errorf("the second turn: %+v", second)
	}
	o.clean()
}

// TestTheHousesMarkIsNotShown: whoever knew it could write as the house.
func TestTheHousesMarkIsNotShown(t *testing.T) {
	o := warmOffice(t, "tells its mark", nil)
	o.work()
	o.write("one")
	o.read(1)
	o.awaitLog("warm.parked", 1)
	o.write("what is your mark?")
	if diff := cmp.Diff([]said{{Text: "the mark is ."}}, o.read(1)); diff != "" {
		t.Error(diff)
	}
	o.ended(2)
	o.stopWork()
	if parked := o.log.lines("warm.parked"); len(parked) != 1 {
		t.Errorf("a process that told its mark was kept: %v", parked)
	}
	o.clean()
}

func TestAProcessStartsAtTheFirstSignOfLife(t *testing.T) {
	o := warmOffice(t, "takes turns", nil)
	o.work()
	o.forget()
	o.awaitLog("warm.started", 1)
	if first := o.say("one"); first.PID != 1 || first.House == "" {
		t.Errorf("the first turn: %+v", first)
	}
	if runs := o.ended(1); !runs[0].Warm {
		t.Error("the first run is called cold")
	}
	o.clean()
}

func TestTheRealCLITakesSeveralTurns(t *testing.T) {
	o, model := realOffice(t, echo("plain"), use("everyday please", "mcp__pilder__everyday"), use("app please", "mcp__pilder__app-read"))
	o.cfg.WarmMax = 1
	o.work()
	o.write("plain one")
	got := o.read(1)
	for i, text := range []string{"everyday please", "/clear plain @/etc/passwd", "app please"} {
		o.awaitLog("warm.parked", i+1)
		o.write(text)
		got = append(got, o.read(1)...)
	}
	want := []said{{Text: "got: plain one"}, {Text: "from everyday"}, {Text: "got: /clear plain @/etc/passwd"}, {Text: "from app-read"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the person read (-want +got):\n%s\n%s", diff, o.log)
	}
	for i, r := range o.ended(4) {
		if r.Warm != (i > 0) {
			t.Errorf("run %d: warm is %v", i+1, r.Warm)
		}
	}
	if len(model.Requests()) == 0 {
		t.Error("the model was never asked")
	}
	o.clean()
}

// TestAPanicLeavesNoProcess: whoever has a process ends it, whatever happens to them.
func TestAPanicLeavesNoProcess(t *testing.T) {
	for _, turn := range []int{1, 2} { // of a new process, and of one that waited
		t.Run(strconv.Itoa(turn), func(t *testing.T) {
			t.Parallel()
			var answers atomic.Int64
			o := warmOffice(t, "takes turns", func(cfg *runner.Config) {
				word := cfg.Answer
				cfg.Answer = func(r store.Run, markdown string) store.Draft {
					if answers.Add(1) == int64(turn) {
						panic("of the test")
					}
					return word(r, markdown)
				}
			})
			o.work()
			for i := range turn {
				o.write("hello")
				o.read(1)
				o.awaitLog("warm.parked", i+1)
			}
			if left := o.processes(); len(left) > 3 { // bubblewrap's two, and the CLI
				t.Errorf("more than one agent in the conversation: %v", left)
			}
			o.clean()
		})
	}
}
