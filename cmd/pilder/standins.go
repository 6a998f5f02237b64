package main

import (
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"pilder/sim/anthropic"
	"pilder/sim/pipedream"
	"pilder/sim/telegram"
)

// standIns are Telegram, the model and Pipedream of a demonstration, each served on loopback.
type standIns struct {
	telegram  *telegram.Server
	anthropic *anthropic.Server
	pipedream *pipedream.Server

	telegramURL, modelURL, appsURL string // the first is the chat page's too

	servers []*http.Server
	serving errgroup.Group
}

// startStandIns serves them until close; listen is the address of the first.
func startStandIns(listen string) (*standIns, error) {
	zone, err := time.LoadLocation(demoZone)
	if err != nil {
		return nil, err
	}
	chat, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, machineError("the chat page cannot be served there; for a free address: pilder demo --listen 127.0.0.1:0: %w", err)
	}
	model, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, chat.Close())
	}
	apps, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, chat.Close(), model.Close())
	}
	url := func(l net.Listener) string { return "http://" + l.Addr().String() }
	s := &standIns{
		telegram:  telegram.New(telegram.Config{People: demoChatPeople()}),
		anthropic: anthropic.New(anthropic.Config{}),
		pipedream: pipedream.New(pipedream.Config{
			PublicURL: func() string { return url(apps) },
			Now:       func() time.Time { return time.Now().In(zone) }, // its calendars begin with meetings at office hours there
		}),
		telegramURL: url(chat), modelURL: url(model), appsURL: url(apps),
	}
	s.serve(chat, s.telegram.Handler())
	s.serve(model, s.anthropic.Handler())
	s.serve(apps, s.pipedream.Handler())
	return s, nil
}

func (s *standIns) serve(l net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	s.servers = append(s.servers, server)
	s.serving.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// close ends them, whoever still listens to them.
func (s *standIns) close() error {
	s.telegram.Close()
	s.anthropic.Close()
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(append(errs, s.serving.Wait())...)
}

// onLoopback refuses an address that others than this machine could reach: whoever can open a stand-in can be anybody in it.
func onLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usageError("--listen must be an address of this machine alone, such as 127.0.0.1:8090, not %q", listen)
	}
	return nil
}
