package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"pilder/runner/inside"
)

// Finding is one thing Probe saw that an operator should know.
type Finding = inside.Finding

// Probe finds out by doing what this machine's sandbox is worth: it starts one and attacks it from inside, for less than
// a second. A finding that is not fatal says what a stronger tier would add.
func (s *Sandbox) Probe(ctx context.Context) (Tier, []Finding) {
	if runtime.GOOS != "linux" {
		return TierD, []Finding{{Check: "linux", Problem: "this is " + runtime.GOOS, Fatal: true,
			Remedy: "run pilder on Linux, for example in a virtual machine"}}
	}
	if _, err := s.bwrap(); err != nil {
		return TierD, []Finding{s.trouble(err)}
	}
	broken, err := s.attack(ctx)
	if err != nil {
		return TierD, []Finding{s.trouble(err)}
	}
	if len(broken) > 0 {
		return TierD, broken
	}
	found := s.missing()
	if abi := inside.LandlockABI(); abi < inside.FenceABI {
		found = append(found, Finding{Check: "landlock", Remedy: "run a kernel of Linux 6.12 or later with Landlock among its security modules",
			Problem: fmt.Sprintf("Landlock is at version %d of %d: an agent's shell commands can reach its own run token and doors", abi, inside.FenceABI)})
	}
	if s.user.own && s.bounded() == nil {
		return TierB, found
	}
	return TierC, found
}

// missing says what a stronger tier would add.
func (s *Sandbox) missing() []Finding {
	var found []Finding
	if err := s.bounded(); err != nil {
		found = append(found, Finding{Check: "cgroup", Problem: "the kernel does not bound an agent's memory and processor time: " + err.Error(),
			Remedy: "run pilder as a systemd service with Delegate=yes, on a machine with cgroup v2 alone"})
	}
	switch {
	case s.user.own:
	case os.Getuid() == 0:
		found = append(found, Finding{Check: "user", Problem: "agents run as root, whom the limit on processes does not bind",
			Remedy: "remove sandbox.user from the configuration"})
	default:
		found = append(found, Finding{Check: "user", Problem: "agents share pilder's user id",
			Remedy: "let root start pilder: it then gives agents a user of their own"})
	}
	return found
}

// Ready refuses a machine whose sandbox is weaker than the configuration requires, and gives the findings in any case.
func (s *Sandbox) Ready(ctx context.Context) ([]Finding, error) {
	if s.cfg.Unsandboxed {
		return []Finding{{Check: "unsandboxed", Problem: "agents run without a sandbox and reach everything pilder's user can",
			Remedy: "remove sandbox.mode none"}}, nil
	}
	tier, found := s.Probe(ctx)
	if tier < s.cfg.Require {
		return found, fmt.Errorf("%w: tier %s, required %s: %s", ErrTooWeak, tier, s.cfg.Require, summary(found))
	}
	return found, nil
}

// summary is the first fatal finding, or the first.
func summary(found []Finding) string {
	if len(found) == 0 {
		return ""
	}
	f := found[0]
	for _, other := range found {
		if other.Fatal {
			f = other
			break
		}
	}
	return f.Problem + "; " + f.Remedy
}

// attack plants a file and a listener on the host, then has sandbox-probe try for them and for the kernel.
func (s *Sandbox) attack(ctx context.Context) ([]Finding, error) {
	dir, err := plant()
	if err != nil {
		return nil, fmt.Errorf("planting a file for the probe: %w", err)
	}
	defer os.RemoveAll(dir)
	canary := filepath.Join(dir, canaryName)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("planting a listener for the probe: %w", err)
	}
	defer l.Close()
	var out, errOut bytes.Buffer
	probe := Launch{Argv: []string{dirTools + "/pilder", probeName, canary, l.Addr().String()}, unfenced: true}
	exit, err := s.run(ctx, probe, strings.NewReader(""), &out, &errOut)
	if err != nil {
		return nil, err
	}
	var broken []Finding
	verdict := json.NewDecoder(&out)
	if err := verdict.Decode(&broken); err != nil || exit != 0 {
		return nil, &StartError{Cause: errors.Join(fmt.Errorf("the probe ended with %d", exit), err), Stderr: errOut.String()}
	}
	if verdict.More() {
		broken = append(broken, Finding{Check: "T29", Problem: "a process outlives its sandbox", Remedy: inside.RemedyBroken, Fatal: true})
	}
	for i, f := range broken {
		switch f.Check {
		case inside.CheckHome:
			broken[i].Remedy = "chmod -R a+rX " + s.cfg.AgentHome
		case inside.CheckCLI:
			broken[i].Remedy = "chmod -R a+rX " + s.cfg.CLI
		}
	}
	return broken, nil
}

const (
	canaryPrefix = "pilder-probe-"
	canaryName   = "canary"
	canaryAge    = time.Hour // older ones were left by a process that was killed while it probed
)

// plant puts a file on the host that everybody may read, so that nothing but the sandbox hides it.
func plant() (dir string, err error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), canaryPrefix+"*")) // the pattern is valid
	for _, path := range old {
		if st, err := os.Lstat(path); err == nil && st.IsDir() && time.Since(st.ModTime()) > canaryAge {
			_ = os.Remove(filepath.Join(path, canaryName)) // somebody else's stays
			_ = os.Remove(path)
		}
	}
	if dir, err = os.MkdirTemp("", canaryPrefix); err != nil {
		return "", err
	}
	canary := filepath.Join(dir, canaryName)
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(canary, []byte("canary"), 0o644), os.Chmod(canary, 0o644))
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}
