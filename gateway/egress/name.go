package egress

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/idna"
)

// list is what the door opens for: names, and suffixes that one label may stand before.
type list struct{ names, suffixes []string }

// newList reads an operator's list. An entry that could mean more than it seems to, or that the door would never reach, is an
// error now and not a surprise later.
func newList(entries []string) (list, error) {
	var l list
	for _, e := range entries {
		rest, wild := strings.CutPrefix(e, "*.")
		name, err := idna.Lookup.ToASCII(strings.TrimSuffix(rest, "."))
		if err == nil {
			name, err = hostName(name)
		}
		switch {
		case err != nil:
			return list{}, fmt.Errorf("%q is no name such as example.com or *.example.com", e)
		case private(name):
			return list{}, fmt.Errorf("%q is a name of a private network, where the door never leads", e)
		case wild:
			l.suffixes = append(l.suffixes, "."+name)
		default:
			l.names = append(l.names, name)
		}
	}
	return l, nil
}

// CheckNames tells what is wrong with a list, as New would.
func CheckNames(entries []string) error {
	_, err := newList(entries)
	return err
}

// private tells the names that no public resolver answers for (RFC 6761, 6762, 7686, 8375, 9476 and ICANN's .internal).
func private(name string) bool {
	return slices.ContainsFunc([]string{"localhost", "local", "internal", "onion", "alt", "home.arpa"}, func(zone string) bool {
		return name == zone || strings.HasSuffix(name, "."+zone)
	})
}

// has tells whether the list has a name, which is in the form that hostName gives.
func (l list) has(name string) bool {
	if slices.Contains(l.names, name) {
		return true
	}
	dot := strings.IndexByte(name, '.')
	return dot > 0 && slices.Contains(l.suffixes, name[dot:])
}

var errName = errors.New("no host name")

// hostName gives a name in its one form: ASCII, lower case, no dot at the end. It takes letters, digits and hyphens in two
// labels or more, of which the last begins with a letter: so no address in any notation passes ("127.1", "2130706433",
// "0x7f.0.0.1", "[::1]" all end otherwise), no user information, escape, NUL or space. A label in Punycode must be the one
// that IDNA makes of its text.
func hostName(s string) (string, error) {
	s = strings.TrimSuffix(s, ".")
	if len(s) > 253 {
		return "", errName
	}
	s = lower(s)
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return "", errName
		}
		if strings.HasPrefix(label, "xn--") {
			if again, err := idna.Lookup.ToASCII(label); err != nil || again != label {
				return "", errName
			}
		}
	}
	if last := labels[len(labels)-1]; len(labels) < 2 || last[0] < 'a' || last[0] > 'z' {
		return "", errName
	}
	return s, nil
}

// lower lowers ASCII alone: Unicode's rules make an ASCII k of the Kelvin sign.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
