package runner_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"pilder/runner"
)

// pickInto is an outbox on the host.
func pickInto(t *testing.T) runner.Outbox {
	return runner.Outbox{Dir: filepath.Join(folder(t), "outbox")}
}

// reason is the sentinel of a refusal.
func reason(err error) string {
	for _, known := range []error{runner.ErrFolder, runner.ErrTooBig, runner.ErrTooMany, runner.ErrChanged} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

func TestPlainFilesArePickedUpAndTakenAway(t *testing.T) {
	work, _ := conversation(t)
	o := pickInto(t)
	if picked, err := o.Pick(t.Context(), "run-1", work); err != nil || picked != nil {
		t.Fatalf("without an outbox: %v, %v", picked, err)
	}
	write(t, filepath.Join(work, "outbox/informe\u202e final\n.pdf"), "report")
	write(t, filepath.Join(work, "outbox/\u200b"), "unnamed")
	for round, want := range [][]runner.Picked{{
		{Name: "informe final .pdf", Path: filepath.Join(o.Dir, "run-1/1"), Size: 6}, {Name: "2", Path: filepath.Join(o.Dir, "run-1/2"), Size: 7},
	}, nil, {{Name: "more.txt", Path: filepath.Join(o.Dir, "run-1/3"), Size: 4}}} {
		picked, err := o.Pick(t.Context(), "run-1", work)
		must(t, err)
		if diff := cmp.Diff(want, picked); diff != "" {
			t.Fatalf("round %d: %s", round, diff)
		}
		for _, p := range picked {
			if st, err := os.Stat(p.Path); err != nil || st.Mode() != 0o600 || st.Size() != p.Size {
				t.Errorf("%v, %v", st, err)
			}
		}
		if left, err := os.ReadDir(filepath.Join(work, "outbox")); err != nil || len(left) != 0 {
			t.Errorf("left in the outbox: %v, %v", left, err)
		}
		if round == 1 {
			write(t, filepath.Join(work, "outbox/more.txt"), "more")
		}
	}
	for _, run := range []string{"", "..", "a/b", "."} {
		if _, err := o.Pick(t.Context(), run, work); !errors.Is(err, runner.ErrFolder) {
			t.Errorf("run %q: %v", run, err)
		}
	}
}

// Nothing but a plain file of the agent's own leaves the outbox, and nothing of it makes pilder wait.
func TestWhatIsNoPlainFileIsRefused(t *testing.T) {
	canary := filepath.Join(folder(t), "canary")
	write(t, canary, "canary")
	plants := map[string]func(path string) error{
		"symlink":          func(path string) error { return os.Symlink(canary, path) },
		"environ":          func(path string) error { return os.Symlink("/proc/self/environ", path) },
		"descriptor":       func(path string) error { return os.Symlink("/proc/self/fd/0", path) },
		"dangling":         func(path string) error { return os.Symlink("../../../nowhere", path) },
		"hard link":        func(path string) error { return os.Link(canary, path) },
		"FIFO":             func(path string) error { return unix.Mkfifo(path, 0o600) },
		"folder":           func(path string) error { return os.MkdirAll(filepath.Join(path, "inner"), 0o700) },
		"link to a folder": func(path string) error { return os.Symlink("..", path) },
		"socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err == nil {
				l.SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		},
	}
	if os.Geteuid() == 0 { // nobody else can make one
		plants["device"] = func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) }
	}
	for name, plant := range plants {
		t.Run(name, func(t *testing.T) {
			work, _ := conversation(t)
			must(t, os.Mkdir(filepath.Join(work, "outbox"), 0o700))
			must(t, plant(filepath.Join(work, "outbox", "a.txt")))
			write(t, filepath.Join(work, "outbox/b.txt"), "plain")
			o := pickInto(t)
			picked, err := o.Pick(within(t, patience), "run", work)
			must(t, err)
			if len(picked) != 2 || !errors.Is(picked[0].Err, runner.ErrFolder) || picked[0].Path != "" || picked[1].Err != nil {
				t.Errorf("%+v", picked)
			}
			if all, _ := filepath.Glob(filepath.Join(o.Dir, "*/*")); len(all) != 1 {
				t.Errorf("on the host: %q", all)
			}
			if text, err := os.ReadFile(canary); err != nil || string(text) != "canary" {
				t.Errorf("canary: %q, %v", text, err)
			}
		})
	}
}

func TestAnOutboxThatIsNoFolderIsRemoved(t *testing.T) {
	outside := folder(t)
	write(t, filepath.Join(outside, "canary"), "canary")
	for name, plant := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink(outside, path) },
		"FIFO": func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			work, _ := conversation(t)
			path := filepath.Join(work, "outbox")
			must(t, plant(path))
			if picked, err := pickInto(t).Pick(within(t, patience), "run", work); err != nil || picked != nil {
				t.Errorf("%v, %v", picked, err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			if len(there(filepath.Join(outside, "canary"))) != 1 {
				t.Error("the canary is gone")
			}
		})
	}
}

func TestSizesAndNumbersAreBounded(t *testing.T) {
	work, _ := conversation(t)
	write(t, filepath.Join(work, "outbox/0-sparse"), "")
	must(t, os.Truncate(filepath.Join(work, "outbox/0-sparse"), 5<<30))
	for i, size := range []int{8, 11, 10, 9, 1, 1, 1} {
		fill(t, filepath.Join(work, "outbox", fmt.Sprint(i+1)), size)
	}
	o := pickInto(t)
	o.MaxFile, o.MaxTotal, o.MaxFiles = 10, 20, 4
	picked, err := o.Pick(t.Context(), "run", work)
	must(t, err)
	var got []string
	for _, p := range picked {
		got = append(got, fmt.Sprint(p.Name, " ", p.Size, " ", reason(p.Err)))
	}
	big, many := runner.ErrTooBig.Error(), runner.ErrTooMany.Error()
	want := []string{"0-sparse 0 " + big, "1 8 <nil>", "2 0 " + big, "3 10 <nil>", "4 0 " + big, "5 1 <nil>", "6 1 <nil>", "7 0 " + many}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if left, _ := os.ReadDir(filepath.Join(work, "outbox")); len(left) != 4 {
		t.Errorf("what was refused stays: %v", left)
	}
	for i := range 1100 {
		write(t, filepath.Join(work, "outbox", fmt.Sprint("x", i)), "")
	}
	if picked, err = o.Pick(t.Context(), "run", work); err != nil || len(picked) != 1001 {
		t.Errorf("%d, %v", len(picked), err)
	}
}

// A file that has reached the house by a swapped name would hold the canary: while one goroutine swaps what lies under two
// names of the outbox, and the outbox itself, for links to it, another picks.
func TestSwappingWhilePickingGainsNothing(t *testing.T) {
	work, _ := conversation(t)
	outside := folder(t)
	write(t, filepath.Join(outside, "file"), "canary")
	box, aside := filepath.Join(work, "outbox"), filepath.Join(work, "aside")
	write(t, filepath.Join(box, "file"), "plain")
	write(t, filepath.Join(work, "plain"), "plain")
	must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(work, "link")))
	must(t, os.Symlink(outside, aside))
	var stop atomic.Bool
	swapped := make(chan int)
	go func() {
		n := 0
		for ; !stop.Load(); n++ {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(work, "link"), unix.AT_FDCWD, filepath.Join(box, "file"), unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, box, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, box, unix.RENAME_EXCHANGE)
			if _, err := os.Lstat(filepath.Join(box, "file")); err != nil {
				_ = os.Mkdir(box, 0o700)
				_ = os.WriteFile(filepath.Join(box, "file"), []byte("plain"), 0o600)
			}
			if _, err := os.Lstat(aside); err != nil {
				_ = os.Symlink(outside, aside)
			}
			if _, err := os.Lstat(filepath.Join(work, "link")); err != nil {
				_ = os.Symlink(filepath.Join(outside, "file"), filepath.Join(work, "link"))
			}
		}
		swapped <- n
	}()
	o := pickInto(t)
	o.MaxFiles = 1 << 20
	taken, refused := 0, 0
	for i := 0; i < 2000 || (taken == 0 || refused == 0) && i < 100_000; i++ {
		picked, err := o.Pick(t.Context(), "run", work)
		if err != nil {
			t.Errorf("%v", err)
			break
		}
		for _, p := range picked {
			if p.Err != nil {
				refused++
				continue
			}
			taken++
			if text, err := os.ReadFile(p.Path); err != nil || strings.Contains(string(text), "canary") {
				t.Errorf("picked %q, %v", text, err)
			}
		}
	}
	stop.Store(true)
	n := <-swapped
	t.Logf("%d swaps, %d taken, %d refused", n, taken, refused)
	if text, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(text) != "canary" {
		t.Errorf("%q, %v", text, err)
	}
	if n == 0 || taken == 0 || refused == 0 {
		t.Error("one of both never happened: the test shows nothing")
	}
}

// A file that is written to while it is read is refused; and whatever is written, no copy is larger than the bound.
func TestAFileThatChangesIsNotTaken(t *testing.T) {
	work, _ := conversation(t)
	path := filepath.Join(work, "outbox/file")
	write(t, path, "")
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; !stop.Load(); i++ {
			flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
			if i%16 == 0 {
				flags |= os.O_TRUNC
			}
			if f, err := os.OpenFile(path, flags, 0o600); err == nil {
				_, _ = f.Write(make([]byte, 64<<10))
				_ = f.Close()
			}
		}
	}()
	o := pickInto(t)
	o.MaxFile, o.MaxTotal = 700<<10, 1<<40
	got := map[string]int{}
	for i := 0; i < 100_000 && got[runner.ErrChanged.Error()] == 0; i++ {
		picked, err := o.Pick(t.Context(), "run", work)
		must(t, err)
		for _, p := range picked {
			got[reason(p.Err)]++
			if p.Size > o.MaxFile {
				t.Errorf("%+v", p)
			}
			if p.Err == nil {
				must(t, os.Remove(p.Path))
			}
		}
	}
	stop.Store(true)
	<-ended
	if got[runner.ErrChanged.Error()] == 0 {
		t.Errorf("%v", got)
	}
}

func TestOldPickedFilesAreTidiedAway(t *testing.T) {
	o := pickInto(t)
	must(t, o.Tidy(t.Context(), time.Now()))
	for run, age := range map[string]time.Duration{"old": 48 * time.Hour, "new": 0} {
		write(t, filepath.Join(o.Dir, run, "1"), "content")
		at := time.Now().Add(-age)
		must(t, os.Chtimes(filepath.Join(o.Dir, run), at, at))
	}
	must(t, o.Tidy(t.Context(), time.Now().Add(-24*time.Hour)))
	if got := fmt.Sprint(there(filepath.Join(o.Dir, "old"), filepath.Join(o.Dir, "new"))); got != "[new]" {
		t.Errorf("left: %s", got)
	}
}
