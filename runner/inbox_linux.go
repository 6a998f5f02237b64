package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pilder/store"
)

// Lay copies the files into the inbox of a conversation's /work, each as a new file that was not there before. Nothing that
// an earlier run has left there is written to or followed. An error means that the folder itself could not be used.
func (b Inbox) Lay(ctx context.Context, work string, files []Incoming) ([]Laid, error) {
	if len(files) == 0 {
		return nil, nil
	}
	b = b.defaults()
	dir, err := b.folder(work)
	if err != nil {
		return nil, fmt.Errorf("opening the inbox: %w", err)
	}
	defer dir.Close()
	next, err := nextNumber(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("reading the inbox: %w", err)
	}
	left := b.MaxTotal
	laid := make([]Laid, 0, len(files))
	for _, in := range files {
		if err := ctx.Err(); err != nil {
			return laid, err
		}
		l := Laid{Name: CleanName(in.Name), Kind: in.Kind}
		var name string
		name, l.Size, l.Err = b.layOne(ctx, dir, &next, in, min(b.MaxFile, left))
		if l.Err == nil {
			l.Path = path.Join(DirInbox, name)
			left -= l.Size
		}
		laid = append(laid, l)
	}
	return laid, nil
}

func (b Inbox) folder(work string) (*os.File, error) {
	top, err := openTop(work)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	return ownFolder(top, DirInbox, b.Own)
}

func (b Inbox) layOne(ctx context.Context, dir *os.File, next *int, in Incoming, limit int64) (name string, size int64, err error) {
	from, err := in.Open()
	if err != nil {
		return "", 0, fmt.Errorf("opening a person's file: %w", err)
	}
	defer from.Close()
	f, name, err := createNumbered(dir, next, safeExtension(in.Kind, in.Name), 0o600)
	if err != nil {
		return "", 0, fmt.Errorf("making a file in the inbox: %w", err)
	}
	size, err = copyAtMost(ctx, f, from, limit)
	if err == nil && b.Own != nil {
		err = b.Own(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", 0, errors.Join(fmt.Errorf("laying a person's file: %w", err), unlink(dir, name))
	}
	return name, size, nil
}

// highest is where counting up ends; only an agent can have made such a name.
const highest = 1 << 20

// nextNumber is one more than the largest number in a folder.
func nextNumber(ctx context.Context, dir *os.File) (int, error) {
	next := 1
	err := eachName(ctx, dir, func(name string) error {
		digits, _, _ := strings.Cut(name, ".")
		if n, err := strconv.Atoi(digits); err == nil && n >= next && n < highest {
			next = n + 1
		}
		return nil
	})
	return next, err
}

// createNumbered makes a new file named by a number. Where an agent has taken the numbers, a random one serves.
func createNumbered(dir *os.File, next *int, ext string, mode uint64) (*os.File, string, error) {
	for try := range 40 {
		name := strconv.Itoa(*next) + ext
		if *next++; try >= 20 {
			name = store.RandomSecret("").Reveal() + ext
		}
		f, err := openIn(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, ErrFolder) {
			return f, name, err
		}
	}
	return nil, "", errTooBusy
}

// copyAtMost copies everything, or tells that it is more than limit.
func copyAtMost(ctx context.Context, to io.Writer, from io.Reader, limit int64) (int64, error) {
	n, err := io.Copy(to, io.LimitReader(withContext{ctx, from}, limit+1))
	if err == nil && n > limit {
		err = ErrTooBig
	}
	return n, err
}

// withContext stops reading when the context ends.
type withContext struct {
	ctx  context.Context
	from io.Reader
}

func (r withContext) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}
