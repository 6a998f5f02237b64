#!/usr/bin/env bash
# Runs go test with the race detector and prints failures as they come, then how many tests ran.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p out
log=out/test.log
CGO_ENABLED=1 go test -race -count=1 -timeout 25m -p 2 -v "$@" 2>&1 | tee "$log" | awk '
  /^(ok|FAIL|panic:|WARNING: DATA RACE)/ { print; fflush() }
  /^ *--- (FAIL|SKIP)/ { print; fflush() }'
status=${PIPESTATUS[0]}
count() { grep -cE "^ *--- $1: " "$log"; }
if [ "$status" -ne 0 ]; then
  echo "--- everything is in $log; what stands before and behind each failure:"
  grep -nE -B 12 -A 12 '^ *--- FAIL|DATA RACE|^panic:|^# ' "$log" | tail -n 150
fi
echo "$(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped"
exit "$status"
