package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pilder/configs"
)

// Bars of the table: medians that a turn is expected to keep on an ordinary machine. They are told, never enforced: a
// machine that is busy with something else must not look like a broken pilder.
const (
	barExecuted  = 60 * time.Millisecond
	barWarmAsked = 150 * time.Millisecond
	barWarmSent  = 350 * time.Millisecond
)

const (
	heldRuns    = 4           // agents at work at once while memory is measured
	warmPeople  = 4           // conversations whose agents stay warm
	atRest      = time.Second // rest before a memory reading, so that what is ending has ended
	betweenWarm = 400 * time.Millisecond
)

// BenchmarkTurn measures a person's message on its way to the model and back, three ways in one run against the same
// stand-ins: the bare CLI, pilder with a cold agent (in turns with the bare one, so that both meet the same machine), and
// pilder with a warm one. BENCH_TURNS is how many of each, default 30. `make bench` runs it; docs/bench.md has a run.
func BenchmarkTurn(b *testing.B) {
	turns := benchTurns(b)
	w := newBench(b, 2+turns+heldRuns+warmPeople)
	r := results{turns: turns}

	house := w.serve("PILDER_RUNNER_WARM_MAX=0")
	bare := w.learnBare()
	w.cold(w.newcomer())
	bare.turn()
	r.idle = w.memory(house.cmd.Process.Pid)
	for i := range turns { // bare, cold, cold, bare, …: a machine that grows slower is no one's fault
		if i%2 == 0 {
			r.bare = append(r.bare, bare.turn())
			r.cold = append(r.cold, w.cold(w.newcomer()))
		} else {
			r.cold = append(r.cold, w.cold(w.newcomer()))
			r.bare = append(r.bare, bare.turn())
		}
		w.progress("bare and cold", i+1, turns)
	}
	r.after = w.memory(house.cmd.Process.Pid)
	r.held, r.agents = w.holdRuns(house)
	house.stop()

	house = w.serve("PILDER_RUNNER_WARM_MAX="+strconv.Itoa(2*warmPeople), "PILDER_RUNNER_WARM_IDLE=30m")
	r.warm = w.warm(turns)
	r.waiting = w.agents(house)
	house.stop()

	r.print()
	r.report(b)
}

// benchTurns is how many turns of each kind are measured.
func benchTurns(b *testing.B) int {
	b.Helper()
	text, set := os.LookupEnv("BENCH_TURNS")
	if !set {
		return 30
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 {
		b.Fatalf("BENCH_TURNS must be a number from 2, not %q", text)
	}
	return n
}

// turn is when the steps of one turn were reached. Those that a way does not have are zero.
type turn struct {
	said     time.Time // the person's client had sent it
	stored   time.Time // the message was committed; of a bare CLI: it was spawned
	started  time.Time // its run was
	executed time.Time // the kernel opened the CLI to execute it
	asked    time.Time // the first request came to the model
	known    time.Time // the run was finished and its answer committed
	sent     time.Time // sendMessage came to Telegram; of a bare CLI: it printed its result
	parked   time.Time // its agent was ready for the next turn
}

// results are everything one run of the benchmark has found.
type results struct {
	turns            int
	bare, cold, warm []turn

	idle, after, held memory   // of pilder alone: before the turns, after them, with heldRuns at work
	agents            []memory // of the processes in the sandboxes of heldRuns
	waiting           []memory // the same of warmPeople, between two turns
}

// print writes the table for people.
func (r results) print() {
	fmt.Printf("\npilder bench: %d turns of each kind in one run, scripted model answering at once\n%s, CLI %s, %s\n\n",
		r.turns, machine(), configs.CLI().Version, time.Now().UTC().Format(time.DateOnly))
	fmt.Printf("%-12s %-34s %10s %10s   %s\n", "", "", "median", "p95", "expected (median)")
	row := func(way, what string, of []time.Duration, bar time.Duration) {
		if len(of) == 0 {
			return
		}
		verdict := ""
		if bar > 0 {
			verdict = fmt.Sprintf("≤ %-8s missed", show(bar))
			if median(of) <= bar {
				verdict = fmt.Sprintf("≤ %-8s met", show(bar))
			}
		}
		fmt.Println(strings.TrimRight(fmt.Sprintf("%-12s %-34s %10s %10s   %s", way, what, show(median(of)), show(percentile(of, 95)), verdict), " "))
	}
	row("bare CLI", "spawned → executed", each(r.bare, stored, executed), 0)
	row("", "spawned → model asked", each(r.bare, stored, asked), 0)
	row("", "spawned → answer printed", each(r.bare, stored, sentAt), 0)
	row("pilder cold", "stored → CLI executed", each(r.cold, stored, executed), barExecuted)
	row("", "stored → model asked", each(r.cold, stored, asked), 0)
	row("", "stored → reply sent", each(r.cold, stored, sentAt), 0)
	row("pilder warm", "stored → model asked", each(r.warm, stored, asked), barWarmAsked)
	row("", "stored → reply sent", each(r.warm, stored, sentAt), barWarmSent)
	if began := r.begun(); began > 0 {
		fmt.Printf("%-12s %d of %d turns were not warm: an agent was started for them\n", "", began, len(r.warm))
	}
	fmt.Println()
	r.printDifference("start → model asked", asked)
	r.printDifference("start → answer", sentAt)
	r.printPhases()
	r.printMemory()
}

// printDifference compares the two ways pair by pair: what slows the machine down for a while slows both of a pair.
func (r results) printDifference(what string, step func(turn) time.Time) {
	cold, bare := each(r.cold, stored, step), each(r.bare, stored, step)
	var differences []time.Duration
	for i := range cold {
		differences = append(differences, cold[i]-bare[i])
	}
	low, high := bootstrap(differences)
	fmt.Printf("pilder cold minus bare CLI, %-20s median of %d pairs %s, 95 %% interval %s to %s\n", what+":", len(differences),
		signed(median(differences)), signed(low), signed(high))
}

// printPhases tells where a turn's time goes. Medians of parts need not add up to the median of the whole.
func (r results) printPhases() {
	fmt.Printf("\n%-52s %10s %10s\n", "where the time goes (median)", "cold", "warm")
	for _, p := range []struct {
		what     string
		from, to func(turn) time.Time
	}{
		{"said → stored (poll, commit)", func(t turn) time.Time { return t.said }, stored},
		{"stored → run started (queue, commit)", stored, started},
		{"run started → CLI executed (workspace, sandbox)", started, executed},
		{"CLI executed → model asked (the CLI's own start)", executed, asked},
		{"run started → model asked", started, asked},
		{"model asked → answer committed", asked, known},
		{"answer committed → reply sent", known, sentAt},
		{"answer committed → agent ready for the next turn", known, parked},
	} {
		columns := []string{}
		for _, turns := range [][]turn{r.cold, r.warm} {
			text := "–"
			if of := each(turns, p.from, p.to); len(of) > 0 {
				text = show(median(of))
			}
			columns = append(columns, text)
		}
		fmt.Printf("  %-50s %10s %10s\n", p.what, columns[0], columns[1])
	}
}

func (r results) printMemory() {
	fmt.Printf("\n%-52s %10s %10s\n", "memory", "resident", "private")
	line := func(what string, m memory) { fmt.Printf("  %-50s %10s %10s\n", what, m.resident, m.private) }
	line("pilder serve, started and idle", r.idle)
	line(fmt.Sprintf("pilder serve, idle after %d runs", r.turns+2), r.after)
	line("pilder serve, growth per run at work", memory{(r.held.resident - r.after.resident) / heldRuns, (r.held.private - r.after.private) / heldRuns})
	cli, around := perAgent(r.agents)
	line("beside it, per run: the agent CLI", cli)
	line("beside it, per run: bubblewrap", around)
	cli, _ = perAgent(r.waiting)
	line("an agent CLI that waits for its next turn", cli)
	fmt.Println()
}

// begun counts warm turns for which an agent had to be started.
func (r results) begun() (n int) {
	for _, t := range r.warm {
		if !t.executed.IsZero() {
			n++
		}
	}
	return n
}

// report adds the same to the benchmark's line, for programs that compare runs.
func (r results) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // the whole plan's time says nothing
	for _, m := range []struct {
		unit string
		of   []time.Duration
	}{
		{"bare-asked-ms", each(r.bare, stored, asked)},
		{"cold-executed-ms", each(r.cold, stored, executed)}, {"cold-asked-ms", each(r.cold, stored, asked)}, {"cold-sent-ms", each(r.cold, stored, sentAt)},
		{"warm-asked-ms", each(r.warm, stored, asked)}, {"warm-sent-ms", each(r.warm, stored, sentAt)},
	} {
		if len(m.of) > 0 {
			b.ReportMetric(float64(median(m.of).Microseconds())/1000, m.unit)
		}
	}
}

func stored(t turn) time.Time   { return t.stored }
func started(t turn) time.Time  { return t.started }
func executed(t turn) time.Time { return t.executed }
func asked(t turn) time.Time    { return t.asked }
func known(t turn) time.Time    { return t.known }
func sentAt(t turn) time.Time   { return t.sent }
func parked(t turn) time.Time   { return t.parked }

// each gives the time from one step to another in every turn that has both.
func each(turns []turn, from, to func(turn) time.Time) []time.Duration {
	var all []time.Duration
	for _, t := range turns {
		if a, z := from(t), to(t); !a.IsZero() && !z.IsZero() {
			all = append(all, z.Sub(a))
		}
	}
	return all
}

// machine tells what the numbers were measured on, without saying which one it was.
func machine() string {
	var name unix.Utsname
	var info unix.Sysinfo_t
	if unix.Uname(&name) != nil || unix.Sysinfo(&info) != nil {
		return "unknown machine"
	}
	release, _, _ := strings.Cut(unix.ByteSliceToString(name.Release[:]), "-")
	return fmt.Sprintf("%d cores, %d GiB of memory, Linux %s, load %.1f", runtime.NumCPU(), (uint64(info.Totalram)*uint64(info.Unit)+1<<29)>>30,
		release, float64(info.Loads[1])/(1<<16)) // of five minutes; all above a turn's own two or so is other work
}

// progress tells whoever waits that it goes on.
func (w *bench) progress(what string, n, of int) {
	if n%5 == 0 || n == of {
		fmt.Fprintf(os.Stderr, "bench: %s, %d of %d\n", what, n, of)
	}
}

// warm lets each person's agent start, and measures the turns that follow. A person's turns are more than a second apart,
// since the bot sends a chat no more than one message a second.
func (w *bench) warm(turns int) []turn {
	people := make([]int64, warmPeople)
	for i := range people {
		people[i] = w.newcomer()
		w.marked("warm.parked", w.say(people[i]).asked)
	}
	var all []turn
	for i := range turns {
		rest(w.b.Context(), betweenWarm)
		t := w.say(people[i%len(people)])
		t.parked = w.marked("warm.parked", t.asked)
		all = append(all, t)
		w.progress("warm", i+1, turns)
	}
	return all
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
