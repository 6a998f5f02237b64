package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the folders pilder makes in the hierarchy of cgroup v2, each with its process id behind it: runsPrefix holds one
// group per run; mainPrefix is where pilder itself goes, since a group that hands controllers down may not have processes.
const (
	runsPrefix = "pilder-runs-"
	mainPrefix = "pilder-main-"
)

// cgroups is where this process's runs get a group each. Any part of it may be missing on a machine, so everything is found
// out by doing it.
type cgroups struct {
	dir     string
	limited bool // the kernel bounds memory, processes and processor time of each group
}

// wantedControllers are what a run is bounded by.
func wantedControllers() []string { return []string{"cpu", "memory", "pids"} }

// openCgroups makes the folder below pilder's own group. The error says what is missing; with it, there are either no
// groups (nil) or such without limits.
func openCgroups() (*cgroups, error) {
	base, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	sweepCgroups(base)
	c := &cgroups{dir: filepath.Join(base, runsPrefix+strconv.Itoa(os.Getpid()))}
	if err := os.Mkdir(c.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("pilder may not make groups below its own: %w", err)
	}
	missing := handDown(base)
	if missing == nil {
		missing = enable(c.dir)
	}
	c.limited = missing == nil
	if err := c.try(); err != nil {
		return nil, err
	}
	return c, missing
}

// ownCgroup finds the folder of pilder's own group.
func ownCgroup() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	own := ""
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			own = strings.TrimSpace(path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if own == "" || len(f) < 10 || !slices.Contains(f[6:], "cgroup2") {
			continue
		}
		dir := filepath.Join(f[4], strings.TrimPrefix(own, strings.TrimSuffix(f[3], "/")))
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			if strings.HasPrefix(filepath.Base(dir), mainPrefix) {
				dir = filepath.Dir(dir) // pilder has gone there before
			}
			return dir, nil
		}
	}
	return "", errors.New("cgroup v2 is not mounted")
}

// handDown lets the groups below base have the controllers. For that pilder must leave base itself, and nobody else may be
// there: then the group is not pilder's to rule.
func handDown(base string) error {
	if err := has(base, "cgroup.controllers"); err != nil {
		return err
	}
	if has(base, "cgroup.subtree_control") == nil || enable(base) == nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(base, "cgroup.procs"))
	if err != nil {
		return err
	}
	self := strconv.Itoa(os.Getpid())
	if !slices.Equal(strings.Fields(string(text)), []string{self}) {
		return errors.New("pilder shares its group with other processes")
	}
	main := filepath.Join(base, mainPrefix+self)
	if err := os.Mkdir(main, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := writeFile(main, "cgroup.procs", self); err != nil {
		return err
	}
	return enable(base)
}

// has checks that a list of controllers names all that are wanted.
func has(dir, list string) error {
	text, err := os.ReadFile(filepath.Join(dir, list))
	if err != nil {
		return err
	}
	there := strings.Fields(string(text))
	for _, want := range wantedControllers() {
		if !slices.Contains(there, want) {
			return fmt.Errorf("the %s controller of cgroup v2 is not there for pilder's group", want)
		}
	}
	return nil
}

func enable(dir string) error {
	if err := writeFile(dir, "cgroup.subtree_control", "+"+strings.Join(wantedControllers(), " +")); err != nil {
		return err
	}
	return has(dir, "cgroup.subtree_control")
}

// try starts a program in a group once: a sandbox around pilder may forbid the system call.
func (c *cgroups) try() error {
	g, err := c.make(defaultMemory)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/true")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(g.fd.Fd())}
	err = cmd.Run()
	if _, err2 := g.end(); err != nil || err2 != nil {
		return fmt.Errorf("starting a program in a group: %w", errors.Join(err, err2))
	}
	return nil
}

// sweepCgroups removes the groups of processes that are no more, and whoever is still in them.
func sweepCgroups(base string) {
	all, _ := filepath.Glob(filepath.Join(base, runsPrefix+"*")) // the pattern is valid
	for _, dir := range all {
		if pid := strings.TrimPrefix(filepath.Base(dir), runsPrefix); exists("/proc/" + pid) {
			continue
		}
		runs, _ := filepath.Glob(filepath.Join(dir, "run-*"))
		for _, run := range append(runs, dir) {
			_ = writeFile(run, "cgroup.kill", "1")
			_ = os.Remove(run) // a group that is not empty yet goes at the next start
		}
	}
}

// cgroup is one run's group.
type cgroup struct {
	dir string
	fd  *os.File // by which the kernel starts a process in it
}

// make makes a group with its limits.
func (c *cgroups) make(memory int64) (*cgroup, error) {
	dir, err := os.MkdirTemp(c.dir, "run-")
	if err != nil {
		return nil, fmt.Errorf("making a group: %w", err)
	}
	g := &cgroup{dir: dir}
	if c.limited {
		err = g.limit(memory)
	}
	if err == nil {
		g.fd, err = os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a group: %w", err), os.Remove(dir))
	}
	return g, nil
}

// limit bounds a group. All but half a processor is its at most, and beside others it comes second.
func (g *cgroup) limit(memory int64) error {
	const period = 100_000 // microseconds
	quota := max(period/2, runtime.NumCPU()*period-period/2)
	for _, l := range [][2]string{
		{"memory.max", strconv.FormatInt(memory, 10)}, {"memory.oom.group", "1"}, {"pids.max", strconv.Itoa(maxPids)},
		{"cpu.max", fmt.Sprintf("%d %d", quota, period)}, {"cpu.weight", "50"},
	} {
		if err := writeFile(g.dir, l[0], l[1]); err != nil {
			return err
		}
	}
	if exists(filepath.Join(g.dir, "memory.swap.max")) { // else there is no swap to bound
		return writeFile(g.dir, "memory.swap.max", "0")
	}
	return nil
}

// end kills whoever is left, removes the group and tells whether the kernel had to end it for want of memory.
func (g *cgroup) end() (outOfMemory bool, err error) {
	events, _ := os.ReadFile(filepath.Join(g.dir, "memory.events")) // without the controller there are none
	for line := range strings.Lines(string(events)) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		outOfMemory = outOfMemory || strings.HasPrefix(name, "oom_") && strings.HasSuffix(name, "kill") && n != "0"
	}
	_ = g.fd.Close() // nothing is written through it
	_ = writeFile(g.dir, "cgroup.kill", "1")
	for deadline := time.Now().Add(leftoverWait); ; time.Sleep(time.Millisecond) {
		if err := os.Remove(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return outOfMemory, nil
		} else if time.Now().After(deadline) {
			return outOfMemory, fmt.Errorf("%w: %w", ErrLeftover, err)
		}
	}
}

// writeFile writes to a file of the kernel's that is there.
func writeFile(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
