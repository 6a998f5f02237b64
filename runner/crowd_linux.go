package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sweepWait is how long Sweep fights processes that go on making others.
const sweepWait = 2 * time.Second

// crowd is everything that runs in one sandbox, seen through the sandbox's own /proc: the kernel lists the processes of
// that PID namespace there and no others, and an opened folder of it stays with its process whatever becomes of the number.
// So nothing outside can be hit by mistake, and nothing inside can hide by being unreadable.
type crowd struct {
	proc  *os.File   // the folder of processes
	keep  []int      // the numbers, as proc has them, of the namespace's first process and of the program
	group int        // of a plain program: only this process group of proc
	mem   []*os.File // the folders in memory
}

// openCrowd takes hold of the sandbox of a program that is known to be alive and has not begun yet.
func openCrowd(pid int) (*crowd, error) {
	c := &crowd{}
	root, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/root", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("looking into the sandbox: %w", err)
	}
	defer root.Close()
	var st unix.Statfs_t
	if c.proc, err = openBeneath(root, "proc", unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
		err = unix.Fstatfs(int(c.proc.Fd()), &st)
	}
	if err == nil && st.Type != unix.PROC_SUPER_MAGIC {
		err = ErrFolder
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("looking into the sandbox's /proc: %w", err), c.close())
	}
	inner, err := innerNumber(pid)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.keep = []int{1, inner}
	for _, dir := range []string{"tmp", "run", "dev/shm", "home/agent", "work", "state"} {
		f, err := openBeneath(root, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err == nil && unix.Fstatfs(int(f.Fd()), &st) == nil && st.Type == unix.TMPFS_MAGIC {
			c.mem = append(c.mem, f)
		} else if err == nil {
			_ = f.Close()
		}
	}
	return c, nil
}

// plainCrowd is the process group of a program without a sandbox.
func plainCrowd(pid int) (*crowd, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking at the program's group: %w", err)
	}
	return &crowd{proc: proc, keep: []int{pid}, group: pid}, nil
}

// innerNumber is what a process is called in its own PID namespace.
func innerNumber(pid int) (int, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("finding the program's number inside: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(numbers)
			return strconv.Atoi(fields[len(fields)-1])
		}
	}
	return 0, errors.New("finding the program's number inside: the kernel does not tell")
}

func (c *crowd) close() error {
	for _, f := range append(c.mem, c.proc) {
		if f != nil {
			_ = f.Close() // nothing is written through it
		}
	}
	return nil
}

// sweep kills all but those kept, and looks again until a look finds nobody alive.
func (c *crowd) sweep() error {
	for deadline := time.Now().Add(sweepWait); ; time.Sleep(time.Millisecond) {
		left := 0
		err := c.each(func(number int, dir *os.File) error {
			for _, kept := range c.keep {
				if number == kept {
					return nil
				}
			}
			left++
			return unix.PidfdSendSignal(int(dir.Fd()), unix.SIGKILL, nil, 0)
		})
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return ErrLeftover
		}
	}
}

// each calls f for every living process with its opened folder, which serves as a pidfd too. What ends meanwhile is no
// error.
func (c *crowd) each(f func(number int, dir *os.File) error) error {
	list, err := openAt(c.proc, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("listing the sandbox's processes: %w", err)
	}
	defer list.Close()
	names, err := list.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("listing the sandbox's processes: %w", err)
	}
	for _, name := range names {
		number, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		if err := c.one(number, f); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("process %d of the sandbox: %w", number, err)
		}
	}
	return nil
}

func (c *crowd) one(number int, f func(int, *os.File) error) error {
	dir, err := openAt(c.proc, strconv.Itoa(number), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	stat, err := readAt(dir, "stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the state on, the third of proc(5)
	if len(fields) < 18 {
		return errors.New("unknown form of /proc/pid/stat")
	}
	// A process whose first thread has ended looks like a zombie while its other threads go on.
	if state, threads := fields[0], fields[17]; state == "X" || state == "Z" && (threads == "0" || threads == "1") {
		return nil
	}
	if c.group != 0 && fields[2] != strconv.Itoa(c.group) {
		return nil
	}
	return f(number, dir)
}

// memory is what the sandbox uses now, bytes: what its processes hold privately, with the tables that map it; what they share
// namelessly; and its folders in memory, with what each name in them costs. What no process has mapped (buffers of pipes and
// sockets) is not seen.
func (c *crowd) memory(how look) (int64, error) {
	var sum int64
	shared := map[string]int64{} // nameless memory by its inode
	err := c.each(func(_ int, dir *os.File) error {
		dir, err := living(dir)
		if err != nil {
			return err
		}
		defer dir.Close()
		status, err := readAt(dir, "status")
		if err != nil {
			return err
		}
		private := kilobytes(status, "RssAnon", "VmSwap")
		if how == lookExact {
			if text, err := readAt(dir, "smaps_rollup"); err == nil && len(text) > 0 { // else of a program that may not be read
				private = kilobytes(text, "Pss_Anon", "SwapPss")
			}
		}
		sum += private + kilobytes(status, "VmPTE")
		if how == lookQuick {
			return nil
		}
		return noteShared(shared, dir)
	})
	for _, bytes := range shared {
		sum += bytes
	}
	for _, f := range c.mem {
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &st); err == nil {
			sum += int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*nameCost
		}
	}
	return sum, err
}

// nameCost is what an empty file or a short link costs the kernel, bytes (Linux 6.18, measured: 1.2 KB).
const nameCost = 1200

// living gives the folder that tells of a process's memory: its own, or that of a thread when its first one has ended.
func living(dir *os.File) (*os.File, error) {
	if text, err := readAt(dir, "status"); err != nil || bytes.Contains(text, []byte("\nVmSize:")) {
		return openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	}
	tasks, err := openAt(dir, "task", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer tasks.Close()
	names, err := tasks.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		task, err := openAt(tasks, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue // has ended
		}
		if text, err := readAt(task, "status"); err == nil && bytes.Contains(text, []byte("\nVmSize:")) {
			return task, nil
		}
		_ = task.Close()
	}
	return openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY) // it has no memory any more
}

// namelessMemory is how the kernel calls what was mapped to be shared and is no file. Pages of it stay when nobody has them
// mapped, so that what processes have mapped does not tell how much there is.
const namelessMemory = "/dev/zero (deleted)"

// maxMaps bounds what is read of a process's map, bytes. A look that takes long is followed by a longer wait.
const maxMaps = 16 << 20

// noteShared notes the nameless memory that a process has mapped: what it takes where the kernel tells (to root), and else
// what it can take at most.
func noteShared(shared map[string]int64, dir *os.File) error {
	f, err := openAt(dir, "maps", unix.O_RDONLY)
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMaps))
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(bytes.TrimRight(line, "\n"), []byte(namelessMemory)) {
			continue
		}
		fields := strings.Fields(string(line)) // proc_pid_maps(5): range, rights, offset, device, inode, name
		start, end, _ := strings.Cut(fields[0], "-")
		from, err1 := strconv.ParseInt(start, 16, 64)
		to, err2 := strconv.ParseInt(end, 16, 64)
		offset, err3 := strconv.ParseInt(fields[2], 16, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			continue // far beyond what a program can map
		}
		var st unix.Stat_t
		size := offset + to - from
		if unix.Fstatat(int(dir.Fd()), "map_files/"+fields[0], &st, 0) == nil {
			size = st.Blocks * 512
		}
		shared[fields[4]] = max(shared[fields[4]], size)
	}
	return err
}

// kilobytes adds up the named lines of a file of /proc, in bytes.
func kilobytes(text []byte, names ...string) int64 {
	var sum int64
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		for _, want := range names {
			if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); name == want && err == nil {
				sum += n << 10
			}
		}
	}
	return sum
}

func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, err
		}
	}
}

// readAt reads a small file of the kernel's.
func readAt(dir *os.File, name string) ([]byte, error) {
	f, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}
