package egress_test

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/gateway/egress"
)

func TestAListedNameIsReachedBothWays(t *testing.T) {
	for claim, c := range map[string]struct{ target, sni, asked string }{
		"as listed":                 {"allowed.example:443", "allowed.example", "allowed.example"},
		"in another case":           {"AlloweD.Example:443", "ALLOWED.example", "allowed.example"},
		"with the dot of the root":  {"allowed.example.:443", "allowed.example", "allowed.example"},
		"one label before a suffix": {"a.wild.example:443", "a.wild.example", "a.wild.example"},
		"an international name":     {"xn--mnchen-3ya.example:443", "xn--mnchen-3ya.example", "xn--mnchen-3ya.example"},
	} {
		t.Run(claim, func(t *testing.T) {
			d := serve(t, nil)
			c, err := d.through(c.target, &tls.Config{ServerName: c.sni, InsecureSkipVerify: strings.ToLower(c.sni) != c.sni})
			if err != nil {
				t.Fatalf("%v\n%s", err, d.log)
			}
			d.echoed(c, strings.Repeat("hello outside\n", 100_000))
			asked, dialled := d.touched()
			if !cmp.Equal(dialled, []string{"93.184.215.14:443"}) || len(asked) != 1 {
				t.Errorf("asked %v, dialled %v", asked, dialled)
			}
			d.log.wait(t, `"event":"web.passed"`)
			if line := d.log.String(); !strings.Contains(line, `"reason":"done","host":"`+asked[0]+`"`) || !strings.Contains(line, `"run":"run_1","company":"co_1"`) {
				t.Errorf("logged %s", line)
			}
		})
	}
}

// TestWhatIsNotListedIsRefused sends each request as raw bytes; of none anything may be seen outside, not even a question
// for an address.
func TestWhatIsNotListedIsRefused(t *testing.T) {
	d := serve(t, nil)
	head := func(line string, headers ...string) string {
		return line + "\r\n" + strings.Join(append(headers, "", ""), "\r\n")
	}
	for claim, c := range map[string]struct {
		request string
		want    int
	}{
		"another name":                      {connect("canary.example:443"), 403},
		"a longer name":                     {connect("allowed.example.canary.example:443"), 403},
		"a name that ends like it":          {connect("notallowed.example:443"), 403},
		"a name below an exact one":         {connect("a.allowed.example:443"), 403},
		"the suffix itself":                 {connect("wild.example:443"), 403},
		"two labels before the suffix":      {connect("a.b.wild.example:443"), 403},
		"no label before the suffix":        {connect(".wild.example:443"), 400},
		"a star":                            {connect("*.wild.example:443"), 400},
		"another port":                      {connect("allowed.example:22"), 403},
		"port 80":                           {connect("allowed.example:80"), 403},
		"port 0443":                         {connect("allowed.example:0443"), 403},
		"port +443":                         {connect("allowed.example:+443"), 403},
		"no port":                           {connect("allowed.example"), 400},
		"two ports":                         {connect("allowed.example:443:443"), 400},
		"NUL in the name":                   {connect("canary.example\x00.allowed.example:443"), 400},
		"NUL behind the name":               {connect("allowed.example\x00:443"), 400},
		"a fragment":                        {connect("canary.example#allowed.example:443"), 400},
		"a path":                            {connect("canary.example/allowed.example:443"), 400},
		"a query":                           {connect("canary.example?allowed.example:443"), 400},
		"a backslash":                       {connect(`canary.example\allowed.example:443`), 400},
		"user information":                  {connect("allowed.example@canary.example:443"), 400},
		"user information of another":       {connect("canary.example:x@allowed.example:443"), 400},
		"an escape":                         {connect("allowed%2eexample:443"), 400},
		"an escaped NUL":                    {connect("allowed.example%00:443"), 400},
		"a zone":                            {connect("[fe80::1%25eth0]:443"), 400},
		"two dots at the end":               {connect("allowed.example..:443"), 400},
		"two dots inside":                   {connect("allowed..example:443"), 400},
		"an underscore":                     {connect("_a.wild.example:443"), 400},
		"a hyphen in front":                 {connect("-a.wild.example:443"), 400},
		"a label too long":                  {connect(strings.Repeat("a", 64) + ".wild.example:443"), 400},
		"a name too long":                   {connect(strings.Repeat("a.", 130) + "wild.example:443"), 400},
		"text in Unicode":                   {connect("münchen.example:443"), 400},
		"a full-width dot":                  {connect("allowed\uff0eexample:443"), 400},
		"a Kelvin sign":                     {connect("\u212a.wild.example:443"), 400},
		"broken Punycode":                   {connect("xn--a.wild.example:443"), 400},
		"Punycode of ASCII":                 {connect("xn--abc-.wild.example:443"), 400},
		"an IPv4 address":                   {connect("93.184.215.14:443"), 400},
		"loopback":                          {connect("127.0.0.1:443"), 400},
		"a decimal address":                 {connect("2130706433:443"), 400},
		"an octal address":                  {connect("0177.0.0.1:443"), 400},
		"a hexadecimal address":             {connect("0x7f.0.0.1:443"), 400},
		"one hexadecimal number":            {connect("0x7f000001:443"), 400},
		"a short address":                   {connect("127.1:443"), 400},
		"a short hexadecimal address":       {connect("0x7f.1:443"), 400},
		"an address with a dot":             {connect("127.0.0.1.:443"), 400},
		"an IPv6 address":                   {connect("[::1]:443"), 400},
		"a mapped address":                  {connect("[::ffff:127.0.0.1]:443"), 400},
		"an IPv6 address without brackets":  {connect("::1:443"), 400},
		"a name in brackets":                {connect("[allowed.example]:443"), 400},
		"a name of one label":               {connect("localhost:443"), 400},
		"no name":                           {connect(":443"), 400},
		"a scheme":                          {connect("https://allowed.example:443"), 400},
		"GET":                               {head("GET https://allowed.example/ HTTP/1.1", "Host: allowed.example"), 405},
		"GET in origin form":                {head("GET / HTTP/1.1", "Host: allowed.example:443"), 405},
		"POST":                              {head("POST http://allowed.example/ HTTP/1.1", "Host: allowed.example", "Content-Length: 1"), 405},
		"a method in lower case":            {head("connect allowed.example:443 HTTP/1.1"), 405},
		"HTTP/2 without asking":             {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
		"another version":                   {head("CONNECT allowed.example:443 HTTP/2.0"), 400},
		"no version":                        {head("CONNECT allowed.example:443"), 400},
		"two spaces":                        {head("CONNECT  allowed.example:443 HTTP/1.1"), 400},
		"a tab":                             {head("CONNECT\tallowed.example:443 HTTP/1.1"), 400},
		"a space in the name":               {head("CONNECT allowed.example :443 HTTP/1.1"), 400},
		"a carriage return in the name":     {head("CONNECT canary.example\rallowed.example:443 HTTP/1.1"), 400},
		"line feeds alone":                  {"CONNECT allowed.example:443 HTTP/1.1\n\n", 400},
		"a Host that is another":            {head("CONNECT allowed.example:443 HTTP/1.1", "Host: canary.example:443"), 400},
		"two Hosts":                         {head("CONNECT allowed.example:443 HTTP/1.1", "Host: allowed.example:443", "Host: allowed.example:443"), 400},
		"a header that goes on":             {head("CONNECT allowed.example:443 HTTP/1.1", "X: a", " b"), 400},
		"a space before the colon":          {head("CONNECT allowed.example:443 HTTP/1.1", "Host : canary.example"), 400},
		"a body":                            {head("CONNECT allowed.example:443 HTTP/1.1", "Content-Length: 5") + "hello", 400},
		"a body in chunks":                  {head("CONNECT allowed.example:443 HTTP/1.1", "Transfer-Encoding: chunked"), 400},
		"an upgrade":                        {head("CONNECT allowed.example:443 HTTP/1.1", "Upgrade: websocket"), 400},
		"a head too long":                   {head("CONNECT allowed.example:443 HTTP/1.1", "X: "+strings.Repeat("a", 9<<10)), 400},
		"a head with too many lines":        {head("CONNECT allowed.example:443 HTTP/1.1", strings.Repeat("X: a\r\n", 2000)+"Y: b"), 400},
		"nothing but an empty line":         {"\r\n", 400},
		"a TLS greeting in place of a head": {"\x16\x03\x01\x00\x05hello\r\n\r\n", 400},
	} {
		t.Run(claim, func(t *testing.T) {
			_, r, resp := d.raw(c.request)
			if resp.StatusCode != c.want {
				t.Errorf("answered %s, want %d", resp.Status, c.want)
			}
			if more, err := io.ReadAll(r); err != nil || strings.Contains(string(more), "canary") {
				t.Errorf("then %q, %v", more, err)
			}
			if c.want == http.StatusMethodNotAllowed && resp.Header.Get("Allow") != "CONNECT" {
				t.Error("the answer does not tell what is allowed")
			}
		})
	}
	d.end()
	if asked, dialled := d.touched(); len(asked)+len(dialled) > 0 {
		t.Errorf("asked for %v, dialled %v", asked, dialled)
	}
	if strings.Contains(d.log.String(), "canary") || strings.Contains(d.log.String(), "host\":\"") || !strings.Contains(d.log.String(), `"reason":"not_listed"`) {
		t.Errorf("logged %s", d.log)
	}
}

func TestAnEmptyListOpensForNothing(t *testing.T) {
	d := serve(t, func(cfg *egress.Config) { cfg.Allow = nil })
	for _, target := range []string{"allowed.example:443", "example.com:443", "a.wild.example:443"} {
		if _, _, resp := d.raw(connect(target)); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", target, resp.Status)
		}
	}
}

// TestAnAddressThatIsNotPublicIsNotDialled: one such address among good ones spoils the answer.
func TestAnAddressThatIsNotPublicIsNotDialled(t *testing.T) {
	d := serve(t, nil)
	for _, a := range []string{
		"127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
		"100.64.0.1", "100.100.100.200", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:93.184.215.14", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b::5db8:d70e", "64:ff9b:1::1",
		"100::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1", "2001::1", "2001:0:5db8:d70e::1", "2001:10::1",
		"2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:5db8:d70e::1", "2620:4f:8000::1", "3fff::1", "5f00::1",
	} {
		bad := netip.MustParseAddr(a)
		for claim, answer := range map[string][]netip.Addr{"alone": {bad}, "first": {bad, elsewhere}, "last": {elsewhere, bad}} {
			d.say(nil, answer)
			if _, _, resp := d.raw(connect("allowed.example:443")); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s: %s", a, claim, resp.Status)
			}
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range own { // also where the machine has none that is public
		a, _ := netip.AddrFromSlice(o.(*net.IPNet).IP)
		d.say(nil, []netip.Addr{a.Unmap()})
		if _, _, resp := d.raw(connect("allowed.example:443")); resp.StatusCode != http.StatusForbidden {
			t.Errorf("the machine's own %s: %s", a, resp.Status)
		}
	}
	for claim, answer := range map[string][]netip.Addr{"none": {}, "a failure": nil, "too many": make([]netip.Addr, 65)} {
		d.say(nil, answer)
		if _, _, resp := d.raw(connect("allowed.example:443")); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s", claim, resp.Status)
		}
	}
	if _, dialled := d.touched(); len(dialled) > 0 {
		t.Errorf("dialled %v", dialled)
	}
	if strings.Contains(d.log.String(), "canary") {
		t.Errorf("the resolver's words are in the log: %s", d.log)
	}
}

// TestANameIsLookedUpOnce: a resolver that answers otherwise the second time changes nothing.
func TestANameIsLookedUpOnce(t *testing.T) {
	d := serve(t, nil)
	d.say(nil, []netip.Addr{netip.MustParseAddr("2606:4700::1111"), elsewhere}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	c, err := d.through("allowed.example:443", &tls.Config{ServerName: "allowed.example"})
	if err != nil {
		t.Fatal(err)
	}
	d.echoed(c, "hello")
	asked, dialled := d.touched()
	if !cmp.Equal(asked, []string{"allowed.example"}) || !cmp.Equal(dialled, []string{"93.184.215.14:443"}) {
		t.Errorf("asked %v, dialled %v", asked, dialled)
	}
	if _, _, resp := d.raw(connect("allowed.example:443")); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the next request: %s", resp.Status)
	}
}

func TestTheNextAddressIsTriedWhenOneDoesNotAnswer(t *testing.T) {
	d := serve(t, func(cfg *egress.Config) {
		inner := cfg.Dial
		cfg.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if to.Addr() != elsewhere {
				return nil, errors.New("canary of the network")
			}
			return inner(ctx, to)
		}
	})
	d.say(nil, []netip.Addr{netip.MustParseAddr("1.1.1.1"), elsewhere}, []netip.Addr{netip.MustParseAddr("1.1.1.1")})
	c, err := d.through("allowed.example:443", &tls.Config{ServerName: "allowed.example"})
	if err != nil {
		t.Fatal(err)
	}
	d.echoed(c, "hello")
	_, r, resp := d.raw(connect("allowed.example:443"))
	more, _ := io.ReadAll(r)
	if resp.StatusCode != http.StatusBadGateway || strings.Contains(string(more)+d.log.String(), "canary") {
		t.Errorf("%s %q %s", resp.Status, more, d.log)
	}
}

// TestAGreetingForAnotherHostIsNotPassedOn: not a byte of it reaches the outside.
func TestAGreetingForAnotherHostIsNotPassedOn(t *testing.T) {
	for claim, c := range map[string]struct {
		say    func(d *door, conn net.Conn)
		reason string
	}{
		"another name":      {greets(&tls.Config{ServerName: "canary.example", InsecureSkipVerify: true}), "sni"},
		"another listed":    {greets(&tls.Config{ServerName: "a.wild.example", InsecureSkipVerify: true}), "sni"},
		"no name":           {greets(&tls.Config{InsecureSkipVerify: true}), "sni"},
		"an address":        {greets(&tls.Config{ServerName: "93.184.215.14", InsecureSkipVerify: true}), "sni"},
		"an encrypted name": {greetsHidden, "hidden"},
		"HTTP without TLS":  {writes("GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n"), "greeting"},
		"SSH":               {writes("SSH-2.0-OpenSSH_9.9\r\n"), "greeting"},
		"an old greeting":   {writes("\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10\x01\x00\x80" + strings.Repeat("x", 40)), "greeting"},
		"a greeting without end": {writes("\x16\x03\x01\x40\x00\x01\x00\xff\xff\x03\x03" + strings.Repeat("x", 0x4000-6) +
			strings.Repeat("\x16\x03\x03\x40\x00"+strings.Repeat("x", 0x4000), 4)), "greeting"},
		"an alert":         {writes("\x15\x03\x03\x00\x02\x01\x00\x15\x03\x03\x00\x02\x02\x28"), "greeting"},
		"application data": {writes("\x17\x03\x03\x00\x05hello"), "greeting"},
		"nothing":          {func(_ *door, conn net.Conn) { _ = conn.(*net.TCPConn).CloseWrite() }, "greeting"},
	} {
		t.Run(claim, func(t *testing.T) {
			d := serve(t, nil)
			conn, r, resp := d.raw(connect("allowed.example:443"))
			if resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			c.say(d, conn)
			d.log.wait(t, `"event":"security.web_refused","host":"allowed.example","reason":"`+c.reason+`"`)
			if more, _ := io.ReadAll(r); len(more) > 0 {
				t.Errorf("answered %q", more)
			}
			if got := d.heard(); got != "" {
				t.Errorf("the outside heard %q", got)
			}
			if strings.Contains(d.log.String(), "canary") {
				t.Errorf("logged %s", d.log)
			}
		})
	}
}

func greets(cfg *tls.Config) func(*door, net.Conn) {
	return func(d *door, conn net.Conn) {
		if tls.Client(conn, cfg).Handshake() == nil {
			d.t.Error("it was let through")
		}
	}
}

func writes(text string) func(*door, net.Conn) {
	return func(_ *door, conn net.Conn) { _, _ = io.WriteString(conn, text) } // may be cut in the middle
}

// greetsHidden names the right host in the open, and another one sealed.
func greetsHidden(d *door, conn net.Conn) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		d.t.Fatal(err)
	}
	sized := func(parts ...string) string { // with a length of two bytes before it
		all := strings.Join(parts, "")
		return string([]byte{byte(len(all) >> 8), byte(len(all))}) + all
	}
	config := sized("\xfe\x0d", sized( // ECHConfigList, RFC 9849 section 4
		"\x01\x00\x20", sized(string(key.PublicKey().Bytes())), // id, DHKEM(X25519)
		sized("\x00\x01\x00\x01"), // HKDF-SHA256, AES-128-GCM
		"\x40\x0fallowed.example", "\x00\x00"))
	greets(&tls.Config{ServerName: "canary.example", RootCAs: d.roots, MinVersion: tls.VersionTLS13,
		EncryptedClientHelloConfigList: []byte(config)})(d, conn)
}

// TestAGreetingInPiecesIsRead: the right name passes however the bytes come.
func TestAGreetingInPiecesIsRead(t *testing.T) {
	d := serve(t, nil)
	conn, _, _ := d.raw(connect("allowed.example:443"))
	c := tls.Client(slow{conn}, &tls.Config{ServerName: "allowed.example", RootCAs: d.roots})
	if err := c.Handshake(); err != nil {
		t.Fatalf("%v %s", err, d.log)
	}
	d.echoed(c, "hello")
}

// slow writes byte by byte, each in its own TLS record while it is a handshake's.
type slow struct{ net.Conn }

func (s slow) CloseWrite() error { return s.Conn.(*net.TCPConn).CloseWrite() }

func (s slow) Write(p []byte) (int, error) {
	if len(p) < 5 || p[0] != 0x16 {
		return s.Conn.Write(p)
	}
	n := int(p[3])<<8 | int(p[4])
	for _, c := range p[5 : 5+n] {
		if _, err := s.Conn.Write([]byte{0x16, p[1], p[2], 0, 1, c}); err != nil {
			return 0, err
		}
	}
	if _, err := s.Conn.Write(p[5+n:]); err != nil {
		return 0, err
	}
	return len(p), nil
}

func TestAConnectionHasItsBounds(t *testing.T) {
	const much = 300 << 10
	for claim, c := range map[string]struct {
		change func(*egress.Config)
		reason string
	}{
		"bytes up":                {func(cfg *egress.Config) { cfg.Up = 100 << 10 }, "bytes"},
		"bytes down":              {func(cfg *egress.Config) { cfg.Down = 100 << 10 }, "bytes"},
		"bytes of the run up":     {func(cfg *egress.Config) { cfg.RunUp = 100 << 10 }, "run_bytes"},
		"bytes of the run down":   {func(cfg *egress.Config) { cfg.RunDown = 100 << 10 }, "run_bytes"},
		"its time altogether":     {func(cfg *egress.Config) { cfg.Life = time.Second }, "time"},
		"its silence":             {func(cfg *egress.Config) { cfg.Idle = time.Second }, "idle"},
		"the run that is no more": {func(cfg *egress.Config) { cfg.Recheck = 10 * time.Millisecond }, "run_over"},
	} {
		t.Run(claim, func(t *testing.T) {
			d := serve(t, c.change)
			conn, err := d.through("allowed.example:443", &tls.Config{ServerName: "allowed.example"})
			if err != nil {
				t.Fatal(err)
			}
			wordy := strings.Contains(c.reason, "bytes")
			if wordy {
				go func() { _, _ = conn.Write(make([]byte, much)) }()
			}
			if c.reason == "run_over" {
				d.say(errors.New("over"))
			}
			back, _ := io.ReadAll(conn)
			d.log.wait(t, `"reason":"`+c.reason+`","host":"allowed.example"`)
			if got := len(d.heard()); got > 100<<10 && strings.HasSuffix(claim, "up") || len(back) > 100<<10 {
				t.Errorf("%d bytes went out and %d came back", got, len(back))
			}
			if c.reason == "run_bytes" {
				if _, _, resp := d.raw(connect("allowed.example:443")); resp.StatusCode != http.StatusForbidden {
					t.Errorf("the next request of the run: %s", resp.Status)
				}
			}
		})
	}
}

func TestWhoDoesNotGetOnIsCut(t *testing.T) {
	for claim, say := range map[string]string{"no request": "", "half a request": "CONNECT allowed.example:443 HTTP/1.1\r\nX: ", "no greeting": connect("allowed.example:443")} {
		t.Run(claim, func(t *testing.T) {
			d := serve(t, func(cfg *egress.Config) { cfg.Setup = time.Second })
			conn, err := net.Dial("tcp", d.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, say)
			if _, err := io.ReadAll(conn); errors.Is(err, context.DeadlineExceeded) {
				t.Error("it is still open")
			}
			d.log.wait(t, `"reason":"time"`)
		})
	}
}

func TestARunHasItsBounds(t *testing.T) {
	t.Run("requests", func(t *testing.T) {
		d := serve(t, func(cfg *egress.Config) { cfg.Tries = 3 })
		for range 3 {
			if _, _, resp := d.raw(connect("canary.example:443")); resp.StatusCode != http.StatusForbidden {
				t.Error(resp.Status)
			}
		}
		for range 5 {
			conn, err := net.Dial("tcp", d.addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			if got, _ := io.ReadAll(conn); len(got) > 0 {
				t.Errorf("answered %q", got)
			}
			conn.Close()
		}
		d.end()
		if n := strings.Count(d.log.String(), "\n"); n != 4 {
			t.Errorf("%d lines in the log: %s", n, d.log)
		}
	})
	t.Run("connections at once", func(t *testing.T) {
		d := serve(t, func(cfg *egress.Config) { cfg.AtOnce = 1 })
		first, err := d.through("allowed.example:443", &tls.Config{ServerName: "allowed.example"})
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			conn, err := net.Dial("tcp", d.addr)
			if err == nil {
				defer conn.Close()
				_, _ = io.WriteString(conn, connect("canary.example:443"))
				_, err = io.ReadAll(conn)
			}
			second <- err
		}()
		d.echoed(first, "hello") // the second has been waiting, or comes later: it is refused after this one's end
		if err := <-second; err != nil {
			t.Error(err)
		}
		d.end()
		if passed, refused := strings.Index(d.log.String(), "web.passed"), strings.Index(d.log.String(), "web_refused"); passed < 0 || refused < passed {
			t.Errorf("in another order: %s", d.log)
		}
	})
	t.Run("its end", func(t *testing.T) {
		d := serve(t, nil)
		conn, err := d.through("allowed.example:443", &tls.Config{ServerName: "allowed.example"})
		if err != nil {
			t.Fatal(err)
		}
		d.say(errors.New("over"))
		if _, _, resp := d.raw(connect("allowed.example:443")); resp.StatusCode != http.StatusForbidden {
			t.Errorf("a request after it: %s", resp.Status)
		}
		d.end()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection outlives it")
		}
		if c, err := net.Dial("tcp", d.addr); err == nil {
			c.Close()
			t.Error("the door is still open")
		}
	})
}

func TestAListThatIsNoneIsAnErrorAtOnce(t *testing.T) {
	for _, bad := range []string{
		"", " ", "*", "*.", "*.com", "com", "a.*.example", "*.*.example", "a*.example", "https://example.com", "example.com:443", "example.com/",
		"user@example.com", "127.0.0.1", "[::1]", "0x7f.1", "1.1.1.1.", "exa mple.com", "example..com", "xn--a.example", "-a.example", "a_b.example",
		"localhost", "a.localhost", "printer.local", "*.corp.internal", "x.onion", "x.home.arpa",
	} {
		if _, err := egress.New(egress.Config{Allow: []string{"example.com", bad}}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := egress.CheckNames([]string{"Example.COM.", "*.gob.ar", "münchen.example"}); err != nil {
		t.Error(err)
	}
}
