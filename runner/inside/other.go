//go:build !linux

package inside

import (
	"fmt"
	"io"
	"os"
)

// FenceABI is 0 where there is no Landlock.
const FenceABI = 0

// LandlockABI gives 0.
func LandlockABI() int { return 0 }

// exNotAvailable is EX_CONFIG of sysexits.h.
const exNotAvailable = 78

func initialize([]string) int {
	fmt.Fprintln(os.Stderr, "the sandbox needs Linux")
	return exNotAvailable
}

func shell(args []string) int               { return initialize(args) }
func attack(args []string, _ io.Writer) int { return initialize(args) }
