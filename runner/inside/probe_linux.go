package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attack runs in the sandbox and writes what it should not have been able to do, as JSON. args are the path of a file
// and the address of a listener, both on the host.
//
// A probe must do no harm where the sandbox does not hold, for that is where it is needed: each attempt is made in a form
// that the sandbox refuses in one way and a bare kernel in another, but that never succeeds in anything.
func attack(args []string, out io.Writer) int {
	if len(args) == 1 && args[0] == lingering {
		time.Sleep(lingers) // where the sandbox does not hold, not for ever
		_, _ = io.WriteString(out, lingering)
		return 0
	}
	if len(args) != 2 {
		return 2
	}
	broken := []Finding{}
	for _, c := range probes(args[0], args[1]) {
		problem := c.try()
		if problem == "" {
			continue
		}
		broken = append(broken, Finding{Check: c.id, Problem: problem, Remedy: RemedyBroken, Fatal: true})
		if c.id == "identity" {
			break // no sandbox at all
		}
	}
	if err := json.NewEncoder(out).Encode(broken); err != nil {
		return 1
	}
	return 0
}

// lingering is what a process says that has outlived the program which started it.
const (
	lingering = "lingering"
	lingers   = time.Second
)

type probe struct {
	id  string
	try func() string // the problem, or nothing
}

func probes(canary, address string) []probe {
	return []probe{
		{"identity", identity},
		{CheckHome, func() string { return unreadable(DirAgent) }},
		{CheckCLI, func() string { return unreadable(DirCLI) }},
		{"seccomp", func() string { return status("Seccomp:\t2") }},
		{"T1", func() string {
			return readable(canary, "/proc/1/root"+canary, "/proc/self/root"+canary, "/proc/1/cwd/.."+canary)
		}},
		{"T3", func() string {
			env, err := os.ReadFile("/proc/1/environ")
			return unless(err == nil && len(env) == 0, "the first process's environment is not empty")
		}},
		{"T6", func() string { // a bare kernel says EINVAL: this process has threads
			return expect("a new user namespace", unix.EPERM, unix.Unshare(unix.CLONE_NEWUSER))
		}},
		{"T6", func() string { // EINVAL: no arguments
			_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
			return expect("clone3", unix.ENOSYS, errno)
		}},
		{"T7", func() string { // ENOENT
			return expect("a mount", unix.EPERM, unix.Mount("none", "/nonexistent/target", "tmpfs", 0, ""))
		}},
		{"T8", func() string {
			return writable("/", "/usr", "/etc", "/opt", "/dev", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
				"/proc/sysrq-trigger", "/proc/self/oom_score_adj")
		}},
		{"T9", func() string { // ESRCH: nobody has this number
			_, _, errno := unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1<<30, 0)
			return expect("ptrace", unix.EPERM, errno)
		}},
		{"T13", func() string { return network(address) }},
		{"T15", func() string {
			return families(map[string]int{"AF_VSOCK": unix.AF_VSOCK, "AF_PACKET": unix.AF_PACKET, "AF_ALG": unix.AF_ALG})
		}},
		{"T15", func() string {
			return protocols(map[string]int{"MPTCP": unix.IPPROTO_MPTCP, "SCTP": unix.IPPROTO_SCTP})
		}},
		{"T17", func() string { // EISCONN: the stream is a pair
			return expect("TCP Fast Open", unix.EOPNOTSUPP, unix.Sendto(0, nil, unix.MSG_FASTOPEN, &unix.SockaddrInet4{}))
		}},
		{"T29", linger},
		{"T30", func() string { // the very stream this speaks to: opened anew, anybody inside could speak as the program
			f, err := os.OpenFile("/proc/self/fd/1", os.O_WRONLY, 0)
			if err == nil {
				_ = f.Close()
			}
			return unless(err != nil, "the program's output can be opened anew")
		}},
	}
}

// identity checks that this process is the powerless user 1000.
func identity() string {
	return status("Uid:\t1000\t1000\t1000\t1000", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000",
		"CapInh:\t0000000000000000", "CapBnd:\t0000000000000000")
}

// status checks what the kernel itself says of this process.
func status(lines ...string) string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "/proc/self/status: " + err.Error()
	}
	for _, line := range lines {
		if !strings.Contains(string(text), line+"\n") {
			return "the process is not as expected: no " + strings.ReplaceAll(line, "\t", " ")
		}
	}
	return ""
}

func readable(paths ...string) string {
	for _, path := range paths {
		if f, err := os.Open(path); err == nil {
			_ = f.Close()
			return "a file of the host can be read"
		}
	}
	return ""
}

// unreadable finds what the agents' user should be able to read and is not.
func unreadable(dir string) string {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != 0 {
			return err // a folder that cannot be listed is an error
		}
		return unix.Access(path, unix.R_OK)
	})
	return unless(err == nil || errors.Is(err, fs.ErrNotExist), fmt.Sprintf("an agent cannot read %s: %v", dir, err))
}

// writable asks without writing. A setting of the kernel is opened: access() does not know its rules.
func writable(paths ...string) string {
	for _, path := range paths {
		if strings.HasPrefix(path, "/proc/") {
			if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
				_ = f.Close()
				return path + " can be written"
			}
		} else if unix.Access(path, unix.W_OK) == nil {
			return path + " can be written"
		}
	}
	return ""
}

func network(address string) string {
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 || links[0].Flags&net.FlagLoopback == 0 {
		return "there is a network besides loopback"
	}
	for _, target := range []string{address, "169.254.169.254:80", "8.8.8.8:53", "[2001:4860:4860::8888]:53"} {
		if c, err := net.DialTimeout("tcp", target, 200*time.Millisecond); err == nil {
			_ = c.Close()
			return "a host outside can be reached"
		}
	}
	return ""
}

func families(all map[string]int) string {
	for name, family := range all {
		fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		if problem := expect("a socket of "+name, unix.EAFNOSUPPORT, err); problem != "" {
			return problem
		}
	}
	return ""
}

func protocols(all map[string]int) string {
	for name, protocol := range all {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, protocol)
		if err == nil {
			_ = unix.Close(fd)
		}
		if problem := expect("a socket of "+name, unix.EPROTONOSUPPORT, err); problem != "" {
			return problem
		}
	}
	return ""
}

// linger leaves a process behind that has a session of its own and holds the output open. Whoever reads that hears of it only
// if it survives this program.
func linger() string {
	cmd := exec.Command("/proc/self/exe", ProbeName, lingering)
	cmd.Stdout, cmd.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "a process could not be left behind: " + err.Error()
	}
	return ""
}

func expect(what string, want unix.Errno, got error) string {
	return unless(errors.Is(got, want), fmt.Sprintf("%s: %v instead of %v", what, got, want))
}

func unless(ok bool, problem string) string {
	if ok {
		return ""
	}
	return problem
}
