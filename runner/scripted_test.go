package runner_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// object is a JSON object.
type object = map[string]any

// actor is the test binary playing the CLI: it stands as "claude" in a folder mounted at /opt/claude and finds the name of
// its script beside itself.
type actor struct {
	in      *bufio.Reader
	session string
	resumed bool
	text    string                        // of the person
	asked   object                        // the initialize request
	control func(request, id string) bool // answers a control request in its own way; false: it does not
}

// scripted plays the script and gives the exit code.
func scripted() int {
	name, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), "script"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a := &actor{in: bufio.NewReader(os.Stdin)}
	for _, arg := range os.Args {
		if id, ok := strings.CutPrefix(arg, "--session-id="); ok {
			a.session = id
		}
		if id, ok := strings.CutPrefix(arg, "--resume="); ok {
			a.session, a.resumed = id, true
		}
	}
	// What a run was started with, for tests to look at afterwards.
	seen, _ := json.Marshal(object{"argv": os.Args, "env": slices.Sorted(slices.Values(os.Environ()))})
	_ = os.WriteFile("/work/seen.json", seen, 0o600)
	count("/work/starts")
	return allScripts()[string(name)](a)
}

func allScripts() map[string]func(*actor) int {
	all := scripts()
	maps.Copy(all, warmScripts())
	maps.Copy(all, faultScripts())
	return all
}

// count appends a byte to a file and tells how many there were before.
func count(path string) int {
	before, _ := os.ReadFile(path)
	_ = os.WriteFile(path, append(before, 'x'), 0o600)
	return len(before)
}

// hear reads the two lines a turn begins with, unless they were read before.
func (a *actor) hear() {
	if a.asked != nil {
		return
	}
	var init struct{ Request object }
	var user struct{ Message struct{ Content string } }
	for _, into := range []any{&init, &user} {
		line, err := a.in.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, into)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "input:", err)
			os.Exit(1)
		}
	}
	a.asked, a.text = init.Request, user.Message.Content
	a.say(object{"type": "control_response", "response": object{"subtype": "success", "request_id": "init", "response": object{}}})
}

func (a *actor) say(v object) {
	line, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(line, '\n'))
}

func (a *actor) init(status string) {
	a.say(object{"type": "system", "subtype": "init", "session_id": a.session, "claude_code_version": "2.1.332",
		"mcp_servers": []object{{"name": "pilder", "status": status}}})
}

func (a *actor) assistant(blocks ...object) {
	a.say(object{"type": "assistant", "parent_tool_use_id": nil, "message": object{"content": blocks}})
}

// result ends a turn; more overwrites what an ordinary success says.
func (a *actor) result(text string, more object) {
	r := object{"type": "result", "subtype": "success", "is_error": false, "result": text, "terminal_reason": "completed",
		"stop_reason": "end_turn", "api_error_status": nil, "num_turns": 1, "session_id": a.session}
	for k, v := range more {
		r[k] = v
	}
	a.say(r)
}

// leave waits for the end of input.
func (a *actor) leave() int {
	_, _ = io.Copy(io.Discard, a.in)
	return 0
}

func (a *actor) hang() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	for {
		time.Sleep(time.Hour)
	}
}

// failing is a script that ends with an error result.
func failing(more object) func(*actor) int {
	return func(a *actor) int {
		a.hear()
		a.init("connected")
		text := "API Error at http://127.0.0.1:7001: canary"
		m := object{"is_error": true, "terminal_reason": "api_error"}
		for k, v := range more {
			m[k] = v
		}
		a.result(text, m)
		return 1
	}
}

func scripts() map[string]func(a *actor) int {
	return map[string]func(a *actor) int{
		"echo": func(a *actor) int {
			a.hear()
			a.init("connected")
			a.assistant(object{"type": "text", "text": "interim"})
			a.result("you said: "+a.text, nil)
			return a.leave()
		},
		"tells what it knows": func(a *actor) int {
			a.hear()
			a.init("connected")
			prompt, _ := a.asked["appendSystemPrompt"].(string)
			config, _ := os.ReadFile("/run/pilder/mcp-config.json")
			known, _ := json.Marshal(object{"resumed": a.resumed, "snapshot": a.asked["systemPromptSnapshot"], "skills": a.asked["skills"],
				"prompt": strings.Contains(prompt, "Mia") && strings.Contains(prompt, "Acme"), "config": string(config)})
			a.result(string(known), nil)
			return a.leave()
		},
		"knocks at the doors": func(a *actor) int {
			a.hear()
			a.init("connected")
			a.result(get("http://127.0.0.1:7000/mcp")+" "+get("http://127.0.0.1:7001/v1/messages"), nil)
			return a.leave()
		},
		"knocks at the web door": func(a *actor) int {
			a.hear()
			a.init("connected")
			prompt, _ := a.asked["appendSystemPrompt"].(string)
			said := ""
			for line := range strings.Lines(prompt) {
				if strings.Contains(line, "la web") && !strings.Contains(line, "FUENTES") {
					said += line
				}
			}
			tools := slices.IndexFunc(os.Args, func(s string) bool { return strings.HasPrefix(s, "--tools=") })
			answer := "nobody"
			if c, err := net.Dial("tcp", "127.0.0.1:7002"); err == nil {
				c.Close()
				answer = get("http://127.0.0.1:7002/")
			}
			told, _ := json.Marshal([]string{os.Args[tools], os.Getenv("HTTPS_PROXY"), os.Getenv("https_proxy"), os.Getenv("NO_PROXY"), answer, said})
			a.result(string(told), nil)
			return a.leave()
		},
		"crashes at the start": func(*actor) int { fmt.Fprintln(os.Stderr, "canary"); return 1 },
		"hangs at the start":   func(a *actor) int { return a.hang() },
		"hangs in a tool": func(a *actor) int {
			a.hear()
			a.init("connected")
			a.assistant(object{"type": "tool_use", "id": "t1", "name": "Bash"})
			return a.hang()
		},
		"works long in a tool": func(a *actor) int {
			a.hear()
			a.init("connected")
			a.assistant(object{"type": "tool_use", "id": "t1", "name": "mcp__pilder__x"})
			time.Sleep(12 * time.Second) // what the test is about: longer than the idle time, within the tool's
			a.say(object{"type": "user", "message": object{"content": []object{{"type": "tool_result", "tool_use_id": "t1"}}}})
			a.result("done", nil)
			return a.leave()
		},
		"talks for ever": func(a *actor) int {
			a.hear()
			a.init("connected")
			for {
				a.say(object{"type": "system", "subtype": "status"})
				time.Sleep(50 * time.Millisecond)
			}
		},
		"a line over the limit": func(a *actor) int {
			a.hear()
			a.init("connected")
			a.assistant(object{"type": "text", "text": strings.Repeat("x", 3<<20)})
			a.result("after the long line", nil)
			return a.leave()
		},
		"knocks and has no result": func(a *actor) int {
			a.hear()
			a.init("connected")
			get("http://127.0.0.1:7000/mcp")
			return 0
		},
		"garbage between": func(a *actor) int {
			a.hear()
			fmt.Print("hello\n\n\x00\xff\xfe\n{}\n[]\n{\"type\":7}\n{\"type\":\"new_thing\",\"message\":7}\n")
			a.init("connected")
			fmt.Print("{\"type\":\"result\"\n{\"type\":\"assistant\",\"message\":{\"content\":\"text\"}}\r\n")
			a.result("in spite of it", nil)
			return a.leave()
		},
		"answers and never exits": func(a *actor) int {
			a.hear()
			a.init("connected")
			a.result("here I am", nil)
			return a.hang()
		},
		"answers and leaves a daemon": func(a *actor) int {
			a.hear()
			a.init("connected")
			p, err := os.StartProcess("/bin/sleep", []string{"sleep", "4713.25"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
			if err != nil {
				return 1
			}
			_ = p.Release()
			a.result("done", nil)
			return a.leave()
		},
		"text only in the assistant's event": func(a *actor) int {
			a.hear()
			a.init("connected")
			a.assistant(object{"type": "text", "text": "only here"})
			a.say(object{"type": "assistant", "parent_tool_use_id": "t9", "message": object{"content": []object{{"type": "text", "text": "a side thread"}}}})
			a.result("", nil)
			return a.leave()
		},
		"nothing to say": func(a *actor) int {
			a.hear()
			a.init("connected")
			a.result("", nil)
			return a.leave()
		},
		"without pilder": func(a *actor) int {
			a.hear()
			a.init("failed")
			return a.hang()
		},
		"asks, and then has no tools": func(a *actor) int {
			a.hear()
			get("http://127.0.0.1:7001/v1/messages")
			a.init("failed")
			return a.hang()
		},
		"without pilder at first": func(a *actor) int {
			a.hear()
			if count("/work/tries") == 0 {
				a.init("failed")
				return a.hang()
			}
			a.init("connected")
			a.result("at last", nil)
			return a.leave()
		},
		"another version": func(a *actor) int {
			a.hear()
			a.say(object{"type": "system", "subtype": "init", "claude_code_version": "2.2.0", "mcp_servers": []object{{"name": "pilder", "status": "connected"}}})
			return a.hang()
		},
		"resume fails after a tool": func(a *actor) int {
			a.hear()
			a.init("connected")
			if a.resumed {
				a.assistant(object{"type": "tool_use", "id": "t1", "name": "Bash"})
				a.result("", object{"is_error": true, "num_turns": 0, "terminal_reason": "api_error"})
				return 1
			}
			a.result("first", nil)
			return a.leave()
		},
		"waits to be stopped": func(a *actor) int { // and obeys the interrupt
			a.hear()
			a.init("connected")
			_ = os.WriteFile("/work/waiting", nil, 0o600)
			_, _ = a.in.ReadBytes('\n')
			_ = os.WriteFile("/work/interrupted", nil, 0o600)
			a.result("", object{"subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_streaming"})
			return a.leave()
		},
		"answers when it is stopped": func(a *actor) int {
			a.hear()
			a.init("connected")
			_ = os.WriteFile("/work/waiting", nil, 0o600)
			_, _ = a.in.ReadBytes('\n')
			a.result("just finished", nil)
			return a.leave()
		},
		"waits and cannot be stopped": func(a *actor) int {
			a.hear()
			a.init("connected")
			_ = os.WriteFile("/work/waiting", nil, 0o600)
			return a.hang()
		},
		"busy":          failing(object{"api_error_status": 529}),
		"rate limit":    failing(object{"api_error_status": 429}),
		"bad key":       failing(object{"api_error_status": 401}),
		"no such model": failing(object{"api_error_status": 404}),
		"too large":     failing(object{"api_error_status": 413, "terminal_reason": "image_error"}),
		"blocking":      failing(object{"terminal_reason": "blocking_limit"}),
		"bad request":   failing(object{"api_error_status": 400}),
		"refusal":       failing(object{"stop_reason": "refusal"}),
		"max turns":     failing(object{"subtype": "error_max_turns"}),
		"pause":         failing(object{"is_error": false, "terminal_reason": "completed", "stop_reason": "pause_turn"}),
		"aborted":       failing(object{"is_error": false, "terminal_reason": "aborted_tools"}),
		"status unlike": failing(object{"api_error_status": "529"}),
		"result unlike": failing(object{"result": 7, "errors": object{"x": 1}}),
	}
}

// get asks a door and gives its answer.
func get(url string) string {
	req, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		return err.Error()
	}
	req.Header.Set("X-Api-Key", os.Getenv("ANTHROPIC_API_KEY"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}
