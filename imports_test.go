// Package pilder holds no code: it is the place of the one test that looks at all the others.
package pilder

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ours is which of our folders each folder may import. A folder not named here may not exist: a new room needs its rule in
// the same commit. Tests may also import the simulators and the store's test support, since those stand outside the house.
var ours = map[string][]string{
	"policy":            {},
	"prompt":            {},
	"configs":           {},
	"store":             {"policy", "store/migrations"},
	"store/storetest":   {"store", "policy"},
	"store/migrations":  {},
	"runner":            {"store", "policy", "prompt", "runner/inside"},
	"runner/inside":     {},
	"bot":               {"store", "policy", "bot/texts"},
	"bot/texts":         {},
	"gateway":           {"store", "policy"},
	"gateway/native":    {"gateway", "store", "policy"},
	"gateway/pipedream": {"gateway", "store", "policy"},
	"gateway/upstream":  {"gateway", "store", "policy"},
	"gateway/model":     {"gateway", "store", "policy"},
	"gateway/authorize": {"gateway", "store", "policy"},
	"gateway/egress":    {"gateway", "store"},
	"sim/telegram":      {},
	"sim/anthropic":     {},
	"sim/oauth":         {},
	"sim/pipedream":     {},
	"sim/mcp":           {},
	"e2e":               {},
	"e2e/escape":        {"store", "policy", "runner"},
	"e2e/escape/attack": {},
	"":                  {},
	"cmd/pilder":        {"*"},
	"cmd/inside":        {"runner/inside"},
	"deploy/npm":        {},
}

// outside is which packages only the named folders may import.
var outside = map[string][]string{
	"os/exec":                                {"runner", "runner/inside", "store/storetest"},
	"database/sql":                           {"store", "store/storetest"},
	"github.com/go-telegram/bot":             {"bot"},
	"github.com/modelcontextprotocol/go-sdk": {"gateway", "gateway/native", "gateway/pipedream"},
	"github.com/riverqueue/river":            {"store"},
}

// TestImportsKeepTheHouseRules parses the files itself: a test that asked `go list` would be served from the test cache
// after a violation.
func TestImportsKeepTheHouseRules(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		seen++
		return checkFile(t, path)
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Fatalf("looked at %d files only: the test no longer sees the tree", seen)
	}
}

func checkFile(t *testing.T, path string) error {
	folder := filepath.ToSlash(filepath.Dir(path))
	if folder == "." {
		folder = ""
	}
	allowed, known := ours[folder]
	if !known {
		t.Errorf("%s: folder %q has no import rule", path, folder)
		return nil
	}
	test := strings.HasSuffix(path, "_test.go")
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if inner, isOurs := strings.CutPrefix(imported, "pilder/"); isOurs {
			standIn := strings.HasPrefix(inner, "sim/") || inner == "store/storetest"
			if inner == folder || slices.Contains(allowed, inner) || slices.Contains(allowed, "*") || test && standIn {
				continue
			}
			t.Errorf("%s imports %s, which %q may not", path, imported, folder)
		}
		if !test {
			checkOutside(t, path, folder, imported)
		}
	}
	return nil
}

func checkOutside(t *testing.T, path, folder, imported string) {
	for prefix, folders := range outside {
		if (imported == prefix || strings.HasPrefix(imported, prefix+"/")) && !slices.Contains(folders, folder) {
			t.Errorf("%s imports %s, which belongs to %v", path, imported, folders)
		}
	}
}

// TestTheRulesAreNoWiderThanTheHouse guards the table itself: nobody imports the command or, outside tests, a stand-in.
func TestTheRulesAreNoWiderThanTheHouse(t *testing.T) {
	for folder, allowed := range ours {
		for _, a := range allowed {
			if a == "cmd/pilder" || strings.HasPrefix(a, "sim/") {
				t.Errorf("%q may import %q", folder, a)
			}
		}
	}
	for _, a := range []string{"bot", "runner", "gateway"} {
		for _, b := range []string{"bot", "runner", "gateway"} {
			if a != b && slices.Contains(ours[a], b) {
				t.Errorf("%s may import %s: they meet in the database only", a, b)
			}
		}
	}
}
