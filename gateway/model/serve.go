package model

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
)

// door is one run's, being served.
type door struct {
	*Doors
	process Process
	policy  policy
	purse   *purse
	slots   chan struct{} // maxAtOnce of them
	large   chan struct{} // who holds the one large body
}

// serve takes a request whose sender is known: its body is read whole before any of it goes on, so that a request that turns
// out to be none, or whose run ends while it is still being sent, is never begun.
func (s *door) serve(w http.ResponseWriter, r *http.Request, target string) {
	leave, err := s.enter(r)
	defer leave()
	if err != nil {
		panic(http.ErrAbortHandler) // the run is gone
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody)) // its length was checked
	if err != nil || int64(len(body)) != r.ContentLength {
		refuse(w, http.StatusBadRequest, "invalid_request_error", "the body broke off")
		return
	}
	a, err := s.policy.check(body)
	var no *refusal
	if errors.As(err, &no) {
		s.cfg.Log.Warn().Str("event", "security.model_body").Str("run", string(s.process.Run)).Str("why", no.code).Send()
		status := http.StatusBadRequest
		if no.kind == "permission_error" {
			status = http.StatusForbidden
		}
		refuse(w, status, no.kind, no.message)
		return
	}
	free := strings.Contains(target, "/count_tokens")
	var most spend
	if !free {
		most = s.most(a, len(body))
	}
	room, err := s.purse.take(r.Context(), most)
	switch {
	case err != nil:
		panic(http.ErrAbortHandler)
	case !room:
		s.overdrawn(w)
	default:
		s.ask(w, r, question{target: target, body: body, free: free, asked: a, most: most})
	}
}

// enter waits for a place, and for the one place of large bodies if need be.
func (s *door) enter(r *http.Request) (leave func(), err error) {
	var held []chan struct{}
	leave = func() {
		for _, slot := range held {
			<-slot
		}
	}
	want := []chan struct{}{s.slots}
	if r.ContentLength > largeBody {
		want = []chan struct{}{s.large, s.slots}
	}
	for _, slot := range want {
		select {
		case slot <- struct{}{}:
			held = append(held, slot)
		case <-r.Context().Done():
			return leave, context.Cause(r.Context())
		}
	}
	return leave, nil
}

// overdrawn turns a request away for good. The CLI does not repeat a 403 (2.1.332, seen); the run's owner hears why.
func (s *door) overdrawn(w http.ResponseWriter) {
	s.cfg.Log.Warn().Str("event", "model.over_budget").Str("run", string(s.process.Run)).Send()
	if s.process.Meter != nil {
		s.process.Meter(Usage{Refused: RefusedBudget})
	}
	refuse(w, http.StatusForbidden, "permission_error", "this run has used up its budget")
}

// question is one request that may be asked.
type question struct {
	target string
	body   []byte
	free   bool // counting tokens costs nothing
	asked  asked
	most   spend
}

// ask asks the model, unless the run has ended since the request came, and accounts for it.
func (s *door) ask(w http.ResponseWriter, r *http.Request, q question) {
	if s.process.Alive(r.Context()) != nil {
		s.purse.pay(q.most, spend{})
		refuse(w, http.StatusForbidden, "permission_error", "no turn is running")
		return
	}
	m := newMeter(s.cfg.Now(), s.cfg.Now)
	m.free = q.free
	defer func() { // also of an answer that broke off, which panics
		m.end()
		came := s.came(m, q.asked, len(q.body))
		s.purse.pay(q.most, came)
		if s.process.Meter != nil {
			u := m.usage(s.cfg.Prices)
			u.Counted = Budget{Tokens: came.tokens, CostUSD: came.usd}
			s.process.Meter(u)
		}
	}()
	s.forward(w, r, q, m, s.process)
}
