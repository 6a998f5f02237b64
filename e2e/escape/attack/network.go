//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const patience = time.Second // an answer on loopback takes no time, and a refusal neither

// reach reports whether a listener can be reached.
func (a *attacker) reach(try, network, address string) {
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		a.tell(try, false, word(err))
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if network == "udp" {
		_, _ = c.Write([]byte("hello"))
	}
	said := make([]byte, 200)
	n, err := c.Read(said)
	switch {
	case n > 0:
		a.tell(try, true, string(said[:n]))
	case network == "udp":
		a.tell(try, false, word(err)) // nobody answers: nothing was reached
	default:
		a.tell(try, true, "connected")
	}
}

// network (T13) knocks at everything that is not inside.
func (a *attacker) network() {
	for i, address := range a.TCP {
		a.reach(fmt.Sprintf("TCP listener %d of the host", i+1), "tcp", address)
	}
	for i, address := range a.UDP {
		a.reach(fmt.Sprintf("UDP listener %d of the host", i+1), "udp", address)
	}
	for _, address := range a.Far {
		a.reach("TCP to "+address, "tcp", address)
		a.reach("UDP to "+address, "udp", address)
	}
	for _, s := range [][2]int{{unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, {unix.SOCK_RAW, unix.IPPROTO_ICMP}} {
		fd, err := unix.Socket(unix.AF_INET, s[0]|unix.SOCK_CLOEXEC, s[1])
		if err == nil {
			host, _, _ := net.SplitHostPort(append(append([]string{}, a.Far...), a.TCP...)[0])
			to := &unix.SockaddrInet4{}
			copy(to.Addr[:], net.ParseIP(host).To4())
			err = unix.Sendto(fd, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, 0, to) // an echo request
			_ = unix.Close(fd)
		}
		a.result(fmt.Sprintf("ICMP by a socket of kind %d", s[0]), err)
	}
	links, err := net.Interfaces()
	others := ""
	for _, l := range links {
		if l.Flags&net.FlagLoopback == 0 {
			others += l.Name + " "
		}
	}
	a.tell("a link besides loopback", err == nil && others != "", others)
}

// names (T14) asks for an address, of the host's name server and as libraries do.
func (a *attacker) names() {
	query := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06canary\x06escape\x04test\x00\x00\x01\x00\x01"
	for _, server := range append([]string{a.DNS}, far53(a.Far)...) {
		c, err := net.DialTimeout("udp", server, patience)
		n := 0
		answer := make([]byte, 512)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = c.Write([]byte(query))
			n, err = c.Read(answer)
			_ = c.Close()
		}
		a.tell("a raw query to "+kindOf(server, a.DNS), n > 0, fmt.Sprintf("%d bytes, %v", n, err))
	}
	a.read("the resolver's configuration", "/etc/resolv.conf")
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", a.DNS)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := resolver.LookupHost(ctx, "canary.escape.test.")
	a.tell("a resolver of its own", err == nil, fmt.Sprint(found, err))
	if a.Host {
		return
	}
	for _, tool := range [][]string{{"/usr/bin/getent", "ahosts", "example.com"}, {"/usr/bin/getent", "hosts", "api.anthropic.com"}} {
		said, err := run(tool...)
		a.tell("getaddrinfo of "+tool[2], err == nil && said != "", said)
	}
}

func far53(far []string) []string {
	var out []string
	for _, address := range far {
		if host, _, err := net.SplitHostPort(address); err == nil {
			out = append(out, net.JoinHostPort(host, "53"))
		}
	}
	return out
}

func kindOf(server, own string) string {
	if server == own {
		return "the host's server"
	}
	return server
}

// sockets (T16) knocks at the host's local sockets, by path and by abstract name.
func (a *attacker) sockets() {
	for i, name := range a.Abstract {
		a.reach(fmt.Sprintf("abstract socket %d", i+1), "unix", "@"+name)
	}
	for i, path := range a.Unix {
		a.reach(fmt.Sprintf("socket %d", i+1), "unix", path)
		a.reach(fmt.Sprintf("socket %d through /proc/1/root", i+1), "unix", "/proc/1/root"+path)
	}
	if a.Host {
		return
	}
	for _, path := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
		"/run/systemd/private", "/run/systemd/notify", "/run/user/1000/bus", "/tmp/ssh-agent.sock", "/run/postgresql/.s.PGSQL.5432"} {
		a.reach(path, "unix", path)
	}
}

// doors (T17) knocks at the run's own doors. A shell command has no business there.
func (a *attacker) doors() {
	for i, address := range a.Doors {
		a.reach(fmt.Sprintf("door %d", i+1), "tcp", address)
		a.result(fmt.Sprintf("door %d by TCP Fast Open", i+1), fastOpen(address))
	}
}

// fastOpen connects while it sends, past whoever asks at connect.
func fastOpen(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	to := &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(host).To4())}
	if to.Port, err = strconv.Atoi(port); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("GET / HTTP/1.1\r\n\r\n"), unix.MSG_FASTOPEN, to)
}

// webDoor (T24) looks for a way out where none was opened, with every name a proxy may have.
func (a *attacker) webDoor() {
	addresses := []string{"127.0.0.1:7002"}
	if a.Host {
		addresses = a.TCP[:1]
	}
	for _, address := range addresses {
		a.reach("the web door", "tcp", address)
		for _, name := range []string{"HTTPS_PROXY", "http_proxy", "ALL_PROXY"} {
			said, err := run("/usr/bin/env", name+"=http://"+address, "/usr/bin/curl", "-sS", "-m", "2", "http://"+farName(a.Host)+"/")
			a.tell("curl with "+name, err == nil, said)
		}
	}
}

// farName is whom to ask for through a proxy: on the host, where the proxy is a listener of the test, a name that does not
// exist anywhere.
func farName(host bool) string {
	if host {
		return "canary.escape.test"
	}
	return "example.com"
}

// dial is a connection from where this process stands to an address, over its own streams.
func dial(address string) int {
	c, err := net.DialTimeout("tcp4", address, 5*time.Second)
	if err != nil {
		fmt.Fprintln(os.Stderr, word(err))
		return 1
	}
	go func() {
		_, _ = io.Copy(c, os.Stdin)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(os.Stdout, c)
	return 0
}
