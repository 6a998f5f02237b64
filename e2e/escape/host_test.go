//go:build linux

package escape

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// targets is what the hostile program is told: what there is to be reached. The command in attack has the same type, with a
// word on each field.
type targets struct {
	Host                           bool
	Canaries, Protected, Variables []string
	Path, Mark                     string
	PID, Pipe                      int
	TCP, UDP                       []string
	DNS                            string
	Unix, Abstract, Far, Doors     []string
	Meeting, Setuid, Capable       string
	Names                          []string
	Hostname                       string
}

// host is what stands on the host for agents to reach: listeners that answer, a process that says when it was hit, sockets.
type host struct {
	s        *suite
	mark     string // in the command line of every process that the test starts or has started
	meeting  string
	tcp, udp []string
	dns      string
	unix     string
	abstract string
	victim   *victim
	closers  []io.Closer
}

func newHost(s *suite) (*host, error) {
	h := &host{s: s, mark: "mark-" + random(8), meeting: "meet-" + random(8), unix: filepath.Join(s.dir, "socket"), abstract: "escape-" + random(8)}
	var err error
	if h.victim, err = startVictim(h.mark); err != nil {
		return nil, err
	}
	h.closers = append(h.closers, h.victim)
	web, err := net.Listen("tcp", "127.0.0.1:0") // the first one speaks HTTP, so that it may also stand for a proxy
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "host here") })}
	go server.Serve(web)
	h.tcp, h.closers = append(h.tcp, web.Addr().String()), append(h.closers, server)
	for _, ip := range append([]string{"127.0.0.1", "::1"}, ownAddresses()...) {
		if err := h.listen(ip); err != nil {
			return nil, err
		}
	}
	for network, address := range map[string]string{"unix": h.unix, "unix ": "@" + h.abstract} {
		l, err := net.Listen(strings.TrimSpace(network), address)
		if err != nil {
			return nil, err
		}
		h.greet(l)
	}
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h.dns, h.closers = dns.LocalAddr().String(), append(h.closers, dns)
	go answer53(dns)
	return h, nil
}

// ownAddresses are the host's besides loopback.
func ownAddresses() []string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var own []string
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			own = append(own, n.IP.String())
		}
	}
	return own
}

// listen opens a TCP and a UDP listener at an address, if the machine has it.
func (h *host) listen(ip string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	h.greet(l)
	u, err := net.ListenPacket("udp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return err
	}
	h.closers = append(h.closers, u)
	h.tcp, h.udp = append(h.tcp, l.Addr().String()), append(h.udp, u.LocalAddr().String())
	go func() {
		buf := make([]byte, 512)
		for {
			_, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo([]byte("host here"), from)
		}
	}()
	return nil
}

// greet says who is there to everybody who comes.
func (h *host) greet(l net.Listener) {
	h.closers = append(h.closers, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "host here")
			_ = c.Close()
		}
	}()
}

// answer53 answers every question for an IPv4 address with one.
func answer53(conn net.PacketConn) {
	buf := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		end := 12
		for end < n && buf[end] != 0 {
			end += int(buf[end]) + 1
		}
		end += 5
		if end > n {
			continue
		}
		reply := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, buf[12:end]...)
		if binary.BigEndian.Uint16(buf[end-4:]) == 1 {
			reply[7] = 1
			reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 9)
		}
		_, _ = conn.WriteTo(reply, from)
	}
}

func (h *host) close() {
	for _, c := range h.closers {
		_ = c.Close()
	}
}

// targetsInside are the targets as an agent would want them; work is its own folder there.
func (h *host) targetsInside(work string) targets {
	t := h.shared()
	t.Protected = []string{"/state/.claude.json", "/agent", "/agent/CLAUDE.md", "/run/pilder", "/run/pilder/mcp-config.json", "/etc/claude-code",
		"/etc/claude-code/managed-settings.json", "/etc/claude-code/CLAUDE.md", "/opt/pilder", "/opt/pilder/pilder", "/opt/claude", "/opt/claude/claude",
		"/etc/passwd", "/etc/hosts"}
	t.Far = []string{"192.0.2.1:80", "169.254.169.254:80", "[fd00:ec2::254]:80", "8.8.8.8:53", "10.0.0.1:22"}
	t.Doors = []string{"127.0.0.1:7000", "127.0.0.1:7001"}
	t.Pipe = h.victim.cmd.Process.Pid
	if os.Getuid() == 0 {
		t.Setuid, t.Capable = filepath.Join(work, "setuid"), filepath.Join(work, "capable")
	}
	return t
}

// targetsOutside are the same for the control; dir is a folder that it may spoil.
func (h *host) targetsOutside(dir string) targets {
	t := h.shared()
	t.Host = true
	t.Protected = []string{filepath.Join(dir, "protected")}
	t.Doors = h.tcp[1:2]
	t.Pipe = h.victim.cmd.Process.Pid
	if os.Getuid() == 0 {
		t.Setuid, t.Capable = filepath.Join(dir, "setuid"), filepath.Join(dir, "capable")
	}
	return t
}

func (h *host) shared() targets {
	name, _ := os.Hostname()
	t := targets{Canaries: h.s.canaries.homes, Path: h.s.data, Mark: h.mark, PID: h.victim.cmd.Process.Pid, TCP: h.tcp, UDP: h.udp, DNS: h.dns,
		Unix: []string{h.unix}, Abstract: []string{h.abstract}, Meeting: h.meeting, Hostname: name}
	for _, kv := range h.s.environ {
		if name, value, _ := strings.Cut(kv, "="); h.s.canaries.in(value) != "" {
			t.Variables = append(t.Variables, name)
		}
	}
	for _, p := range people() {
		t.Names = append(t.Names, string(p))
	}
	t.Names = append(t.Names, company)
	return t
}

// privileged puts copies of the hostile program into dir that make their caller root, on a host that lets them. Only root can
// make them.
func (h *host) privileged(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	program, err := os.ReadFile(filepath.Join(built, "attack"))
	if err != nil {
		return err
	}
	// struct vfs_cap_data of linux/capability.h: revision 2, effective; every capability permitted, none inheritable.
	every := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	every = binary.LittleEndian.AppendUint32(every, 1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_SETUID)
	every = append(every, make([]byte, 12)...)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "setuid"), program, 0o755), os.Chmod(filepath.Join(dir, "setuid"), 0o755|os.ModeSetuid),
		os.WriteFile(filepath.Join(dir, "capable"), program, 0o755),
		unix.Setxattr(filepath.Join(dir, "capable"), "security.capability", every, 0),
	)
}

// victim is a process of the host that says when somebody has got at it.
type victim struct {
	cmd   *exec.Cmd
	stdin io.Closer // open as long as it is to live
	mu    sync.Mutex
	said  []string
}

func startVictim(mark string) (*victim, error) {
	v := &victim{cmd: exec.Command(filepath.Join(built, "attack"), "as", "victim", mark)}
	out, err := v.cmd.StdoutPipe()
	if err == nil {
		v.stdin, err = v.cmd.StdinPipe()
	}
	if err == nil {
		err = v.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		return nil, fmt.Errorf("the victim said %q: %w", line, err)
	}
	go func() {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			v.mu.Lock()
			v.said = append(v.said, line)
			v.mu.Unlock()
		}
	}()
	return v, nil
}

// heard is what it has said since the last time.
func (v *victim) heard() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	said := v.said
	v.said = nil
	return said
}

func (v *victim) Close() error {
	err := v.stdin.Close()
	_ = v.cmd.Wait()
	return err
}

// marked are the host's processes that have a text in their command line.
func marked(mark string) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	var found []int
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.Contains(string(line), mark) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
