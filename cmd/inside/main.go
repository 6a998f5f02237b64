// Command inside is what runs inside sandboxes, alone: see the package of that name. It travels within pilder.
package main

import (
	"fmt"
	"os"

	"pilder/runner/inside"
)

func main() {
	code, started := inside.Reexec(os.Args)
	if !started {
		fmt.Fprintln(os.Stderr, "this program is started by a sandbox of pilder")
		code = 2
	}
	os.Exit(code)
}
