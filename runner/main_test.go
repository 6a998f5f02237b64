package runner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pilder/runner"
)

// TestMain lets the test binary be what a sandbox starts: sandbox-init, the probe, and the programs of helpers.
func TestMain(m *testing.M) {
	if code, handled := runner.Reexec(os.Args); handled {
		leave(code)
	}
	if filepath.Base(os.Args[0]) == "claude" {
		leave(scripted())
	}
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		leave(helpers()[os.Args[2]](os.Args[3:]))
	}
	os.Exit(m.Run())
}

// leave ends the process without the race detector's second of waiting for reports.
func leave(code int) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(code), 0, 0)
}

// self is the test binary inside a sandbox.
const self = "/opt/pilder/pilder"

// helper is the argument list of one of helpers, inside.
func helper(name string, args ...string) []string {
	return append([]string{self, "helper", name}, args...)
}

// helpers are the programs tests start inside.
func helpers() map[string]func(args []string) int {
	return map[string]func([]string) int{
		"get": func(args []string) int {
			resp, err := http.Get(args[0])
			if err != nil {
				fmt.Println(err)
				return 1
			}
			defer resp.Body.Close()
			_, _ = io.Copy(os.Stdout, resp.Body)
			return 0
		},
		"line": func(args []string) int { // one line of n bytes
			n, _ := strconv.Atoi(args[0])
			os.Stdout.Write(append(bytes.Repeat([]byte("x"), n), '\n'))
			return 0
		},
		"launch": func(args []string) int { // is pilder, on the host, with a program that left a daemon
			s, err := runner.NewSandbox(runner.SandboxConfig{})
			if err != nil {
				return 1
			}
			p, err := s.Start(context.Background(), runner.Launch{Env: []string{"PATH=/usr/bin"}, Argv: []string{"/bin/bash", "-c",
				"setsid sleep " + args[0] + " >/dev/null 2>&1 & echo ready; exec sleep " + args[0]}})
			if err != nil {
				return 1
			}
			_, _ = io.Copy(os.Stdout, p.Stdout)
			return 0
		},
		"threads": func(args []string) int { // a process whose first thread has ended and whose others go on
			runtime.LockOSThread()
			if syscall.Gettid() != syscall.Getpid() { // not on the first thread, by chance
				_ = syscall.Exec(self, os.Args, nil)
			}
			go func() {
				for stat := []byte(nil); !strings.Contains(string(stat), ") Z "); time.Sleep(time.Millisecond) {
					stat, _ = os.ReadFile("/proc/self/stat")
				}
				fmt.Println("zombie")
			}()
			_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
			return 1
		},
		"connect": func(args []string) int { // listens on a port of its own and knocks at it
			l, err := net.Listen("tcp4", "127.0.0.1:"+args[0])
			if err != nil {
				fmt.Println(err)
				return 1
			}
			_, err = net.Dial("tcp4", l.Addr().String())
			fmt.Println(errors.Is(err, syscall.EACCES), err == nil)
			return 0
		},
		"nameless": func(args []string) int { // fills n MiB of shared memory and lets them go, which they do not
			n, _ := strconv.Atoi(args[0])
			all, err := unix.Mmap(-1, 0, n<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
			if err == nil {
				for i := 0; i < len(all); i += os.Getpagesize() {
					all[i] = 1
				}
				err = unix.Madvise(all, unix.MADV_DONTNEED)
			}
			fmt.Println(err)
			select {}
		},
		"mapped": func(args []string) int { // fills a file of n MiB in memory that it has mapped
			n, _ := strconv.Atoi(args[0])
			f, err := os.Create("/tmp/mapped")
			if err == nil {
				err = f.Truncate(int64(n) << 20)
			}
			if err != nil {
				fmt.Println(err)
				return 1
			}
			all, err := unix.Mmap(int(f.Fd()), 0, n<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			for i := 0; i < len(all); i += os.Getpagesize() {
				all[i] = 1
			}
			fmt.Println(err)
			time.Sleep(4 * time.Second) // some looks
			return 0
		},
		"headless": func(args []string) int { // holds n MiB while its first thread has ended
			runtime.LockOSThread()
			if syscall.Gettid() != syscall.Getpid() { // not on the first thread, by chance
				_ = syscall.Exec(self, os.Args, nil)
			}
			n, _ := strconv.Atoi(args[0])
			kept := bytes.Repeat([]byte("x"), n<<20)
			go func() {
				for {
					time.Sleep(time.Second)
					kept[0]++
				}
			}()
			_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
			return 1
		},
		"links": func([]string) int { // makes links without an end
			for i := 0; ; i++ {
				if err := os.Symlink("x", fmt.Sprint("/tmp/link", i)); err != nil {
					fmt.Println(err)
					return 1
				}
			}
		},
		"fastopen": func(args []string) int { // knocks at a port while it sends
			port, _ := strconv.Atoi(args[0])
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err == nil {
				err = unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
			}
			fmt.Println(err)
			return 0
		},
		"sockets": func([]string) int { // which of the three streams are sockets
			for fd := range 3 {
				var st syscall.Stat_t
				_ = syscall.Fstat(fd, &st)
				fmt.Println(st.Mode&syscall.S_IFMT == syscall.S_IFSOCK)
			}
			return 0
		},
	}
}

func newSandbox(t *testing.T, cfg runner.SandboxConfig) *runner.Sandbox {
	t.Helper()
	s, err := runner.NewSandbox(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts a launch that is gone with the test.
func start(t *testing.T, s *runner.Sandbox, l runner.Launch) *runner.Process {
	t.Helper()
	if l.Env == nil {
		l.Env = []string{"PATH=/usr/bin:/bin"}
	}
	p, err := s.Start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// sh runs a shell script inside and gives what it printed on both streams, and its exit code.
func sh(t *testing.T, l runner.Launch, script string) (string, int) {
	t.Helper()
	l.Argv = []string{"/bin/sh", "-c", "exec 2>&1\n" + script}
	return output(t, start(t, newSandbox(t, runner.SandboxConfig{}), l))
}

// output reads a program to its end.
func output(t *testing.T, p *runner.Process) (string, int) {
	t.Helper()
	out, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return string(out), exit
}

// folder makes a private folder without symbolic links in its path.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// hostProcesses lists the processes of the host whose command line contains mark.
func hostProcesses(t *testing.T, mark string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), mark) {
			found = append(found, path+" "+string(bytes.ReplaceAll(text, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// within bounds a test that could hang instead of failing.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// weakBwrap is the real bubblewrap with one of its arguments taken away or added, or none of it.
const weakBwrap = `#!/bin/bash
[ "$1" = --args ] || exec env -i /usr/bin/bwrap "$@"
mapfile -d '' args <&"$2"
shift 3
drop() { # an option and the number of values behind the words that name it
	local want=($1) out=() i=0
	while [ $i -lt ${#args[@]} ]; do
		if [ "${args[*]:i:${#want[@]}}" = "$1" ]; then i=$((i + ${#want[@]} + $2)); else out+=("${args[i]}"); i=$((i + 1)); fi
	done
	args=("${out[@]}")
}
early() { # before the root is made read-only, which is the last but one
	args=("${args[@]:0:${#args[@]}-4}" "$@" "${args[@]: -4}")
}
add() { args+=("$@"); }
none() {
	local i fd
	for ((i = 0; i < ${#args[@]}; i++)); do [ "${args[i]}" = /opt/pilder/pilder ] && fd=${args[i-1]}; done
	local self=$fd words=() w # a path, or the number of a descriptor
	[ -e "$self" ] || self=$(readlink /proc/self/fd/$fd)
	for w in "${command[@]}"; do words+=("${w/#\/opt\/pilder\/pilder/$self}"); done
	exec "${words[@]}"
}
command=("$@")
EDIT
exec env -i /usr/bin/bwrap --args 60 -- "$@" 60< <(printf '%s\0' "${args[@]}")
`
