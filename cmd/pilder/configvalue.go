package main

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/viper"
)

// values reads settings strictly: what does not look like its kind is an error, and never a zero that means something else.
// The first error stays.
type values struct {
	v   *viper.Viper
	err error
}

func (r *values) wrong(key, kind string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s must be %s, not %.60q", key, kind, r.v.GetString(key))
	}
}

func (r *values) whole(key string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(r.v.GetString(key)), 10, 64)
	if err != nil {
		r.wrong(key, "a whole number")
	}
	return n
}

func (r *values) number(key string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(r.v.GetString(key)), 64)
	if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
		r.wrong(key, "a number like 2.5")
		return 0
	}
	return n
}

func (r *values) duration(key string) time.Duration {
	d, err := time.ParseDuration(strings.TrimSpace(r.v.GetString(key)))
	if err != nil {
		r.wrong(key, "a time like 90s, 10m or 1h")
	}
	return d
}

func (r *values) yes(key string) bool {
	b, err := strconv.ParseBool(strings.TrimSpace(r.v.GetString(key)))
	if err != nil {
		r.wrong(key, "true or false")
	}
	return b
}

// size reads a whole number of bytes, or of KiB, MiB or GiB; 0 for nothing at all.
func (r *values) size(key string) int64 {
	number, unit := strings.TrimSpace(r.v.GetString(key)), int64(1)
	if number == "" {
		return 0
	}
	for suffix, value := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(n), value
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > 1<<60/unit {
		r.wrong(key, "a size like 500MiB or 2GiB")
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
