// Command npm puts the packages of package-lock.json into a folder, as `npm ci --ignore-scripts` does, on a machine that has
// neither npm nor Node: the MCP servers that tests run, and the Node that runs them. It runs nothing of what it downloads,
// and believes nothing but the digests of the lock.
package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

//go:embed package-lock.json
var lock []byte

// At once, and in all.
const (
	parallel = 6
	patience = 15 * time.Minute
)

func main() {
	syscall.Umask(0o022) // agents, who are somebody else, have to read what is here
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := install(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pilder: fetching the MCP servers for tests:", err)
		os.Exit(1)
	}
}

// install makes args[0] hold exactly what the lock says; a folder that does already is left alone.
func install(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: npm FOLDER")
	}
	sum := sha256.Sum256(lock)
	stamp, want := filepath.Join(args[0], "lock.sha256"), hex.EncodeToString(sum[:])
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return nil
	}
	var locked struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := json.Unmarshal(lock, &locked); err != nil {
		return err
	}
	if err := os.RemoveAll(args[0]); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "pilder: fetching %d npm packages for the tests\n", len(locked.Packages)-1)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for place, p := range locked.Packages {
		if place == "" {
			continue
		}
		name := place[strings.LastIndex(place, "node_modules/")+len("node_modules/"):]
		address := fmt.Sprintf("https://registry.npmjs.org/%s/-/%s-%s.tgz", name, path.Base(name), p.Version)
		group.Go(func() error {
			return fetch(ctx, address, p.Integrity, filepath.Join(args[0], filepath.FromSlash(place)))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// fetch downloads a package to a file, compares its digest, and only then unpacks it.
func fetch(ctx context.Context, address, integrity, folder string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", address, res.Status)
	}
	f, err := os.CreateTemp("", "pilder-npm-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), res.Body); err != nil {
		return fmt.Errorf("reading %s: %w", address, err)
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != integrity {
		return fmt.Errorf("%s has digest %s, expected %s", address, got, integrity)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := unpack(f, folder); err != nil {
		return fmt.Errorf("unpacking %s: %w", address, err)
	}
	return nil
}

// unpack writes a package's regular files; its one top folder may have any name.
func unpack(r io.Reader, folder string) error {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	for files := tar.NewReader(zipped); ; {
		head, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, nested := strings.Cut(head.Name, "/")
		if head.Typeflag != tar.TypeReg || !nested || !filepath.IsLocal(name) {
			continue
		}
		mode := os.FileMode(0o644)
		if head.Mode&0o111 != 0 {
			mode = 0o755
		}
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, files)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}
