package model

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestWait bounds what is believed of a provider's wish to be left alone.
const longestWait = 24 * time.Hour

// busy tells whether an answer means that the provider has too much to do: 529 is the Messages API's own "overloaded".
func busy(status int) bool { return status == http.StatusTooManyRequests || status == 529 }

// retryAfter is how long a busy provider asks to be left alone; 0 when it does not say. Its own word goes first, then the
// latest end of the limits that are used up.
func retryAfter(status int, h http.Header, now time.Time) time.Duration {
	if !busy(status) {
		return 0
	}
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return wait(ms / 1000)
	}
	if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		return wait(s)
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return wait(at.Sub(now).Seconds())
	}
	var longest time.Duration
	for name := range h {
		limit, ok := strings.CutSuffix(strings.ToLower(name), "-reset")
		if !ok || !strings.HasPrefix(limit, "anthropic-ratelimit-") {
			continue
		}
		if left := h.Get(limit + "-remaining"); left != "" && left != "0" {
			continue
		}
		if at, err := time.Parse(time.RFC3339, h.Get(name)); err == nil {
			longest = max(longest, wait(at.Sub(now).Seconds()))
		} else if s, err := strconv.ParseInt(h.Get(name), 10, 64); err == nil { // the "unified" limits count seconds since 1970
			longest = max(longest, wait(time.Unix(s, 0).Sub(now).Seconds()))
		}
	}
	return longest
}

// wait takes seconds that may be any number at all.
func wait(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, longestWait.Seconds()) * float64(time.Second))
}
