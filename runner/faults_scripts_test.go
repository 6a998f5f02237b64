package runner_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"syscall"
	"time"
)

// faultScripts are failures of the CLI that people have reported in public.
func faultScripts() map[string]func(a *actor) int {
	all := map[string]func(a *actor) int{"as written": asWritten, "looks around": looksAround}
	for _, more := range []map[string]func(a *actor) int{endingScripts(), outputScripts(), sessionScripts(), resultScripts(), warmFaultScripts()} {
		maps.Copy(all, more)
	}
	return all
}

// asWritten plays the script that each text names. One whose name begins with "echo" leaves the process ready for the next.
func asWritten(a *actor) int {
	return a.turns(func(h heard) bool {
		a.text, a.asked = h.text, object{}
		if strings.HasPrefix(h.text, "echo") {
			a.init("connected")
			a.result("you said: "+h.text, nil)
			return false
		}
		leave(allScripts()[h.text](a))
		return true
	})
}

// until waits for a file that the test makes.
func until(path string) {
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *actor) uses(id, tool string) {
	a.assistant(object{"type": "text", "text": "interim, before " + tool}, object{"type": "tool_use", "id": id, "name": tool})
}

func (a *actor) used(id string) {
	a.say(object{"type": "user", "message": object{"content": []object{{"type": "tool_result", "tool_use_id": id}}}})
}

// begins is the ordinary start of a turn.
func (a *actor) begins() {
	a.hear()
	a.init("connected")
}

// works does all that was asked for, and says so.
func (a *actor) works() {
	a.begins()
	a.uses("t1", "Bash")
	a.used("t1")
	a.assistant(object{"type": "text", "text": "All three are in the calendar."})
}

// long says one line with a text of n bytes, which is never held whole here.
func (a *actor) long(n int) {
	_, _ = os.Stdout.WriteString(`{"type":"assistant","parent_tool_use_id":null,"message":{"content":[{"type":"text","text":"`)
	for part := strings.Repeat("x", 1<<20); n > 0; n -= len(part) {
		_, _ = os.Stdout.WriteString(part[:min(n, len(part))])
	}
	_, _ = os.Stdout.WriteString("\"}]}}\n")
}

// endingScripts are processes that end at the wrong moment, or do not.
func endingScripts() map[string]func(a *actor) int {
	return map[string]func(a *actor) int{
		"answers and leaves late": func(a *actor) int {
			a.begins()
			a.result("here I am", nil)
			until("/work/read")
			return 0
		},
		"answers and waits for the end of input": func(a *actor) int {
			a.begins()
			a.result("here I am", nil)
			a.leave()
			_ = os.WriteFile("/work/eof", nil, 0o600)
			return 0
		},
		"waits to be read": func(a *actor) int {
			a.begins()
			_ = os.WriteFile("/work/waiting", nil, 0o600)
			until("/work/read")
			a.result("still here", nil)
			return a.leave()
		},
		"answers and fails": func(a *actor) int {
			a.begins()
			a.result("here I am", nil)
			return 1
		},
		"stops after a tool's result": func(a *actor) int {
			a.begins()
			a.uses("t1", "Bash")
			a.used("t1")
			return a.hang()
		},
		"stops after its last word": func(a *actor) int {
			a.works()
			return a.hang()
		},
		"works and has no result": func(a *actor) int {
			a.works()
			return 0
		},
		"ends with a tool": func(a *actor) int {
			a.begins()
			a.uses("t1", "Bash")
			return 0
		},
		"is interrupted from outside": func(a *actor) int { // SIGINT: an error, and exit 0
			a.begins()
			a.result("", object{"subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_streaming"})
			return 0
		},
		"is killed": func(a *actor) int {
			a.begins()
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			return a.hang()
		},
		"is killed at the start": func(a *actor) int {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			return a.hang()
		},
		"is terminated": func(a *actor) int {
			a.begins()
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			time.Sleep(time.Hour)
			return 0
		},
		"closes its output": func(a *actor) int {
			a.begins()
			_ = os.Stdout.Close()
			return a.hang()
		},
		"answers and closes its output": func(a *actor) int {
			a.begins()
			a.result("here I am", nil)
			_ = os.Stdout.Close()
			return a.hang()
		},
	}
}

// outputScripts say too much, or what nobody expects.
func outputScripts() map[string]func(a *actor) int {
	return map[string]func(a *actor) int{
		"a result cut at 65,536 bytes": func(a *actor) int {
			a.begins()
			line := `{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"canary`
			fmt.Print(line + strings.Repeat("x", 65536-len(line)))
			return 0
		},
		"a line of 1 MB":  longLine(1 << 20),
		"a line of 8 MB":  longLine(8 << 20),
		"a line of 70 MB": longLine(70 << 20),
		"floods its errors": func(a *actor) int {
			a.begins()
			for range 16 {
				fmt.Fprintln(os.Stderr, "canary", strings.Repeat("e", 1<<20))
			}
			a.result("after the flood", nil)
			return a.leave()
		},
		"floods with events": func(a *actor) int {
			a.begins()
			for range 20_000 {
				a.say(object{"type": "stream_event", "event": object{"type": "content_block_delta", "delta": object{"text": "canary"}}})
			}
			a.result("after the flood", nil)
			return a.leave()
		},
		"says all there is": func(a *actor) int {
			a.begins()
			for _, s := range []string{"status", "thinking_tokens", "api_retry", "model_fallback", "compact_boundary", "permission_denied",
				"task_started", "task_updated", "task_notification", "background_tasks_changed", "session_writes_lost", "from_the_future"} {
				a.say(object{"type": "system", "subtype": s, "session_id": 7, "message": []any{nil}, "result": object{}})
				a.say(object{"type": "system", "subtype": s, "session_id": a.session})
			}
			for _, kind := range []string{"tool_progress", "command_lifecycle", "conversation_reset", "control_response", "from_the_future"} {
				a.say(object{"type": kind, "is_error": true, "response": object{"subtype": "error", "request_id": "not ours"}})
			}
			a.init("failed") // of a later turn within the process
			a.result("in spite of it", nil)
			return a.leave()
		},
		"an error in the agent's place": func(a *actor) int {
			a.begins()
			a.synthetic()
			return 1
		},
		"an empty result after an error": func(a *actor) int {
			a.begins()
			a.synthetic()
			a.result("", nil)
			return a.leave()
		},
		"interim and an empty result": func(a *actor) int {
			a.begins()
			a.uses("t1", "Bash")
			a.used("t1")
			a.result("", nil)
			return a.leave()
		},
		"a tool and an empty result": func(a *actor) int {
			a.begins()
			a.uses("t1", "Bash")
			a.result("", nil)
			return a.leave()
		},
	}
}

func longLine(n int) func(*actor) int {
	return func(a *actor) int {
		a.begins()
		a.long(n)
		a.result("after the long line", nil)
		return a.leave()
	}
}

// synthetic is an API error as the CLI puts it into the transcript (2.1.332).
func (a *actor) synthetic() {
	a.say(object{"type": "assistant", "parent_tool_use_id": nil, "message": object{"model": "<synthetic>",
		"content": []object{{"type": "text", "text": "API Error: canary at 127.0.0.1:7001"}}}})
}

// sessionScripts have trouble with what was before.
func sessionScripts() map[string]func(a *actor) int {
	resumed := func(bad func(*actor) int) func(*actor) int {
		return func(a *actor) int {
			if a.resumed && count("/work/resumed") == 0 {
				return bad(a)
			}
			a.begins()
			a.result("you said: "+a.text, nil)
			return a.leave()
		}
	}
	return map[string]func(a *actor) int{
		"resume is unknown": resumed(func(a *actor) int {
			a.hear()
			a.say(object{"type": "result", "subtype": "error_during_execution", "is_error": true, "session_id": "another",
				"errors": []string{"No conversation found with session ID: " + a.session}})
			return 1
		}),
		"resume dies":        resumed(func(*actor) int { return 1 }),
		"resume hangs":       resumed(func(a *actor) int { return a.hang() }),
		"resume is too much": resumed(func(a *actor) int { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); return a.hang() }),
		"resume is rejected": resumed(failing(object{"api_error_status": 400})),
		"nothing works any more": func(a *actor) int {
			if count("/work/tries") > 0 {
				return 1
			}
			a.begins()
			a.result("you said: "+a.text, nil)
			return a.leave()
		},
		"resume dies, then all is busy": func(a *actor) int {
			if a.resumed {
				return 1
			}
			if count("/work/tries") > 0 {
				return failing(object{"api_error_status": 529})(a)
			}
			a.begins()
			a.result("you said: "+a.text, nil)
			return a.leave()
		},
		"writes a diary": func(a *actor) int { // what a conversation leaves in the places it may write to
			a.begins()
			var seen []string
			for _, dir := range []string{"/state", "/work"} {
				path := dir + "/diary"
				before, _ := os.ReadFile(path)
				_ = os.WriteFile(path, append(before, a.text+";"...), 0o600)
				seen = append(seen, string(before))
			}
			a.result(strings.Join(seen, "|"), nil)
			return a.leave()
		},
	}
}

// resultScripts end with results that are not what they seem.
func resultScripts() map[string]func(a *actor) int {
	return map[string]func(a *actor) int{
		"two results": func(a *actor) int {
			a.begins()
			a.result("the first", nil)
			a.result("the second", nil)
			return a.leave()
		},
		"another's result first": func(a *actor) int {
			a.begins()
			a.result("canary", object{"session_id": "8f14e45f-0000-4000-8000-000000000000"})
			a.result("mine", nil)
			return a.leave()
		},
		"another's result alone": func(a *actor) int {
			a.begins()
			a.result("canary", object{"session_id": "8f14e45f-0000-4000-8000-000000000000"})
			return 0
		},
		"a cost of its own": func(a *actor) int {
			a.begins()
			get("http://127.0.0.1:7001/v1/messages")
			a.result("cheap", object{"total_cost_usd": 999, "usage": object{"input_tokens": 1 << 40}, "modelUsage": object{"x": object{"costUSD": 999}}})
			return a.leave()
		},
		"retries and gets there": func(a *actor) int {
			a.begins()
			for i := range 3 {
				a.say(object{"type": "system", "subtype": "api_retry", "attempt": i, "error_status": 529, "session_id": a.session})
			}
			a.say(object{"type": "system", "subtype": "model_fallback", "session_id": a.session})
			a.result("at last", nil)
			return a.leave()
		},
		"asks and is refused": func(a *actor) int {
			a.hear()
			get("http://127.0.0.1:7001/v1/messages")
			return failing(object{"api_error_status": 429})(a)
		},
		"limit as an answer":       failing(object{"is_error": false, "terminal_reason": "completed", "result": "Claude AI usage limit reached|1755615600"}),
		"limit with a clock":       failing(object{"is_error": false, "terminal_reason": "completed", "result": "You've hit your limit · resets 4pm (UTC)"}),
		"a status as an answer":    failing(object{"is_error": false, "terminal_reason": "completed", "api_error_status": 429}),
		"about to use a tool":      failing(object{"is_error": false, "terminal_reason": "completed", "stop_reason": "tool_use"}),
		"a new way to stop":        failing(object{"is_error": false, "terminal_reason": "completed", "stop_reason": "from_the_future"}),
		"500":                      failing(object{"api_error_status": 500}),
		"403":                      failing(object{"api_error_status": 403}),
		"the connection dropped":   failing(object{"result": "Connection dropped. canary 127.0.0.1:7001"}),
		"too many output tokens":   failing(object{"result": "response exceeded the 32000 output token maximum. canary"}),
		"an error that is no text": failing(object{"result": nil, "errors": []string{"canary"}}),
	}
}
