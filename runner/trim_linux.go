package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Trim brings folders that are over their quota to nine tenths of it, when no agent works there, and tells what is left.
// Folders that are within it stay as they are. The rule, which people and operators can rely on:
//
//  1. what lies deeper than 100 folders goes;
//  2. of what was made or changed since the given moment, the start of the run that broke the bound, first in the first
//     folder (/work), then in the next (/state), the largest files go first, by classes of size; where only the number of
//     files is too large, as they come;
//  3. if that is not enough, the same with what is older.
//
// The moment is compared with the inode's change time, which a program cannot set back. A Trim that was broken off is
// continued by the next.
func (q Quota) Trim(ctx context.Context, since time.Time, folders ...string) (Use, error) {
	q = q.defaults()
	tops, err := openTops(folders)
	if err != nil {
		return Use{}, fmt.Errorf("trimming a conversation's files: %w", err)
	}
	defer func() { _ = closeAll(tops) }()
	t := trim{since: since.UnixNano(), bytes: q.Bytes / 10 * 9, files: q.Files / 10 * 9}
	if err := t.all(ctx, q, tops); err != nil {
		return Use{}, fmt.Errorf("trimming a conversation's files: %w", err)
	}
	u, err := q.look(ctx, tops)
	if err != nil {
		return u, fmt.Errorf("trimming a conversation's files: %w", err)
	}
	return u, nil
}

type trim struct {
	since        int64 // change time, nanoseconds
	bytes, files int64 // the aim
	left         Use

	// Of the pass at work:
	young bool  // only what was changed since
	least int64 // only files that hold as much
}

// sizes are the classes, bytes.
func (t *trim) sizes() []int64 {
	if t.left.Bytes <= t.bytes {
		return []int64{0} // only the number is too large
	}
	return []int64{256 << 20, 64 << 20, 16 << 20, 4 << 20, 1 << 20, 256 << 10, 64 << 10, 0}
}

func (t *trim) enough() bool { return t.left.Bytes <= t.bytes && t.left.Files <= t.files }

func (t *trim) all(ctx context.Context, q Quota, tops []*os.File) error {
	for _, top := range tops {
		if err := prune(ctx, top, 1); err != nil {
			return err
		}
	}
	c := count{seen: map[inode]bool{}}
	for _, top := range tops {
		if err := c.top(ctx, top); err != nil {
			return err
		}
	}
	t.left = c.use
	if q.over(t.left) == "" {
		return nil
	}
	for _, t.young = range []bool{true, false} {
		for _, top := range tops {
			for _, t.least = range t.sizes() {
				if t.enough() {
					return nil
				}
				if err := t.folder(ctx, top); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// prune removes what is too deep to walk.
func prune(ctx context.Context, dir *os.File, depth int) error {
	return eachName(ctx, dir, func(name string) error {
		if st, err := lstat(dir, name); err != nil || !isFolder(st) {
			return ignoreGone(err)
		}
		if depth >= maxDepth {
			letWrite(dir)
			return removeTree(ctx, dir, name)
		}
		sub, err := openFolder(dir, name)
		if err != nil {
			return ignoreGone(err)
		}
		defer sub.Close()
		return prune(ctx, sub, depth+1)
	})
}

// folder is one pass: files that match go, and folders that are empty then.
func (t *trim) folder(ctx context.Context, dir *os.File) error {
	return eachName(ctx, dir, func(name string) error {
		if t.enough() {
			return nil
		}
		st, err := lstat(dir, name)
		if err != nil {
			return ignoreGone(err)
		}
		matches := !t.young || st.Ctim.Nano() >= t.since
		if !isFolder(st) {
			if !matches || st.Blocks*blockSize < t.least {
				return nil
			}
			letWrite(dir)
			return t.gone(st, unix.Unlinkat(int(dir.Fd()), name, 0))
		}
		sub, err := openFolder(dir, name)
		if err != nil {
			return ignoreGone(err)
		}
		err = errors.Join(t.folder(ctx, sub), sub.Close())
		if err != nil || !matches || t.least > 0 || t.enough() {
			return err
		}
		letWrite(dir)
		if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); !errors.Is(err, unix.ENOTEMPTY) {
			return t.gone(st, err)
		}
		return nil
	})
}

// gone subtracts what was removed. Of several links only the last frees anything.
func (t *trim) gone(st unix.Stat_t, err error) error {
	if err != nil {
		return ignoreGone(err)
	}
	if isFolder(st) || st.Nlink == 1 {
		t.left.Files--
		t.left.Bytes -= st.Blocks * blockSize
	}
	return nil
}

// ignoreGone drops the error of a name that went away or became something else since it was read.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrFolder) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}
