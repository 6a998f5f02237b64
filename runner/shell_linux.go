package runner

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// shell runs the CLI's shell commands: the command line is its only argument. It drops the variables that belong to the
// CLI alone and becomes bash.
func shell(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, shellName+": expected one command line")
		return 2
	}
	err := syscall.Exec("/bin/bash", []string{"bash", "-c", args[0]}, shellEnvironment())
	fmt.Fprintln(os.Stderr, shellName+":", err)
	return 126
}

func shellEnvironment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "ANTHROPIC_") && !strings.HasPrefix(kv, "CLAUDE_CODE") {
			env = append(env, kv)
		}
	}
	return env
}
