//go:build !embedded

package main

// insideProgram is cmd/inside where `make build` has put it into this binary; else the binary serves inside itself, only
// slower.
func insideProgram() []byte { return nil }
