package runner

import (
	"slices"
	"strconv"
	"strings"

	"pilder/runner/inside"
)

// The web door, which is there only when it is served.
const (
	doorWeb = "web"
	portWeb = inside.PortWeb
)

// canFetch and canSearch tell what of the web an agent has. Without a sandbox it has nothing: its fetches would not have to
// pass any door.
func (r *Runner) canFetch() bool  { return r.cfg.ServeWeb != nil && !r.box.Unsandboxed() }
func (r *Runner) canSearch() bool { return r.cfg.Search && !r.box.Unsandboxed() }

// openings are the doors that every process of the CLI has; of which run they are is settled turn by turn.
func (r *Runner) openings() []Door {
	all := []Door{{doorTools, portTools}, {doorModel, portModel}}
	if r.canFetch() {
		all = append(all, Door{doorWeb, portWeb})
	}
	return all
}

// builtins are the CLI's own tools that an agent has.
func (r *Runner) builtins() string {
	all := slices.Clone(strings.Split(builtins, ","))
	if r.canFetch() {
		all = append(all, "WebFetch")
	}
	if r.canSearch() {
		all = append(all, "WebSearch")
	}
	return strings.Join(all, ",")
}

// webEnvironment leads to the web door what the CLI and its shell commands ask of the web. They are one process tree and
// the door has one list of names, so a command may reach what the agent's own tool may. Both spellings: not every program
// reads the same.
func (r *Runner) webEnvironment() []string {
	if !r.canFetch() {
		return nil
	}
	door := "http://127.0.0.1:" + strconv.Itoa(portWeb)
	return []string{
		"HTTPS_PROXY=" + door, "https_proxy=" + door,
		"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", // the other two doors are asked directly
	}
}
