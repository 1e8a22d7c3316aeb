# Everything runs in .venv, which is made on first use and again when pyproject.toml or
# constraints.txt change. Needs Python >= 3.11: make PYTHON=python3.12 ... picks another one.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
INSTALL := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: run test attack check bench bench-solver bench-training bench-on-policy bench-plug bench-offline bench-runners clean help

run: .venv/.installed  ## show what the package does; ARGS="--seed 3" trains with another seed
	@$(BIN)/python examples/first_look.py
	@$(BIN)/python examples/risky_pendulum.py $(ARGS)

test: .venv/.installed  ## run the tests; ARGS="-k risk" picks some
	@$(BIN)/python -m pytest -n 2 $(ARGS)

test-all: .venv/.installed  ## run the slow tests too: long kill studies, statistics, all of SBX
	@$(BIN)/python -m pytest -n 2 -m '' $(ARGS)

attack: .venv/.installed  ## attack the program, count what happens; ARGS="damaged --count 50" picks
	@$(BIN)/python tests/attack/run.py $(ARGS)

check: .venv/.installed  ## lint, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: bench-solver bench-training bench-on-policy bench-plug bench-offline bench-runners  ## time everything against other libraries

bench-solver: .venv/.installed-bench
	@$(BIN)/python benchmarks/solver.py $(ARGS)

bench-training: .venv/.installed-bench
	@$(BIN)/python benchmarks/training.py $(ARGS)

bench-on-policy: .venv/.installed-bench
	@$(BIN)/python benchmarks/on_policy.py $(ARGS)

bench-plug: .venv/.installed-bench
	@$(BIN)/python benchmarks/plug.py $(ARGS)

bench-offline: .venv/.installed-bench
	@$(BIN)/python benchmarks/offline.py $(ARGS)

bench-runners: .venv/.installed-bench
	@$(BIN)/python benchmarks/runners.py $(ARGS)

clean:  ## remove .venv, caches, builds and out/
	@rm -rf .venv out build dist src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## /  make \1\t/p' $(MAKEFILE_LIST)

# The stamp is written last, so an installation that failed is tried again.
.venv/.installed: pyproject.toml constraints.txt
	@echo "Setting up .venv ..."
	@$(PYTHON) -m venv .venv
	@$(INSTALL) -e '.[dev]'
	@touch $@

.venv/.installed-bench: .venv/.installed
	@echo "Adding what the benchmarks need ..."
	@$(INSTALL) -e '.[bench]'
	@touch $@
