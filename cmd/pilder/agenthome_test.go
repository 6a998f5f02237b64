package main

import (
	"os"
	"testing"
)

// TestTheAgentHomeIsLaidOutOnce: what another process may have mounted in its runs stays as it is.
func TestTheAgentHomeIsLaidOutOnce(t *testing.T) {
	h := house{cfg: Config{Data: t.TempDir()}}
	var folders [2]string
	var seen [2]os.FileInfo
	for i := range folders {
		var err error
		if folders[i], err = h.cfg.agentHome(); err != nil {
			t.Fatal(err)
		}
		if seen[i], err = os.Stat(folders[i] + "/CLAUDE.md"); err != nil {
			t.Fatal(err)
		}
	}
	if folders[0] != folders[1] || !os.SameFile(seen[0], seen[1]) {
		t.Errorf("the second start made it anew: %q, %q", folders[0], folders[1])
	}
	left, err := os.ReadDir(h.cfg.Data + "/agent-home")
	if err != nil || len(left) != 1 {
		t.Errorf("in the folder: %v, %v", left, err)
	}
}
