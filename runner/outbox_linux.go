package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// namesInOutbox is how many names a pick looks at.
const namesInOutbox = 1000

// Pick copies the plain files that lie directly in the outbox of a conversation's /work and removes them there, in the
// order of their names. Folders in it are not entered. A file with a second link is refused: the other name may still be
// written to, and a copy is never more than a cp away. It is safe while the agent's processes run: what it copies and what
// it has checked are one descriptor. An error means that nothing more could be picked; what is told was.
func (o Outbox) Pick(ctx context.Context, run, work string) ([]Picked, error) {
	o = o.defaults()
	if run == "" || run != filepath.Base(run) || run[0] == '.' {
		return nil, fmt.Errorf("picking up the outbox: %w: not a run", ErrFolder)
	}
	from, err := openOutbox(work)
	if from == nil || err != nil {
		return nil, err
	}
	defer from.Close()
	names, more, err := namesOf(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("reading the outbox: %w", err)
	}
	if len(names) == 0 {
		return nil, nil
	}
	p := pick{Outbox: o, from: from, dir: filepath.Join(o.Dir, run)}
	if err := p.open(ctx); err != nil {
		return nil, fmt.Errorf("making the folder of picked files: %w", err)
	}
	defer p.to.Close()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return p.picked, err
		}
		if err := p.one(ctx, name); err != nil {
			return p.picked, fmt.Errorf("picking up a file: %w", err)
		}
	}
	if more {
		p.picked = append(p.picked, Picked{Name: DirOutbox, Err: ErrTooMany})
	}
	return p.picked, nil
}

// openOutbox gives nil where there is none. Something else in its place is removed, so that the next run can make one.
func openOutbox(work string) (*os.File, error) {
	top, err := openTop(work)
	if err != nil {
		return nil, fmt.Errorf("opening the outbox: %w", err)
	}
	defer top.Close()
	f, err := openFolder(top, DirOutbox)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, ErrFolder):
		err = ignoreGone(unlink(top, DirOutbox))
	}
	if err != nil {
		return nil, fmt.Errorf("opening the outbox: %w", err)
	}
	return f, nil
}

// namesOf reads a bounded number of names, sorted.
func namesOf(ctx context.Context, dir *os.File) (names []string, more bool, err error) {
	err = eachName(ctx, dir, func(name string) error {
		if len(names) == namesInOutbox {
			more = true
			return errEnough
		}
		names = append(names, name)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	slices.Sort(names)
	return names, more, err
}

// pick is one call.
type pick struct {
	Outbox
	from, to *os.File
	dir      string // of to
	next     int
	files    int
	total    int64
	picked   []Picked
}

func (p *pick) open(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	var err error
	if p.to, err = openTop(p.dir); err != nil {
		return err
	}
	p.next, err = nextNumber(ctx, p.to)
	return err
}

// one picks one name. Its error is the house's own trouble; the agent's is told in Picked.
func (p *pick) one(ctx context.Context, name string) error {
	told := Picked{Name: CleanName(name)}
	f, st, err := p.plain(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // gone meanwhile
	case err == nil && p.files >= p.MaxFiles:
		err = errors.Join(ErrTooMany, f.Close())
	case err == nil && st.Size > min(p.MaxFile, p.MaxTotal-p.total):
		err = errors.Join(ErrTooBig, f.Close())
	}
	if err != nil {
		told.Name, told.Err = cmp.Or(told.Name, strconv.Itoa(len(p.picked)+1)), err
		p.picked = append(p.picked, told)
		return nil
	}
	defer f.Close()
	to, number, err := createNumbered(p.to, &p.next, "", 0o600)
	if err != nil {
		return err
	}
	told.Name = cmp.Or(told.Name, number)
	told.Size, told.Err = p.copy(ctx, to, f, st)
	if err := to.Close(); err != nil {
		return errors.Join(err, unlink(p.to, number))
	}
	if told.Err != nil {
		p.picked = append(p.picked, Picked{Name: told.Name, Err: told.Err})
		return unlink(p.to, number)
	}
	told.Path = filepath.Join(p.dir, number)
	p.files++
	p.total += told.Size
	p.picked = append(p.picked, told)
	return p.remove(name, st)
}

// plain opens a name if it is a plain file of its own.
func (p *pick) plain(name string) (*os.File, unix.Stat_t, error) {
	pinned, err := pin(p.from, name)
	if err != nil {
		return nil, unix.Stat_t{}, err
	}
	defer pinned.Close()
	st, err := stat(pinned)
	if err != nil {
		return nil, st, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return nil, st, ErrFolder
	}
	f, err := reopen(pinned, 0)
	return f, st, err
}

// copy copies an opened file, and refuses it if it was written to meanwhile: half of one and half of another is nobody's.
func (p *pick) copy(ctx context.Context, to, from *os.File, before unix.Stat_t) (int64, error) {
	n, err := copyAtMost(ctx, to, from, min(p.MaxFile, p.MaxTotal-p.total))
	if err != nil {
		return n, err
	}
	after, err := stat(from)
	if err != nil {
		return n, err
	}
	if n != before.Size || after.Size != before.Size || after.Ctim != before.Ctim {
		return n, ErrChanged
	}
	return n, nil
}

// remove takes the original away, unless its name has become something else.
func (p *pick) remove(name string, st unix.Stat_t) error {
	now, err := lstat(p.from, name)
	if err != nil || now.Ino != st.Ino || now.Dev != st.Dev {
		return ignoreGone(err)
	}
	letWrite(p.from)
	return ignoreGone(unix.Unlinkat(int(p.from.Fd()), name, 0))
}

// Tidy removes what was picked up before a moment. A file that has not been sent by then is lost, so the moment should lie
// days back.
func (o Outbox) Tidy(ctx context.Context, before time.Time) error {
	runs, err := os.ReadDir(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("tidying picked files: %w", err)
	}
	for _, r := range runs {
		info, err := r.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.ModTime().Before(before) {
			continue
		}
		if err == nil {
			err = RemoveTree(ctx, filepath.Join(o.Dir, r.Name()))
		}
		if err != nil {
			return fmt.Errorf("tidying picked files: %w", err)
		}
	}
	return nil
}
