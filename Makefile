# pilder: run `make` for this list. Two targets matter at first: run and test.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export GOFLAGS ?= -buildvcs=false

BIN := bin/pilder
SOURCES := $(shell find . -name '*.go' -not -path "./.*/*") go.mod go.sum $(shell find configs -type f)

help: ## show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: .setup-run ## start pilder: for real if a Telegram token is configured, else the demo with its chat page
	@exec $(BIN) run

demo: .setup-run ## start the demo even if a token is configured
	@exec $(BIN) demo

build: $(BIN) ## build bin/pilder
$(BIN): $(SOURCES)
	@deploy/setup.sh build
	@CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o cmd/pilder/inside.bin ./cmd/inside
	go build -trimpath -tags embedded -o $@ ./cmd/pilder

test: .setup-test check ## run everything: checks, unit tests on both databases, race detector, e2e with the real CLI
	@deploy/test.sh ./...

e2e: .setup-test ## run the whole-system scripts against the built binary
	@deploy/test.sh ./e2e/...

bench: .setup-run ## measure how long answers take and what they cost in memory, beside the bare CLI
	@go test -run '^$$' -bench '^BenchmarkTurn$$' -benchtime 1x -timeout 60m ./cmd/pilder

bench-gateway: .setup-run ## measure a call of a tool beside a direct one and a plain proxy; fails when a bar is missed
	@go test -run '^$$' -bench '^BenchmarkGateway$$' -benchtime 1x -timeout 60m ./cmd/pilder

faults: .setup-test ## play every public failure of the agent's CLI, and 200 mixed runs; prints the table
	@set -o pipefail; PILDER_CROWD=4 CGO_ENABLED=1 go test -race -count=1 -timeout 8m -parallel 6 -v -run '^TestFaults' ./runner | grep -vE '^(=== | *--- PASS)'

escape: .setup-test ## let a hostile agent try to get out of its sandbox (T1 to T48), and print the table
	@rm -f out/escape.txt; deploy/test.sh ./e2e/escape; status=$$?; cat out/escape.txt; exit $$status

gateway-test: .setup-test ## run what proves the gateway: policy, connectors, approvals, faults, interleavings, the traitor; both databases
	@deploy/test.sh ./policy ./gateway/... ./store ./cmd/pilder

traitor: .setup-test ## let an agent that obeys an injected mail, event, note and file try to get something out; prints the table
	@rm -f out/traitor.txt; deploy/test.sh -run '^TestATraitor' ./cmd/pilder; status=$$?; cat out/traitor.txt; exit $$status

cases: .setup-test ## run the public failure cases of docs/cases.md by their numbers, and print the table
	@deploy/cases.sh

conformance: .setup-test ## run the official MCP conformance suite, both revisions, against a run's door
	@set -o pipefail; CGO_ENABLED=1 go test -race -count=1 -v -run '^TestConformance' ./gateway | grep -E '^ *(---|ok|FAIL|conformance_test)'

check: ## what CI checks before the tests: formatting, vet, staticcheck, go.mod in order
	@deploy/setup.sh build
	@out=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); if [ -n "$$out" ]; then echo "gofmt these: $$out"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	go mod verify >/dev/null && go mod tidy -diff

vuln: ## look for known vulnerabilities (needs the vulnerability database, so it is no part of check)
	go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

clean: ## remove what was built, keep the downloaded CLI
	rm -rf bin out cmd/pilder/inside.bin

.setup-run: $(BIN)
	@deploy/setup.sh run
.setup-test: $(BIN)
	@deploy/setup.sh test

.PHONY: help run demo build test e2e bench bench-gateway faults escape gateway-test traitor cases conformance check vuln clean .setup-run .setup-test
