package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// defaultUser is who agents are outside their sandbox when pilder is root: between the ranges that Debian and systemd give
// away, so that no person, service or container has it, and no passwd entry is needed.
const defaultUser = 61000

// ownDepth is how deep Own goes into a folder. What an earlier run made deeper stays as it is.
const ownDepth = 256

// agents is the user id that sandboxes have outside their namespace.
type agents struct {
	uid, gid int
	own      bool // not pilder's
}

// agentsUser settles SandboxConfig.User.
func agentsUser(name string) (agents, error) {
	pilder := agents{uid: os.Getuid(), gid: os.Getgid()}
	if name == "" {
		if pilder.uid != 0 {
			return pilder, nil
		}
		name = strconv.Itoa(defaultUser)
	}
	found, err := lookUser(name)
	if err != nil {
		return agents{}, err
	}
	if found.uid == pilder.uid {
		return pilder, nil
	}
	if pilder.uid != 0 {
		return agents{}, fmt.Errorf("%w: only root can start agents as %s", ErrUser, name)
	}
	found.own = true
	return found, nil
}

// lookUser finds a user by name or number. A number needs no entry anywhere, and is then its group's too.
func lookUser(name string) (agents, error) {
	number, notNumber := strconv.ParseUint(name, 10, 31)
	u, err := user.LookupId(name)
	if notNumber != nil {
		u, err = user.Lookup(name)
	}
	if err != nil && notNumber == nil {
		return agents{uid: int(number), gid: int(number)}, nil
	}
	if err != nil {
		return agents{}, fmt.Errorf("%w: %w", ErrUser, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err, err2); err != nil {
		return agents{}, fmt.Errorf("%w: %w", ErrUser, err)
	}
	return agents{uid: uid, gid: gid}, nil
}

// Own gives a host folder or file, and everything in it, to the agents' user. A folder that has been given already is left
// as it is: what pilder adds to it later has to be given by its own path. No symbolic link is followed, neither in path nor
// below it. Without a user of their own it does nothing.
func (s *Sandbox) Own(path string) error {
	if !s.user.own || s.cfg.Unsandboxed || path == "" {
		return nil
	}
	f, err := openPath(path, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.user.take(f, ownDepth); err != nil {
		return fmt.Errorf("giving %s to the agents' user: %w", path, err)
	}
	return nil
}

// OwnFile gives one opened file or folder to the agents' user, and nothing that is in it.
func (s *Sandbox) OwnFile(f *os.File) error {
	if !s.user.own || s.cfg.Unsandboxed {
		return nil
	}
	if err := unix.Fchownat(int(f.Fd()), "", s.user.uid, s.user.gid, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("giving %s to the agents' user: %w", f.Name(), err)
	}
	return nil
}

// take gives what f is opened on, the contents first: one that was broken off begins anew.
func (a agents) take(f *os.File, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if int(st.Uid) == a.uid && int(st.Gid) == a.gid {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && depth > 0 {
		if err := a.takeInside(f, depth-1); err != nil {
			return err
		}
	}
	return unix.Fchownat(int(f.Fd()), "", a.uid, a.gid, unix.AT_EMPTY_PATH)
}

func (a agents) takeInside(f *os.File, depth int) error {
	dir, err := openBeneath(f, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			entry, err := openBeneath(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0) // a link itself, never its target
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			err = errors.Join(a.take(entry, depth), entry.Close())
			if err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
