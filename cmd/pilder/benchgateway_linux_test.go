package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Bars of facts/gateways.md, as ratios within one round: what the benchmark fails on. Absolute numbers are only told.
const (
	barAdded    = 1.85 // added p50 at c=1, of what the plain proxy adds
	barCPU1     = 2.2  // CPU a call at c=1, of the proxy's
	barDirect   = 0.42 // calls a second at c=32, of direct ones; no less
	barProxy    = 0.53 // and of the proxy's; no less
	barCPU32    = 2.5  // CPU a call at c=32, of the proxy's
	barRequests = 1.00 // upstream requests a call
	barGrowth   = 0.10 // growth of resident memory over the last four fifths of the calls, of what it was
	barSession  = 30   // KB an idle MCP session
)

// BenchmarkGateway measures a call of a tool directly, through a plain reverse proxy, through one between two durable
// commits, and through pilder's door, in turns in one run: on a machine that others use too, only ratios within a round mean
// something. BENCH_ROUNDS (default 5), BENCH_TIME (each measurement, default 3s) and BENCH_CALLS (of the memory run, default
// 50000) make it longer or shorter; BENCH_PROFILE names a file for pilder's CPU profile. `make bench-gateway` runs it;
// docs/bench.md says more.
func BenchmarkGateway(b *testing.B) {
	w := newGatewayBench(b)
	for round := range w.rounds {
		for _, k := range w.kinds {
			k.round(w)
		}
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", round+1, w.rounds)
	}
	fmt.Printf("\npilder bench-gateway: %d rounds of %s for each row, in turns\n%s, %s\n", w.rounds, w.time, machine(), time.Now().UTC().Format(time.DateOnly))
	for _, k := range w.kinds {
		k.print()
		k.judge(w)
	}
	w.memory()
	w.sessions()
	w.restart()
	w.behaviour()
	w.verdict()
	b.ReportMetric(0, "ns/op") // the whole plan's time says nothing
}

// gatewayBench is the processes and what was found.
type gatewayBench struct {
	b      *testing.B
	rounds int
	time   time.Duration
	calls  int
	client *http.Client

	echo, pilder *gatewayProcess
	kinds        []*kind
	bars         []bar
}

// kind is one way to call, by several targets.
type kind struct {
	name    string
	barred  bool // its ratios must hold
	order   []string
	targets map[string]*target
	at      map[string]map[int][]measured // by target and number of workers
}

func newGatewayBench(b *testing.B) *gatewayBench {
	w := &gatewayBench{b: b, rounds: benchNumber(b, "BENCH_ROUNDS", 5), calls: benchNumber(b, "BENCH_CALLS", 50_000), time: 3 * time.Second,
		client: &http.Client{Transport: benchTransport()}}
	if text := os.Getenv("BENCH_TIME"); text != "" {
		var err error
		if w.time, err = time.ParseDuration(text); err != nil {
			b.Fatal(err)
		}
	}
	w.echo = startPart(b, benchPart{Role: "echo"})
	upstream := "http://" + w.echo.Addr
	proxy := startPart(b, benchPart{Role: "proxy", Upstream: upstream})
	floor := startPart(b, benchPart{Role: "floor", Upstream: upstream, Folder: b.TempDir()})
	w.pilder = startPart(b, benchPart{Role: "pilder", Upstream: upstream, Folder: b.TempDir(), Profile: os.Getenv("BENCH_PROFILE")})
	for _, era := range []string{"old", "new"} {
		for _, form := range []string{"sse", "json"} {
			k := &kind{name: map[string]string{"old": oldRevision, "new": newRevision}[era] + ", upstream answers " + strings.ToUpper(form),
				barred: form == "sse", order: []string{"direct", "proxy", "floor", "pilder"}, at: map[string]map[int][]measured{}}
			at := func(p *gatewayProcess, path string) *target {
				return &target{process: p, url: "http://" + p.Addr + path, modern: era == "new", tool: "echo", client: w.client}
			}
			path := "/" + era + "/" + form
			k.targets = map[string]*target{"direct": at(w.echo, path), "proxy": at(proxy, path), "floor": at(floor, path), "pilder": w.door(era == "new", benchRead)}
			if form == "json" { // pilder's own hop is the same: it says what the bars cannot
				k.order = []string{"direct", "proxy"}
			}
			w.kinds = append(w.kinds, k)
		}
	}
	w.kinds[0].order = append(w.kinds[0].order, "pilder, writes")
	w.kinds[0].targets["pilder, writes"] = w.door(false, benchWrite)
	return w
}

func (w *gatewayBench) door(modern bool, tool string) *target {
	return &target{process: w.pilder, url: "http://" + w.pilder.Addr + "/mcp", token: w.pilder.Token, modern: modern, tool: tool, client: w.client}
}

func benchNumber(b *testing.B, name string, or int) int {
	b.Helper()
	text, set := os.LookupEnv(name)
	if !set {
		return or
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("%s must be a number from 1, not %q", name, text)
	}
	return n
}

// round measures every target once at each number of workers.
func (k *kind) round(w *gatewayBench) {
	for _, workers := range []int{1, 32} {
		for _, name := range k.order {
			if k.at[name] == nil {
				k.at[name] = map[int][]measured{}
			}
			k.targets[name].role = name
			k.at[name][workers] = append(k.at[name][workers], k.targets[name].load(w.b, workers, w.time))
		}
	}
}

// print writes the absolute numbers: medians of the rounds.
func (k *kind) print() {
	fmt.Printf("\n%-44s %18s %10s %10s\n", k.name, "p50 / p99 ms", "calls/s", "CPU µs")
	for _, workers := range []int{1, 32} {
		for _, name := range k.order {
			of := k.at[name][workers]
			ms := func(f func(measured) time.Duration) float64 {
				return middle(of, func(m measured) float64 { return f(m).Seconds() * 1000 })
			}
			fmt.Printf("  c=%-3d %-36s %8.2f / %7.2f %10.0f %10.0f\n", workers, name, ms(func(m measured) time.Duration { return m.p50 }),
				ms(func(m measured) time.Duration { return m.p99 }), middle(of, func(m measured) float64 { return m.rate }),
				1000*ms(func(m measured) time.Duration { return m.cpu }))
		}
	}
}

func middle[T any](of []T, f func(T) float64) float64 {
	var all []float64
	for _, one := range of {
		all = append(all, f(one))
	}
	return medianOf(all)
}

func medianOf(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// bar is one line of the verdict.
type bar struct {
	what           string
	got, low, high float64 // median and spread of the rounds
	want           float64
	atLeast, must  bool
}

func (r bar) met() bool { return r.atLeast && r.got >= r.want || !r.atLeast && r.got <= r.want }

// judge compares pilder with the bars, round by round.
func (k *kind) judge(w *gatewayBench) {
	for _, name := range k.order[min(3, len(k.order)):] {
		ratio := func(what string, want float64, atLeast bool, f func(i int) float64) {
			var all []float64
			for i := range w.rounds {
				all = append(all, f(i))
			}
			w.bars = append(w.bars, bar{k.name[:10] + " " + name + ": " + what, medianOf(all), slices.Min(all), slices.Max(all), want, atLeast, k.barred && name == "pilder"})
		}
		at := func(target string, workers, i int) measured { return k.at[target][workers][i] }
		added := func(target string, i int) float64 { return float64(at(target, 1, i).p50 - at("direct", 1, i).p50) }
		ratio("added p50 at c=1, of what the proxy adds", barAdded, false, func(i int) float64 { return added(name, i) / max(1, added("proxy", i)) })
		ratio("CPU at c=1, of the proxy's", barCPU1, false, func(i int) float64 { return float64(at(name, 1, i).cpu) / float64(at("proxy", 1, i).cpu) })
		ratio("calls/s at c=32, of direct", barDirect, true, func(i int) float64 { return at(name, 32, i).rate / at("direct", 32, i).rate })
		ratio("calls/s at c=32, of the proxy's", barProxy, true, func(i int) float64 { return at(name, 32, i).rate / at("proxy", 32, i).rate })
		ratio("CPU at c=32, of the proxy's", barCPU32, false, func(i int) float64 { return float64(at(name, 32, i).cpu) / float64(at("proxy", 32, i).cpu) })
	}
}

// one adds a bar that was measured once.
func (w *gatewayBench) one(what string, got, want float64) {
	w.bars = append(w.bars, bar{what: what, got: got, low: got, high: got, want: want, must: true})
}

// memory calls in one MCP session and looks at the processes on the way.
func (w *gatewayBench) memory() {
	const looks = 5
	t := w.door(false, benchRead)
	before := w.requests()
	fmt.Printf("\n%-44s %18s %10s\n", "memory, KB resident", "pilder", "upstream")
	var first, last [2]int
	for i := range looks {
		w.many(t, 8, w.calls/looks)
		last = [2]int{w.pilder.rss(), w.echo.rss()}
		if i == 0 {
			first = last
		}
		fmt.Printf("  after %-38d %18d %10d\n", (i+1)*w.calls/looks, last[0], last[1])
	}
	for i, name := range []string{"pilder", "upstream"} {
		w.one(name+": growth of memory over the last four fifths", float64(last[i]-first[i])/float64(first[i]), barGrowth)
	}
	asked := float64(w.requests()-before) / float64(w.calls/looks/8*8*looks)
	w.one("upstream requests a call", asked, barRequests)
}

// many makes n calls by so many workers.
func (w *gatewayBench) many(t *target, workers, n int) {
	failed := make(chan error, workers)
	for range workers {
		go func() {
			session, err := t.begin()
			for i := 0; err == nil && i < n/workers; i++ {
				err = t.call(session)
			}
			t.end(session)
			failed <- err
		}()
	}
	var err error
	for range workers {
		err = cmp.Or(err, <-failed)
	}
	if err != nil {
		w.b.Fatal(err)
	}
}

func (w *gatewayBench) requests() int {
	resp, err := w.client.Get("http://" + w.echo.Addr + "/requests")
	if err != nil {
		w.b.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	n, err := strconv.Atoi(string(text))
	if err != nil {
		w.b.Fatal(err)
	}
	return n
}

// sessions tells what an idle MCP session of the old era holds.
func (w *gatewayBench) sessions() {
	const many = 100
	t := w.door(false, benchRead)
	before := w.pilder.rss()
	for range many {
		if _, err := t.begin(); err != nil {
			w.b.Fatal(err)
		}
	}
	w.one("KB an idle MCP session", float64(w.pilder.rss()-before)/many, barSession)
}

// restart ends the upstream in the midst of an MCP session and starts it again at the same address.
func (w *gatewayBench) restart() {
	const reads = 50
	for _, modern := range []bool{false, true} {
		t := w.door(modern, benchRead)
		session, err := t.begin()
		if err == nil {
			err = t.call(session)
		}
		if err != nil {
			w.b.Fatal(err)
		}
		w.echo.stop()
		w.echo = startPart(w.b, benchPart{Role: "echo", Listen: w.echo.Addr})
		failed := 0
		for range reads {
			if t.call(session) != nil {
				failed++
			}
		}
		w.one(fmt.Sprintf("%s: reads that failed after the upstream's restart, of %d", t.revision(), reads), float64(failed), 0)
	}
}

// behaviour looks at what no number shows.
func (w *gatewayBench) behaviour() {
	for _, modern := range []bool{false, true} {
		t := w.door(modern, benchRead)
		session, err := t.begin()
		if err != nil {
			w.b.Fatal(err)
		}
		said := func(args, meta string) string {
			if modern {
				meta = strings.TrimSuffix(newMeta, "}") + "," + meta + "}"
			} else {
				meta = `"_meta":{` + meta + `}`
			}
			resp, err := t.post(session, "tools/call", fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, t.tool, args, meta))
			if err != nil {
				w.b.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return string(text)
		}
		before := w.requests()
		text := said(`{"message":7}`, `"x/y":1`)
		w.claim(t.revision()+": wrong arguments are told and do not reach the upstream",
			strings.Contains(text, "/message") && strings.Contains(text, `"isError":true`) && w.requests() == before)
		text = said(`{"message":"hi"}`, `"progressToken":"mine"`)
		w.claim(t.revision()+": progress comes under the caller's own token",
			strings.Contains(text, `"progressToken":"mine"`) && strings.Index(text, `"progress":1`) < strings.Index(text, `"result"`))
	}
	refused := true
	for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "PUT", "HEAD"} {
		r, err := http.NewRequest(method, "http://"+w.pilder.Addr+"/mcp", nil)
		if err != nil {
			w.b.Fatal(err)
		}
		r.Host = "127.0.0.1:7000"
		r.Header.Set("Origin", "https://evil.example")
		resp, err := w.client.Do(r) // no token: the Origin comes first
		if err != nil {
			w.b.Fatal(err)
		}
		resp.Body.Close()
		refused = refused && resp.StatusCode == http.StatusForbidden
	}
	w.claim("a foreign Origin is 403, every method, before authentication", refused)
}

func (w *gatewayBench) claim(what string, holds bool) {
	broken := 1.0
	if holds {
		broken = 0
	}
	w.one(what+" (0: holds)", broken, 0)
}

// verdict prints the bars last, and fails if one that must hold does not.
func (w *gatewayBench) verdict() {
	fmt.Printf("\n%-92s %8s %17s   %s\n", "bars", "median", "spread", "wanted")
	for _, r := range w.bars {
		sign, word := "≤", "met"
		if r.atLeast {
			sign = "≥"
		}
		if !r.met() {
			if word = "missed (told only)"; r.must {
				word = "MISSED"
				w.b.Errorf("%s: %.2f, wanted %s %.2f", r.what, r.got, sign, r.want)
			}
		}
		fmt.Printf("  %-90s %8.2f %8.2f–%-8.2f   %s %-5.2f %s\n", r.what, r.got, r.low, r.high, sign, r.want, word)
	}
	fmt.Println()
}
