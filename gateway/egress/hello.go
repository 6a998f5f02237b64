package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// maxHello bounds a TLS greeting, bytes of records: with post-quantum keys it is some 2 KiB.
const maxHello = 32 << 10

// Extensions that hide the name of the host: encrypted_client_hello (RFC 9849) and its draft of before. A made-up one
// (GREASE) looks the same and is refused as well.
const (
	extensionECH  = 0xfe0d
	extensionESNI = 0xffce
)

var (
	errHello  = errors.New("no TLS greeting")
	errSNI    = errors.New("the TLS greeting is for another host")
	errHidden = errors.New("the TLS greeting hides its host")
	errRead   = errors.New("read") // ends a handshake that was begun to read the greeting only
)

// checkHello reads a TLS greeting and gives its bytes, once it names the host and nothing else. It is read by crypto/tls,
// which refuses one with a name twice or with an extension twice.
func checkHello(from io.Reader, host string) ([]byte, error) {
	l := &listening{from: io.LimitReader(from, maxHello)}
	var hello *tls.ClientHelloInfo
	err := tls.Server(l, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = h
		return nil, errRead
	}}).Handshake()
	switch {
	case hello == nil || !errors.Is(err, errRead):
		return nil, errors.Join(errHello, err)
	case slices.Contains(hello.Extensions, extensionECH) || slices.Contains(hello.Extensions, extensionESNI):
		return nil, errHidden
	case lower(hello.ServerName) != host:
		return nil, errSNI
	}
	return l.heard.Bytes(), nil
}

// listening is a connection that hears and keeps what it heard, and says nothing.
type listening struct {
	from  io.Reader
	heard bytes.Buffer
}

func (l *listening) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	l.heard.Write(p[:n])
	return n, err
}

func (l *listening) Write(p []byte) (int, error)      { return len(p), nil }
func (l *listening) Close() error                     { return nil }
func (l *listening) LocalAddr() net.Addr              { return nil }
func (l *listening) RemoteAddr() net.Addr             { return nil }
func (l *listening) SetDeadline(time.Time) error      { return nil }
func (l *listening) SetReadDeadline(time.Time) error  { return nil }
func (l *listening) SetWriteDeadline(time.Time) error { return nil }
