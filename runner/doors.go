package runner

import (
	"context"
	"errors"
	"net"
	"sync"

	"pilder/store"
)

// doors are those of one run, being served.
type doors struct {
	p      *Process
	ends   []context.CancelFunc
	served sync.WaitGroup

	mu     sync.Mutex
	errs   []error
	failed func(error)
}

// openTools begins to serve a run its tools, until shut, whatever becomes of the run's context: calls under way when a run
// is cancelled still have to be recorded. A prepared run's tools can be listed, so that its process is ready; the store
// refuses its calls.
func (a *agent) openTools(run store.Run) {
	a.doors = &doors{p: a.p}
	a.doors.serve(a.relays[doorTools], func(ctx context.Context, l net.Listener) error { return a.cfg.ServeTools(ctx, run, l) })
}

// openRest opens what else the process has, as its run begins: it can think, and reach the web if it may.
func (a *agent) openRest(run store.Run, spent Budget, meter func(Usage)) {
	d := ModelDoor{Run: run, Key: a.launch.key, Search: a.canSearch(), Budget: a.cfg.Budget, Spent: spent, Meter: meter}
	a.doors.serve(a.relays[doorModel], func(ctx context.Context, l net.Listener) error { return a.cfg.ServeModel(ctx, d, l) })
	if web := a.relays[doorWeb]; web != nil {
		a.doors.serve(web, func(ctx context.Context, l net.Listener) error { return a.cfg.ServeWeb(ctx, run, l) })
	}
}

func (s *doors) serve(r *relay, serve func(context.Context, net.Listener) error) {
	l := r.open()
	ctx, cancel := context.WithCancel(context.Background())
	s.ends = append(s.ends, cancel)
	s.served.Go(func() {
		defer l.Close()
		s.note(ctx, serve(ctx, l))
	})
}

// note keeps the error of a door. One that ends before it was told to, or before its process, has failed in any case.
func (s *doors) note(ctx context.Context, err error) {
	over := ctx.Err() != nil
	select {
	case <-s.p.Done():
		over = true // and has taken its listeners along
	default:
	}
	switch {
	case err == nil && !over:
		err = errors.New("door closed by itself")
	case errors.Is(err, net.ErrClosed) && over:
		err = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.errs = append(s.errs, err)
		if s.failed != nil {
			s.failed(err)
		}
	}
}

// onFailure tells f of a door that fails, or has failed.
func (s *doors) onFailure(f func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = f
	if len(s.errs) > 0 {
		f(s.errs[0])
	}
}

func (s *doors) close() error {
	for _, end := range s.ends {
		end()
	}
	s.served.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}
