package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"pilder/gateway/egress"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// elsewhere is a public address that leads to the test's own server.
var elsewhere = netip.MustParseAddr("93.184.215.14")

// door is a served web door before a TLS server that says everything again.
type door struct {
	t     *testing.T
	cfg   egress.Config
	addr  string
	roots *x509.CertPool
	log   *book
	end   func()

	mu       sync.Mutex
	alive    error
	answers  [][]netip.Addr // of the resolver, one after the other; the last again and again
	asked    []string       // of the resolver
	dialled  []string
	received bytes.Buffer // what the outside got, as it came over the wire
}

// book keeps what was logged.
type book struct {
	mu   sync.Mutex
	text strings.Builder
	news chan struct{}
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// wait waits until the log has a text.
func (b *book) wait(t *testing.T, text string) {
	t.Helper()
	for deadline := time.After(patience); !strings.Contains(b.String(), text); {
		select {
		case <-b.news:
		case <-deadline:
			t.Fatalf("no %s in the log: %s", text, b)
		}
	}
}

// serve opens a door for allowed.example and any label before wild.example.
func serve(t *testing.T, change func(*egress.Config)) *door {
	t.Helper()
	d := &door{t: t, log: &book{news: make(chan struct{}, 1)}, answers: [][]netip.Addr{{elsewhere}}}
	outside := d.outside()
	d.cfg = egress.Config{
		Allow: []string{"allowed.example", "*.wild.example", "münchen.example"},
		Resolve: func(_ context.Context, name string) ([]netip.Addr, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.asked = append(d.asked, name)
			answer := d.answers[0]
			if len(d.answers) > 1 {
				d.answers = d.answers[1:]
			}
			if answer == nil {
				return nil, errors.New("canary of the resolver")
			}
			return answer, nil
		},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			d.mu.Lock()
			d.dialled = append(d.dialled, to.String())
			d.mu.Unlock()
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", outside)
			if err != nil {
				return nil, err
			}
			return tapped{conn.(*net.TCPConn), d}, nil
		},
		Log: zerolog.New(d.log),
	}
	if change != nil {
		change(&d.cfg)
	}
	d.open()
	return d
}

func (d *door) open() {
	d.t.Helper()
	doors, err := egress.New(d.cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	d.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- doors.Serve(ctx, egress.Process{Run: "run_1", Company: "co_1", Alive: func(context.Context) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.alive
		}}, l)
	}()
	d.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
	d.t.Cleanup(d.end)
}

// tapped notes what goes out.
type tapped struct {
	*net.TCPConn
	d *door
}

func (c tapped) Write(p []byte) (int, error) {
	c.d.mu.Lock()
	c.d.received.Write(p)
	c.d.mu.Unlock()
	return c.TCPConn.Write(p)
}

// outside is a TLS server for every name of the test that says again what it hears, and its address.
func (d *door) outside() string {
	d.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		d.t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"allowed.example", "a.wild.example", "xn--mnchen-3ya.example"}}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		d.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		d.t.Fatal(err)
	}
	d.roots = x509.NewCertPool()
	d.roots.AddCert(cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		d.t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
				_ = conn.(*tls.Conn).CloseWrite()
			})
		}
	})
	d.t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	return l.Addr().String()
}

func (d *door) say(err error, answers ...[]netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.alive = err
	if len(answers) > 0 {
		d.answers = answers
	}
}

// heard is what the outside got over the wire.
func (d *door) heard() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.received.String()
}

func (d *door) touched() (asked, dialled []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.asked...), append([]string(nil), d.dialled...)
}

// raw sends bytes as no client library would, and gives the connection with what it answered.
func (d *door) raw(request string) (net.Conn, *bufio.Reader, *http.Response) {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, request); err != nil {
		d.t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		d.t.Fatalf("%q: %v", request, err)
	}
	return conn, r, resp
}

func connect(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

// through opens a tunnel and greets in it.
func (d *door) through(target string, cfg *tls.Config) (*tls.Conn, error) {
	d.t.Helper()
	conn, _, resp := d.raw(connect(target))
	if resp.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %s", target, resp.Status)
	}
	cfg.RootCAs = d.roots
	c := tls.Client(conn, cfg)
	return c, c.Handshake()
}

// echoed sends a text through, reads it again and closes.
func (d *door) echoed(c *tls.Conn, text string) {
	d.t.Helper()
	back := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(c)
		back <- string(all)
	}()
	_, err := io.WriteString(c, text)
	if err := errors.Join(err, c.CloseWrite()); err != nil {
		d.t.Fatal(err)
	}
	if got := <-back; got != text {
		d.t.Errorf("%d of %d bytes came back", len(got), len(text))
	}
	if err := c.Close(); err != nil {
		d.t.Error(err)
	}
}
