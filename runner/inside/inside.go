// Package inside is what pilder is inside a sandbox: the first program, which opens the doors and becomes the agent; the shell
// that fences in an agent's commands; the probe. It refuses to know anything of the house: it is linked into a small program
// of its own, since the whole of pilder takes a tenth of a second of computing to start, before its first line.
package inside

import (
	"os"
	"path/filepath"
)

// Names under which the program is started inside a sandbox.
const (
	InitName  = "sandbox-init"
	ProbeName = "sandbox-probe"
	ShellName = "pilder-sh"
)

// Folders inside.
const (
	DirWork  = "/work"
	DirState = "/state"
	DirAgent = "/agent"
	DirCLI   = "/opt/claude"
	DirHome  = "/home/agent"
)

// PortWeb is the door to the web, the only one at which a shell command may knock.
const PortWeb = 7002

// Words of the handshake over descriptor 3.
const (
	HandshakeFD    = 3
	HandshakeDoors = 'D' // from sandbox-init: the names of the doors, with their listeners
	HandshakeGo    = 'G' // to it: go on
)

// FenceFlag tells sandbox-init to fence itself in: where there is no sandbox, the folders of the fence mean nothing.
const FenceFlag = "--fence"

// Finding is one thing the probe saw that an operator should know.
type Finding struct {
	Check   string // "bwrap", "userns", "T6": the tests of the sandbox have the T numbers
	Problem string
	Remedy  string // the one exact thing to do; empty when nothing is needed
	Fatal   bool   // the sandbox is below C because of it
}

// Checks whose remedy names a folder of the host, which is not known inside.
const (
	CheckHome = "agent home"
	CheckCLI  = "cli"
)

// RemedyBroken is for a sandbox that starts and does not hold.
const RemedyBroken = "do not run agents here; report this with the versions of the kernel and of bubblewrap"

// Reexec does what the program is for when a sandbox has started it, and tells whether it was so. args are os.Args.
func Reexec(args []string) (code int, handled bool) {
	switch {
	case len(args) == 0:
		return 0, false
	case filepath.Base(args[0]) == ShellName:
		return shell(args[1:]), true
	case len(args) > 1 && args[1] == InitName:
		return initialize(args[2:]), true
	case len(args) > 1 && args[1] == ProbeName:
		return attack(args[2:], os.Stdout), true
	}
	return 0, false
}
