package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"pilder/runner/inside"
)

// Tier is how much a sandbox holds. A larger one holds more; the zero value is no sandbox worth the name.
type Tier int

// The tiers. A is not this package's to give.
const (
	TierD Tier = iota // nothing, or less than C
	TierC             // bubblewrap, seccomp, no user namespaces inside, own network and PID namespace
	TierB             // C with a uid of its own for the agents and cgroup limits
	TierA             // a virtual machine or gVisor container per run
)

// String gives the letter an operator writes in sandbox.require.
func (t Tier) String() string { return string("DCBA"[min(max(t, TierD), TierA)]) }

// ParseTier reads that letter.
func ParseTier(letter string) (Tier, error) {
	if i := strings.Index("DCBA", strings.ToUpper(letter)); i >= 0 && len(letter) == 1 {
		return Tier(i), nil
	}
	return TierA, fmt.Errorf("sandbox tier %q is none of A, B, C, D", letter)
}

const defaultMemory = 2 << 30 // bytes

// Names inside the sandbox. The pilder binary is there twice: as sandbox-init and as the shell that fences in commands.
const (
	DirWork  = inside.DirWork  // the conversation's files, writable, the program's current folder
	DirState = inside.DirState // the CLI's state of the conversation, writable
	DirRun   = "/run/pilder"   // the run's workspace, read-only
	DirAgent = inside.DirAgent // the agent home, read-only
	DirCLI   = inside.DirCLI   // the CLI, read-only
	dirTools = "/opt/pilder"
	dirHome  = inside.DirHome
)

// Errors of the sandbox that an operator can do something about; Probe has the remedy of each.
var (
	ErrNotLinux    = errors.New("the sandbox needs Linux")
	ErrNoBwrap     = errors.New("bubblewrap is not installed")
	ErrBwrapUnfit  = errors.New("bubblewrap is unfit")
	ErrStart       = errors.New("sandbox did not start")
	ErrNotApart    = errors.New("sandbox shares a namespace with pilder")
	ErrTooWeak     = errors.New("sandbox is weaker than required")
	ErrUnsandboxed = errors.New("agents without a sandbox need sandbox.mode none and its acceptance on the command line, both")
	ErrFolder      = errors.New("not a plain folder or file")
	ErrUser        = errors.New("agents cannot have this user")
	ErrLeftover    = errors.New("processes of the sandbox did not end")
)

// SandboxConfig says what sandboxes are made with. The zero value is a bubblewrap sandbox of tier C.
type SandboxConfig struct {
	// Bwrap is the absolute path of bubblewrap: owned by root, written by nobody else, not setuid, version 0.8 or later.
	// Default: /usr/bin/bwrap, else /usr/local/bin/bwrap. It is never looked up in PATH.
	Bwrap string
	// Pilder is the binary that serves as sandbox-init inside. Default: the running executable.
	Pilder string
	// Inside is cmd/inside, the small program that serves inside in place of Pilder: started in a tenth of its time, with every
	// run and every shell command of an agent. Empty: Pilder.
	Inside []byte
	// User is who the agents are on the host, by name or number; only root can choose. Default: with pilder run by root the
	// number 61000, which needs no entry anywhere, else pilder's own user. The folders of a launch are given to it. An agent
	// home, the CLI's folder and the pilder binary must be readable for it, the folders above them need not be.
	User string
	// AgentHome and CLI are the folders that Exec mounts as a run does, and that Probe tries to read as an agent. Empty: none.
	AgentHome, CLI string
	// Memory is how much a run may use, bytes, private and shared memory and its folders in memory together; then all of it is
	// ended. Default 2 GiB. Where the kernel cannot bound it (cgroup v2), pilder looks four times a second.
	Memory int64
	// Require is the weakest tier Ready accepts. Default C; D means C as well, since less than C is said by the two fields below.
	Require Tier
	// Unsandboxed (sandbox.mode: none) runs agents as plain processes with everything pilder's user can reach. It counts
	// only together with AcceptUnsandboxed; one without the other is refused.
	Unsandboxed bool
	// AcceptUnsandboxed is the second place where an operator has to say so: --i-accept-unsandboxed-agents.
	AcceptUnsandboxed bool
	// Handshake is how long a start may take until the doors are open. Default 10 s.
	Handshake time.Duration
}

// Sandbox starts programs that reach nothing but their folders and their doors. Safe for concurrent use.
type Sandbox struct {
	cfg  SandboxConfig
	user agents

	cgroups func() (*cgroups, error)  // made once, at the first use; the error says what is missing
	bwrap   func() (bwrapInfo, error) // examined once, at the first use
	plain   chan struct{}             // holds one: unsandboxed programs run one by one, their doors have fixed ports on the host
}

// NewSandbox checks the configuration; whether the machine can do it, Probe and Start tell.
func NewSandbox(cfg SandboxConfig) (*Sandbox, error) {
	if cfg.Unsandboxed != cfg.AcceptUnsandboxed {
		return nil, ErrUnsandboxed
	}
	if cfg.Pilder == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the running executable: %w", err)
		}
		cfg.Pilder = self
	}
	for _, path := range []string{cfg.Bwrap, cfg.Pilder} {
		if path != "" && !filepath.IsAbs(path) {
			return nil, fmt.Errorf("sandbox binary %s: path is not absolute", path)
		}
	}
	pilder, err := filepath.EvalSymlinks(cfg.Pilder)
	if err != nil {
		return nil, fmt.Errorf("finding the sandbox-init binary: %w", err)
	}
	cfg.Pilder = pilder
	cfg.Require = max(cfg.Require, TierC)
	if cfg.Memory == 0 {
		cfg.Memory = defaultMemory
	}
	if cfg.Handshake == 0 {
		cfg.Handshake = 10 * time.Second
	}
	user, err := agentsUser(cfg.User)
	if err != nil {
		return nil, err
	}
	bwrap := sync.OnceValues(func() (bwrapInfo, error) { return examineBwrap(cfg.Bwrap) })
	return &Sandbox{cfg: cfg, user: user, cgroups: sync.OnceValues(openCgroups), bwrap: bwrap, plain: make(chan struct{}, 1)}, nil
}

// Unsandboxed tells whether programs run with no sandbox at all: every such run is marked in its log line.
func (s *Sandbox) Unsandboxed() bool { return s.cfg.Unsandboxed }

// Launch says everything about one program: what is not named here does not exist for it.
type Launch struct {
	// Argv is the program and its arguments as seen inside. It can be read inside in /proc, so nothing secret belongs here.
	Argv []string
	// Env is the complete environment, "NAME=value"; nothing is inherited.
	Env []string
	// Work, State and Run are host folders: absolute, without symbolic links anywhere in the path. Empty Work or State is
	// an empty folder in memory; empty Run is absent.
	Work, State, Run string
	// AgentHome is the host folder with CLAUDE.md, .claude/rules and .claude/skills, mounted at /agent and, as text the
	// CLI reads from a place nobody inside can write, under /etc/claude-code. Empty: none.
	AgentHome string
	// CLI is the host folder of the pinned CLI. Empty: none.
	CLI string
	// Files are mounted read-only over what is there, or where nothing is.
	Files []SandboxFile
	// Doors are the listeners inside; the program sees them on 127.0.0.1.
	Doors []Door

	unfenced bool // without the outer Landlock domain, so that the probe meets the mounts and namespaces themselves
}

// SandboxFile is a file that exists only inside. Below /work and /state it must be a direct child, since those folders
// are in the hands of earlier runs.
type SandboxFile struct {
	Path string // inside, absolute
	Mode os.FileMode
	Data []byte
}

// Door is a listener opened inside the sandbox and served outside it.
type Door struct {
	Name string // lower-case letters, digits and hyphens
	Port int    // on the sandbox's own loopback
}

// Paths are where a program finds its folders: fixed names in a sandbox, the host's own without one.
type Paths struct{ Work, State, Run, Agent, CLI string }

// Paths tells them for a launch.
func (s *Sandbox) Paths(l Launch) Paths {
	if s.cfg.Unsandboxed {
		return Paths{Work: l.Work, State: l.State, Run: l.Run, Agent: l.AgentHome, CLI: l.CLI}
	}
	return Paths{Work: DirWork, State: DirState, Run: DirRun, Agent: DirAgent, CLI: DirCLI}
}

// StartError tells why a sandbox did not start. Stderr is what bubblewrap or sandbox-init said; it may name host paths, so
// it is for operators only.
type StartError struct {
	Cause  error
	Stderr string
}

// Error implements error.
func (e *StartError) Error() string { return fmt.Sprintf("%v: %v: %s", ErrStart, e.Cause, e.Stderr) }

// Unwrap makes the error an ErrStart and its cause.
func (e *StartError) Unwrap() []error { return []error{ErrStart, e.Cause} }

// validate refuses a launch that could mean something else to the kernel, to bubblewrap or to sandbox-init.
func (l Launch) validate() error {
	if len(l.Argv) == 0 || l.Argv[0] == "" {
		return errors.New("launch names no program")
	}
	for _, text := range append(append([]string(nil), l.Argv...), l.Env...) {
		if strings.ContainsRune(text, 0) {
			return errors.New("launch has a NUL in an argument or variable")
		}
	}
	for _, kv := range l.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			return errors.New("launch has a variable without a name")
		}
	}
	for _, f := range l.Files {
		if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path {
			return fmt.Errorf("sandbox file %q: path is not absolute and clean", f.Path)
		}
	}
	for _, d := range l.Doors {
		if d.Port < 1024 || d.Port > 65535 || d.Name == "" || strings.Trim(d.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return fmt.Errorf("door %q on port %d is not valid", d.Name, d.Port)
		}
	}
	return nil
}
