package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"pilder/gateway/egress"
	"pilder/runner"
	"pilder/sim/anthropic"
	"pilder/sim/telegram"
)

// site is a page on the web, and what a house needs to find and trust it.
type site struct {
	mu     sync.Mutex
	seen   []string // Host and path of each request
	dialed []string
	ca     []byte // PEM
	house  houseOptions
}

const (
	siteName    = "site.example"
	siteAddress = "93.184.215.14"
)

func newSite(t *testing.T) *site {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: siteName}, IsCA: true, BasicConstraintsValid: true, DNSNames: []string{siteName}}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Host+r.URL.Path)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html><body><h1>Opening hours</h1><p>MARK-PAGE from nine to five</p></body></html>")
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	s.house.web = egress.Config{
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(siteAddress)}, nil
		},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			s.mu.Lock()
			s.dialed = append(s.dialed, to.String())
			s.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}
	return s
}

// steps is a script that calls one tool and answers with its result.
func steps(words, tool string, input map[string]any) anthropic.Script {
	return anthropic.Sequence(words, anthropic.Says(words),
		func(anthropic.Turn) []anthropic.Block { return []anthropic.Block{anthropic.Use(tool, input)} },
		func(turn anthropic.Turn) []anthropic.Block {
			return []anthropic.Block{anthropic.Text("it said: " + turn.Calls[0].Result.Text)}
		})
}

// TestTheRealCLIReachesListedNamesOnly: its own tool and a command of its shell read a listed page through the web door, and
// another name neither; it searches by the model door.
func TestTheRealCLIReachesListedNamesOnly(t *testing.T) {
	const curl = "curl -s -o /tmp/page --max-time 60 --cacert /agent/ca.pem -w '%{http_code} %{http_connect} %{exitcode}\\n' https://"
	model := anthropic.New(anthropic.Config{Scripts: []anthropic.Script{
		{Name: "summary", Match: anthropic.Says("MARK-QUESTION"), Play: func(turn anthropic.Turn) []anthropic.Block {
			return []anthropic.Block{anthropic.Text(fmt.Sprint("MARK-SUMMARY ", strings.Contains(turn.Text, "MARK-PAGE")))}
		}},
		{Name: "search", Match: anthropic.Says("MARK-QUERY"), Play: func(anthropic.Turn) []anthropic.Block {
			return []anthropic.Block{anthropic.Text("MARK-FOUND")}
		}},
		steps("read the page", "WebFetch", map[string]any{"url": "https://" + siteName + "/hours", "prompt": "MARK-QUESTION when is it open?"}),
		steps("read another", "WebFetch", map[string]any{"url": "https://canary.example/", "prompt": "MARK-QUESTION what is it?"}),
		steps("search it", "WebSearch", map[string]any{"query": "MARK-QUERY"}),
		steps("curl the page", "Bash", map[string]any{"description": "x", "command": curl + siteName + "/curl; " + curl + "canary.example/; cat /tmp/page"}),
	}})
	w := newWorld(t, "sqlite")
	w.gates["anthropic"].next = model.Handler()
	s := newSite(t)
	w.environ = append(w.environ, "PILDER_WEB_ALLOW="+siteName, "PILDER_WEB_SEARCH=true", "PILDER_AGENT_HOME="+s.trusted(t))
	log := w.house(s.house)
	for _, c := range []struct{ say, want string }{
		{"read the page", "MARK-SUMMARY true"},
		{"read another", "proxy refused the connection"},
		{"search it", "MARK-FOUND"},
		{"curl the page", "200 200 0\n000 403 56"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		said := w.telegram.Say(anaID, c.say)
		m, err := w.telegram.WaitMessage(ctx, anaID, func(m telegram.Message) bool {
			return m.Bot && m.ID > said && strings.Contains(m.Text, "it said:")
		})
		cancel()
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.say, err, log)
		}
		if !strings.Contains(m.Text, c.want) {
			t.Errorf("%s: %q, want %q\n%s", c.say, m.Text, c.want, log)
		}
	}
	s.mu.Lock()
	if diff := cmp.Diff([]string{siteName + "/hours", siteName + "/curl"}, s.seen); diff != "" {
		t.Errorf("the site saw (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{siteAddress + ":443", siteAddress + ":443"}, s.dialed); diff != "" {
		t.Errorf("dialled (-want +got):\n%s", diff)
	}
	s.mu.Unlock()
	if n := strings.Count(log.String(), `"event":"security.web_refused","reason":"not_listed"`); n != 2 || strings.Contains(log.String(), "canary") {
		t.Errorf("%d refusals in the log: %s", n, log)
	}
	requests := model.Requests()
	if first := string(requests[0].Body); !strings.Contains(first, siteName) || !strings.Contains(first, "buscar en la web") {
		t.Error("the agent is not told what it may reach")
	}
	if !slices.ContainsFunc(requests, func(r anthropic.Request) bool {
		return r.Script == "search" && strings.Contains(string(r.Body), "web_search_20250305")
	}) {
		t.Error("no search came to the model's provider")
	}
}

// trusted is an agent home with the site's certificate, and makes the CLI trust it: it takes another authority from its
// first environment only (2.1.332, measured; from settings it does not), so a script stands in its place and calls it.
func (s *site) trusted(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	cli := t.TempDir()
	err := errors.Join(
		os.Chmod(home, 0o755), os.Chmod(cli, 0o755),
		os.WriteFile(filepath.Join(home, "CLAUDE.md"), []byte("Be kind.\n"), 0o644),
		os.WriteFile(filepath.Join(home, "ca.pem"), s.ca, 0o644),
		os.Link(pinnedCLI(t), filepath.Join(cli, "real")),
		os.WriteFile(filepath.Join(cli, "claude"), []byte("#!/bin/bash\nexport NODE_EXTRA_CA_CERTS=/agent/ca.pem\nexec -a /opt/claude/claude /opt/claude/real \"$@\"\n"), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	s.house.runner = func(cfg *runner.Config) { cfg.CLI = filepath.Join(cli, "claude") }
	return home
}

// house runs a house of the world in this process until the test ends, and gives its log.
func (w *world) house(o houseOptions) *page {
	w.t.Helper()
	cfg, err := LoadConfig(os.DevNull, w.environ)
	if err != nil {
		w.t.Fatal(err)
	}
	log := &page{}
	h, err := buildHouse(w.t.Context(), cfg, zerolog.New(log), o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, h.Close()); err != nil {
			w.t.Error(err)
		}
	})
	return log
}
