package gateway_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test binary play the processes of TestInterleavingsOfRetryCutCrashAndTap.
func TestMain(m *testing.M) {
	if os.Getenv("PILDER_TEST_PLAYS") != "life" {
		os.Exit(m.Run())
	}
	if err := playLife(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
