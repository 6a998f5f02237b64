//go:build linux

package escape

import (
	"regexp"
	"strings"
)

// plainVariables are what every program inside has, to the letter.
func plainVariables() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent", "USER=agent", "LOGNAME=agent", "SHELL=/bin/bash", "LANG=C.UTF-8",
		"TZ=UTC", "TMPDIR=/tmp"}
}

// shellVariables are what bash, and the CLI for its shell, add; all of them are made inside.
var shellVariables = regexp.MustCompile(`^(PWD=/work|OLDPWD=/work|SHLVL=\d+|_=.*|CLAUDECODE=1|CLAUDE_[A-Z_]+=.*|GIT_EDITOR=true|AI_AGENT=.*|COREPACK_ENABLE_AUTO_PIN=0|NoDefaultCurrentDirectoryInExePath=1)$`)

// cliVariables are what the CLI is started with.
var cliVariables = regexp.MustCompile(`^(ANTHROPIC_BASE_URL=http://127\.0\.0\.1:7001|ANTHROPIC_API_KEY=pk-[A-Za-z0-9_-]{43}|CLAUDE_CONFIG_DIR=/state|` +
	`CLAUDE_CODE_PROJECT_DIR_NAME=conv|CLAUDE_CODE_(DISABLE_[A-Z_]+|PROVIDER_MANAGED_BY_HOST|STARTUP_FAILURE_RESULTS)=1|CLAUDE_CODE_MAX_RETRIES=\d+|` +
	`CLAUDE_CODE_SHELL_PREFIX=/opt/pilder/pilder-sh|ENABLE_TOOL_SEARCH=true|DISABLE_(AUTOUPDATER|UPDATES)=1|(MCP_TOOL_TIMEOUT|BASH_MAX_TIMEOUT_MS|API_TIMEOUT_MS)=\d+)$`)

// golden tells whether a variable is on the list of what may be inside.
func golden(kv string, cli bool) bool {
	for _, plain := range plainVariables() {
		if kv == plain {
			return true
		}
	}
	return cliVariables.MatchString(kv) || !cli && shellVariables.MatchString(kv) && !strings.Contains(kv, "canary")
}

// golden turns what T47 shows into tries: a variable that is not on the list is one that has come from the house.
func (s *suite) golden(tries []tried) []tried {
	for i, t := range tries {
		if t.T == "T47" {
			tries[i].Reached = !golden(t.Got, false)
		}
	}
	return tries
}
