# What one types to set up, try, check and measure Stoker. `make` alone prints this list.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test test-hooks test-resume lint check bench docs setup clean

PYTHON ?= python3
PY := .venv/bin/python
STAMP := .make/setup
# Start servers, runs and machines by the dozen; `make test` has them. A new file takes part in `make check` until it is named here.
LONG := $(wildcard tests/agent/test_agent_[!s]*.py tests/agent/test_agent_stop.py tests/cli/test_cli_foreground.py tests/cli/test_cli_verbs.py \
  tests/client/test_*.py tests/contract/test_plane.py tests/contract/test_backend.py tests/contract/test_host.py tests/plane/test_plane_crash.py tests/server/test_*.py)

help:                ## print this list
	@awk -F ' *## ' '/^[a-z-]+:.*## / {split($$1, t, ":"); printf "make %-11s %s\n", t[1], $$2}' Makefile

setup: $(STAMP)      ## make .venv with Stoker, its tests and torch in it
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "Stoker needs Python 3.11 or newer: make PYTHON=python3.12 setup"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "This Python cannot make virtual environments: apt-get install python3-venv"; exit 1; }
	@test -x $(PY) || { echo "making .venv"; $(PYTHON) -m venv .venv; }
	@echo "installing Stoker and torch into .venv (a minute or two)"
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]' torch
	@mkdir -p .make && touch $(STAMP)

run: $(STAMP)        ## train examples/digits under Stoker, then show what it kept
	@export PATH="$$PWD/.venv/bin:$$PATH"; \
	echo '$$ stoker run examples/digits/train.py'; stoker run examples/digits/train.py && \
	run=$$(stoker ps -a --json | $(PY) -c 'import json, sys; print(max(json.load(sys.stdin), key=lambda r: r["created_at"])["id"])') && \
	echo && echo "\$$ stoker show $$run" && stoker show "$$run"

test: $(STAMP)       ## the suite, without the two that follow (15 minutes)
	$(PY) tests/again.py -n 4 --dist worksteal -m "not campaign and not inside"

test-hooks: $(STAMP) ## what works inside of scripts: exact resume, clock, tuner, with real trainings (twenty minutes)
	$(PY) tests/again.py -n 3 --dist worksteal -m "inside and not campaign"

test-resume: $(STAMP) ## exact resume against some hundred scripts: kills, frameworks, other people's scripts (half an hour)
	$(PY) -m pytest -q -n 2 --dist worksteal -m campaign

lint: $(STAMP)       ## ruff over all Python files, mypy over src but for what works inside of scripts
	$(PY) -m ruff check src tests benchmarks docs examples
	$(PY) -m mypy

check: lint          ## before every commit: ruff, mypy and the quick tests (three minutes)
	$(PY) -m pytest -q -n 2 --dist worksteal -m "not slow and not real and not gpu" $(LONG:%=--ignore=%)

bench: $(STAMP)      ## every number of docs/benchmarks.md, measured here, into build/benchmarks.md (a night)
	$(PY) benchmarks/run.py

docs: $(STAMP)       ## write the pages that come from the code, then build the documentation into build/site
	$(PY) docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo "open build/site/index.html"

clean:               ## remove what the targets above made (your runs in ~/.stoker stay)
	rm -rf .venv .make .pytest_cache .ruff_cache .mypy_cache build dist
	find src tests benchmarks docs examples -name __pycache__ -type d -prune -exec rm -rf {} +
