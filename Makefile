# lockchaos: `make help` lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help

GOLANGCI_VERSION := v2.15.0
GOTESTSUM_VERSION := v1.13.0
CYCLONEDX_VERSION := v1.10.0
TOOLS_VERSION     := v0.51.0

BIN       := bin/lockchaos
SOURCES   := $(shell find . -name '*.go' -not -name '*_test.go' -o -path './scenarios/catalogue/*.yaml' -o -path './reports/assets/*' -o -path './bench/*.html' -o -name '*.lua' -o -name '*.c') go.mod go.sum go.work lock/go.mod lock/go.sum

# ./... leaves out what is a module of its own. The examples are tested by package chaos.
ALL := ./... ./lock/...

# What `make chaos` runs; anything that is empty is left to lockchaos' default.
TOPOLOGY ?= sentinel
LOCK     ?=
SEED     ?=
DURATION ?=
FAULTS   ?=
CLIENTS  ?=
BACKEND  ?=
ARGS     ?=
# What `make reproduce` plays: a scenario's name, or --all.
BUG      ?= failover-double-grant
REPEAT   ?= 1

flag = $(if $(2),--$(1) $(2))

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: $(BIN) ## Build bin/lockchaos

$(BIN): $(SOURCES)
	go build -o $@ ./cmd/lockchaos

# The binary's exit code says what was found; make turns every failure into 2,
# so the last line repeats it.
define run_lockchaos
	@code=0; $(BIN) $(1) || code=$$?; \
	case $$code in 0) word=valid;; 1) word="a violation was found";; 2) word="it could not be decided";; \
		130) word=interrupted;; 254) word="wrong usage or unreadable input";; *) word="the harness failed";; esac; \
	echo "lockchaos: $$word (exit code $$code)"; exit $$code
endef

define play_lockchaos
	@code=0; $(BIN) $(1) || code=$$?; \
	case $$code in 0) word="every scenario gave its verdict";; 1) word="a scenario did not give its verdict";; 2) word="a fault never landed";; \
		130) word=interrupted;; 254) word="wrong usage or unreadable input";; *) word="the harness failed";; esac; \
	echo "lockchaos: $$word (exit code $$code)"; exit $$code
endef

# Only local processes need a server program on this machine.
servers = $(if $(filter container attach,$(BACKEND)),,$(or $(filter etcd zookeeper,$(TOPOLOGY)),redis))

.PHONY: chaos
chaos: $(servers) build ## Drive a lock under random faults: TOPOLOGY= LOCK= BACKEND= SEED= DURATION= FAULTS= CLIENTS= ARGS=
	$(call run_lockchaos,run --topology $(TOPOLOGY) $(call flag,lock,$(LOCK)) $(call flag,seed,$(SEED)) $(call flag,duration,$(DURATION)) $(call flag,faults,$(FAULTS)) $(call flag,clients,$(CLIENTS)) $(call flag,backend,$(BACKEND)) $(ARGS))

.PHONY: reproduce
reproduce: $(if $(filter container attach,$(BACKEND)),,redis) build ## Play a scripted failure: BUG=failover-double-grant REPEAT=1 BACKEND=, or BUG=--all
	$(call play_lockchaos,reproduce $(BUG) --repeat $(REPEAT) $(call flag,backend,$(BACKEND)) $(ARGS))

.PHONY: mutants
mutants: redis build ## Play the locks with a planted bug, and their correct twins, in two to three minutes: who is convicted
	@code=0; $(BIN) mutants $(ARGS) || code=$$?; \
	case $$code in 0) word="every bug was caught, and no twin was blamed";; 1) word="a bug escaped, or a twin was blamed";; \
		2) word="a script could not be played";; 130) word=interrupted;; 254) word="wrong usage";; *) word="the harness failed";; esac; \
	echo "lockchaos: $$word (exit code $$code)"; exit $$code

.PHONY: doctor
doctor: build ## Say what this machine can run, and how to get what it lacks
	@$(BIN) doctor

# COMPOSE chooses `docker compose` or `docker-compose`, PROJECT the project's
# name; docker-compose.yml says which images and ports can be chosen.
.PHONY: up
up: ## Start TOPOLOGY in containers (docker-compose.yml) and wait until it is healthy
	@compose/up $(TOPOLOGY)

.PHONY: down
down: ## Remove all that `make up` started
	@compose/down

.PHONY: ps
ps: ## Show what `make up` started
	@docker ps --all --filter label=com.docker.compose.project=$(or $(PROJECT),lockchaos) --format 'table {{.Label "com.docker.compose.service"}}\t{{.Status}}'

.PHONY: redis
redis: ## Install redis-server where there is none (Debian, Ubuntu)
	@./scripts/install redis

.PHONY: etcd
etcd: ## Install etcd where there is none, for topology etcd and `bench --lock etcd` (Debian, Ubuntu)
	@./scripts/install etcd

.PHONY: zookeeper
zookeeper: ## Install ZooKeeper and a Java to run it where there is none, for topology zookeeper (Debian, Ubuntu)
	@./scripts/install zookeeper compiler

.PHONY: drivers
drivers: ## Install Python and PHP with their lock libraries where there are none, for the tests of the drivers (Debian, Ubuntu)
	@./scripts/install drivers

.PHONY: compiler
compiler: ## Install gcc where there is none, for the race detector (Debian, Ubuntu)
	@./scripts/install compiler

.PHONY: chromium
chromium: ## Install Chromium where there is none, for the tests of the reports (Debian, Ubuntu)
	@./scripts/install chromium

.PHONY: image
image: redis ## Build the image for containers, lockchaos/testnode:local, from this machine's Redis, and its etcd and ZooKeeper if there are any
	@./scripts/build-image

# Packages whose tests start no server and no other program but Go's: their results may come from Go's
# cache. Those of all others never do, since the servers are part of them (-count=1).
CACHED := ./campaign ./checker/... ./fleet ./history ./internal/await ./internal/names ./internal/say ./internal/seeds ./internal/traffic ./judge ./reports/... \
	./simulation ./simulation/confirm ./simulation/exact ./simulation/world ./topologies ./topologies/internal/bootstrap ./workload ./lock/memory
# The others, beginning with those that take longest, but not with both that start containers: side by
# side those starve each other.
LONGEST := ./topologies/attach ./drivers ./faults/faultstest ./scenarios ./harness ./cmd/lockchaos ./locktests ./chaos ./conformance ./mutants/broken ./topologies/container ./topologies/process ./lock
SERVERS = $(LONGEST) $(filter-out $(shell go list $(CACHED) $(LONGEST)),$(shell go list $(ALL)))
# Those that only start programs, containers or runs, hand calls on to other libraries, or play simulations: with RACE=1,
# what they start has no race detector either, or is what the tests of harness, faults and topologies/process run with it;
# a simulation has one thread at a time.
UNRACED := ./topologies/attach ./drivers ./scenarios ./cmd/lockchaos ./causes ./simulation/simredis ./faults/faultstest ./topologies/container ./bench \
	./adapters/... ./findings ./internal/locks ./mutants/...
RACE ?=
# Most tests with servers wait: so many packages run side by side (2 with the race detector), and so many tests of each.
PACKAGES ?= 4
PARALLEL ?= 6
# A program with the race detector sleeps for a second before it exits, unless it is told otherwise.
# Without tables for debuggers (-ldflags=-w) linking takes a second less for each package. Vet runs
# once, with the linter.
GO_TEST = LOCKCHAOS_TEST_REQUIRE=1 GORACE="$$GORACE atexit_sleep_ms=10" .bin/gotestsum-$(GOTESTSUM_VERSION) --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped
with_servers = $(GO_TEST) --jsonfile .bin/test/$(1).json --junitfile .bin/test/$(1).xml -- -vet=off -ldflags=-w -timeout 15m -count=1 -parallel $(PARALLEL) -p
# A test ends before its garbage matters: with four times the heap, tests take a third less of processor time.
test-cached test-servers: export GOGC = 400
.PHONY: test test-cached test-servers
test: .bin/gotestsum-$(GOTESTSUM_VERSION) ## All tests, with real servers; RACE=1: those with servers with the race detector, as .ci/run
	@./scripts/install redis etcd zookeeper drivers documents compiler
	@if docker version >/dev/null 2>&1; then ./scripts/build-image; fi
	@rm -rf .bin/test && mkdir -p .bin/test
	@$(MAKE) --no-print-directory -k -j2 test-servers test-cached
	@echo "The slowest tests:"; cat .bin/test/*.json | .bin/gotestsum-$(GOTESTSUM_VERSION) tool slowest --num 15 --threshold 2s
	@skipped=$$(sed -nE 's|.*"Package":"[^"]*lockchaos/([^"]*)".*this machine lacks: (.*)\\n".*|\1: \2|p' .bin/test/*.json | sort | uniq -c | sed -E 's/^ *([0-9]+) ([^:]+): /    \2, \1 tests: /'); \
		test -z "$$skipped" || printf 'These suites were skipped:\n%s\n' "$$skipped"

test-cached: # beside those that wait for servers, one package at a time
	@$(GO_TEST) --jsonfile .bin/test/cached.json --junitfile .bin/test/cached.xml -- -vet=off -ldflags=-w -timeout 15m -p 1 $(CACHED)
	@cd examples/fleet/kubernetes && GOWORK=off go test -vet=off -ldflags=-w .

test-servers:
	@$(call with_servers,servers) $(PACKAGES) $(if $(RACE),$(UNRACED),$(SERVERS))
	@$(if $(RACE),$(call with_servers,raced) 2 -race $(filter-out $(shell go list $(UNRACED)) $(UNRACED),$(SERVERS)))

.PHONY: test-times
test-times: ## What each package and test costs: wall and processor time, servers started (ARGS='./faults/...': of some)
	@LOCKCHAOS_TEST_REQUIRE=1 LOCKCHAOS_TEST_TIMES=.bin/test-times.tsv scripts/test-times -vet=off -ldflags=-w -timeout 15m -p $(PACKAGES) -parallel $(PARALLEL) $(or $(ARGS),$(SERVERS) $(CACHED))

.PHONY: tested
tested: build ## Which test covers each scenario, fault, lock, topology, exit code and flag, after make test
	@scripts/tested .bin/test/*.json

.PHONY: unit
# Many of its tests wait: with four packages at a time it takes 60 s on two cores, with two 67.
unit: ## The fast tests alone, without servers, in a minute
	go test -p 4 -short -vet=off -ldflags=-w $(ARGS) $(ALL)

# The exact build has the random choices of Go's runtime fixed by the seed of a simulation.
# All packages are compiled for it once.
bin/lockchaos-exact: $(SOURCES)
	go run ./simulation/exact .bin/exact
	go build -overlay .bin/exact/overlay.json -tags lockchaos_exact -o $@ ./cmd/lockchaos

.PHONY: simulate-exact
simulate-exact: bin/lockchaos-exact ## lockchaos simulate with a build of which every run replays identically: ARGS='--lock redlock --topology independent'
	bin/lockchaos-exact simulate $(ARGS)

.PHONY: lint
lint: .bin/golangci-lint-$(GOLANGCI_VERSION) ## Formatting, vet and the rules of .golangci.yml
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$< run $(ALL)

# Judging, reports and attached servers are for these systems, too. The types of all that is imported are checked from its
# source: 26 s of processor time, where builds, which make code as well, take four minutes.
.PHONY: cross
cross: .bin/gopackages-$(TOOLS_VERSION) ## Check that everything compiles for macOS and Windows
	@for system in darwin/arm64 windows/amd64; do echo $$system; \
		all=$$(GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0 $< -mode=allsyntax $(ALL)) || exit 1; \
		! grep -E '^\s(-|[^ ]+:[0-9]+:[0-9]+): |has an error|has incomplete' <<<"$$all" || exit 1; \
	done

# What is for other systems alone is compiled here, too: SYSTEMS= all, or some, such as linux/amd64.
.PHONY: release
release: .bin/cyclonedx-gomod-$(CYCLONEDX_VERSION) ## The files of a release in dist/VERSION: VERSION=v0.1.0, or snapshot (default); SYSTEMS=
	CYCLONEDX=$< scripts/release $(or $(VERSION),snapshot) $(SYSTEMS)

.bin/cyclonedx-gomod-$(CYCLONEDX_VERSION):
	GOBIN=$(CURDIR)/.bin go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)
	mv .bin/cyclonedx-gomod $@

# go.mod requires a version of lock that comes with the next release, and has no replace
# directive after this, since `go install` of a module that has one is refused.
LOCK_MODULE := github.com/lockchaos/lockchaos/lock
.PHONY: tidy
tidy: ## Update go.mod and go.sum of all modules to what is imported; MODULE=PATH@VERSION changes a version before
	cd lock && go mod tidy
	go mod edit -replace $(LOCK_MODULE)=./lock; code=0; \
		{ $(if $(MODULE),go get $(MODULE) &&) go mod tidy; } || code=$$?; \
		go mod edit -dropreplace $(LOCK_MODULE); exit $$code
	cd examples && go mod tidy
	cd examples/fleet/kubernetes && GOWORK=off go mod tidy
	cd examples/fleet/kubernetes/cluster && GOWORK=off go mod tidy

.bin/golangci-lint-$(GOLANGCI_VERSION):
	GOBIN=$(CURDIR)/.bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv .bin/golangci-lint $@

.bin/gopackages-$(TOOLS_VERSION):
	GOBIN=$(CURDIR)/.bin go install golang.org/x/tools/go/packages/gopackages@$(TOOLS_VERSION)
	mv .bin/gopackages $@

# The topology is single unless it is asked for, and not the one of `make chaos`.
.bin/gotestsum-$(GOTESTSUM_VERSION):
	GOBIN=$(CURDIR)/.bin go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	mv .bin/gotestsum $@

.PHONY: bench
bench: redis build ## Locks side by side, in at most seven minutes: TOPOLOGY= LOCK= ARGS='--workload all'; report in reports/bench
	$(BIN) bench --out reports/bench $(if $(filter file,$(origin TOPOLOGY)),,--topology $(TOPOLOGY)) $(call flag,lock,$(LOCK)) $(ARGS)

.PHONY: bench-checker
bench-checker: build ## The judge, and beside it plain porcupine: time and peak memory (LOCKCHAOS_OPERATIONS=1000000)
	LOCKCHAOS_BINARY=$${LOCKCHAOS_BINARY:-$(CURDIR)/bin/lockchaos} go test -run '^$$' -bench Cost -benchtime 3x -timeout 60m ./checker
	go test -run '^$$' -bench 'File|Engines' -benchtime 1x -timeout 60m ./checker

# Counts, not durations: Go before 1.27 may call the end of a -fuzztime in
# seconds a failure, "context deadline exceeded" (golang/go#75804). Minimizing
# what is merely interesting would take most of the time; so would asking each
# package's test binary for its targets, which their sources name as well.
.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZTIME executions (default 20000x)
	@set -o pipefail; grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do \
		echo "$$(dirname $$file) $${func#func }"; \
		go test -vet=off -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(or $(FUZZTIME),20000x) -fuzzminimizetime 10x $$(dirname $$file) </dev/null || exit 1; \
	done

# What a run could not decide, because it is short, is no conviction.
define blame_nobody
	bin/lockchaos run $(1) --parallel 3 --out reports/runs/campaigns || test $$? -eq 2
endef

.PHONY: campaigns
campaigns: redis build ## Random runs of correct locks, none of which may be convicted: behind a name, and with holds that outlast their lease
	for lock in mutex mutex-unnamed mutex-fenced mutex-fair mutex-spin rwmutex multilock semaphore semaphore-permit; do for topology in single sentinel; do \
		$(call blame_nobody,--topology $$topology --access name --lock $$lock --faults safe --seeds 1-20 --duration 2s) || exit 1; done; done
	for pair in contended:mutex slow-holder:mutex late-release:mutex release-twice:mutex re-entrant:mutex re-entrant:mutex-fair crash:mutex give-up:mutex \
		bursts:mutex-unnamed fair-queue:mutex-fair readers-writers:rwmutex permits:semaphore-permit several-locks:multilock many-locks:mutex many-locks-skewed:mutex; do \
		for faults in none safe; do \
		$(call blame_nobody,--workload $${pair%%:*} --lock $${pair##*:} --faults $$faults --hold 300ms --clients 4 --locks 2 --seeds 1-50 --duration 3s) || exit 1; done; done

.PHONY: nightly
nightly: build ## What takes too long for each change: every scenario ten times, all planted bugs, campaigns, a long attack on the locks, an installation from a module proxy, the judge against its oracle, the simulated server against a real one, longer fuzzing
	bin/lockchaos reproduce --all --repeat 10 --parallel 3
	bin/lockchaos mutants
	$(MAKE) campaigns
	GOGC=400 LOCKCHAOS_ORACLE=2000000 LOCKCHAOS_ORACLE_SEED=$$RANDOM go test -run '^TestOracle(WithSeveralClocks)?$$' -v -timeout 60m ./checker
	LOCKCHAOS_SIMREDIS=5m LOCKCHAOS_SIMREDIS_SEED=$$RANDOM go test -run '^TestDifferential' -v -timeout 60m ./simulation/simredis
	LOCKCHAOS_SIMULATION_SEEDS=1000 go test -run '^Test(KnownFailures|SimulatedMutants)_NoRace$$' -v -timeout 120m ./simulation
	LOCKCHAOS_SIMULATION_SEEDS=60 go test -run '^Test(CorrectLocks|CorrectTwins|ReportsNameTheFaultsInEffect)_NoRace$$|^Test(AcknowledgedGrantsSurviveFailovers|Replays)$$' -timeout 60m ./simulation
	$(MAKE) simulate-exact ARGS='--topology independent --lock redlock --seeds 1-20 --again 20'
	cd examples/fleet/kubernetes/cluster && GOWORK=off LOCKCHAOS=$(CURDIR)/bin/lockchaos-exact go test -count=1 -vet=off -ldflags=-w -timeout 60m .
	LOCKCHAOS_CASES=8000 go test -run '^Test(VerdictsKeepRelations|ALikelyOrderIsAProof|WhatIsReadIsJudgedAlike)$$' -timeout 60m ./checker
	LOCKCHAOS_TEST_NIGHTLY=1 go test -count=1 -vet=off -run '^TestInstallsFromAProxy$$' ./cmd/lockchaos
	LOCKCHAOS_TEST_NIGHTLY=1 go test -count=1 -vet=off -timeout 30m ./causes ./history ./topologies/process ./workload
	LOCKCHAOS_TEST_REQUIRE=1 LOCKCHAOS_TEST_ADVERSARY=4m LOCKCHAOS_TEST_NIGHTLY=1 go test -race -count 1 -timeout 20m ./locktests ./lock ./drivers ./internal/locks
	$(MAKE) fuzz FUZZTIME=200000x

.PHONY: clean
clean: ## Remove what was built, and all run directories
	rm -rf bin .bin dist reports/runs
