//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// machine (T41) looks for what tells of the machine and of whom it serves.
func (a *attacker) machine() {
	for _, path := range []string{"/proc/self/mountinfo", "/proc/mounts", "/proc/self/cgroup", "/proc/cmdline"} {
		text, _ := os.ReadFile(path)
		said := ""
		for _, name := range a.Names {
			if strings.Contains(strings.ToLower(string(text)), strings.ToLower(name)) {
				said += name + " "
			}
		}
		a.tell("names in "+path, said != "", said)
	}
	host, _ := os.Hostname()
	a.tell("the host's name", host == a.Hostname, host)
	entries, err := os.ReadDir("/sys")
	a.tell("/sys", err == nil && len(entries) > 0, fmt.Sprint(len(entries)))
	for _, path := range []string{"/proc/kcore", "/proc/kallsyms", "/proc/slabinfo", "/proc/vmallocinfo", "/proc/kpageflags"} {
		text := make([]byte, 64)
		n := 0
		if f, err := os.Open(path); err == nil {
			n, _ = f.Read(text)
			_ = f.Close()
		}
		real := n > 0 && strings.Trim(string(text[:n]), "0 \n") != "" && !strings.HasPrefix(string(text[:n]), "0000000000000000")
		a.tell(path, real, strconv.Quote(string(text[:min(n, 16)])))
	}
}

// privileges (T42) looks for a program that makes its caller more than it is.
func (a *attacker) privileges() {
	var attr *syscall.SysProcAttr
	if a.Host { // root gains nothing
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: os.Getuid() != 0}}
	}
	for name, path := range map[string]string{"setuid root": a.Setuid, "capable": a.Capable} {
		if path == "" {
			continue
		}
		said, err := runWith(attr, path, "as", "whoami")
		a.tell("a program that is "+name, err == nil && strings.Contains(said, "privileged"), fmt.Sprint(said, " ", err))
	}
	if a.Host {
		return
	}
	for _, tool := range [][]string{
		{"/usr/bin/sudo", "-n", "id", "-u"}, {"/usr/bin/pkexec", "/usr/bin/id", "-u"},
		{"/usr/bin/newuidmap", strconv.Itoa(os.Getpid()), "0", "1000", "1"}, {"/usr/bin/mount", "-t", "tmpfs", "none", "/tmp"},
		{"/usr/bin/setpriv", "--reuid", "0", "/usr/bin/id", "-u"},
	} {
		said, err := run(tool...)
		a.tell(tool[0], err == nil && (said == "0" || strings.Contains(tool[0], "map") || strings.Contains(tool[0], "mount")), fmt.Sprint(said, " ", err))
	}
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range []string{"NoNewPrivs:\t1", "CapBnd:\t0000000000000000", "CapEff:\t0000000000000000"} {
		a.tell("without "+strings.ReplaceAll(line, "\t", " "), !strings.Contains(string(status), line), "")
	}
	a.result("becoming root", unix.Setresuid(0, 0, 0))
}

// whoami tells whether it is more than an ordinary process.
func whoami() int {
	status, _ := os.ReadFile("/proc/self/status")
	if os.Geteuid() == 0 || !strings.Contains(string(status), "CapEff:\t0000000000000000") {
		fmt.Println("privileged")
		return 0
	}
	fmt.Println("uid", os.Geteuid())
	return 0
}

// core (T43) tries for a core file, which is a copy of a process's memory.
func (a *attacker) core() {
	var now unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_CORE, &now)
	a.tell("core files are allowed", err == nil && now.Max > 0, fmt.Sprint(now.Cur, " ", now.Max))
	err = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	a.result("raising the limit", err)
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "ulimit -c unlimited 2>/dev/null; kill -SEGV $$"}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
	if err != nil {
		a.tell("a core file", false, word(err))
		return
	}
	st, err := p.Wait()
	ws, ok := st.Sys().(syscall.WaitStatus)
	a.tell("a core file", err == nil && ok && ws.CoreDump(), st.String())
}

// loaders (T44) starts programs by ways that name no program: they may run, and reach no more than any other.
func (a *attacker) loaders() {
	canary, listener := a.Canaries[0], a.TCP[0]
	text, err := os.ReadFile("/bin/cat")
	if err == nil {
		err = os.WriteFile("mycat", text, 0o700)
	}
	defer os.Remove("mycat")
	for name, argv := range map[string][]string{
		"the loader":      {"/lib64/ld-linux-x86-64.so.2", "/bin/cat", canary},
		"a copied tool":   {"./mycat", canary},
		"/proc/self/exe":  {"/proc/self/exe", "as", "peek", canary, listener},
		"memory":          {fromMemory(), "as", "peek", canary, listener},
		"perl":            {"/usr/bin/perl", "-e", `open F, $ARGV[0] or exit 1; print <F>`, canary},
		"the script line": {"/bin/bash", "-c", `exec 3<"$0" && cat <&3`, canary},
	} {
		said, runErr := run(argv...)
		a.tell("through "+name, err == nil && runErr == nil && said != "", fmt.Sprint(said, " ", runErr))
	}
}

// fromMemory is a path of this program in a file that has no name.
func fromMemory() string {
	text, err := os.ReadFile(self())
	if err != nil {
		return "/nonexistent"
	}
	fd, err := unix.MemfdCreate("attack", 0)
	if err != nil {
		return "/nonexistent"
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err := f.Write(text); err != nil {
		return "/nonexistent"
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
}

// peek reads a file and dials, and says what it got; it fails if that is nothing.
func peek(args []string) int {
	got := ""
	if text, err := os.ReadFile(args[0]); err == nil {
		got += string(text)
	}
	if c, err := net.DialTimeout("tcp", args[1], patience); err == nil {
		got += " connected"
		_ = c.Close()
	}
	fmt.Println(got)
	if got == "" {
		return 1
	}
	return 0
}

// environment (T47) shows its own.
func (a *attacker) environment() {
	for _, kv := range os.Environ() {
		a.tell("variable", true, kv)
	}
}
