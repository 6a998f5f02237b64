package store_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test binary play the processes of the kill loop: see kill_test.go.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv("PILDER_TEST_PLAYS") {
	case "node":
		err = playNode()
	case "agent":
		err = playAgent()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
