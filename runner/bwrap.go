package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bwrapInfo is what one installed bubblewrap is and can do.
type bwrapInfo struct {
	path    string
	version string
	bindFD  bool // takes the folders to mount as descriptors, so nobody can swap the path in between
}

// bwrapVersion finds "0.8.0" in "bubblewrap 0.8.0".
var bwrapVersion = regexp.MustCompile(`^bubblewrap (\d+)\.(\d+)`)

// examineBwrap finds bubblewrap and refuses one that somebody else could have put there. A setuid one is refused too: its
// extra rights are a surface that unprivileged user namespaces make needless.
func examineBwrap(path string) (bwrapInfo, error) {
	candidates := []string{path}
	if path == "" {
		candidates = []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap"}
	}
	for _, c := range candidates {
		real, err := filepath.EvalSymlinks(c)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return bwrapInfo{}, fmt.Errorf("finding bubblewrap: %w", err)
		}
		return examineBwrapAt(real)
	}
	return bwrapInfo{}, fmt.Errorf("%w: looked for %s", ErrNoBwrap, strings.Join(candidates, ", "))
}

func examineBwrapAt(path string) (bwrapInfo, error) {
	st, err := os.Stat(path)
	if err != nil {
		return bwrapInfo{}, fmt.Errorf("looking at bubblewrap: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !st.Mode().IsRegular():
		return bwrapInfo{}, fmt.Errorf("%w: %s is not a regular file", ErrBwrapUnfit, path)
	case sys.Uid != 0 || st.Mode().Perm()&0o022 != 0:
		return bwrapInfo{}, fmt.Errorf("%w: %s can be replaced by others than root", ErrBwrapUnfit, path)
	case st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		return bwrapInfo{}, fmt.Errorf("%w: %s is setuid", ErrBwrapUnfit, path)
	}
	version, err := askBwrap(path, "--version")
	if err != nil {
		return bwrapInfo{}, err
	}
	m := bwrapVersion.FindStringSubmatch(version)
	if m == nil {
		return bwrapInfo{}, fmt.Errorf("%w: %s does not tell its version", ErrBwrapUnfit, path)
	}
	major, _ := strconv.Atoi(m[1]) // digits by the pattern
	minor, _ := strconv.Atoi(m[2])
	if major == 0 && minor < 8 {
		return bwrapInfo{}, fmt.Errorf("%w: %s is version %d.%d, --disable-userns needs 0.8", ErrBwrapUnfit, path, major, minor)
	}
	help, err := askBwrap(path, "--help")
	if err != nil {
		return bwrapInfo{}, err
	}
	return bwrapInfo{path: path, version: strings.TrimSpace(version), bindFD: strings.Contains(help, "--ro-bind-fd")}, nil
}

// askBwrap runs bubblewrap for a word about itself, with nothing in its environment.
func askBwrap(path, question string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, question)
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking bubblewrap for %s: %w", question, err)
	}
	return string(out), nil
}
