package main

import (
	"net/url"
	"strconv"
	"strings"
)

// memoryOf reads a size that may be left out.
func memoryOf(text string) int64 {
	if text == "" {
		return 0
	}
	return max(1, bytesOf(text)) // what is no size is too small
}

// bytesOf reads a size: a whole number of bytes, or of KiB, MiB or GiB. Anything else is 0, which check refuses.
func bytesOf(size string) int64 {
	number, unit := strings.TrimSpace(size), int64(1)
	for suffix, value := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(n), value
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > 1<<60/unit {
		return 0
	}
	return n * unit
}

// familyOf is what a run with a model may ask for when nothing else is said: every version of an alias, since the CLI decides
// which one it means, or exactly the named model; and the small model that the CLI uses for chores.
func familyOf(name string) []string {
	name, _, _ = strings.Cut(name, "[") // as in sonnet[1m]
	switch name {
	case "sonnet", "opus", "haiku", "fable":
		name = "claude-" + name
	case "opusplan":
		return []string{"claude-opus", "claude-sonnet", "claude-haiku"}
	}
	return []string{name, "claude-haiku"}
}

// asBrowsersSay writes an address as browsers name it in Host and Origin: the host in lower case, no port that the scheme
// implies. What is no address stays for check to refuse.
func asBrowsersSay(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.Host = strings.ToLower(u.Host)
	if u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":443")
	} else {
		u.Host = strings.TrimSuffix(u.Host, ":80")
	}
	return u.String()
}
