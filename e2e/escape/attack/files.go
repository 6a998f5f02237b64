//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// read reports whether a file can be read, and the beginning of it.
func (a *attacker) read(try, path string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		a.tell(try, false, word(err))
		return
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		a.tell(try, false, word(err))
		return
	}
	a.tell(try, len(text) > 0, string(text))
}

// readFiles (T01) takes every way by name to files of the host.
func (a *attacker) readFiles() {
	up := "/../../../../../../../../.."
	here, err := os.Getwd()
	if err != nil {
		here = "/"
	}
	for i, path := range a.Canaries {
		for _, way := range [][2]string{
			{"by its path", path}, {"through ..", here + up + path}, {"through /proc/self/root", "/proc/self/root" + path},
			{"through /proc/1/root", "/proc/1/root" + path}, {"through /proc/1/cwd", "/proc/1/cwd" + up + path},
			{"through /proc/self/cwd", "/proc/self/cwd" + up + path},
			{"through the parent's root", "/proc/" + strconv.Itoa(os.Getppid()) + "/root" + path},
			{"through a thread's root", "/proc/thread-self/root" + path},
		} {
			a.read(fmt.Sprintf("file %d %s", i+1, way[0]), way[1])
		}
	}
}

// linkFiles (T02) does so through links.
func (a *attacker) linkFiles() {
	for _, dir := range []string{".", "/tmp"} {
		dir, err := os.MkdirTemp(dir, "links-")
		if err != nil {
			a.tell("a folder in "+dir, false, word(err))
			continue
		}
		for i, path := range a.Canaries {
			try := func(kind string) string { return fmt.Sprintf("%s to file %d in %s", kind, i+1, filepath.Dir(dir)) }
			at := func(kind string) string { return filepath.Join(dir, kind+strconv.Itoa(i)) }
			if err := os.Symlink(path, at("link")); err != nil {
				a.tell(try("a link"), false, word(err))
			} else {
				a.read(try("a link"), at("link"))
			}
			if os.Symlink(filepath.Dir(path), at("folder")) == nil && os.Symlink("folder"+strconv.Itoa(i)+"/"+filepath.Base(path), at("chain")) == nil {
				a.read(try("a chain of links"), at("chain"))
			}
			if err := os.Link(path, at("hard")); err != nil {
				a.tell(try("a hard link"), false, word(err))
			} else {
				a.read(try("a hard link"), at("hard"))
			}
			if err := unix.Linkat(unix.AT_FDCWD, at("link"), unix.AT_FDCWD, at("hard2"), unix.AT_SYMLINK_FOLLOW); err != nil {
				a.tell(try("a hard link through a link"), false, word(err))
			} else {
				a.read(try("a hard link through a link"), at("hard2"))
			}
		}
		_ = os.RemoveAll(dir)
	}
}

// mounts (T07) tries to change what is mounted, and to move what is mounted away. Outside it runs in namespaces of its own.
func (a *attacker) mounts() {
	call := func(try string, nr uintptr, args ...uintptr) {
		var six [6]uintptr
		copy(six[:], args)
		_, _, errno := unix.RawSyscall6(nr, six[0], six[1], six[2], six[3], six[4], six[5])
		a.result(try, errno)
	}
	a.result("a mount of memory", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	a.result("a mount of the root", unix.Mount("/", "/tmp", "", unix.MS_BIND|unix.MS_REC, ""))
	a.result("a remount with writing", unix.Mount("", "/tmp", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	a.result("taking /tmp off", unix.Unmount("/tmp", unix.MNT_DETACH))
	a.result("the new way to mount", second(unix.Fsopen("tmpfs", 0)))
	a.result("a copy of the tree", second(unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE)))
	attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	a.result("new attributes of /tmp", unix.MountSetattr(unix.AT_FDCWD, "/tmp", 0, &attr))
	for i, path := range a.Protected {
		moved := path + ".moved"
		err := os.Rename(path, moved)
		a.result(fmt.Sprintf("moving protected %d", i+1), err)
		if err == nil {
			_ = os.Rename(moved, path)
		}
		if st, err := os.Lstat(path); err == nil && !st.IsDir() {
			a.result(fmt.Sprintf("removing protected %d", i+1), os.Remove(path))
		}
	}
	if !a.Host { // these would change the host's own idea of its root even in a namespace of its own
		call("move_mount", unix.SYS_MOVE_MOUNT)
		a.result("pivot_root", unix.PivotRoot("/tmp", "/tmp"))
	}
	a.result("a new root", unix.Chroot("/tmp"))
}

func second(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// write (T08) opens for writing what decides about other runs or the machine. What opens is not written, except a file that
// was not there before.
func (a *attacker) write() {
	for i, path := range a.Protected {
		st, err := os.Stat(path)
		if err == nil && st.IsDir() {
			a.create(fmt.Sprintf("a new file in protected %d", i+1), filepath.Join(path, "new"))
		} else {
			a.open(fmt.Sprintf("protected %d", i+1), path)
		}
	}
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory",
		"/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/fuse"} {
		a.open(path, path)
	}
	a.result("a lower oom_score_adj", os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0))
	if a.Host {
		return
	}
	// /run itself is like /tmp: small, the run's own, and gone with it.
	for _, dir := range []string{"/", "/usr", "/usr/bin", "/usr/local/bin", "/etc", "/etc/claude-code", "/opt", "/opt/pilder", "/opt/claude",
		"/agent", "/run/pilder", "/dev", "/home", "/proc"} {
		a.create("a new file in "+dir, filepath.Join(dir, "new"))
	}
	a.result("a device", unix.Mknod("device", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))))
}

func (a *attacker) create(try, path string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_ = f.Close()
		_ = os.Remove(path)
	}
	a.result(try, err)
}

func (a *attacker) open(try, path string) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	a.result(try, second(fd, err))
}
