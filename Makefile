# Every target sets itself up: it needs Python 3.11 or newer and make, nothing else.
MEMBERS := protos libs/common libs/client libs/devkit services/writer services/session services/admin
BIN := .venv/bin
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$candidate -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$candidate && break; done)
PYTEST := $(BIN)/python -m pytest
WORKERS ?= 2
BUF_VERSION := v1.75.0
BUF := .cache/buf-$(BUF_VERSION)/buf
ON_BACKEND = $(if $(BACKEND),--backend '$(BACKEND)') $(if $(CASSANDRA),--cassandra '$(CASSANDRA)')
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Tests start hundreds of processes, each of which would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo up cassandra-up cassandra-down test check lint format format-check types imports unit contract integration \
	e2e acceptance conformance replay model mutants faults k8s-check protos buf bench lock clean

help: ## List every target with a line of explanation (the default)
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.members ## Make .venv from the hash-pinned requirements.lock and install the project editable

demo: setup ## Start the suite and play the hiking group, every number checked (under a minute, once set up)
	@$(BIN)/python -m qim_devkit.demo

up: setup ## Run the suite in the foreground; Ctrl-C stops it, its data stays in .qim/; BACKEND=tiered: on Cassandra, .qim/tiered/, the nodes in CASSANDRA=dir
	@$(BIN)/qim-dev up $(ON_BACKEND)

cassandra-up: setup ## Start a Cassandra cluster of three nodes on loopback, data in .qim/cassandra; needs Java and, once, Maven
	@$(BIN)/qim-dev cassandra-up

cassandra-down: setup ## Stop that cluster; its data stays
	@$(BIN)/qim-dev cassandra-down

test: setup ## Run every test, end to end included; pytest's summary comes last
	@$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: lint format-check types imports unit ## Everything quick before a commit: lint, format, types, layers, unit tests

lint: setup ## Find faults with ruff
	@$(BIN)/ruff check .

format: setup ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

format-check: setup ## Tell whether the code is formatted
	@$(BIN)/ruff format --check .

types: setup ## Check types with mypy --strict
	@$(BIN)/mypy

imports: setup ## Check the layers with import-linter
	@$(BIN)/lint-imports

unit: setup ## Run the unit tests
	@$(PYTEST) tests/unit

contract: setup ## Run the contract tests: the trait's conditions and the storage suite
	@$(PYTEST) tests/contract

integration: setup ## Run the integration tests: one service over mTLS, a real Valkey
	@$(PYTEST) tests/integration

e2e: setup ## Run the end-to-end tests: the whole suite as processes
	@$(PYTEST) tests/e2e

acceptance: setup ## Run the acceptance list of ADR-0021 on a real Valkey and three real nodes of Cassandra (CASSANDRA=dir: those)
	@QIM_TEST_SKIP=no $(if $(CASSANDRA),QIM_TEST_CASSANDRA='$(CASSANDRA)') $(PYTEST) tests/acceptance

conformance: setup ## Perform scenario files (FILES="a.yaml b.yaml" MODE=all BACKEND=tiered CASSANDRA=dir; default: all, pulled, redis)
	@$(BIN)/python -m tests.conformance.runner $(if $(MODE),--mode $(MODE)) $(ON_BACKEND) $(FILES)

replay: setup ## Import TRACE=room.jsonl and compare each person with EXPECT=room.csv (NEWCOMER= REJOIN= LEAVER= BACKEND= CASSANDRA=)
	@$(BIN)/python -m qim_devkit.replay $(if $(NEWCOMER),--newcomer '$(NEWCOMER)') $(if $(REJOIN),--rejoin '$(REJOIN)') \
		$(if $(LEAVER),--leaver '$(LEAVER)') $(ON_BACKEND) '$(TRACE)' '$(EXPECT)'

model: setup ## Play thousands of sequences against the reference models; QIM_MODEL_SEQUENCES=N, QIM_MODEL_STEPS=N, QIM_CONSUMER_WALKS=N for more
	@QIM_MODEL_STEPS="$${QIM_MODEL_STEPS:-60}" $(PYTEST) tests/model

mutants: setup ## Weaken one rule at a time and show which test notices; MUTANTS="words" for those named so
	@$(BIN)/python -m tests.mutants $(MUTANTS)

faults: setup ## Run the fault tests: killed processes, cut connections
	@$(PYTEST) tests/faults

k8s-check: setup ## Check the Kubernetes manifests: schemas, the code, and where Go and etcd are a real API server; OVERLAY=dir: yours
	@$(BIN)/python -m qim_devkit.kubernetes.check $(if $(OVERLAY),--overlay '$(OVERLAY)')

protos: .venv/.locked ## Generate protos/gen from protos/qim
	@$(BIN)/python libs/devkit/src/qim_devkit/protos.py

buf: .venv/.locked ## Lint the protos with buf, built with Go on first use; skipped where Go is missing
	@if ! command -v go >/dev/null 2>&1 && ! test -x $(BUF); then \
		echo "buf lint: skipped, Go is not installed (buf is built from the Go module github.com/bufbuild/buf)"; \
	else \
		$(MAKE) --silent --no-print-directory $(BUF) && \
		$(BIN)/python libs/devkit/src/qim_devkit/protos.py --copy-includes .cache/googleapis && \
		$(BUF) lint && echo "buf lint: no fault"; \
	fi

bench: setup ## Measure on this machine, beside raw baselines; BACKEND=tiered: commits and archiving with Cassandra (CASSANDRA=dir) beside
	@$(BIN)/python -m bench $(ON_BACKEND)

lock: .venv/.locked ## Turn requirements.in into the hash-pinned requirements.lock, and that into the lock file of each image
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		requirements.in --output-file requirements.lock
	@$(MAKE) --silent --no-print-directory .venv/.locked
	@$(BIN)/python libs/devkit/src/qim_devkit/image_locks.py

clean: ## Remove the virtual environment and all caches; the data in .qim/ stays
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "qim needs Python 3.11 or newer with its venv module; none was found." \
		"Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "qim needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
		"Name another one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear .venv

.venv/.locked: requirements.lock | .venv/bin/python
	@echo "Installing the locked dependencies"
	@$(PIP_INSTALL) --require-hashes --requirement requirements.lock
	@touch $@

.venv/.members: .venv/.locked $(MEMBERS:%=%/pyproject.toml)
	@echo "Installing the project's packages, editable"
	@$(PIP_INSTALL) --no-build-isolation --no-deps $(MEMBERS:%=--editable %)
	@touch $@

$(BUF):
	@echo "Building buf $(BUF_VERSION) with $$(go version)"
	@GOBIN="$(CURDIR)/$(@D)" go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
