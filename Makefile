# Everything that is done here by hand. Recipes are short; what is longer is in scripts/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# For make run:    where the gateway listens, further flags of it.
LISTEN ?= 127.0.0.1:8080
GATEWAY_FLAGS ?=
# For make fuzz:   how long each target runs.
FUZZTIME ?= 1m
# For make sim:    how many seeds, and the first of them.
SEEDS ?= 300
FIRST ?= 1
# For make client-seeds: the client, all of them unless given.
CLIENT ?=
# For make bench-base: the commit to compare with; that which the branch came from unless given.
BASE ?= auto
# For make dist:   the version, v1.2.3; that of git unless given.
VERSION ?=
# For make chaos:  how long, and what the plan of faults is drawn from.
DURATION ?= 10m
SEED ?= 1

GOFILES = git ls-files -co --exclude-standard -z -- '*.go' | while IFS= read -r -d '' f; do [ ! -e "$$f" ] || printf '%s\0' "$$f"; done

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# exec: a signal that make gets must reach the gateway itself, not a shell or "go run" in front of it.
# Exported rather than written into the recipe: what they hold is not the shell's to read. The line names localhost where the
# gateway listens on every address, because it refuses requests for 0.0.0.0 and [::].
.PHONY: run
run: export LISTEN := $(LISTEN)
run: export GATEWAY_FLAGS := $(GATEWAY_FLAGS)
run: ## build and start the gateway, data in lockkeeper-data/; Ctrl-C stops it (LISTEN=host:port GATEWAY_FLAGS=...)
	@go build -o bin/gateway ./cmd/gateway
	@at=$$LISTEN; case $$at in :*|0.0.0.0:*|'[::]':*) at=localhost:$${at##*:} ;; esac; \
	printf 'Take a lock for five minutes:\n\n  curl -sX POST '"'%s/v1/locks/deploy/leases?ttl=5m&owner=me'"'\n\n' "$$at"
	@exec bin/gateway --listen "$$LISTEN" $$GATEWAY_FLAGS

# What owns goroutines: its tests run with the race detector, which takes five times as long. HEAVY are those of which make test
# runs only the unit tests so, and all tests without it. Not internal/webhooks: Go 1.26's detector itself dies there now and then
# (ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346), with no race to report.
HEAVY = ./internal/locks/manager ./internal/httpapi
RACED = ./client ./internal/audit ./internal/auth/... ./internal/certs ./internal/dashboard ./internal/events ./internal/fleet ./internal/history ./internal/httpapi/connlimit \
	./internal/outbox ./internal/ratelimit ./internal/secret ./internal/traces ./internal/zk/conn ./internal/zk/embedded ./internal/zk/observer ./internal/zk/session ./internal/zk/standalone
CONCURRENT = ./internal/zk/session $(HEAVY) $(filter-out ./internal/zk/session,$(RACED))
# The packages that take longest begin first, so that the others fill the gaps.
LONGEST = ./internal/test/e2e ./internal/test/interop ./internal/test/chaos ./internal/test/sim ./internal/test/clients ./internal/test/clientsuite

# -short leaves out what starts programs and servers, and what counts by the thousand.
.PHONY: check
check: ## what to run while you work: format, vet, staticcheck, generated files, unit tests, a dozen simulated worlds (some 80 s on 2 cores)
	@$(MAKE) lint
	@scripts/check-generated
	go test -short -race -vet=off -p 4 $(CONCURRENT)
	go test -short -vet=off -p 4 $$(go list ./... | grep -vxFf <(go list $(CONCURRENT)))

# Three packages at a time on two cores: much of the time goes into waiting for servers. What computes does not run beside them:
# it would starve ensembles of virtual machines, which then elect a leader again and again.
.PHONY: test
test: ## everything that guards a change (some 11 minutes on 2 cores)
	@scripts/setup test
	@$(MAKE) lint
	@$(MAKE) vulncheck
	@scripts/check-generated
	go test -short -race -vet=off -p 3 -timeout 10m $(HEAVY)
	go test -race -vet=off -p 3 -timeout 10m $(RACED)
	go test -race -vet=off -run 'TestSeeds$$' ./internal/test/sim
	go test -vet=off -p 3 -timeout 15m $(LONGEST) $$(go list ./... | grep -vxFf <(go list $(RACED)))
	@$(MAKE) sim
	@$(MAKE) dist-test

# What runs on the embedded server runs a second time, on Debian's ZooKeeper: in make test the difference test stands for that.
.PHONY: test-full
test-full: ## the long runs, the race detector and real ZooKeeper everywhere, then each fuzz target for FUZZTIME (hours)
	@scripts/setup test
	@$(MAKE) lint
	@$(MAKE) vulncheck
	@scripts/check-generated
	LOCKKEEPER_FULL=1 go test -race -count 1 -p 2 -timeout 60m ./...
	go test -count 1 -timeout 60m -run TheSameHistory ./internal/test/sim -sim.same 1000
	go test -count 1 -timeout 60m -run TheSameHistory ./internal/test/sim -sim.same 1 -sim.times 1000
	@$(MAKE) sim SEEDS=10000
	LOCKKEEPER_TEST_ZK=real go test -race -count 1 -p 2 -timeout 60m ./internal/test/e2e ./internal/zk/... ./internal/locks/manager
	@LOCKKEEPER_FULL=1 $(MAKE) dist-test
	@$(MAKE) bench-base
	@$(MAKE) fuzz

.PHONY: sim-mutants
sim-mutants: ## take each protection out in turn; the simulation must notice
	go test -count 1 -timeout 60m -v -run NoticesWhatIsMissing ./internal/test/sim/mutants -mutants

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (1m)
	@scripts/fuzz '$(FUZZTIME)'

# Without the race detector, which takes ten times as long; make test runs a dozen seeds with it. A run uses one processor: two
# at a time.
.PHONY: sim
sim: export SEEDS := $(SEEDS)
sim: export FIRST := $(FIRST)
sim: ## random clients and random faults in virtual time (SEEDS=n FIRST=k)
	@mkdir -p bin && go test -c -o bin/sim.test ./internal/test/sim
	@half=$$(( (SEEDS + 1) / 2 )); flags='-test.v -test.timeout 0 -test.run ^TestSeeds$$'; cd internal/test/sim; \
	../../../bin/sim.test $$flags -sim.first "$$FIRST" -sim.seeds "$$half" & one=$$!; \
	../../../bin/sim.test $$flags -sim.first $$((FIRST + half)) -sim.seeds $$((SEEDS - half)) & two=$$!; \
	trap "kill $$one $$two" INT TERM; failed=0; wait $$one || failed=1; wait $$two || failed=1; exit $$failed

# A failing seed is named, with the lines of its work. The plan of a run is a function of the seed, and its times are the machine's.
.PHONY: client-seeds
client-seeds: export SEEDS := $(if $(filter file,$(origin SEEDS)),500,$(SEEDS))
client-seeds: export FIRST := $(FIRST)
client-seeds: export CLIENT := $(CLIENT)
client-seeds: ## each client library's guarded work while everything fails (SEEDS=500 FIRST=k CLIENT=go)
	@scripts/setup test
	@mkdir -p bin && go test -c -o bin/clients.test ./internal/test/clientsuite
	@cd internal/test/clientsuite && exec ../../../bin/clients.test -test.v -test.timeout 0 -test.run '^TestNoTwoWorkAtOnceWhateverFails$$' \
		-suite.seeds "$$SEEDS" -suite.first "$$FIRST" -suite.client "$$CLIENT"

# Without the race detector: a fleet and an ensemble of Java servers on one machine have enough to do. make test runs two minutes
# of it, make test-full ten with the race detector. A broken promise is a failure, and what is kept of the run is named.
.PHONY: chaos
chaos: export DURATION := $(DURATION)
chaos: export SEED := $(SEED)
chaos: ## break a real fleet on purpose for DURATION (10m), by the plan of SEED (1)
	@scripts/setup test
	@mkdir -p bin && go test -c -o bin/chaos.test ./internal/test/chaos
	@cd internal/test/chaos && exec ../../../bin/chaos.test -test.v -test.timeout 0 -test.run '^TestNoFaultBreaksAPromise$$' -chaos.duration "$$DURATION" -chaos.seed "$$SEED"

.PHONY: bench
bench: ## measure beside direct ZooKeeper clients, etcd and bare HTTP, as BENCHMARKS.md reports it
	@scripts/setup bench
	go run ./bench

# Ratios in one run, in turns: what else the machine does disturbs both gateways alike.
.PHONY: bench-base
bench-base: export BASE := $(BASE)
bench-base: ## compare a short benchmark with the base commit; worse by 15 % is a failure (BASE=commit)
	@scripts/setup bench
	go run ./bench -base "$$BASE"

.PHONY: generate
generate: ## write the generated code again
	go generate ./...

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, and whether everything compiles for macOS
	@unformatted=$$($(GOFILES) | xargs -0 -r gofmt -l); \
	if [ -n "$$unformatted" ]; then printf 'not formatted (make fmt):\n%s\n' "$$unformatted"; exit 1; fi
	go vet ./...
	go vet -tags faults ./internal/fault
	go tool staticcheck ./...
	go tool staticcheck -tags faults ./internal/fault
	go vet -C packaging ./...
	CGO_ENABLED=0 GOOS=darwin go list -export -deps -f '' ./cmd/... >/dev/null

.PHONY: vulncheck
vulncheck: ## govulncheck: known vulnerabilities in what is called; skipped where its database cannot be reached
	@scripts/vulncheck

.PHONY: fmt
fmt: ## format all Go files
	@$(GOFILES) | xargs -0 -r gofmt -l -w

.PHONY: build
build: ## build the programs into bin/
	go build -o bin/ ./cmd/...

# packaging/ is a module of its own, so that what packages are made with is nothing to those who build or use the programs.
.PHONY: dist
dist: export VERSION := $(VERSION)
dist: ## archives, packages, SBOMs, the chart and checksums for each platform, in dist/ (VERSION=v1.2.3)
	@go run -C packaging . -source .. -out ../dist

# The cache of results does not see files of another module: -count 1.
.PHONY: dist-test
dist-test: ## what make dist makes, and install.sh (LOCKKEEPER_FULL=1: the chart, too; every platform, built twice)
	go test -C packaging -vet=off -count 1 -timeout 30m $(if $(LOCKKEEPER_FULL),./...,.)

.PHONY: clean
clean: ## remove bin/ and dist/ (lockkeeper-data/, the data of make run, stays)
	rm -rf bin dist
