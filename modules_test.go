package pilder

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSQLiteRunsOnTheLibcItWasBuiltWith holds the pin: modernc.org/sqlite is translated C and fits exactly one version of
// modernc.org/libc, which other modules would raise.
func TestSQLiteRunsOnTheLibcItWasBuiltWith(t *testing.T) {
	version := func(mod, pattern string) string {
		found := regexp.MustCompile(`(?m)^.*modernc\.org/` + pattern + `(v[0-9.]+)`).FindStringSubmatch(mod)
		if found == nil {
			t.Fatalf("no %s there", pattern)
		}
		return found[1]
	}
	read := func(path string) string {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	ours := read("go.mod")
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := read(filepath.Join(strings.TrimSpace(string(cache)), "modernc.org", "sqlite@"+version(ours, "sqlite "), "go.mod"))
	if want, got := version(theirs, "libc "), version(ours, `libc => modernc\.org/libc `); got != want {
		t.Errorf("modernc.org/libc is held at %s, sqlite was built with %s", got, want)
	}
}
