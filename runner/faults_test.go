package runner_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	gocmp "github.com/google/go-cmp/cmp"

	"pilder/runner"
	"pilder/store"
)

// fault is one public failure of the CLI, played by a script, and what must come of it: for the person, in the log, and in
// the process table.
type fault struct {
	what   string // happened, with the numbers of the reports (of anthropics/claude-code where none is named)
	script string
	change func(*runner.Config)
	talk   []exchange
	end    []end
	alone  bool     // it looks at all there is in its office
	logged []object // lines of the log, each by a part of it; "never" turns one round
	also   func(*office, store.ConversationID)
}

// exchange is what the person writes and then reads.
type exchange struct {
	text   string
	before func(*office, store.ConversationID) // happens before the writing; of the first text, in no conversation
	then   func(*office, store.ConversationID) // happens before the reading
	read   []said
}

// reads is a person who writes "hello".
func reads(all ...said) []exchange { return []exchange{{text: "hello", read: all}} }

func answer(text string) said { return said{Text: text} }
func notice(key string) said  { return said{Notice: key} }

func ok(reasons ...string) []end       { return ending(store.RunSucceeded, append(reasons, "ok")[:1]...) }
func failed(reasons ...string) []end   { return ending(store.RunFailed, reasons...) }
func timedOut(reason string) []end     { return ending(store.RunTimedOut, reason) }
func endings(all ...[]end) (out []end) { return slices.Concat(all...) }

func ending(state store.RunState, reasons ...string) (all []end) {
	for _, reason := range reasons {
		all = append(all, end{state, reason})
	}
	return all
}

// TestFaults plays every failure there is and prints what came of it.
func TestFaults(t *testing.T) {
	var table ledger
	t.Cleanup(func() { table.print() })
	var plain []fault
	for _, f := range slices.Concat(endingFaults(), outputFaults(), sessionFaults(), resultFaults(), stopFaults(), warmFaults()) {
		if f.plain() {
			plain = append(plain, f)
			continue
		}
		t.Run(f.what, func(t *testing.T) {
			t.Parallel()
			defer table.note(t, f.what, f.expected())
			f.play(t)
		})
	}
	t.Run("together", func(t *testing.T) {
		t.Parallel()
		playTogether(t, plain, &table)
	})
	const upload = "upload named ../../CLAUDE.md (praktor#228)"
	t.Run(upload, func(t *testing.T) {
		defer table.note(t, upload, "lies in the inbox under a name of the house")
		work, _ := conversation(t)
		laid, err := runner.Inbox{}.Lay(t.Context(), work, []runner.Incoming{sent("document", "../../CLAUDE.md", "canary")})
		must(t, err)
		if diff := gocmp.Diff([]runner.Laid{{Path: "inbox/1.md", Name: "CLAUDE.md", Kind: "document", Size: 6}}, laid); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("where it runs", func(t *testing.T) {
		t.Parallel()
		first, second, other := lookAround(t)
		for _, l := range looks() {
			t.Run(l.what, func(t *testing.T) {
				defer table.note(t, l.what, l.expect)
				if problem := l.problem(first, second, other); problem != "" {
					t.Error(problem)
				}
			})
		}
	})
}

func (f fault) play(t *testing.T) {
	o := newOffice(t, f.script, f.change)
	o.work()
	var c store.ConversationID
	for _, x := range f.talk {
		if x.before != nil {
			x.before(o, c)
		}
		c = o.write(x.text)
		if x.then != nil {
			x.then(o, c)
		}
		if diff := gocmp.Diff(x.read, o.read(len(x.read))); diff != "" {
			t.Errorf("to %q the person read (-want +got):\n%s", x.text, diff)
		}
	}
	if diff := gocmp.Diff(f.end, ends(o.ended(len(f.end)))); diff != "" {
		t.Errorf("the runs ended (-want +got):\n%s", diff)
	}
	if f.also != nil {
		f.also(o, c)
	}
	o.clean()
	o.nothingMore()
	f.checkLog(o, c)
}

// plain tells whether a fault needs no office of its own: the person writes once, and nothing else is done.
func (f fault) plain() bool {
	return f.change == nil && !f.alone && len(f.talk) == 1 && f.talk[0].before == nil && f.talk[0].then == nil
}

// playTogether plays plain faults in one office, each in a conversation of its own whose text names the script.
func playTogether(t *testing.T, all []fault, table *ledger) {
	o := newOffice(t, "as written", func(cfg *runner.Config) { cfg.QueuePatience = patience }) // nobody hears of the others
	o.work()
	chat := func(i int) store.Chat { return store.Chat{ID: int64(-1000 - i)} }
	conversations := make([]store.ConversationID, len(all))
	for i, f := range all {
		conversations[i] = o.writeIn(chat(i), f.script)
	}
	for i := range all {
		o.settle(chat(i))
	}
	heard := o.readAll()
	for i, f := range all {
		t.Run(f.what, func(t *testing.T) {
			defer table.note(t, f.what, f.expected())
			o, c := o.as(t), conversations[i]
			if diff := gocmp.Diff(f.talk[0].read, heard[chat(i).ID]); diff != "" {
				t.Errorf("the person read (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(f.end, ends(o.runsOf(c))); diff != "" {
				t.Errorf("the runs ended (-want +got):\n%s", diff)
			}
			o.eventually("no process of the conversation", func() bool { return len(o.processesOf(c)) == 0 })
			if f.also != nil {
				f.also(o, c)
			}
			f.checkLog(o, c)
		})
	}
	o.clean()
	o.nothingMore()
}

// as is the same office, for a test within the test.
func (o *office) as(t *testing.T) *office {
	other := *o
	other.t = t
	return &other
}

// checkLog looks for what must be in the log of a conversation, and must not.
func (f fault) checkLog(o *office, c store.ConversationID) {
	o.t.Helper()
	for _, e := range f.end {
		f.logged = append(f.logged, object{"event": "run.finished", "state": string(e.State), "reason": e.Reason})
	}
	for _, want := range f.logged {
		if never := want["never"] == true; o.log.has(want, c) == never {
			o.t.Errorf("in the log, %v", want)
		}
	}
	if !o.t.Failed() {
		return
	}
	for line := range strings.Lines(o.log.String()) {
		if strings.Contains(line, string(c)) {
			o.t.Log(strings.TrimSpace(line))
		}
	}
}

// expected says a fault's outcome in a few words.
func (f fault) expected() string {
	var words []string
	for _, x := range f.talk {
		for _, s := range x.read {
			words = append(words, cmp.Or(s.Notice, fmt.Sprintf("%.40q", s.Text)))
		}
	}
	for _, e := range f.end {
		words = append(words, string(e.State)+"/"+e.Reason)
	}
	return strings.Join(append(words, "no process"), ", ")
}

// nothingMore checks that the person was told nothing else.
func (o *office) nothingMore() {
	o.t.Helper()
	r, more, _, err := o.NextReply(o.t.Context(), o.poller)
	if err != nil || more {
		o.t.Errorf("beside all that: %+v, %v", r.Draft, err)
	}
}

// has tells whether a line of the log about a conversation has all of the given parts.
func (l *logBook) has(part object, c store.ConversationID) bool {
	return slices.ContainsFunc(l.lines(part["event"].(string)), func(line object) bool {
		if line["conversation"] != string(c) {
			return false
		}
		for key, value := range part {
			if key != "never" && fmt.Sprint(line[key]) != fmt.Sprint(value) {
				return false
			}
		}
		return true
	})
}

// ledger is the table of what was played.
type ledger struct {
	mu   sync.Mutex
	rows [][3]string
}

func (l *ledger) note(t *testing.T, what, expected string) {
	result := "as expected"
	switch {
	case t.Failed():
		result = "WRONG"
	case t.Skipped():
		result = "skipped"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, [3]string{what, expected, result})
}

func (l *ledger) print() {
	if !testing.Verbose() {
		return
	}
	slices.SortFunc(l.rows, func(a, b [3]string) int { return strings.Compare(a[0], b[0]) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nfailure\texpected\tresult")
	good := 0
	for _, row := range l.rows {
		fmt.Fprintln(w, strings.Join(row[:], "\t"))
		if row[2] == "as expected" {
			good++
		}
	}
	fmt.Fprintf(w, "%d of %d as expected\n", good, len(l.rows))
	_ = w.Flush()
}

// work is a conversation's folder, from outside.
func (o *office) folder(c store.ConversationID) string {
	return filepath.Join(o.data, "conversations", string(c), "work")
}

func (o *office) give(c store.ConversationID, name string) {
	o.t.Helper()
	write(o.t, filepath.Join(o.folder(c), name), "")
}

// startsWere checks how many processes a conversation had.
func startsWere(n int) func(*office, store.ConversationID) {
	return func(o *office, c store.ConversationID) {
		o.t.Helper()
		text, err := os.ReadFile(filepath.Join(o.folder(c), "starts"))
		if err != nil || len(text) != n {
			o.t.Errorf("started %d times, not %d, %v", len(text), n, err)
		}
	}
}
