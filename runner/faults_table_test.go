package runner_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"pilder/runner"
	"pilder/store"
)

// hasty does not wait long for a process that says nothing.
func hasty(cfg *runner.Config) {
	cfg.IdleTimeout, cfg.ToolTimeout, cfg.InterruptGrace = 700*time.Millisecond, 700*time.Millisecond, 100*time.Millisecond
}

// slow leaves a process time to start on a busy machine, and waits for ever for a tool.
func slow(cfg *runner.Config) {
	cfg.IdleTimeout, cfg.ToolTimeout, cfg.InterruptGrace = 10*time.Second, patience, 100*time.Millisecond
}

// patient waits for ever for a process to leave.
func patient(cfg *runner.Config) { cfg.ExitGrace, cfg.KillGrace = patience, patience }

// endingFaults are processes that end at the wrong moment, or do not.
func endingFaults() []fault {
	partial := []exchange{{text: "hello", read: []said{answer("All three are in the calendar."), notice("run.cut")}}}
	return []fault{
		{what: "result written, process never exits (#25629)", script: "answers and never exits",
			talk: reads(answer("here I am")), end: ok(), logged: []object{{"event": "run.killed", "signal": "kill"}}},
		{what: "result written, process exits late: the answer does not wait (#25629)", script: "answers and leaves late", change: patient,
			talk: reads(answer("here I am")), end: ok(), logged: []object{{"event": "run.killed", "never": true}},
			also: func(o *office, c store.ConversationID) {
				if len(o.processes()) == 0 {
					o.t.Error("the process was gone before the answer was read: nothing is shown")
				}
				o.give(c, "read")
			}},
		{what: "result written, exit code 1 (the code is advisory)", script: "answers and fails", talk: reads(answer("here I am")), end: ok()},
		{what: "result written, output closed, process stays", script: "answers and closes its output", talk: reads(answer("here I am")), end: ok()},
		{what: "stdin left open: hang (multica#592, vm0#1316)", script: "answers and waits for the end of input", change: patient,
			talk: reads(answer("here I am")), end: ok(), logged: []object{{"event": "run.killed", "never": true}},
			also: func(o *office, c store.ConversationID) { await(o.t, filepath.Join(o.folder(c), "eof")) }},
		{what: "stream stops after a tool's result (#39700, untether#569)", script: "stops after a tool's result", change: slow,
			talk: reads(notice("run.timed_out")), end: timedOut("idle")},
		{what: "stream stops after the last word, no result (#1920)", script: "stops after its last word", change: slow,
			talk: partial, end: timedOut("idle")},
		{what: "no result though work went on, exit 0 (#1920, #17248)", script: "works and has no result",
			talk: partial, end: failed("no_result"), logged: []object{{"event": "run.silent_end", "exit": 0}}},
		{what: "exit 0, the last message is a tool's use (#74761)", script: "ends with a tool",
			talk: reads(notice("run.failed")), end: failed("no_result")},
		{what: "hangs from the start on (untether#592)", script: "hangs at the start", change: hasty,
			talk: reads(notice("run.timed_out")), end: timedOut("idle")},
		{what: "hangs in a tool (untether#592)", script: "hangs in a tool", change: hasty,
			talk: reads(notice("run.timed_out")), end: timedOut("idle")},
		{what: "a tool takes longer than the CLI may be silent: no failure", script: "works long in a tool",
			change: func(cfg *runner.Config) { cfg.IdleTimeout = 10 * time.Second }, talk: reads(answer("done")), end: ok()},
		{what: "talks for days and comes to no end (untether#592)", script: "talks for ever",
			change: func(cfg *runner.Config) { cfg.RunTimeout, cfg.InterruptGrace = 3*time.Second, 100*time.Millisecond },
			talk:   reads(notice("run.timed_out")), end: timedOut("time")},
		{what: "start-up fails, nothing on stdout", script: "crashes at the start", talk: reads(notice("run.failed")), end: failed("crashed"),
			logged: []object{{"event": "run.silent_end", "exit": 1}}, also: startsWere(1)},
		{what: "tens of GB of memory, exit 137 (#83280, #84960)", script: "is killed", talk: reads(notice("run.memory")), end: failed("memory"),
			logged: []object{{"event": "run.silent_end", "exit": 137}}},
		{what: "memory runs out at the start (#83280)", script: "is killed at the start", talk: reads(notice("run.memory")), end: failed("memory")},
		{what: "unexplained 143 (#29642)", script: "is terminated", talk: reads(notice("run.failed")), end: failed("no_result"),
			logged: []object{{"event": "run.silent_end", "exit": 143}, {"event": "run.killed", "never": true}}},
		{what: "interrupted from outside: an error, and exit 0", script: "is interrupted from outside", talk: reads(notice("run.failed")), end: failed("failed")},
		{what: "output closed, process alive, no result", script: "closes its output", change: hasty,
			talk: reads(notice("run.timed_out")), end: timedOut("idle"), // its end of the output is not the only one
			logged: []object{{"event": "run.killed", "signal": "kill"}}},
		{what: "orphans outlive their run (#76306, #40550, #26658)", script: "answers and leaves a daemon", talk: reads(answer("done")), end: ok(), alone: true,
			also: func(o *office, _ store.ConversationID) {
				o.stopWork()
				if left := hostProcesses(o.t, "4713.25"); len(left) > 0 {
					o.t.Errorf("still there: %v", left)
				}
			}},
		{what: "the parent's thread ends, and its death signal kills the run (golang/go#27505, moby#44215)", script: "waits to be read",
			talk: []exchange{{text: "hello", then: endThreads, read: []said{answer("still here")}}}, end: ok()},
	}
}

// endThreads lets many threads of this process end while a run is at work.
func endThreads(o *office, c store.ConversationID) {
	await(o.t, filepath.Join(o.folder(c), "waiting"))
	var all sync.WaitGroup
	for range 64 {
		all.Go(runtime.LockOSThread) // a goroutine that ends locked takes its thread along
	}
	all.Wait()
	o.give(c, "read")
}

// outputFaults say too much, too little, or what nobody expects.
func outputFaults() []fault {
	return []fault{
		{what: "JSON cut at 65,536 bytes, exit 0 (#77112)", script: "a result cut at 65,536 bytes",
			talk: reads(notice("run.failed")), end: failed("no_result"), logged: []object{{"event": "run.silent_end", "garbage": 1}}},
		{what: "one line of 1 MB (goclaw#94)", script: "a line of 1 MB", talk: reads(answer("after the long line")), end: ok()},
		{what: "one line of 8 MB (kelos#1188)", script: "a line of 8 MB", talk: reads(answer("after the long line")), end: ok()},
		{what: "one line of 70 MB (ralphex#118)", script: "a line of 70 MB", talk: reads(answer("after the long line")), end: ok()},
		{what: "stderr floods", script: "floods its errors", talk: reads(answer("after the flood")), end: ok()},
		{what: "stdout floods", script: "floods with events", talk: reads(answer("after the flood")), end: ok()},
		{what: "events nobody knows, or of other shapes", script: "says all there is", talk: reads(answer("in spite of it")), end: ok()},
		{what: "lines that are no JSON", script: "garbage between", talk: reads(answer("in spite of it")), end: ok()},
		{what: "empty result, text only in the assistant's event (#38673)", script: "text only in the assistant's event",
			talk: reads(answer("only here")), end: ok()},
		{what: "empty result, nothing said", script: "nothing to say", talk: reads(said{}), end: ok("empty")},
		{what: "empty result, said only what came before a tool", script: "interim and an empty result", talk: reads(said{}), end: ok("empty")},
		{what: "empty success, the last message is a tool's use (#74761)", script: "a tool and an empty result",
			talk: reads(notice("run.failed")), end: failed("incomplete")},
		{what: "an API error in the agent's place, then no result", script: "an error in the agent's place",
			talk: reads(notice("run.failed")), end: failed("no_result")},
		{what: "an API error in the agent's place, then an empty success", script: "an empty result after an error", talk: reads(said{}), end: ok("empty")},
	}
}

// sessionFaults have trouble with their tools or with what was before.
func sessionFaults() []fault {
	lost := func(script string) fault {
		return fault{script: script, end: endings(ok(), ok(), ok()), also: startsWere(4), talk: []exchange{
			{text: "one", read: []said{answer("you said: one")}},
			{text: "two", read: []said{notice("run.context_lost"), answer("you said: two")}},
			{text: "three", read: []said{answer("you said: three")}},
		}}
	}
	named := func(what string, f fault) fault { f.what = what; return f }
	hangs := lost("resume hangs")
	hangs.change = func(cfg *runner.Config) { cfg.IdleTimeout, cfg.InterruptGrace = 10*time.Second, 100*time.Millisecond }
	return []fault{
		named("unknown session: every follow-up fails (#7004, #24025)", lost("resume is unknown")),
		named("session that kills its process (LifeOS#1288)", lost("resume dies")),
		named("session that hangs its process (claude-code-telegram#94)", hangs),
		named("session too large for memory (#83280)", lost("resume is too much")),
		named("session the provider rejects, with 400", lost("resume is rejected")),
		{what: "dead session, and then a full provider: both are told", script: "resume dies, then all is busy",
			talk: []exchange{{text: "one", read: []said{answer("you said: one")}},
				{text: "two", read: []said{notice("run.context_lost"), notice("run.busy")}}}, end: endings(ok(), failed("busy"))},
		{what: "no process starts any more: the session is not to blame", script: "nothing works any more", also: startsWere(5),
			talk: []exchange{{text: "one", read: []said{answer("you said: one")}}, {text: "two", read: []said{notice("run.failed")}},
				{text: "three", read: []said{notice("run.failed")}}}, end: endings(ok(), failed("crashed"), failed("crashed"))},
		{what: "process that began a tool is not replaced", script: "resume fails after a tool", also: startsWere(2),
			talk: []exchange{{text: "one", read: []said{answer("first")}}, {text: "two", read: []said{notice("run.failed")}}},
			end:  endings(ok(), failed("failed"))},
		{what: "MCP silently absent (#43968, #74926)", script: "without pilder", talk: reads(notice("run.not_ready")), end: failed("tools_missing"),
			also: startsWere(2), logged: []object{{"event": "run.again", "reason": "tools_missing"}}},
		{what: "MCP absent at first (#43968)", script: "without pilder at first", talk: reads(answer("at last")), end: ok(), also: startsWere(2)},
		{what: "self-update: another version answers (#25364, #69400)", script: "another version",
			talk: reads(notice("run.not_ready")), end: failed("cli_version")},
		{what: "self-update removed the binary (#25364)", script: "echo", talk: []exchange{
			{text: "hello", before: func(o *office, _ store.ConversationID) {
				if err := os.Remove(o.cfg.CLI); err != nil {
					o.t.Error(err)
				}
			}, read: []said{notice("run.not_ready")}},
		}, end: failed("cli_missing")},
	}
}

// metered is a model door at which every request comes to the same.
func metered(u runner.Usage) func(*runner.Config) {
	return func(cfg *runner.Config) {
		cfg.ServeModel = func(ctx context.Context, d runner.ModelDoor, l net.Listener) error {
			return serveText(ctx, l, "model", func(*http.Request) bool { d.Meter(u); return true })
		}
	}
}

// resultFaults end with results that are not what they seem.
func resultFaults() []fault {
	busy, broken, unready, long := notice("run.busy"), notice("run.failed"), notice("run.not_ready"), notice("run.too_long")
	one := func(what, script string, read said, reason string) fault {
		return fault{what: what, script: script, talk: reads(read), end: failed(reason), also: startsWere(1)}
	}
	return []fault{
		one("429 as a success with is_error (#79500, happy#465)", "rate limit", busy, "busy"),
		one("429 as a success (#79500, happy#465)", "a status as an answer", busy, "busy"),
		one("used-up plan as an answer (#79500)", "limit as an answer", busy, "busy"),
		one("used-up plan as an answer, with a clock (#79500)", "limit with a clock", busy, "busy"),
		one("529, retried in vain", "busy", busy, "busy"), one("500, retried in vain", "500", busy, "busy"),
		one("status that is a text", "status unlike", busy, "busy"),
		one("401", "bad key", unready, "model_auth"), one("403", "403", unready, "model_auth"),
		one("404", "no such model", unready, "model_unknown"), one("400", "bad request", broken, "rejected"),
		one("413", "too large", long, "too_long"), one("input too long", "blocking", long, "too_long"),
		one("output limit reached four times", "too many output tokens", long, "too_long"),
		one("refusal", "refusal", broken, "refused"), one("connection cut in mid-stream", "the connection dropped", broken, "failed"),
		one("turn limit", "max turns", broken, "max_turns"), one("pause_turn as a success", "pause", broken, "incomplete"),
		one("aborted tools as a success", "aborted", broken, "incomplete"),
		one("success about to use a tool (#74761)", "about to use a tool", broken, "incomplete"),
		one("success with a stop reason nobody knows", "a new way to stop", broken, "incomplete"),
		one("result of other types", "result unlike", broken, "failed"), one("error without a text", "an error that is no text", broken, "failed"),
		one("result of another session, and no other", "another's result alone", broken, "no_result"),
		{what: "result of another session first", script: "another's result first", talk: reads(answer("mine")), end: ok()},
		{what: "second result, late (#85129, #89495, claude-code-action#1533)", script: "two results", talk: reads(answer("the first")), end: ok()},
		{what: "error or silence in mid-stream, then repeated; another model", script: "retries and gets there", talk: reads(answer("at last")), end: ok()},
		{what: "wrong cost (#53371, #15418, hive-mind#1889)", script: "a cost of its own", talk: reads(answer("cheap")), end: ok(),
			also: func(o *office, c store.ConversationID) {
				if run := o.runsOf(c)[0]; run.CostUSD != 0.5 || run.Tokens != (store.Tokens{Input: 3, Output: 4}) {
					o.t.Errorf("it is said to have cost %v for %+v", run.CostUSD, run.Tokens)
				}
			}},
		{what: "429 with a time", script: "asks and is refused", change: metered(runner.Usage{RetryAfter: 10*time.Minute + time.Second}),
			talk: reads(said{Notice: "run.busy_minutes", Wait: "11"}), end: failed("busy")},
		{what: "429 with a long time", script: "asks and is refused", change: metered(runner.Usage{RetryAfter: 5 * time.Hour}),
			talk: reads(said{Notice: "run.busy_hours", Wait: "5"}), end: failed("busy")},
		{what: "budget used up", script: "asks and is refused", change: metered(runner.Usage{Refused: "budget"}),
			talk: reads(notice("run.budget")), end: failed("budget")},
	}
}

// stopFaults are about a person who stops a run.
func stopFaults() []fault {
	stop := func(o *office, c store.ConversationID) {
		await(o.t, filepath.Join(o.folder(c), "waiting"))
		if len(o.processes()) == 0 {
			o.t.Error("the run has no process: nothing after this would show one")
		}
		o.stop()
	}
	interrupted := func(yes bool) func(o *office, c store.ConversationID) {
		return func(o *office, c store.ConversationID) {
			if _, err := os.Stat(filepath.Join(o.folder(c), "interrupted")); (err == nil) != yes {
				o.t.Errorf("interrupted: %v", err)
			}
		}
	}
	cancelled := ending(store.RunCancelled, "cancelled")
	return []fault{
		{what: "stop: the process obeys the interrupt", script: "waits to be stopped", end: cancelled, also: interrupted(true),
			talk: []exchange{{text: "hello", then: stop, read: []said{notice("stopped")}}}},
		{what: "stop: the process obeys nothing, and is killed", script: "waits and cannot be stopped", end: cancelled, also: interrupted(false),
			change: func(cfg *runner.Config) { cfg.InterruptGrace = 200 * time.Millisecond },
			talk:   []exchange{{text: "hello", then: stop, read: []said{notice("stopped")}}},
			logged: []object{{"event": "run.killed", "signal": "kill"}}},
		{what: "stop of a run that has just finished loses the answer (untether#591, #346)", script: "answers when it is stopped", end: ok(),
			talk: []exchange{{text: "hello", then: stop, read: []said{notice("stopped"), answer("just finished")}}}},
	}
}
