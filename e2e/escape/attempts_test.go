//go:build linux

package escape

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// attempt is one of the tests T1 to T48 of the sandbox.
type attempt struct {
	id, title string
	ways      []way // each must have been gone
	// unless tells, with a probe's output, what the machine lacks that the attempt needs. Nil: every machine has it.
	unless func() string
	// against tells what the attempt meets on this machine where that depends on it. Nil: it does not.
	against func() string
}

func attempts() []attempt {
	both, shut := []way{byExec, traitor}, []way{inside}
	return []attempt{
		{id: "T01", title: "read files of the host by name", ways: both},
		{id: "T02", title: "read them through links", ways: both},
		{id: "T03", title: "read variables and arguments of processes", ways: both},
		{id: "T04", title: "use descriptors left open", ways: both},
		{id: "T05", title: "see, signal and end the host's processes", ways: both},
		{id: "T06", title: "make or enter namespaces", ways: both},
		{id: "T07", title: "mount, or move what is mounted", ways: both},
		{id: "T08", title: "write to the system or to what others obey", ways: both},
		{id: "T09", title: "look into other processes", ways: both},
		{id: "T10", title: "meet another sandbox", ways: both},
		{id: "T11", title: "use the kernel's riskiest parts", ways: both},
		{id: "T12", title: "put words into a terminal", ways: both, unless: noWordsIntoTerminals},
		{id: "T13", title: "reach the host and the networks beyond", ways: both},
		{id: "T14", title: "resolve names", ways: both},
		{id: "T15", title: "open sockets of unusual families", ways: both},
		{id: "T16", title: "reach the host's local sockets", ways: both},
		{id: "T17", title: "use another run's door or secrets", ways: []way{byExec, traitor, inside}},
		{id: "T18", title: "use the run token after the run's end", ways: []way{traitor, inside}},
		{id: "T19", title: "ask the model door for other things", ways: shut},
		{id: "T20", title: "ask the model for more than the house allows", ways: shut},
		{id: "T21", title: "see the house's key, or use another", ways: shut},
		{id: "T22", title: "flood the model", ways: shut},
		{id: "T23", title: "reach more of the web than was allowed", ways: shut},
		{id: "T24", title: "go to the web where it is not allowed", ways: both},
		{id: "T25", title: "make processes, threads and descriptors", ways: both, against: plainLimits},
		{id: "T26", title: "fill the folders in memory", ways: both, against: plainLimits},
		{id: "T27", title: "fill the disk", ways: both, against: plainLimits},
		{id: "T28", title: "keep the processors busy", ways: []way{traitor}, against: plainLimits},
		{id: "T29", title: "outlive the run", ways: []way{traitor}},
		{id: "T30", title: "end or impersonate the run's own processes", ways: both},
		{id: "T31", title: "plant settings for the next run", ways: []way{traitor}},
		{id: "T32", title: "put a link where a file is expected", ways: []way{traitor}},
		{id: "T33", title: "forge the transcript", ways: []way{traitor}},
		{id: "T34", title: "go on with another's session", ways: []way{traitor}},
		{id: "T35", title: "start the CLI with other flags", ways: []way{traitor}},
		{id: "T36", title: "call tools for others, or twice", ways: []way{inside}},
		{id: "T37", title: "have the host pick up what it must not", ways: []way{traitor, inside}},
		{id: "T38", title: "have the host lay files elsewhere", ways: []way{traitor, inside}},
		{id: "T39", title: "give the CLI commands in a message", ways: []way{traitor}},
		{id: "T40", title: "tell the run's own secrets in the answer", ways: []way{traitor}},
		{id: "T41", title: "learn about the machine and whom it serves", ways: both},
		{id: "T42", title: "gain privileges by a program", ways: both, unless: noRoot},
		{id: "T43", title: "make a core file", ways: both, unless: noCoreFiles},
		{id: "T44", title: "run programs by other ways", ways: both},
		{id: "T45", title: "make system calls of another kind", ways: both, unless: noOldCalls},
		{id: "T46", title: "be served on a machine that cannot hold it", ways: []way{byExec}},
		{id: "T47", title: "see the house's environment", ways: both},
		{id: "T48", title: "meet the same person's other run", ways: []way{traitor}},
	}
}

// plainLimits are those that every machine has: of the memory of a run there is a watch then. cgroup v2 holds it where there
// are controllers that pilder may hand down.
func plainLimits() string {
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return fmt.Sprintf("against rlimits, sizes of tmpfs, the watch and the quota; cgroup v2: %v", err)
	}
	return "against rlimits, sizes of tmpfs, the watch and the quota; cgroup v2 has " + strings.TrimSpace(string(controllers))
}

// noRoot: only root can make a program that makes others root.
func noRoot() string {
	if uid := os.Getuid(); uid != 0 {
		return fmt.Sprintf("only root can make a setuid program, and this is uid %d", uid)
	}
	return ""
}

// noWordsIntoTerminals: newer kernels let only root put words into a terminal.
func noWordsIntoTerminals() string {
	setting, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti")
	if err == nil && strings.TrimSpace(string(setting)) == "0" && os.Getuid() != 0 {
		return "this kernel has TIOCSTI switched off: dev.tty.legacy_tiocsti is 0"
	}
	return ""
}

// noCoreFiles: a hard limit that others than root cannot raise.
func noCoreFiles() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Max == 0 && os.Getuid() != 0 {
		return fmt.Sprintf("this machine makes no core files: the limit is %d, %v", limit.Max, err)
	}
	return ""
}

// noOldCalls: only this processor has calls by other numbers and other gates.
func noOldCalls() string {
	if runtime.GOARCH != "amd64" {
		return "there is one kind of system call on " + runtime.GOARCH
	}
	return ""
}
