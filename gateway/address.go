package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// maxAddresses bounds a resolver's answer that is taken for one, and maxDials the addresses of it that are tried.
const (
	maxAddresses = 64
	maxDials     = 4
)

// Errors of PublicAddresses.
var (
	ErrNotPublic = errors.New("not a public address")
	ErrNoAddress = errors.New("the name has no address")
)

// PublicAddresses resolves a name that somebody else chose, once, and gives at most four addresses to dial as they are: who
// looked the name up again could be told something else. All of the answer must be public, and none this machine's own: of
// a name that also points inside, no address is to be trusted.
func PublicAddresses(ctx context.Context, resolve func(context.Context, string) ([]netip.Addr, error), name string) ([]netip.Addr, error) {
	found, err := resolve(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAddress, err)
	}
	if len(found) == 0 || len(found) > maxAddresses {
		return nil, ErrNoAddress
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("%w: reading the machine's own: %w", ErrNotPublic, err)
	}
	for _, a := range found {
		if !public(a) || slices.ContainsFunc(own, func(o net.Addr) bool { return isOf(a, o) }) {
			return nil, ErrNotPublic
		}
	}
	// IPv4 first: a machine without IPv6 would try each of the others in vain.
	slices.SortStableFunc(found, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return found[:min(len(found), maxDials)], nil
}

// isOf tells whether an address is an interface's.
func isOf(a netip.Addr, own net.Addr) bool {
	n, ok := own.(*net.IPNet)
	if !ok {
		return true // unknown to us, so not known to be somebody else's
	}
	o, ok := netip.AddrFromSlice(n.IP)
	return !ok || o.Unmap() == a
}

// public tells whether an address is of the public Internet, by IANA's registries of special-purpose addresses. IPv6 is
// public only in 2000::/3, which leaves out loopback, private, link-local, mapped, compatible and NAT64 addresses.
func public(a netip.Addr) bool {
	if a.Zone() != "" || !a.IsValid() {
		return false
	}
	notPublic := specialV4()
	if a.Is6() {
		if !netip.MustParsePrefix("2000::/3").Contains(a) {
			return false
		}
		notPublic = specialV6()
	}
	return !slices.ContainsFunc(notPublic, func(p string) bool { return netip.MustParsePrefix(p).Contains(a) })
}

func specialV4() []string {
	return []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
		"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"168.63.129.16/32", // not special to IANA: Azure's metadata and resolver
	}
}

func specialV6() []string {
	return []string{
		"2001::/23",     // protocols, Teredo (2001::/32) among them
		"2001:db8::/32", // documentation, as 3fff::/20
		"2002::/16",     // 6to4
		"2620:4f:8000::/48", "3fff::/20",
	}
}

// Resolve asks the machine's resolver for each family apart: asked for both, it would write IPv4 as mapped IPv6, and a
// mapped address in an AAAA record could not be told from it. The dot keeps search domains out.
func Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var all []netip.Addr
	var errs []error
	for _, family := range []string{"ip4", "ip6"} {
		found, err := net.DefaultResolver.LookupNetIP(ctx, family, name+".")
		errs = append(errs, err)
		for _, a := range found {
			if family == "ip4" {
				a = a.Unmap()
			}
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// DialAddress connects to an address that was checked, by TCP and directly.
func DialAddress(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", to.String())
}
