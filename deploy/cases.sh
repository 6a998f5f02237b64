#!/usr/bin/env bash
# Runs the tests that carry a case's number and prints docs/cases.md's table with what they said.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p out
log=out/cases.log
CGO_ENABLED=1 go test -race -count=1 -timeout 20m -p 2 -v -run '^TestG[0-9][0-9]_' ./... > "$log" 2>&1
if compgen -G 'e2e/testdata/g[0-9][0-9]_*.txtar' > /dev/null; then
  CGO_ENABLED=1 go test -race -count=1 -timeout 20m -v -run '^TestScripts$/^g[0-9][0-9]_' ./e2e >> "$log" 2>&1
fi
awk -F' *[|] *' '
  FILENAME ~ /cases.log$/ {
    # only whole tests and scripts count: "--- PASS: TestG12_Name", "    --- PASS: TestScripts/g12_name"
    if (match($0, /--- (PASS|FAIL|SKIP): (TestG[0-9][0-9]_[A-Za-z0-9_]+|TestScripts\/g[0-9][0-9]_[A-Za-z0-9_]+) /)) {
      split(substr($0, RSTART, RLENGTH), w, " "); name = w[3]
      number = toupper(substr(name, match(name, /[Gg][0-9][0-9]_/), 3))
      ran[number]++; if (w[2] != "PASS:") wrong[number] = wrong[number] " " name
    }
    next
  }
  $2 ~ /^G[0-9][0-9]/ {
    number = substr($2, 1, 3); all++
    if (wrong[number]) { said = "FAILED" wrong[number]; bad++ }
    else if (ran[number]) { said = "passed, " ran[number] (ran[number] == 1 ? " test" : " tests"); good++ }
    else if ($4 == "test") { said = "NOT RUN"; bad++ }
    else { said = $4; rest++ }
    printf "%-5s %-34s %s\n", $2, said, $3
  }
  END { printf "%d cases: %d passed, %d not yet or never, %d not proved\n", all, good, rest, bad; exit bad > 0 }
' "$log" docs/cases.md
status=$?
[ "$status" -eq 0 ] || grep -E '^ *--- FAIL|^FAIL|^panic:|DATA RACE' "$log"
exit "$status"
