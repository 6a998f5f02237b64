package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

const (
	maxPids    = 320 // the limit inside is 256; here bubblewrap and threads in passing are counted too
	oomScore   = 500 // of what is inside, so that a machine without memory loses agents before pilder
	watchEvery = 250 * time.Millisecond
	wholeEvery = 4 // looks at what nobody has mapped any more are dearer
)

// sacrifice puts the program, and with it all it will start, before pilder in the kernel's choice when memory runs out.
func sacrifice(pid int) error {
	score := []byte(strconv.Itoa(oomScore))
	if first, err := parentOf(pid); err == nil {
		_ = os.WriteFile("/proc/"+strconv.Itoa(first)+"/oom_score_adj", score, 0) // it holds next to nothing
	}
	if err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", score, 0); err != nil {
		return fmt.Errorf("marking the program for want of memory: %w", err)
	}
	return nil
}

// watch ends a program whose sandbox uses more than limit, where the kernel does not. A look that takes long is followed by a
// longer wait, but not by a long one, in which much could be taken.
func (p *Process) watch(limit int64) {
	next := time.NewTimer(watchEvery)
	defer next.Stop()
	for n := 1; ; n++ {
		select {
		case <-p.done:
			return
		case <-next.C:
		}
		began := time.Now()
		how := lookQuick
		if n%wholeEvery == 0 {
			how = lookWhole
		}
		if p.over(limit, how) {
			p.outOfMemory.Store(true)
			_ = p.Kill() // it may have ended by itself meanwhile
			return
		}
		next.Reset(min(max(watchEvery, 20*time.Since(began)), 8*watchEvery))
	}
}

// over looks cheaply at first, and exactly only when that is too much.
func (p *Process) over(limit int64, how look) bool {
	for _, how := range []look{how, lookExact} {
		if used, err := p.memory(how); err != nil || used <= limit {
			return false
		}
	}
	return true
}

func (p *Process) memory(how look) (int64, error) {
	p.looking.RLock()
	defer p.looking.RUnlock()
	if p.closed {
		return 0, os.ErrProcessDone
	}
	return p.crowd.memory(how)
}

// group gives a run its group, or none where there are none.
func (s *Sandbox) group() (*cgroup, error) {
	all, _ := s.cgroups()
	if all == nil {
		return nil, nil
	}
	g, err := all.make(s.cfg.Memory)
	if err != nil {
		return nil, fmt.Errorf("bounding the sandbox: %w", err)
	}
	return g, nil
}

// bounded is nil if the kernel bounds each run; else it says why not, and watch has to.
func (s *Sandbox) bounded() error {
	all, err := s.cgroups()
	if err == nil && (all == nil || !all.limited) {
		err = errors.New("there are no groups")
	}
	return err
}
