package authorize

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"pilder/gateway"
)

// maxBody bounds what is read of any answer; metadata, registrations and tokens are all far smaller.
const maxBody = 256 << 10

// Errors of a request. errNotSent goes with any error after which the request certainly never reached the server.
var (
	errNotSent = errors.New("request was not sent")
	errURL     = errors.New("not an https address")
	errTooBig  = errors.New("answer is over its limit")
	errStatus  = errors.New("unexpected status")
	errContent = errors.New("answer is not what was asked for")
)

// newHTTP makes the one client for addresses that others name: it looks a name up itself, at each connection anew, connects
// only to what it has checked, follows no redirect and knows no proxy.
func (k *Keeper) newHTTP() *http.Client {
	return &http.Client{
		Timeout:       k.cfg.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            k.dial,
			DisableKeepAlives:      true, // rare requests; and no connection outlives its check
			TLSClientConfig:        &tls.Config{RootCAs: k.cfg.Roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    k.cfg.Patience,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// dial connects to a host that somebody else named, at addresses that were checked and not looked up again.
func (k *Keeper) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	to, err := netip.ParseAddrPort("0.0.0.0:" + port)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	found, err := k.addresses(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	errs := []error{errNotSent}
	for _, a := range found {
		conn, err := k.cfg.Dial(ctx, netip.AddrPortFrom(a, to.Port()))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// addresses gives the addresses of a host, all checked. A literal one is its own answer.
func (k *Keeper) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	resolve := k.cfg.Resolve
	if literal, err := netip.ParseAddr(host); err == nil {
		resolve = func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{literal}, nil }
	}
	if k.cfg.Loopback {
		if found, err := resolve(ctx, host); err == nil && len(found) > 0 && allLoopback(found) {
			return found, nil
		}
	}
	return gateway.PublicAddresses(ctx, resolve, host)
}

func allLoopback(all []netip.Addr) bool {
	for _, a := range all {
		if !a.IsLoopback() {
			return false
		}
	}
	return true
}

// checkURL tells whether an address may be asked or shown at all. Where it leads is checked when it is dialled.
func (k *Keeper) checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || strings.Contains(text, "#") {
		return errURL
	}
	if u.Scheme == "https" || k.cfg.Loopback && u.Scheme == "http" && isLoopback(u.Hostname()) {
		return nil
	}
	return errURL
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// reply is an answer read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// send sends one request and reads its answer, at most maxBody of it. Its errors name no more than the host: a query or form
// may hold secrets.
func (k *Keeper) send(req *http.Request) (reply, error) {
	if err := k.checkURL(req.URL.String()); err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNotSent, err)
	}
	req.Header.Set("User-Agent", "pilder")
	resp, err := k.http.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return reply{}, fmt.Errorf("asking %s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return reply{}, fmt.Errorf("reading the answer of %s: %w", req.URL.Host, err)
	case len(body) > maxBody:
		return reply{}, fmt.Errorf("reading the answer of %s: %w", req.URL.Host, errTooBig)
	}
	return reply{resp.StatusCode, resp.Header, body}, nil
}

// getJSON reads a document. found is false when there is none; a server at fault is an error.
func (k *Keeper) getJSON(ctx context.Context, address string, into any) (found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, errURL
	}
	req.Header.Set("Accept", "application/json")
	r, err := k.send(req)
	switch {
	case err != nil:
		return false, err
	case r.status == http.StatusOK && strings.HasPrefix(strings.TrimSpace(string(r.body)), "{"):
		if err := json.Unmarshal(r.body, into); err != nil {
			return false, fmt.Errorf("reading metadata of %s: %w", req.URL.Host, errContent)
		}
		return true, nil
	case r.status >= 500 || r.status == http.StatusTooManyRequests:
		return false, fmt.Errorf("reading metadata of %s: %w %d", req.URL.Host, errStatus, r.status)
	}
	return false, nil // a page for people, a redirect, or nothing
}

// postJSON sends a document.
func (k *Keeper) postJSON(ctx context.Context, address string, document any) (reply, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return reply{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return reply{}, errURL
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	return k.send(req)
}
