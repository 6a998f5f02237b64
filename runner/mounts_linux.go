package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sizes of the folders in memory, bytes. A full /tmp breaks only the run that filled it.
const (
	sizeRoot = 16 << 20
	sizeShm  = 32 << 20
	sizeTmp  = 512 << 20
	sizeHome = 64 << 20
	sizeRun  = 16 << 20
)

// bwrapCall collects bubblewrap's arguments and the descriptors they speak of. Descriptor 3 is the socket of the
// handshake; those here follow from 4.
type bwrapCall struct {
	info  bwrapInfo
	args  []string
	files []*os.File // passed to bubblewrap, which closes each after use
	held  []*os.File // only kept open here: a folder's descriptor inside would be a way out
	stage *stage     // where agents have a user of their own
}

const firstFD = 4

// bwrapArguments builds the whole call. The caller closes the files, also after an error.
func (s *Sandbox) bwrapArguments(info bwrapInfo, l Launch) (*bwrapCall, error) {
	b := &bwrapCall{info: info}
	if s.user.own {
		b.stage = &stage{}
	}
	filter, err := seccompProgram()
	if err != nil {
		return b, err
	}
	b.add("--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
		"--unshare-cgroup-try", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "agent")
	if err := b.data("--seccomp", filter); err != nil {
		return b, err
	}
	b.tmpfs("/", sizeRoot)
	for _, step := range []func(Launch) error{b.system, b.pilder(s.cfg.Pilder, s.cfg.Inside), b.agentHome, b.folders, b.sandboxFiles} {
		if err := step(l); err != nil {
			return b, err
		}
	}
	for _, kv := range l.Env {
		name, value, _ := strings.Cut(kv, "=")
		b.add("--setenv", name, value)
	}
	b.add("--remount-ro", "/", "--chdir", DirWork)
	return b, nil
}

// system mounts what any program needs: the host's /usr, the kernel's files, memory to write in, and an /etc that tells
// nothing of the host.
func (b *bwrapCall) system(Launch) error {
	b.add("--ro-bind", "/usr", "/usr")
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		switch target, err := os.Readlink(dir); {
		case err == nil:
			b.add("--symlink", target, dir)
		case !errors.Is(err, fs.ErrNotExist):
			b.add("--ro-bind", dir, dir) // a host whose /bin is not part of /usr
		}
	}
	// /proc is read-only as a whole. bubblewrap covers /proc/sys only if the folder looks writable, which it never does;
	// but the kernel lets host uid 0 write the files in it, user namespace or not: with pilder run by root, an agent could
	// set kernel.core_pattern and so run a program of its choice on the host (bubblewrap 0.8.0, Linux 6.18, measured).
	b.add("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
	// What the kernel tells of the whole machine to host uid 0 alone is nobody's business inside either.
	for _, name := range []string{"kcore", "kpagecgroup", "kpagecount", "kpageflags", "slabinfo", "timer_list", "vmallocinfo"} {
		if path := "/proc/" + name; exists(path) {
			b.add("--ro-bind", "/dev/null", path)
		}
	}
	b.tmpfs("/dev/shm", sizeShm)
	b.add("--remount-ro", "/dev")
	b.tmpfs("/tmp", sizeTmp)
	b.tmpfs("/run", sizeRun)
	b.tmpfs(dirHome, sizeHome)
	for _, dir := range []string{"/etc/ssl/certs", "/etc/alternatives"} {
		b.add("--ro-bind-try", dir, dir) // never /etc/ssl itself: it holds private keys
	}
	for _, f := range [][2]string{
		{"/etc/passwd", "agent:x:1000:1000::" + dirHome + ":/bin/bash\n"},
		{"/etc/group", "agent:x:1000:\n"},
		{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
		{"/etc/hosts", "127.0.0.1 localhost agent\n"},
	} {
		if err := b.file(f[0], 0o444, []byte(f[1])); err != nil {
			return err
		}
	}
	return nil
}

// pilder mounts the program of the inside under its two names.
func (b *bwrapCall) pilder(binary string, small []byte) func(Launch) error {
	return func(Launch) error {
		b.add("--symlink", "pilder", dirTools+"/"+shellName)
		if len(small) > 0 {
			return b.file(dirTools+"/pilder", 0o555, small)
		}
		f, err := openPath(binary, unix.O_PATH)
		if err != nil {
			return err
		}
		if err := b.bind("--ro-bind", f, dirTools+"/pilder"); err != nil {
			return err
		}
		return nil
	}
}

// agentHome mounts the owner's instructions where the CLI reads them and nobody inside can write. The one-line CLAUDE.md
// points into /agent, so that its imports are found there.
func (b *bwrapCall) agentHome(l Launch) error {
	if l.AgentHome == "" {
		return nil
	}
	home, err := openPath(l.AgentHome, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	if err := b.bind("--ro-bind", home, DirAgent); err != nil {
		return err
	}
	for _, sub := range []string{".claude/rules", ".claude/skills"} {
		f, err := openBeneath(home, sub, unix.O_PATH|unix.O_DIRECTORY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := b.bind("--ro-bind", f, "/etc/claude-code/"+sub); err != nil {
			return err
		}
	}
	f, err := openBeneath(home, "CLAUDE.md", unix.O_PATH, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b.held = append(b.held, f) // it is mounted with its folder
	return b.file("/etc/claude-code/CLAUDE.md", 0o444, []byte("@"+DirAgent+"/CLAUDE.md\n"))
}

// folders mounts the conversation's and the run's.
func (b *bwrapCall) folders(l Launch) error {
	for _, d := range []struct{ how, host, inside string }{
		{"--ro-bind", l.CLI, DirCLI}, {"--ro-bind", l.Run, DirRun}, {"--bind", l.Work, DirWork}, {"--bind", l.State, DirState},
	} {
		if d.host == "" {
			if d.how == "--bind" {
				b.tmpfs(d.inside, sizeRoot)
			}
			continue
		}
		f, err := openPath(d.host, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		if err := b.bind(d.how, f, d.inside); err != nil {
			return err
		}
	}
	return nil
}

// sandboxFiles mounts the files of the launch. Below a writable folder the mount point is made here, beneath the opened
// folder: bubblewrap would follow a symbolic link that an earlier run has left in its place.
func (b *bwrapCall) sandboxFiles(l Launch) error {
	for _, f := range l.Files {
		host := map[string]string{DirWork: l.Work, DirState: l.State}[filepath.Dir(f.Path)]
		if host == "" && (strings.HasPrefix(f.Path, DirWork+"/") || strings.HasPrefix(f.Path, DirState+"/")) &&
			filepath.Dir(f.Path) != DirWork && filepath.Dir(f.Path) != DirState {
			return fmt.Errorf("sandbox file %s: %w: only direct children of a writable folder", f.Path, ErrFolder)
		}
		if host != "" {
			if err := mountPoint(host, filepath.Base(f.Path)); err != nil {
				return fmt.Errorf("sandbox file %s: %w", f.Path, err)
			}
		}
		if err := b.file(f.Path, f.Mode, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// mountPoint makes sure that name in dir is a regular file, empty if it is new.
func mountPoint(dir, name string) error {
	d, err := openPath(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer d.Close()
	f, err := openBeneath(d, name, unix.O_RDONLY|unix.O_CREAT|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return errors.Join(ErrFolder, err)
	}
	return nil
}

func (b *bwrapCall) add(args ...string) { b.args = append(b.args, args...) }

func (b *bwrapCall) tmpfs(path string, size int) {
	b.add("--size", strconv.Itoa(size), "--tmpfs", path)
}

// bind mounts an opened file or folder: from the stage, else by its descriptor where bubblewrap can, else by the path just
// checked.
func (b *bwrapCall) bind(how string, f *os.File, inside string) error {
	path := f.Name()
	switch {
	case b.stage != nil:
		var err error
		if path, err = b.stage.add(f); err != nil {
			return errors.Join(err, f.Close())
		}
	case b.info.bindFD:
		b.add(how+"-fd", b.pass(f), inside)
		return nil
	}
	b.held = append(b.held, f)
	b.add(how, path, inside)
	return nil
}

// program is where bubblewrap itself is started from.
func (b *bwrapCall) program() (string, error) {
	if b.stage == nil {
		return b.info.path, nil
	}
	f, err := openPath(b.info.path, unix.O_PATH)
	if err != nil {
		return "", err
	}
	b.held = append(b.held, f)
	return b.stage.add(f)
}

// file mounts data read-only.
func (b *bwrapCall) file(path string, mode os.FileMode, data []byte) error {
	b.add("--perms", fmt.Sprintf("%04o", mode.Perm()))
	if err := b.data("--ro-bind-data", data); err != nil {
		return err
	}
	b.add(path)
	return nil
}

// data passes bytes in a file in memory, which has no name anywhere.
func (b *bwrapCall) data(option string, data []byte) error {
	f, err := memoryFile(data)
	if err != nil {
		return err
	}
	b.add(option, b.pass(f))
	return nil
}

// pass makes a file one of the descriptors bubblewrap starts with, and tells its number there.
func (b *bwrapCall) pass(f *os.File) string {
	b.files = append(b.files, f)
	return strconv.Itoa(firstFD + len(b.files) - 1)
}

func (b *bwrapCall) close() {
	for _, f := range append(b.files, b.held...) {
		_ = f.Close() // nothing was written through it after its content was complete
	}
	if b.stage != nil {
		b.stage.close()
	}
}

func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("pilder", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err := bytes.NewReader(data).WriteTo(f); err != nil {
		return nil, errors.Join(fmt.Errorf("writing a file in memory: %w", err), f.Close())
	}
	if _, err := f.Seek(0, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("writing a file in memory: %w", err), f.Close())
	}
	return f, nil
}

// openPath opens an absolute path that has no symbolic link in it.
func openPath(path string, flags int) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%w: %q is not absolute", ErrFolder, path)
	}
	return open(unix.AT_FDCWD, path, path, flags, 0, unix.RESOLVE_NO_SYMLINKS)
}

// openBeneath opens a path that neither leaves dir nor goes through a symbolic link.
func openBeneath(dir *os.File, rel string, flags int, mode uint64) (*os.File, error) {
	return open(int(dir.Fd()), rel, filepath.Join(dir.Name(), rel), flags, mode, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
}

func open(at int, path, name string, flags int, mode, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: mode, Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(at, path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN): // EAGAIN: something was renamed meanwhile
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EXDEV):
			return nil, fmt.Errorf("opening %s: %w: %w", name, ErrFolder, err)
		default:
			return nil, fmt.Errorf("opening %s: %w", name, err)
		}
	}
}
