package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
)

var (
	errNotObject = errors.New("arguments are not one JSON object")
	addressLike  = regexp.MustCompile(`[@＠﹫]`) // any at sign: what the app makes of the words around it is its own affair
)

// argument is one member of the arguments. Doubled names stay doubled, because layers below may pick the other one.
type argument struct {
	name  string
	value any // as encoding/json decodes into any
}

// is tells whether the argument has one of the names, whatever its case.
func (a argument) is(names ...string) bool {
	for _, n := range names {
		if strings.EqualFold(a.name, n) {
			return true
		}
	}
	return false
}

// arguments reads the members of a call's arguments in their order. No bytes at all are no arguments.
func arguments(raw json.RawMessage) ([]argument, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	if !json.Valid(raw) {
		return nil, errNotObject
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errNotObject
	}
	var args []argument
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value any
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		args = append(args, argument{name: name.(string), value: value}) // a member's name is always a string
	}
	return args, nil
}

// notifiesOthers tells whether the arguments of a calendar change would reach other people: guests are given, or the
// calendar is told to mail or not told in a way that is surely "no". Arguments that cannot be read count as reaching them.
func notifiesOthers(raw json.RawMessage) bool {
	args, err := arguments(raw)
	if err != nil {
		return true
	}
	for _, a := range args {
		switch {
		case a.is("attendees") && !noGuests(a.value),
			a.is("sendUpdates") && !isNone(a.value),
			a.is("sendNotifications") && a.value != nil && a.value != false:
			return true
		case a.is("text"):
			// Quick add: Google reads addresses in the sentence as guests.
			if s, ok := a.value.(string); a.value != nil && (!ok || addressLike.MatchString(s)) {
				return true
			}
		}
	}
	return false
}

// noGuests tells whether a guest list is surely empty: null, [], blank, or one of these written out as text.
func noGuests(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case string:
		s := strings.TrimSpace(v)
		var list []any // "[]" and "null" leave it empty
		return s == "" || json.Unmarshal([]byte(s), &list) == nil && len(list) == 0
	default:
		return false
	}
}

// isNone tells whether a sendUpdates value is surely "mail nobody".
func isNone(value any) bool {
	s, ok := value.(string)
	return value == nil || ok && strings.EqualFold(strings.TrimSpace(s), "none")
}

// mailLeaves tells whether a mail has a recipient outside the domains, or none that can be read.
func mailLeaves(raw json.RawMessage, domains []string) bool {
	args, err := arguments(raw)
	if err != nil {
		return true
	}
	seen := false
	for _, a := range args {
		if !a.is("para", "cc", "cco", "to", "bcc") || a.value == nil {
			continue
		}
		list, ok := a.value.([]any)
		if !ok {
			list = []any{a.value}
		}
		for _, v := range list {
			s, ok := v.(string)
			if !ok {
				return true
			}
			if strings.TrimSpace(s) == "" {
				continue
			}
			if !Inside(s, domains) {
				return true
			}
			seen = true
		}
	}
	return !seen
}
