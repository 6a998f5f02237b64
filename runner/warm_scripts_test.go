package runner_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// heard is one turn as a process that takes several of them hears it.
type heard struct {
	n     int    // 1 for the first
	house string // what the house says beside the person's text; empty in the first turn of a cold process
	text  string // the person's
	token string // that the process was given last
}

// turns answers control requests and calls turn for each text, until the end of input or until turn says that it is over.
func (a *actor) turns(turn func(heard) (over bool)) int {
	h := heard{}
	for {
		line, err := a.in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var said struct {
			Type    string
			ID      string `json:"request_id"`
			Request struct {
				Subtype string
				Servers map[string]struct{ Headers map[string]string }
			}
			Message struct{ Content json.RawMessage }
		}
		if err := json.Unmarshal(line, &said); err != nil {
			fmt.Fprintln(os.Stderr, "input:", err)
			return 1
		}
		switch said.Type {
		case "control_request":
			if a.control != nil && a.control(said.Request.Subtype, said.ID) {
				continue
			}
			if s, ok := said.Request.Servers["pilder"]; ok {
				h.token = strings.TrimPrefix(s.Headers["Authorization"], "Bearer ")
			}
			a.say(object{"type": "control_response", "response": object{"subtype": "success", "request_id": said.ID,
				"response": object{"added": []string{"pilder"}, "removed": []string{}, "errors": object{}}}})
		case "user":
			h.n++
			h.house, h.text = words(said.Message.Content)
			if turn(h) {
				return a.leave()
			}
		}
	}
}

// words takes a message apart: a text of the person, or the house's block and then the person's.
func words(content json.RawMessage) (house, text string) {
	if json.Unmarshal(content, &text) == nil {
		return "", text
	}
	var blocks []struct{ Text string }
	if err := json.Unmarshal(content, &blocks); err != nil || len(blocks) != 2 {
		return "", "not a message: " + string(content)
	}
	return blocks[0].Text, blocks[1].Text
}

// unmarked is the house's block without its marks, or why it is not one. An answer must not show them.
func unmarked(house string) string {
	if house == "" {
		return ""
	}
	mark, inside, _ := strings.Cut(strings.TrimSuffix(house, "\n"), "\n")
	inside, closed := strings.CutSuffix(inside, strings.Replace(mark, "<", "</", 1))
	if !closed || len(mark) < len("<pilder->")+32 || !strings.HasPrefix(mark, "<pilder-") {
		return "not the house's"
	}
	return inside
}

// tell answers with what was heard and by whom.
func (a *actor) tell(h heard) {
	a.init("connected")
	text, _ := json.Marshal(told{PID: starts(), Turn: h.n, House: unmarked(h.house), Text: h.text, Token: h.token})
	a.result(string(text), nil)
}

// told is what tell says. PID tells processes of a conversation apart: all of them are number 2 inside.
type told struct {
	PID                int
	Turn               int
	House, Text, Token string
}

// starts counts the processes of the conversation so far.
func starts() int {
	text, _ := os.ReadFile("/work/starts")
	return len(text)
}

func warmScripts() map[string]func(a *actor) int {
	return map[string]func(a *actor) int{
		"takes turns": func(a *actor) int {
			return a.turns(func(h heard) bool { a.tell(h); return false })
		},
		"waits for a word": func(a *actor) int {
			return a.turns(func(h heard) bool {
				a.init("connected")
				_ = os.WriteFile("/work/waiting", nil, 0o600)
				for {
					if _, err := os.Stat("/work/word"); err == nil {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				a.result(h.text, nil)
				return false
			})
		},
		"waits for a word and tells": func(a *actor) int {
			return a.turns(func(h heard) bool {
				_ = os.WriteFile("/work/waiting", nil, 0o600)
				for {
					if _, err := os.Stat("/work/word"); err == nil {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				a.tell(h)
				return false
			})
		},
		"tells a tool its mark": func(a *actor) int {
			return a.turns(func(h heard) bool {
				if mark, _, ok := strings.Cut(h.house, "\n"); ok {
					a.init("connected")
					a.assistant(object{"type": "tool_use", "id": "t1", "name": "Bash", "input": object{"command": "mail " + strings.Trim(mark, "<>")}})
				}
				a.tell(h)
				return false
			})
		},
		"knocks and knocks": func(a *actor) int {
			return a.turns(func(h heard) bool {
				var open []net.Conn
				for range 200 {
					c, err := net.Dial("tcp", "127.0.0.1:7001")
					if err != nil {
						break
					}
					open = append(open, c)
				}
				answered := 0
				for range 100 { // each a connection of its own
					if get("http://127.0.0.1:7000/mcp") == "tools" {
						answered++
					}
					http.DefaultClient.CloseIdleConnections()
				}
				a.init("connected")
				a.result(fmt.Sprintf("%d open, %d answered", len(open), answered), nil)
				return false
			})
		},
		"takes turns and leaves a daemon": func(a *actor) int {
			return a.turns(func(h heard) bool {
				if h.n == 1 {
					cmd := exec.Command("/usr/bin/setsid", "/usr/bin/sleep", "4714.5")
					if err := cmd.Start(); err != nil {
						fmt.Fprintln(os.Stderr, err)
					}
					_ = os.WriteFile("/work/daemon", nil, 0o600)
				}
				a.tell(h)
				return false
			})
		},
		"tells its mark": func(a *actor) int {
			return a.turns(func(h heard) bool {
				a.init("connected")
				mark, _, _ := strings.Cut(h.house, "\n")
				a.result("the mark is "+mark+".", nil)
				return false
			})
		},
	}
}
