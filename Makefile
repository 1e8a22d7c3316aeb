# Everything runs in .venv, which is made on first use and again when pyproject.toml or
# constraints.txt change. Needs Python >= 3.11: make PYTHON=python3.12 ... picks another one.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# Names every package on the way, so that nobody waits before an empty screen.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
INSTALL := $(BIN)/pip install --disable-pip-version-check --progress-bar off -c constraints.txt
TELL := sed -un 's/^ *Installing build dependencies: started.*/  build tools/p; s/^Collecting \([A-Za-z0-9_.-]*\).*/  \1/p; s/^Installing collected packages.*/  installing them .../p'

.DEFAULT_GOAL := help
# `docs` is also a directory.
.PHONY: docs run test attack check bench bench-solver bench-training bench-on-policy bench-plug bench-rllib bench-offline bench-runners clean help

run: .venv/.installed-agents  ## show what the package does; ARGS="--seed 3" trains with another seed
	@$(BIN)/python examples/first_look.py
	@$(BIN)/python examples/risky_pendulum.py $(ARGS)

test: .venv/.installed-dev  ## run the tests; ARGS="-k risk" picks some
	@$(BIN)/python -m pytest -n 2 $(ARGS)

test-all: .venv/.installed-dev  ## run the slow tests too: long kill studies, statistics, all of SBX
	@$(BIN)/python -m pytest -n 2 -m '' $(ARGS)

attack: .venv/.installed-dev  ## attack the program, count what happens; ARGS="damaged --count 50" picks
	@$(BIN)/python tests/attack/run.py $(ARGS)

check: .venv/.installed-dev  ## lint, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: .venv/.installed-dev  ## make the documentation site: site/index.html
	@# Not -q: with it mkdocs counts no warnings, and --strict lets everything pass.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1 | sed '/^INFO/d'
	@echo "Wrote site/index.html"

bench: bench-solver bench-training bench-on-policy bench-plug bench-rllib bench-offline bench-runners  ## time everything against other libraries

bench-solver: .venv/.installed-bench
	@$(BIN)/python benchmarks/solver.py $(ARGS)

bench-training: .venv/.installed-bench
	@$(BIN)/python benchmarks/training.py $(ARGS)

bench-on-policy: .venv/.installed-bench
	@$(BIN)/python benchmarks/on_policy.py $(ARGS)

bench-plug: .venv/.installed-bench
	@$(BIN)/python benchmarks/plug.py $(ARGS)

bench-rllib: .venv/.installed-bench
	@$(BIN)/python benchmarks/rllib.py $(ARGS)

bench-offline: .venv/.installed-bench
	@$(BIN)/python benchmarks/offline.py $(ARGS)

bench-runners: .venv/.installed-bench
	@$(BIN)/python benchmarks/runners.py $(ARGS)

clean:  ## remove .venv, caches, builds and out/
	@rm -rf .venv out build dist site src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## /  make \1\t/p' $(MAKEFILE_LIST)

# A stamp is written last, so an installation that failed is tried again. Each is newer than what it
# stands on: `make run` needs little, the tests need all extras.
.venv/.installed-agents: pyproject.toml constraints.txt
	@echo "Setting up .venv: about 1 GB, some minutes ..."
	@$(PYTHON) -m venv .venv
	@$(INSTALL) -e '.[agents]' | $(TELL)
	@touch $@

.venv/.installed-dev: .venv/.installed-agents
	@echo "Adding what the tests need ..."
	@$(INSTALL) -e '.[dev]' | $(TELL)
	@touch $@

.venv/.installed-bench: .venv/.installed-dev
	@echo "Adding what the benchmarks need ..."
	@$(INSTALL) -e '.[bench]' | $(TELL)
	@touch $@
