//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What counts as without bounds. Each attempt stops there by itself, so that it does no harm where nothing stops it.
const (
	manyProcesses   = 600
	manyThreads     = 1200
	manyDescriptors = 10000
	muchTmp         = 640 << 20 // of 512 MB
	muchShm         = 48 << 20  // of 32 MB
)

// exhaust (T25) makes processes, threads and descriptors as long as it can.
func (a *attacker) exhaust() {
	a.forkBomb()
	said, _ := run(self(), "as", "threads") // ends badly where it is stopped
	lines := strings.Fields(strings.Split(said+"\nx", "runtime")[0])
	most := 0
	for _, l := range lines {
		if n, err := strconv.Atoi(l); err == nil {
			most = max(most, n)
		}
	}
	a.tell("threads", most >= manyThreads, fmt.Sprintf("%d threads", most))
	open := 0
	for ; open < manyDescriptors; open++ {
		if _, err := unix.Dup(1); err != nil {
			break
		}
	}
	for fd := 3; fd < open+8; fd++ {
		if name, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); !strings.HasPrefix(name, "anon_inode:") {
			_ = unix.Close(fd)
		}
	}
	a.tell("descriptors", open >= manyDescriptors, fmt.Sprintf("%d descriptors", open))
}

// forkBomb makes copies of itself that only wait.
func (a *attacker) forkBomb() {
	var all []int
	var stopped error
	for len(all) < manyProcesses {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			stopped = errno
			break
		}
		if pid == 0 {
			for { // nothing else is safe in the copy of a program with threads
				unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		all = append(all, int(pid))
	}
	for _, pid := range all {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
	a.tell("processes", len(all) >= manyProcesses, fmt.Sprintf("%d processes, %v", len(all), stopped))
}

// threads makes threads and tells how many there are.
func threads() int {
	for n := 1; n <= manyThreads; n++ {
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(ready)
			select {}
		}()
		<-ready
		fmt.Println(n)
	}
	return 0
}

// memory (T26) fills the folders that are memory.
func (a *attacker) memory() {
	for _, f := range []struct {
		dir  string
		much int
	}{{"/dev/shm", muchShm}, {"/tmp", muchTmp}, {"/run", muchShm}, {"/home/agent", muchTmp}} {
		got, err := fill(filepath.Join(f.dir, a.Meeting+"-fill"), f.much)
		a.tell("filling "+f.dir, got >= f.much, fmt.Sprintf("%d MB, %v", got>>20, err))
		if a.Host {
			return // the others are on the host's disk, which is not the test's to fill
		}
	}
}

// fill makes a file as long as it can, and removes it.
func fill(path string, much int) (int, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	defer f.Close()
	const step = 8 << 20
	got := 0
	for ; got < much; got += step {
		if err := unix.Fallocate(int(f.Fd()), 0, int64(got), step); err != nil {
			return got, err
		}
	}
	return got, nil
}

// spin (T28) keeps sixteen threads busy until a file called stop-spinning is there, for a minute at most.
func spin() int {
	until := time.Now().Add(time.Minute)
	var stop atomic.Bool
	for range 16 {
		go func() {
			runtime.LockOSThread()
			for !stop.Load() {
			}
		}()
	}
	for time.Now().Before(until) {
		if _, err := os.Stat("stop-spinning"); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop.Store(true)
	fmt.Println("spun")
	return 0
}
