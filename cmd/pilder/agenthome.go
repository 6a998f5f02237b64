package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"pilder/configs"
)

// agentHome is the folder mounted into every run: the configured one, or the embedded one.
func (c Config) agentHome() (string, error) {
	if c.AgentHome != "" {
		return filepath.Abs(c.AgentHome)
	}
	folder, err := layOut(configs.AgentHome(), filepath.Join(c.Data, "agent-home"))
	if err != nil {
		return "", fmt.Errorf("laying out the agent home: %w", err)
	}
	return folder, nil
}

// layOut writes home into a folder of its own below under, named by the content, and gives its path. What is there already
// is left alone: another process may have it mounted in its runs.
func layOut(home fs.FS, under string) (string, error) {
	name, err := digestOf(home)
	if err != nil {
		return "", err
	}
	folder, err := filepath.Abs(filepath.Join(under, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(folder); err == nil {
		return folder, os.Chmod(folder, 0o755) // agents have a user of their own; nobody else gets through the folders above
	} else if !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	if err := os.MkdirAll(under, 0o700); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(under, ".fresh-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := errors.Join(os.CopyFS(fresh, home), os.Chmod(fresh, 0o755)); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, folder); err != nil && !errors.Is(err, fs.ErrExist) { // else somebody was quicker
		return "", err
	}
	return folder, nil
}

// digestOf names a tree of files by their paths and bytes.
func digestOf(files fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		fmt.Fprintf(sum, "%s\x00%d\x00%s", path, len(text), text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:8]), err
}
