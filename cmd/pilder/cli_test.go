package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/configs"
)

const program = "#!/bin/sh\necho 9.9.9\n"

// npmPackage packs files as npm does.
func npmPackage(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	tarred := tar.NewWriter(zipped)
	for name, text := range files {
		head := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}
		if err := tarred.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tarred, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tarred.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// pinFor is the pin of a package that holds the program.
func pinFor(packed []byte) configs.Pin {
	whole, inner := sha512.Sum512(packed), sha256.Sum256([]byte(program))
	return configs.Pin{
		Package: "@maker/cli-linux", Version: "9.9.9", License: "its maker's",
		Integrity: "sha512-" + base64.StdEncoding.EncodeToString(whole[:]), BinarySHA256: hex.EncodeToString(inner[:]),
	}
}

// files lists what is below a folder.
func files(t *testing.T, folder string) []string {
	t.Helper()
	all := []string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path, err = filepath.Rel(folder, path)
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func TestTheCLIIsFetchedAsPinnedOrNotAtAll(t *testing.T) {
	packed := npmPackage(t, map[string]string{"package/claude": program, "package/LICENSE.md": "terms",
		"package/../../outside": "x", "package/deep/file": "x", "package/.hidden": "x"})
	other := npmPackage(t, map[string]string{"package/claude": "#!/bin/sh\necho evil\n"})
	otherInside := pinFor(other)
	for name, c := range map[string]struct {
		serve  http.HandlerFunc
		pin    configs.Pin
		code   int // of the error; 0: none
		errs   string
		remain []string
	}{
		"the pinned package": {serve: whole(packed), pin: pinFor(packed),
			remain: []string{"claude-code/9.9.9/LICENSE.md", "claude-code/9.9.9/claude"}},
		"another package":          {serve: whole(other), pin: pinFor(packed), code: exitMachine, errs: "has digest sha512-"},
		"another program inside":   {serve: whole(other), pin: otherInside, code: exitMachine, errs: "has SHA-256 "},
		"half a package":           {serve: whole(packed[:len(packed)/2]), pin: pinFor(packed), code: exitError, errs: "unpacking "},
		"a connection that breaks": {serve: broken(packed), pin: pinFor(packed), code: exitError, errs: "unexpected EOF"},
		"bytes behind the package": {serve: whole(append(slices.Clone(packed), "more"...)), pin: pinFor(packed), code: exitMachine, errs: "has digest sha512-"},
		"a page":                   {serve: whole([]byte("<html>")), pin: pinFor(packed), code: exitError, errs: "unpacking "},
		"no such package":          {serve: http.NotFound, pin: pinFor(packed), code: exitError, errs: "answered 404"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ""
			registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.Path
				c.serve(w, r)
			}))
			defer registry.Close()
			into := t.TempDir()
			var out bytes.Buffer
			err := fetchCLI(t.Context(), c.pin, registry.URL+"/", into, &out, io.Discard)
			if asked != "/@maker/cli-linux/-/cli-linux-9.9.9.tgz" {
				t.Errorf("asked for %q", asked)
			}
			if diff := cmp.Diff(append([]string{}, c.remain...), files(t, into)); diff != "" {
				t.Errorf("in the folder (-want +got):\n%s", diff)
			}
			if c.code == 0 {
				path := filepath.Join(into, "claude-code", "9.9.9", "claude")
				st, statErr := os.Stat(path)
				if err != nil || statErr != nil || st.Mode().Perm()&0o111 == 0 || out.String() != path+"\n" {
					t.Errorf("got %v, %v, %q", err, statErr, out.String())
				}
				return
			}
			code := exitError
			if coded := (*codedError)(nil); errors.As(err, &coded) {
				code = coded.code
			}
			if err == nil || code != c.code || !strings.Contains(err.Error(), c.errs) {
				t.Errorf("got %v with code %d, want %q with code %d", err, code, c.errs, c.code)
			}
		})
	}
}

// TestTheCLIThatIsThereIsNotFetchedAgain, and one that was tampered with is.
func TestTheCLIThatIsThereIsNotFetchedAgain(t *testing.T) {
	packed := npmPackage(t, map[string]string{"package/claude": program})
	asked := 0
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		whole(packed)(w, r)
	}))
	defer registry.Close()
	into := t.TempDir()
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			if err := os.WriteFile(filepath.Join(into, "claude-code/9.9.9/claude"), []byte("#!/bin/sh\necho evil\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := fetchCLI(t.Context(), pinFor(packed), registry.URL, into, io.Discard, io.Discard); err != nil || asked != want {
			t.Errorf("fetch %d: %v, %d downloads, want %d", i+1, err, asked, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(into, "claude-code/9.9.9/claude")); err != nil || string(text) != program {
		t.Errorf("the program is %q, %v", text, err)
	}
}

func whole(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
}

// broken closes the connection in the middle of the body.
func broken(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}
