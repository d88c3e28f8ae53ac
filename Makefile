# Everything that anyone does here by hand. Recipes are short; what is longer is in scripts/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# For make run:    where the gateway listens, ZooKeeper's port, further flags of the gateway.
LISTEN ?= 127.0.0.1:8080
ZK_PORT ?= 2181
GATEWAY_FLAGS ?=
# For make fuzz:   how long each target runs.
FUZZTIME ?= 1m

GOFILES = git ls-files -co --exclude-standard -z -- '*.go' | while IFS= read -r -d '' f; do [ ! -e "$$f" ] || printf '%s\0' "$$f"; done

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# exec: a signal that make gets must reach the runner itself, not a shell or "go run" in front of it.
# Exported rather than written into the recipe: what they hold is not the shell's to read.
.PHONY: run
run: export LISTEN := $(LISTEN)
run: export ZK_PORT := $(ZK_PORT)
run: export GATEWAY_FLAGS := $(GATEWAY_FLAGS)
run: ## start ZooKeeper and the gateway, print a curl line; Ctrl-C stops both (LISTEN=host:port ZK_PORT=n GATEWAY_FLAGS=...)
	@scripts/setup run
	@go build -o bin/gateway ./cmd/gateway
	@go build -o bin/devrun ./internal/devrun
	@exec bin/devrun

# Two packages at a time, for two cores: most of the time goes into real ZooKeeper servers. What runs on the embedded server
# runs a second time, on the real one.
.PHONY: test
test: ## everything that guards a change (at most 12 minutes on 2 cores)
	@scripts/setup test
	@$(MAKE) lint
	@scripts/check-generated
	go test -race -p 2 -timeout 10m ./...
	LOCKKEEPER_TEST_ZK=real go test -race -p 1 -timeout 10m ./internal/e2e ./internal/zk

.PHONY: test-full
test-full: ## the long runs too, then each fuzz target for FUZZTIME
	@scripts/setup test
	@$(MAKE) lint
	@scripts/check-generated
	LOCKKEEPER_FULL=1 go test -race -count 1 -p 2 -timeout 60m ./...
	LOCKKEEPER_TEST_ZK=real go test -race -count 1 -p 2 -timeout 60m ./internal/e2e ./internal/zk ./internal/locks
	@$(MAKE) fuzz

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (1m)
	@scripts/fuzz '$(FUZZTIME)'

.PHONY: bench
bench: ## measure beside direct ZooKeeper clients, as BENCHMARKS.md reports it
	@scripts/setup run
	go run ./bench

.PHONY: generate
generate: ## write the generated code again
	go generate ./...

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@unformatted=$$($(GOFILES) | xargs -0 -r gofmt -l); \
	if [ -n "$$unformatted" ]; then printf 'not formatted (make fmt):\n%s\n' "$$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...

.PHONY: fmt
fmt: ## format all Go files
	@$(GOFILES) | xargs -0 -r gofmt -l -w

.PHONY: build
build: ## build the programs into bin/
	go build -o bin/ ./cmd/...

.PHONY: clean
clean: ## remove bin/ and .run/ (the data of make run's ZooKeeper)
	rm -rf bin .run
