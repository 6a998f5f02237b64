package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// stageDir is where a stage stands. bubblewrap itself builds the sandbox over this folder, so nothing it mounts by path can
// be below it.
const stageDir = "/tmp"

// stage is a mount namespace from which bubblewrap starts as the agents' user. Everything of the host that a run needs lies
// there under a neutral name, mounted by the descriptor that was checked. So nobody can swap a path in between, and the
// agents' user needs no way to it: the folders above may be closed to everybody but pilder.
type stage struct {
	trees []*os.File // mounts that hang nowhere yet
	files []bool     // which of them are files
}

// add takes an opened file or folder along and gives its name on the stage.
func (s *stage) add(f *os.File) (string, error) {
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return "", fmt.Errorf("%w: taking %s along: %w", errStage, f.Name(), err)
	}
	s.trees, s.files = append(s.trees, os.NewFile(uintptr(fd), f.Name())), append(s.files, !st.IsDir())
	return s.name(len(s.trees) - 1), nil
}

func (s *stage) name(i int) string { return filepath.Join(stageDir, strconv.Itoa(i)) }

// enter moves the calling thread onto the stage, for good: it must be locked, and end with its goroutine.
func (s *stage) enter() error {
	if err := s.build(); err != nil {
		return fmt.Errorf("%w: %w", errStage, err)
	}
	return nil
}

func (s *stage) build() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	// What is mounted from here on is nobody else's: first for the stage itself, then for what was taken along.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := unix.Mount("pilder", stageDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mounting the stage: %w", err)
	}
	for i, tree := range s.trees {
		point := os.Mkdir
		if s.files[i] {
			point = func(name string, mode os.FileMode) error { return os.WriteFile(name, nil, mode) }
		}
		if err := point(s.name(i), 0o700); err != nil {
			return err
		}
		if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, s.name(i), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mounting %s: %w", tree.Name(), err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	return nil
}

func (s *stage) close() {
	for _, f := range s.trees {
		_ = f.Close() // nothing is written through it
	}
}

// errStage tells that pilder, though root, may not mount.
var errStage = errors.New("the agents cannot be given a user of their own")
