package main

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Run runs the parts until ctx ends or one of them fails, and stops them in order: polling and sending, runs, doors and
// HTTP, store.
func (h *house) Run(ctx context.Context) error { return runStages(ctx, h.stages()) }

// errEnded is a part that ended though nobody told it to.
var errEnded = errors.New("a part of pilder ended by itself")

// runStages starts the stages from the last to the first, runs them until ctx ends or a part fails, and then stops them
// from the first to the last, each waited for before the next.
func runStages(ctx context.Context, stages [][]func(context.Context) error) error {
	running, fail := context.WithCancel(ctx)
	defer fail()
	var stop []func() error
	for _, stage := range slices.Backward(stages) {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		group, own := errgroup.WithContext(own)
		for _, part := range stage {
			group.Go(func() error {
				err := part(own)
				if own.Err() != nil {
					return ignoreCancel(err)
				}
				if err == nil {
					err = errEnded
				}
				fail()
				return err
			})
		}
		stop = append(stop, func() error { cancel(); return group.Wait() })
	}
	<-running.Done()
	var errs []error
	for _, s := range slices.Backward(stop) {
		errs = append(errs, s())
	}
	return errors.Join(errs...)
}

// stages are the parts in the order in which they stop.
func (h *house) stages() [][]func(context.Context) error {
	var talk, work, doors []func(context.Context) error
	if h.bot != nil && h.role("bot") {
		talk = append(talk, h.bot.Run)
	}
	if h.runner != nil {
		work = append(work, h.runAgents)
	}
	if h.role("gateway") {
		doors = append(doors, h.gateway.ServeApproved)
		if h.apps != nil || h.grants != nil {
			doors = append(doors, h.gateway.WatchConnections, h.gateway.WatchAccounts)
		}
		if h.apps != nil {
			doors = append(doors, h.warm, h.apps.WatchDefinitions)
		}
		if h.options.public != nil {
			doors = append(doors, func(ctx context.Context) error { return h.gateway.ServePublic(ctx, h.options.public) })
		}
	}
	var sources []func(context.Context) error // what doors and runs call
	if h.upstreams != nil && h.callsUpstreams() {
		sources = append(sources, h.upstreams.Run)
	}
	if h.grants != nil {
		sources = append(sources, h.grants.Run)
	}
	return [][]func(context.Context) error{talk, work, doors, sources, {h.store.Run}}
}
