package pilder

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryCaseHasItsProof holds docs/cases.md against the tests that exist: a case is proved by a test of its number or has
// its reason there, and a starred one is proved or about a part that is not built yet.
func TestEveryCaseHasItsProof(t *testing.T) {
	table, err := os.ReadFile("docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	proved := provedCases(t)
	rows := regexp.MustCompile(`(?m)^\| (G\d\d)(★?) \| .+ \| (.+) \|$`).FindAllStringSubmatch(string(table), -1)
	if len(rows) != 50 {
		t.Errorf("docs/cases.md has %d cases, want 50", len(rows))
	}
	for _, row := range rows {
		number, star, proof := row[1], row[2] != "", row[3]
		switch {
		case proof == "test" && !proved[number]:
			t.Errorf("%s has no test of its number", number)
		case proof != "test" && proved[number]:
			t.Errorf("%s has a test, and docs/cases.md says %q", number, proof)
		case star && proof != "test" && !strings.HasPrefix(proof, "later: "):
			t.Errorf("%s is to be proved, not explained away: %q", number, proof)
		}
		delete(proved, number)
	}
	for number := range proved {
		t.Errorf("%s has a test and does not stand in docs/cases.md", number)
	}
}

// provedCases is the numbers that tests and scripts carry.
func provedCases(t *testing.T) map[string]bool {
	t.Helper()
	test, script := regexp.MustCompile(`(?m)^func Test(G\d\d)_`), regexp.MustCompile(`^g(\d\d)_.*\.txtar$`)
	proved := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			for _, found := range test.FindAllSubmatch(text, -1) {
				proved[string(found[1])] = true
			}
			return err
		}
		if found := script.FindStringSubmatch(d.Name()); found != nil {
			proved["G"+found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return proved
}
