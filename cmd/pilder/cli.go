package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pilder/configs"
)

// defaultTools is where the CLI lives beside a source checkout.
const defaultTools = ".tools"

func cliCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cli", Short: "the pinned Claude Code CLI"}
	var quiet bool
	var into, registry string
	fetch := &cobra.Command{
		Use:   "fetch",
		Short: "download the pinned build from npm and check its digest",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if quiet {
				out = io.Discard
			}
			return fetchCLI(cmd.Context(), configs.CLI(), registry, into, out, cmd.ErrOrStderr())
		},
	}
	fetch.Flags().BoolVar(&quiet, "quiet", false, "say nothing when it is there already")
	fetch.Flags().StringVar(&into, "into", defaultTools, "folder")
	fetch.Flags().StringVar(&registry, "registry", "https://registry.npmjs.org", "npm registry")
	cmd.AddCommand(fetch)
	return cmd
}

// claudePath is where the pinned CLI of this build is.
func claudePath(cfg Config) string {
	if cfg.RunnerClaudePath != "" {
		return cfg.RunnerClaudePath
	}
	inside := filepath.Join("claude-code", configs.CLI().Version, "claude")
	here := filepath.Join(defaultTools, inside)
	if _, err := os.Stat(here); err == nil {
		return here
	}
	if self, err := os.Executable(); err == nil { // bin/pilder of a checkout, called from elsewhere
		beside := filepath.Join(filepath.Dir(filepath.Dir(self)), defaultTools, inside)
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	return here
}

// fetchCLI puts the pinned build where claudePath looks. The download is hashed while it is read and becomes visible only
// by a rename after its digest held.
func fetchCLI(ctx context.Context, pin configs.Pin, registry, into string, out, progress io.Writer) error {
	folder := filepath.Join(into, "claude-code", pin.Version)
	binary := filepath.Join(folder, "claude")
	if err := verifyBinary(binary, pin.BinarySHA256); err == nil {
		fmt.Fprintln(out, binary)
		return nil
	}
	address := strings.TrimSuffix(registry, "/") + "/" + pin.Package + "/-/" + path.Base(pin.Package) + "-" + pin.Version + ".tgz"
	fmt.Fprintf(progress, "pilder: downloading Claude Code %s from %s (about 190 MB; licence: %s)\n", pin.Version, registry, pin.License)
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(folder), ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := download(ctx, address, pin.Integrity, fresh); err != nil {
		return fmt.Errorf("fetching the CLI: %w", err)
	}
	if err := verifyBinary(filepath.Join(fresh, "claude"), pin.BinarySHA256); err != nil {
		return machineError("fetching the CLI: %w", err)
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.Rename(fresh, folder); err != nil {
		return err
	}
	fmt.Fprintln(out, binary)
	return nil
}

// download unpacks an npm package into folder and then compares its digest with integrity ("sha512-" + base64).
func download(ctx context.Context, address, integrity, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
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
	sum := sha512.New()
	body := io.TeeReader(res.Body, sum)
	if err := unpack(body, folder); err != nil {
		return fmt.Errorf("unpacking %s: %w", address, err)
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return fmt.Errorf("reading %s: %w", address, err)
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != integrity {
		return machineError("%s has digest %s, expected %s", address, got, integrity)
	}
	return nil
}

// unpack writes the regular files of an npm tarball ("package/NAME") flat into folder; anything else in it is passed over.
func unpack(r io.Reader, folder string) error {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	files := tar.NewReader(zipped)
	for {
		head, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(head.Name, "package/")
		if head.Typeflag != tar.TypeReg || strings.ContainsAny(name, `/\`) || name == "" || name[0] == '.' {
			continue
		}
		f, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, head.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, io.LimitReader(files, 1<<30)); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// verifyBinary compares a file with the pinned SHA-256 (hex).
func verifyBinary(file, want string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("%s has SHA-256 %s, expected %s", file, got, want)
	}
	return nil
}
