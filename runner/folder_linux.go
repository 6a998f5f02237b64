package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Everything below /work and /state was made by agents: names of any bytes, links to anywhere, trees of any depth, folders
// that nobody may read. So the host walks by descriptors, one name at a time, and never by a path; and no error holds a
// name, since names are content.

// maxDepth is how many folders may lie in one another. A walk holds one descriptor for each.
const maxDepth = 100

// namesAtOnce is how many names of a folder are in memory at a time.
const namesAtOnce = 1024

// errTooBusy means that a folder changes too fast to be opened, or that a file's lease is not given back.
var errTooBusy = errors.New("folder or file is busy")

// openTop opens a folder by its absolute path, for reading and walking.
func openTop(path string) (*os.File, error) {
	p, err := openPath(path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return reopen(p, unix.O_DIRECTORY)
}

func openTops(paths []string) ([]*os.File, error) {
	var tops []*os.File
	for _, path := range paths {
		f, err := openTop(path)
		if err != nil {
			return nil, errors.Join(err, closeAll(tops))
		}
		tops = append(tops, f)
	}
	return tops, nil
}

// openFolder opens a folder that lies directly in dir.
func openFolder(dir *os.File, name string) (*os.File, error) {
	p, err := pin(dir, name)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if st, err := stat(p); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, errors.Join(ErrFolder, err)
	}
	return reopen(p, unix.O_DIRECTORY)
}

// pin takes hold of whatever has the name in dir, without opening it: opening a FIFO or a device would already be an act.
func pin(dir *os.File, name string) (*os.File, error) {
	return openIn(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
}

// openIn opens one name in dir, never through a link or on another file system.
func openIn(dir *os.File, name string, flags int, mode uint64) (*os.File, error) {
	how := unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC), Mode: mode,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for range 1000 {
		fd, err := unix.Openat2(int(dir.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), "entry"), nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN): // EAGAIN: something was renamed meanwhile
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EXDEV):
			return nil, fmt.Errorf("%w: %w", ErrFolder, err)
		default:
			return nil, err
		}
	}
	return nil, errTooBusy
}

// reopen opens for reading exactly what was pinned. A folder that its owner has closed to itself is opened again: an agent
// of pilder's own user could otherwise keep files where pilder cannot count or remove them.
func reopen(pinned *os.File, flags int) (*os.File, error) {
	self := "/proc/self/fd/" + strconv.Itoa(int(pinned.Fd()))
	flags |= unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(self, flags, 0)
	if errors.Is(err, unix.EACCES) && flags&unix.O_DIRECTORY != 0 {
		if err := unix.Chmod(self, 0o700); err != nil {
			return nil, err
		}
		fd, err = unix.Open(self, flags, 0)
	}
	if errors.Is(err, unix.EAGAIN) {
		err = errTooBusy // somebody holds a lease on the file
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "entry"), nil
}

// ownFolder gives the folder of a reserved name in dir, and makes it where it is absent. What an earlier run has left in
// its place, a link or a file, is removed. own hands a new folder over; nil leaves it as it is.
func ownFolder(dir *os.File, name string, own func(*os.File) error) (*os.File, error) {
	for range 10 {
		f, err := openFolder(dir, name)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, fs.ErrNotExist):
			if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			if f, err = openFolder(dir, name); err != nil || own == nil {
				return f, err
			}
			if err := own(f); err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return f, nil
		case errors.Is(err, ErrFolder):
			if err := ignoreGone(unlink(dir, name)); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	return nil, errTooBusy
}

func stat(f *os.File) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return st, err
}

// lstat describes a name in dir, the link itself where it is one.
func lstat(dir *os.File, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

func isFolder(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// unlink removes a name that is no folder; one that is already gone is no error.
func unlink(dir *os.File, name string) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// eachName calls f for every name in dir, from its beginning. Names may come or go meanwhile.
func eachName(ctx context.Context, dir *os.File, f func(name string) error) error {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		names, err := dir.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) { // removed since it was opened: it has no names
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// RemoveTree removes a folder of an agent with all that is in it, however deep, closed or oddly named, and never follows a
// link. It may be called again after it was broken off, and for a folder that is gone.
func RemoveTree(ctx context.Context, path string) error {
	parent, err := openPath(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing an agent's folder: %w", err)
	}
	defer parent.Close()
	if err := removeTree(ctx, parent, filepath.Base(path)); err != nil {
		return fmt.Errorf("removing an agent's folder: %w", err)
	}
	return nil
}

// removeTree removes a name in dir and everything beneath it.
func removeTree(ctx context.Context, dir *os.File, name string) error {
	st, err := lstat(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !isFolder(st) {
		return errors.Join(err, unlink(dir, name))
	}
	root, err := openFolder(dir, name)
	if err != nil {
		return err
	}
	defer root.Close()
	r := remover{root: root}
	if err := r.empty(ctx, root, 1); err != nil {
		return err
	}
	return rmdir(dir, name)
}

// remover empties one folder. What lies deeper than maxDepth is moved up into it and so comes by again: the
// number of descriptors stays bounded.
type remover struct {
	root  *os.File
	moved int
}

func (r *remover) empty(ctx context.Context, dir *os.File, depth int) error {
	letWrite(dir)
	for {
		found := false
		err := eachName(ctx, dir, func(name string) error {
			found = true
			return r.remove(ctx, dir, name, depth)
		})
		if err != nil || !found {
			return err
		}
	}
}

func (r *remover) remove(ctx context.Context, dir *os.File, name string, depth int) error {
	st, err := lstat(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !isFolder(st) {
		return errors.Join(err, unlink(dir, name))
	}
	sub, err := openFolder(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err // also of a mount: what is in it is not ours to remove
	}
	defer sub.Close()
	if depth >= maxDepth {
		return r.moveUp(dir, name, sub)
	}
	if err := r.empty(ctx, sub, depth+1); err != nil {
		return err
	}
	return rmdir(dir, name)
}

// moveUp moves a folder into the root, under a name that nobody has there.
func (r *remover) moveUp(dir *os.File, name string, sub *os.File) error {
	letWrite(sub) // its ".." is going to change
	for {
		r.moved++
		err := unix.Renameat2(int(dir.Fd()), name, int(r.root.Fd()), "removed-"+strconv.Itoa(r.moved), unix.RENAME_NOREPLACE)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// letWrite lets the owner of a folder remove what is in it. Where it fails, removing tells why.
func letWrite(dir *os.File) {
	if st, err := stat(dir); err == nil && st.Mode&0o700 != 0o700 {
		_ = dir.Chmod(0o700)
	}
}

// rmdir removes an empty folder. One that is gone, or was filled again, is no error: whoever empties looks again.
func rmdir(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}
