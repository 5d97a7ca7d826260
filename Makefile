# Everything a developer or CI runs. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help run story test prove manifests lint bench fmt build
SHELL := /bin/sh

# More arguments for the program: make run ARGS='--data ./pg', make test ARGS='-run Lease -v'.
ARGS ?=
# The packages that test is for: make test PKG=./internal/lease/
PKG ?= ./...

# Where git will not answer, in another user's checkout for one, Go would not
# build; a binary that does not know its commit is better than none.
VCS := $(shell git status --porcelain >/dev/null 2>&1 || echo -buildvcs=false)
LINT := bin/golangci-lint
# Long tests have files of their own; the other packages need not be built for them.
PROVE = $(sort $(dir $(shell find ./cmd ./deploy ./internal ./jobs -name '*_prove_test.go')))

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

run: ## start Postgres, three replicas and the page, and print its address
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@bin/scheduler dev $(ARGS)

story: ## play the article's story with real processes; exits 0 if every step came out as promised
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@bin/scheduler dev --story $(ARGS)

test: ## all quick tests, with the race detector, on one private Postgres
	@scripts/setup test
	@go build -buildvcs=false -o bin/with ./internal/pgtest/with
	bin/with go test -race -shuffle=on -timeout 10m $(ARGS) $(PKG)
	go -C bench vet ./...
	go -C internal/web/browser vet ./...

prove: ## the long and the timed tests, one at a time but for those that mostly wait
	@scripts/setup prove
	@go build -buildvcs=false -o bin/with ./internal/pgtest/with
	bin/with go test -tags prove -p 1 -parallel 3 -count=1 -timeout 30m -v -run '^TestProve' $(ARGS) $(PROVE)
	bin/with go -C internal/web/browser test -count=1 -timeout 10m -v $(ARGS) ./...

manifests: ## hold what is in deploy/ to the types of Kubernetes and Compose
	go -C deploy/check vet ./...
	go -C deploy/check test ./...

lint: $(LINT) ## the linters, the format of the code, and go.mod
	go mod tidy -diff
	$(LINT) run
	cd bench && ../$(LINT) run --config ../.golangci.yaml
	cd internal/web/browser && ../../../$(LINT) run --config ../../../.golangci.yaml
	$(LINT) fmt --diff

bench: ## measure; prints ratios side by side
	@scripts/setup run
	go -C bench run . $(ARGS)

fmt: $(LINT) ## format the code
	$(LINT) fmt

build: ## build bin/scheduler
	@go build $(VCS) -o bin/scheduler ./cmd/scheduler

# The linter is pinned in a module of its own, so that none of what it needs is in ours.
$(LINT): tools/go.mod tools/go.sum
	go -C tools build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
