package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// LockedError says that another process has the SQLite file open, and which.
type LockedError struct {
	Path   string
	Holder string // "pid 4711 on host box, instance ins_…", as the holder wrote it
}

func (e *LockedError) Error() string { return "store " + e.Path + " is held by " + e.Holder }

// lockFile takes the kernel's lock on path, or says who has it. A kernel lock cannot be left behind by a dead process,
// as a pid file can. Go opens files close-on-exec, so no child inherits it and keeps it beyond its parent.
func lockFile(path, holder string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock %s: %w", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		text, err := io.ReadAll(io.LimitReader(f, 512))
		if err != nil {
			return nil, fmt.Errorf("reading the holder of %s: %w", path, err)
		}
		return nil, &LockedError{Path: strings.TrimSuffix(path, ".lock"), Holder: strings.TrimSpace(string(text))}
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(holder+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("writing the holder of %s: %w", path, err)
	}
	return f, nil
}
