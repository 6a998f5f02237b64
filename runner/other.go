//go:build !linux

package runner

import (
	"context"
	"os"
	"os/exec"
	"time"
)

// Start refuses: there is no sandbox on this system, and pilder does not run agents without one by default.
func (s *Sandbox) Start(context.Context, Launch) (*Process, error) { return nil, ErrNotLinux }

// Look, Watch, Trim, Lay, Pick, Tidy and RemoveTree refuse: what agents have made is only touched by ways that Linux has.
func (q Quota) Look(context.Context, ...string) (Use, error)                { return Use{}, ErrNotLinux }
func (q Quota) Watch(context.Context, ...string) (Use, error)               { return Use{}, ErrNotLinux }
func (q Quota) Trim(context.Context, time.Time, ...string) (Use, error)     { return Use{}, ErrNotLinux }
func (b Inbox) Lay(context.Context, string, []Incoming) ([]Laid, error)     { return nil, ErrNotLinux }
func (o Outbox) Pick(_ context.Context, run, work string) ([]Picked, error) { return nil, ErrNotLinux }
func (o Outbox) Tidy(context.Context, time.Time) error                      { return ErrNotLinux }
func RemoveTree(context.Context, string) error                              { return ErrNotLinux }

// agents are nobody else here.
type agents struct{ own bool }

func agentsUser(string) (agents, error) { return agents{}, nil }

// Own does nothing: no agent runs.
func (s *Sandbox) Own(string) error { return nil }

// OwnFile does nothing either.
func (s *Sandbox) OwnFile(*os.File) error { return nil }

// cgroups are not here either.
type (
	cgroups struct{}
	cgroup  struct{}
)

func openCgroups() (*cgroups, error) { return nil, ErrNotLinux }
func (s *Sandbox) bounded() error    { return ErrNotLinux }

func (p *Process) memory(look) (int64, error) { return 0, ErrNotLinux }

// crowd is empty here: there are no processes.
type crowd struct{}

func (*crowd) sweep() error               { return ErrNotLinux }
func (*crowd) memory(look) (int64, error) { return 0, ErrNotLinux }
func (*crowd) close() error               { return nil }

func killAll(*exec.Cmd) error            { return ErrNotLinux }
func (s *Sandbox) trouble(error) Finding { return Finding{} }
