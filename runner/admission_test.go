package runner_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/policy"
	"pilder/runner"
	"pilder/store"
)

// member adds a person to a company and gives the office as that person sees it.
func (o *office) colleague(company store.CompanyID, telegram int64, name string) *office {
	o.t.Helper()
	m, err := o.AddMember(o.t.Context(), company, store.Person{Telegram: telegram, Name: name, Lang: "es"}, policy.RoleMember)
	if err != nil {
		o.t.Fatal(err)
	}
	other := *o
	other.member = m
	return &other
}

// TestTurnsBeginInTurns: with one agent at a time, who has just been served waits for the others, company by company and
// within a company person by person; and everybody hears how many are before them.
func TestTurnsBeginInTurns(t *testing.T) {
	o := newOffice(t, "waits for a word", func(cfg *runner.Config) {
		cfg.MaxRuns, cfg.QueuePatience = 1, 20*time.Millisecond
	})
	other, err := o.CreateCompany(t.Context(), store.Company{Name: "Brisa", Zone: "UTC", Lang: "es"})
	if err != nil {
		t.Fatal(err)
	}
	o.work()
	first := o.write("mia 1")
	await(t, filepath.Join(o.data, "conversations", string(first), "work/waiting"))

	acme := o.member.Company.ID
	var waiting []store.ConversationID
	for i, p := range []struct {
		company  store.CompanyID
		telegram int64
		topic    int64
		text     string
	}{{acme, 103, 7, "mia 2"}, {acme, 104, 0, "ana 1"}, {acme, 105, 0, "eva 1"}, {other.ID, 106, 0, "bruno 1"}, {other.ID, 107, 0, "nico 1"}} {
		from := o
		if p.telegram != 103 {
			from = o.colleague(p.company, p.telegram, p.text)
		}
		chat := from.chat()
		chat.Topic = p.topic
		from.updates = int64(100 * (i + 1))
		waiting = append(waiting, from.writeIn(chat, p.text))
		o.awaitLog("queue.waiting", i+1) // one after the other, so that the order is known
	}
	for _, c := range append([]store.ConversationID{first}, waiting...) {
		work := filepath.Join(o.data, "conversations", string(c), "work")
		if err := os.MkdirAll(work, 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(work, "word"), "go")
	}
	var ahead []any
	for _, line := range o.awaitLog("queue.waiting", 5) {
		ahead = append(ahead, line["ahead"])
	}
	// bruno goes before all of acme; nico, his colleague, after one of them.
	if diff := cmp.Diff([]any{1.0, 1.0, 2.0, 1.0, 3.0}, ahead); diff != "" {
		t.Errorf("before them were (-want +got):\n%s", diff)
	}
	var order []string
	for _, r := range o.read(11) {
		if r.Text != "" {
			order = append(order, r.Text)
		} else if r.Notice != "queue.position" {
			t.Errorf("somebody read %+v", r)
		}
	}
	want := []string{"mia 1", "bruno 1", "ana 1", "nico 1", "eva 1", "mia 2"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("turns (-want +got):\n%s\n%s", diff, o.log)
	}
	o.clean()
}

// TestNoMoreMemoryThanThereIs: with a budget that one agent uses up, turns go one by one, whatever max_runs says.
func TestNoMoreMemoryThanThereIs(t *testing.T) {
	o := newOffice(t, "waits for a word", func(cfg *runner.Config) {
		cfg.MaxRuns, cfg.QueuePatience, cfg.Memory = 4, 20*time.Millisecond, 1
	})
	o.work()
	first := o.write("one")
	await(t, filepath.Join(o.data, "conversations", string(first), "work/waiting"))
	chat := o.chat()
	chat.Topic = 7
	second := o.writeIn(chat, "two")
	o.awaitLog("queue.waiting", 1)
	if started := o.log.lines("run.started"); len(started) != 1 {
		t.Errorf("started: %v", started)
	}
	for _, c := range []store.ConversationID{first, second} {
		work := filepath.Join(o.data, "conversations", string(c), "work")
		if err := os.MkdirAll(work, 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(work, "word"), "go")
	}
	var texts []string
	for _, r := range o.read(3) {
		texts = append(texts, r.Text+r.Notice)
	}
	slices.Sort(texts)
	if diff := cmp.Diff([]string{"one", "queue.position", "two"}, texts); diff != "" {
		t.Error(diff)
	}
	o.clean()
}

// TestMemoryIsTakenFromProcessesThatWaitFirst: nobody waits for a turn because others' processes are kept warm.
func TestMemoryIsTakenFromProcessesThatWaitFirst(t *testing.T) {
	o := warmOffice(t, "takes turns", func(cfg *runner.Config) { cfg.Memory = 301 << 20 })
	o.work()
	o.say("one")
	o.awaitLog("warm.parked", 1)
	chat := o.chat()
	chat.Topic = 7
	o.writeIn(chat, "two")
	o.hear()
	if lines := o.awaitLog("warm.retired", 1); lines[0]["reason"] != "memory" {
		t.Errorf("retired: %v", lines)
	}
	o.clean()
}

// TestNoCompanyPushesAllOthersOut: when the pool is full, the company that has most in it gives one up.
func TestNoCompanyPushesAllOthersOut(t *testing.T) {
	o := warmOffice(t, "takes turns", func(cfg *runner.Config) { cfg.WarmMax = 2 })
	other, err := o.CreateCompany(t.Context(), store.Company{Name: "Brisa", Zone: "UTC", Lang: "es"})
	if err != nil {
		t.Fatal(err)
	}
	o.work()
	bruno := o.colleague(other.ID, 106, "Bruno")
	bruno.updates = 500
	quiet := bruno.write("one")
	bruno.hear()
	o.awaitLog("warm.parked", 1)
	for i := range 3 {
		chat := o.chat()
		chat.Topic = int64(i)
		o.writeIn(chat, "one")
		o.hear()
		o.awaitLog("warm.parked", i+2)
	}
	for _, line := range o.awaitLog("warm.retired", 2) {
		if line["conversation"] == string(quiet) || line["reason"] != "full" {
			t.Errorf("retired: %v", line)
		}
	}
	o.clean()
}
