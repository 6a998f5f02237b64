package runner_test

import (
	"fmt"
	"os"
	"strings"
	"time"

	"pilder/runner"
	"pilder/store"
)

// warmFaultScripts are processes that serve one turn well and fail their conversation afterwards. The next process of the
// conversation is healthy.
func warmFaultScripts() map[string]func(a *actor) int {
	return map[string]func(a *actor) int{
		"dies between turns":      between(func(*actor) { os.Exit(3) }),
		"is killed between turns": between(func(a *actor) { leave(137) }),
		"floods between turns":    between(func(a *actor) { a.chatter(50_000) }),
		"says one line for ever": between(func(*actor) {
			for {
				fmt.Print(strings.Repeat("x", 64<<10))
			}
		}),
		"fills its errors between turns":  between(func(*actor) { fmt.Fprint(os.Stderr, strings.Repeat("canary ", 2<<20)) }),
		"leaves at the next text":         second(func(*actor) { os.Exit(0) }),
		"crashes in the next turn":        second(func(a *actor) { a.init("connected"); os.Exit(1) }),
		"is killed in the next turn":      second(func(a *actor) { a.init("connected"); leave(137) }),
		"is deaf to the next text":        second(func(a *actor) { a.hang() }),
		"has lost its tools":              second(func(a *actor) { a.init("failed"); a.hang() }),
		"says the last answer again":      second(func(a *actor) { a.result("process 1: one", nil) }),
		"crashes after a tool":            second(func(a *actor) { a.init("connected"); a.uses("t1", "Bash"); os.Exit(1) }),
		"hangs in the next turn":          second(func(a *actor) { a.init("connected"); a.hang() }),
		"takes no new token":              refuses("error"),
		"takes the new token and no tool": refuses("success"),
	}
}

// serves answers each text with its own number and the text. bad happens first where it is asked for.
func (a *actor) serves(bad func(heard), good func(heard)) int {
	return a.turns(func(h heard) bool {
		bad(h)
		a.init("connected")
		a.result(fmt.Sprintf("process %d: %s", starts(), h.text), nil)
		good(h)
		return false
	})
}

func nothing(heard) {}

func second(bad func(*actor)) func(*actor) int {
	return func(a *actor) int {
		return a.serves(func(h heard) {
			if h.n == 2 {
				bad(a)
			}
		}, nothing)
	}
}

// between lets something happen when the test says so.
func between(bad func(*actor)) func(*actor) int {
	return func(a *actor) int {
		return a.serves(nothing, func(h heard) {
			if starts() == 1 && h.n == 1 {
				go func() {
					until("/work/now")
					bad(a)
				}()
			}
		})
	}
}

func refuses(subtype string) func(*actor) int {
	return func(a *actor) int {
		if starts() == 1 {
			a.control = func(request, id string) bool {
				if request == "mcp_set_servers" {
					a.say(object{"type": "control_response", "response": object{"subtype": subtype, "request_id": id, "error": "canary",
						"response": object{"added": []string{}, "errors": object{"pilder": "canary"}}}})
				}
				return request == "mcp_set_servers"
			}
		}
		return a.serves(nothing, nothing)
	}
}

func (a *actor) chatter(lines int) {
	for range lines {
		a.say(object{"type": "system", "subtype": "status"})
	}
}

// warmFaults are failures of a process that waits for its conversation's next turn. None costs anybody their answer.
func warmFaults() []fault {
	parked := func(o *office, _ store.ConversationID) { o.awaitLog("warm.parked", 1) }
	now := func(event string) func(o *office, c store.ConversationID) {
		return func(o *office, c store.ConversationID) {
			parked(o, c)
			o.give(c, "now")
			if event != "" {
				o.awaitLog(event, 1)
			}
		}
	}
	row := func(what, script string, before func(*office, store.ConversationID), process int, second ...said) fault {
		f := fault{what: "waiting process " + what, script: script, end: endings(ok(), ok()), also: startsWere(process)}
		f.change = func(cfg *runner.Config) {
			cfg.WarmMax, cfg.WarmPatience, cfg.InterruptGrace = 1, patience, 100*time.Millisecond
		}
		if second == nil {
			second = []said{answer(fmt.Sprintf("process %d: two", process))}
		}
		f.talk = []exchange{{text: "one", read: []said{answer("process 1: one")}}, {text: "two", before: before, read: second}}
		return f
	}
	began := row("crashes after it began a tool: not repeated", "crashes after a tool", parked, 1, notice("run.failed"))
	began.end = endings(ok(), failed("no_result"))
	deaf := row("is deaf to the next text", "is deaf to the next text", parked, 2)
	soon := deaf.change
	deaf.change = func(cfg *runner.Config) { soon(cfg); cfg.WarmPatience = time.Second }
	hangs := row("hangs within the next turn", "hangs in the next turn", parked, 1, notice("run.timed_out"))
	hangs.end = endings(ok(), timedOut("idle"))
	change := hangs.change
	hangs.change = func(cfg *runner.Config) { change(cfg); cfg.IdleTimeout = 10 * time.Second }
	endless := row("says a line without an end between turns", "says one line for ever", now("warm.retired"), 2)
	warm := endless.change
	endless.change = func(cfg *runner.Config) {
		warm(cfg)
		cfg.MaxLine = 1 << 20
	}
	return []fault{
		endless,
		row("dies between turns", "dies between turns", now("warm.retired"), 2),
		row("is killed between turns (#83280)", "is killed between turns", now("warm.retired"), 2),
		row("floods between turns", "floods between turns", now("warm.retired"), 2),
		row("fills stderr between turns: no failure", "fills its errors between turns", now(""), 1),
		row("leaves when the next text comes", "leaves at the next text", parked, 2),
		row("crashes within the next turn", "crashes in the next turn", parked, 2),
		row("is killed within the next turn (#83280)", "is killed in the next turn", parked, 2),
		row("has lost its tools (#43968)", "has lost its tools", parked, 2),
		row("says the last answer again (claude-code-action#1533)", "says the last answer again", parked, 1),
		row("refuses the next token", "takes no new token", nil, 2),
		row("takes the next token and does not connect (#43968)", "takes the new token and no tool", nil, 2),
		began, hangs, deaf,
	}
}
