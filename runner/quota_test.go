package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pilder/runner"
)

// conversation makes the two folders of one, /work first.
func conversation(t *testing.T) (work, state string) {
	t.Helper()
	dir := folder(t)
	work, state = filepath.Join(dir, "work"), filepath.Join(dir, "state")
	for _, d := range []string{work, state} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // the test's own clean-up would not get through all of it
		for _, d := range []string{work, state} {
			if err := runner.RemoveTree(context.Background(), d); err != nil {
				t.Error(err)
			}
		}
	})
	return work, state
}

// must ends a test whose preparation did not work.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill makes a file that really takes size bytes.
func fill(t *testing.T, path string, size int) {
	t.Helper()
	write(t, path, strings.Repeat("x", size))
}

// deep makes a tree of that many folders in one another, far longer than a path may be, with a file at its end.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(at, "d", 0o700))
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	fd, err := unix.Openat(at, "end", unix.O_CREAT|unix.O_WRONLY, 0o600)
	must(t, err)
	must(t, errors.Join(unix.Close(fd), unix.Close(at)))
}

// oddNames are names that a shell, a terminal or a text would stumble over.
func oddNames() []string {
	return []string{"new\nline", "\x1b]0;title\a", "-rf", " ", "*", "\xff\xfe", "\u202egnp.exe", strings.Repeat("n", 255), "removed-1"}
}

// asOwner runs f as somebody whom the modes of files bind even where the test runs as root: on a thread without the
// capabilities to pass them over, which ends with it.
func asOwner(t *testing.T, f func() error) error {
	t.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&header, &caps[0])
		caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err = errors.Join(err, unix.Capset(&header, &caps[0])); err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

func TestWhatAFolderHoldsIsWhatTheFileSystemGave(t *testing.T) {
	work, state := conversation(t)
	outside := filepath.Join(folder(t), "big")
	fill(t, outside, 4<<20)
	fill(t, filepath.Join(work, "a/file"), 1<<20)
	fill(t, filepath.Join(state, "log"), 1<<20)
	must(t, os.Link(filepath.Join(work, "a/file"), filepath.Join(work, "again")))
	must(t, os.Symlink(outside, filepath.Join(work, "link")))
	must(t, os.Symlink("/usr", filepath.Join(work, "folder-link")))
	must(t, os.WriteFile(filepath.Join(work, "sparse"), nil, 0o600))
	must(t, os.Truncate(filepath.Join(work, "sparse"), 1<<40))
	must(t, unix.Mkfifo(filepath.Join(work, "fifo"), 0o600))
	for _, name := range oddNames() {
		must(t, os.WriteFile(filepath.Join(work, name), nil, 0o600))
	}
	u, err := runner.Quota{Free: 1}.Look(t.Context(), work, state)
	must(t, err)
	// two tops, a, a/file, log, two links, sparse, fifo
	if want := int64(9 + len(oddNames())); u.Files != want || u.Over != "" {
		t.Errorf("%+v, want %d files and nothing over", u, want)
	}
	if u.Bytes < 2<<20 || u.Bytes > 2<<20+512<<10 {
		t.Errorf("%d bytes for twice 1 MiB", u.Bytes)
	}
}

func TestABrokenBoundIsNamed(t *testing.T) {
	work, state := conversation(t)
	fill(t, filepath.Join(work, "file"), 1<<20)
	for i := range 50 {
		fill(t, filepath.Join(state, fmt.Sprint(i)), 1)
	}
	for name, c := range map[string]struct {
		quota runner.Quota
		want  runner.Over
	}{
		"within":                   {runner.Quota{Bytes: 4 << 20, Files: 60, Free: 1}, ""},
		"too many bytes":           {runner.Quota{Bytes: 1 << 20, Files: 60, Free: 1}, runner.OverBytes},
		"too many files":           {runner.Quota{Bytes: 4 << 20, Files: 50, Free: 1}, runner.OverFiles},
		"the disk is running full": {runner.Quota{Bytes: 4 << 20, Files: 60, Free: 1 << 60}, runner.OverDisk},
	} {
		t.Run(name, func(t *testing.T) {
			if u, err := c.quota.Look(t.Context(), work, state); err != nil || u.Over != c.want {
				t.Errorf("%+v, %v; want over %q", u, err, c.want)
			}
		})
	}
	deep(t, work, 3000)
	if u, err := (runner.Quota{Free: 1}).Look(t.Context(), work, state); err != nil || u.Over != runner.OverDepth {
		t.Errorf("%+v, %v; want over depth", u, err)
	}
}

func TestAClosedFolderHidesNothing(t *testing.T) {
	work, _ := conversation(t)
	fill(t, filepath.Join(work, "in/closed/file"), 2<<20)
	must(t, os.Chmod(filepath.Join(work, "in/closed"), 0))
	must(t, os.Chmod(filepath.Join(work, "in"), 0))
	err := asOwner(t, func() error {
		if _, err := os.ReadDir(filepath.Join(work, "in")); err == nil {
			return errors.New("the modes do not bind this thread: the test shows nothing")
		}
		u, err := runner.Quota{Bytes: 1 << 20, Free: 1}.Look(t.Context(), work)
		if err == nil && u.Over != runner.OverBytes {
			err = fmt.Errorf("%+v", u)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAWatchEndsWithTheBrokenBound(t *testing.T) {
	for name, c := range map[string]struct {
		quota runner.Quota
		grow  func(work string, i int) error
		want  runner.Over
	}{
		"bytes": {runner.Quota{Bytes: 4 << 20, Free: 1}, func(work string, i int) error {
			return os.WriteFile(filepath.Join(work, fmt.Sprint(i)), make([]byte, 64<<10), 0o600)
		}, runner.OverBytes},
		"files": {runner.Quota{Files: 500, Free: 1}, func(work string, i int) error {
			return os.Mkdir(filepath.Join(work, fmt.Sprint(i)), 0o700)
		}, runner.OverFiles},
		"the disk, who grows": {runner.Quota{Free: 1 << 60}, func(work string, i int) error {
			return os.WriteFile(filepath.Join(work, fmt.Sprint(i)), make([]byte, 64<<10), 0o600)
		}, runner.OverDisk},
		"the disk, in the end everybody": {runner.Quota{Free: 1 << 60}, func(string, int) error { return nil }, runner.OverDisk},
	} {
		t.Run(name, func(t *testing.T) {
			work, state := conversation(t)
			c.quota.Interval = 5 * time.Millisecond
			ctx := within(t, patience)
			type result struct {
				use runner.Use
				err error
			}
			over := make(chan result, 1)
			go func() {
				u, err := c.quota.Watch(ctx, work, state)
				over <- result{u, err}
			}()
			for i := 0; ; i++ {
				select {
				case r := <-over:
					if r.err != nil || r.use.Over != c.want {
						t.Errorf("%+v; want over %q", r, c.want)
					}
					return
				default:
				}
				if i < 1000 {
					must(t, c.grow(work, i))
				} else {
					runtime.Gosched()
				}
			}
		})
	}
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	work, state := conversation(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		u, err := runner.Quota{Free: 1, Interval: time.Millisecond}.Watch(ctx, work, state)
		if u.Over != "" {
			err = fmt.Errorf("over %s", u.Over)
		}
		ended <- err
	}()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// there tells which of the paths are still there.
func there(paths ...string) (found []string) {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, filepath.Base(path))
		}
	}
	return found
}

func TestTrimTakesTheYoungAndLargeFirst(t *testing.T) {
	work, state := conversation(t)
	old, transcript := filepath.Join(work, "old"), filepath.Join(state, "transcript")
	fill(t, old, 3<<20)
	fill(t, transcript, 1<<20)
	since := time.Now().Add(20 * time.Millisecond) // coarser than any clock of change times
	for !time.Now().After(since.Add(20 * time.Millisecond)) {
		runtime.Gosched()
	}
	large, small := filepath.Join(work, "large"), filepath.Join(work, "sub/small")
	fill(t, large, 6<<20)
	fill(t, small, 512<<10)
	must(t, os.Chtimes(large, time.Unix(0, 0), time.Unix(0, 0))) // that it looks old does not help it
	q := runner.Quota{Bytes: 8 << 20, Free: 1}
	u, err := q.Trim(t.Context(), since, work, state)
	if err != nil || u.Over != "" || u.Bytes > q.Bytes/10*9 {
		t.Fatalf("%+v, %v", u, err)
	}
	if got := fmt.Sprint(there(old, transcript, large, small)); got != "[old transcript small]" {
		t.Errorf("left: %s", got)
	}
	q.Bytes = 4 << 20 // old and transcript alone are too much
	if u, err = q.Trim(t.Context(), time.Now().Add(time.Hour), work, state); err != nil || u.Over != "" {
		t.Fatalf("%+v, %v", u, err)
	}
	if got := fmt.Sprint(there(old, transcript)); got != "[transcript]" {
		t.Errorf("left: %s", got)
	}
}

func TestTrimLeavesWhatIsWithin(t *testing.T) {
	work, state := conversation(t)
	for i := range 98 {
		fill(t, filepath.Join(work, fmt.Sprint(i)), 1)
	}
	u, err := runner.Quota{Files: 100, Free: 1}.Trim(t.Context(), time.Time{}, work, state)
	if err != nil || u.Files != 100 || u.Over != "" {
		t.Errorf("%+v, %v", u, err)
	}
}

// A stray tree: too many files, too deep, odd names, links to outside, closed folders; and the Trim broken off at first.
func TestTrimMastersAnything(t *testing.T) {
	work, state := conversation(t)
	outside := folder(t)
	fill(t, filepath.Join(outside, "canary"), 1<<20)
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(work, fmt.Sprint(i)), nil, 0o600))
	}
	for _, name := range oddNames() {
		must(t, os.MkdirAll(filepath.Join(work, "odd", name, name), 0o700))
	}
	must(t, os.Symlink(outside, filepath.Join(work, "link")))
	must(t, os.Symlink(filepath.Join(outside, "canary"), filepath.Join(work, "odd/canary")))
	deep(t, work, 3000)
	fill(t, filepath.Join(work, "closed/file"), 1)
	must(t, os.Chmod(filepath.Join(work, "closed"), 0))
	q := runner.Quota{Files: 40, Free: 1}
	broken, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Trim(broken, time.Time{}, work, state); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	err := asOwner(t, func() error {
		u, err := q.Trim(t.Context(), time.Time{}, work, state)
		if err == nil && (u.Over != "" || u.Files > 36) {
			err = fmt.Errorf("%+v", u)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if len(there(work, state, filepath.Join(outside, "canary"))) != 3 {
		t.Error("a folder itself, or what a link led to, is gone")
	}
}

func TestATreeIsRemovedWhateverIsInIt(t *testing.T) {
	dir := folder(t)
	tree := filepath.Join(dir, "conversation")
	fill(t, filepath.Join(dir, "canary"), 1)
	must(t, os.Mkdir(tree, 0o700))
	deep(t, tree, 5000)
	for _, name := range oddNames() {
		write(t, filepath.Join(tree, "x", name, name), "")
	}
	must(t, os.Symlink(dir, filepath.Join(tree, "up")))
	must(t, os.Symlink("../canary", filepath.Join(tree, "link")))
	must(t, unix.Mkfifo(filepath.Join(tree, "fifo"), 0))
	must(t, os.Chmod(filepath.Join(tree, "d/d"), 0))
	must(t, os.Chmod(filepath.Join(tree, "x"), 0o500))
	must(t, os.Chmod(tree, 0))
	if err := asOwner(t, func() error { return runner.RemoveTree(t.Context(), tree) }); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(there(tree, filepath.Join(dir, "canary"))); got != "[canary]" {
		t.Errorf("left: %s", got)
	}
	if err := runner.RemoveTree(t.Context(), tree); err != nil {
		t.Errorf("again: %v", err)
	}
	must(t, os.Symlink(filepath.Join(dir, "canary"), tree))
	if err := runner.RemoveTree(t.Context(), tree); err != nil || len(there(filepath.Join(dir, "canary"))) != 1 {
		t.Errorf("a link in its place: %v", err)
	}
}

// TestAFolderThatIsRemovedDuringALookIsNoFault: an agent that tidies up must not be stopped for a disk that is full.
func TestAFolderThatIsRemovedDuringALookIsNoFault(t *testing.T) {
	work, state := folder(t), folder(t)
	ctx, stop := context.WithCancel(t.Context())
	var tidy sync.WaitGroup
	tidy.Go(func() {
		for ctx.Err() == nil {
			for i := range 20 {
				_ = os.MkdirAll(filepath.Join(work, strconv.Itoa(i), "x"), 0o700)
			}
			for i := range 20 {
				_ = os.RemoveAll(filepath.Join(work, strconv.Itoa(i)))
			}
		}
	})
	defer tidy.Wait()
	defer stop()
	for range 500 {
		if use, err := (runner.Quota{}).Look(t.Context(), work, state); err != nil || use.Over == runner.OverBytes {
			t.Fatal(use, err)
		}
	}
}
