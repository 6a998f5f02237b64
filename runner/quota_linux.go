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

// errEnough ends a walk early.
var errEnough = errors.New("enough")

// Look counts what the folders hold, and stops at the first bound that is broken.
func (q Quota) Look(ctx context.Context, folders ...string) (Use, error) {
	tops, err := openTops(folders)
	if err != nil {
		return Use{}, fmt.Errorf("measuring a conversation's files: %w", err)
	}
	defer func() { _ = closeAll(tops) }()
	u, err := q.defaults().look(ctx, tops)
	if err != nil {
		return u, fmt.Errorf("measuring a conversation's files: %w", err)
	}
	return u, nil
}

func (q Quota) look(ctx context.Context, tops []*os.File) (Use, error) {
	c := count{limit: q, seen: map[inode]bool{}}
	for _, top := range tops {
		if err := c.top(ctx, top); err != nil {
			return c.use, err
		}
	}
	if c.use.Over == "" && len(tops) > 0 {
		_, low, err := q.space(tops[0])
		if err != nil {
			return c.use, err
		}
		if low {
			c.use.Over = OverDisk
		}
	}
	return c.use, nil
}

// Watch looks again and again while an agent works, and returns when a bound is broken, with which one, or when ctx ends.
// An error means that it can no longer see: the run has to be stopped then, too. Between two looks it only reads the file
// system's counters, and looks when these have moved by a sixty-fourth of the quota, or after five seconds.
func (q Quota) Watch(ctx context.Context, folders ...string) (Use, error) {
	tops, err := openTops(folders)
	if err != nil {
		return Use{}, fmt.Errorf("watching a conversation's files: %w", err)
	}
	defer func() { _ = closeAll(tops) }()
	u, err := q.defaults().watch(ctx, tops)
	if ctx.Err() != nil {
		return Use{}, nil
	}
	if err != nil {
		return u, fmt.Errorf("watching a conversation's files: %w", err)
	}
	return u, nil
}

// idleGlances is after how many glances there is a look in any case: the counters hide a file that was filled while
// somebody else freed as much.
const idleGlances = 20

func (q Quota) watch(ctx context.Context, tops []*os.File) (Use, error) {
	c := count{limit: q, seen: map[inode]bool{}}
	for _, top := range tops {
		if err := c.top(ctx, top); err != nil {
			return c.use, err
		}
	}
	first := c.use
	if first.Over != "" {
		return first, nil
	}
	glance := time.NewTicker(q.Interval)
	defer glance.Stop()
	var last space
	quiet, scarce := idleGlances, 0
	var rest time.Duration
	looked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return Use{}, nil
		case <-glance.C:
		}
		now, low, err := q.space(tops[0])
		if err != nil {
			return Use{}, err
		}
		if scarce++; !low {
			scarce = 0
		}
		if quiet++; quiet < idleGlances && !low && !q.moved(last, now) || time.Since(looked) < rest {
			continue
		}
		began := time.Now()
		u, err := q.look(ctx, tops)
		if err != nil {
			return u, err
		}
		// On a file system that runs full, whoever grows is stopped first; then everybody, since a file that was removed while
		// open grows unseen.
		if u.Over != "" && (u.Over != OverDisk || u.Bytes > first.Bytes+1<<20 || u.Files > first.Files+100 || scarce >= idleGlances) {
			return u, nil
		}
		looked, last, quiet = time.Now(), now, 0
		rest = min(3*looked.Sub(began), 2*time.Second) // a large tree costs at most a quarter of a processor
	}
}

// space is what a file system has left.
type space struct{ bytes, files int64 }

// space reads it, and tells whether it is less than must stay free.
func (q Quota) space(dir *os.File) (s space, low bool, err error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return s, false, err
	}
	s = space{bytes: int64(st.Bavail) * st.Bsize, files: int64(st.Ffree)}
	least := q.Free
	if least <= 0 {
		least = min(1<<30, int64(st.Blocks)*st.Bsize/20)
	}
	low = s.bytes < least || st.Files > 0 && s.files < min(10_000, int64(st.Files)/20) // some count no inodes
	return s, low, nil
}

func (q Quota) moved(a, b space) bool {
	return max(a.bytes-b.bytes, b.bytes-a.bytes) >= q.Bytes/64 || max(a.files-b.files, b.files-a.files) >= q.Files/64
}

type inode struct{ dev, ino uint64 }

// count walks folders and adds up. The zero limit counts everything.
type count struct {
	limit Quota
	use   Use
	// seen keeps an inode from being counted twice: by its second link, or because it was moved while the walk went on. With
	// a limit it is bounded by it; without, only what has several links is noted.
	seen map[inode]bool
}

// top counts one folder and what is in it.
func (c *count) top(ctx context.Context, dir *os.File) error {
	st, err := stat(dir)
	if err != nil {
		return err
	}
	err = c.add(st)
	if err == nil {
		err = c.folder(ctx, dir, 1)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (c *count) folder(ctx context.Context, dir *os.File, depth int) error {
	return eachName(ctx, dir, func(name string) error {
		st, err := lstat(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.add(st); err != nil || !isFolder(st) {
			return err
		}
		if depth >= maxDepth {
			c.use.Over = OverDepth
			return errEnough
		}
		sub, err := openFolder(dir, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrFolder) {
			return nil // gone, or something else by now
		}
		if err != nil {
			return err
		}
		defer sub.Close()
		return c.folder(ctx, sub, depth+1)
	})
}

// blockSize is the unit of st_blocks, whatever the file system's own.
const blockSize = 512

func (c *count) add(st unix.Stat_t) error {
	if c.limit.Files > 0 || !isFolder(st) && st.Nlink > 1 {
		id := inode{uint64(st.Dev), st.Ino}
		if c.seen[id] {
			return nil
		}
		c.seen[id] = true
	}
	c.use.Files++
	c.use.Bytes += st.Blocks * blockSize
	if c.limit.Files > 0 {
		if c.use.Over = c.limit.over(c.use); c.use.Over != "" {
			return errEnough
		}
	}
	return nil
}
