# Every target sets up what it needs in .venv the first time and starts at once afterwards.
#   make demo     the whole method on the shipped tiny policy
#   make test     the test suite            make slow     the tests left out of it
#   make check    linters, types, layers, shipped configurations, doctests, the wheel
#   make format   rewrite the code in house style
#   make docs     build the documentation into site/
#   make bench    speed of the parts, measured against plain forms
#   make clean    remove what was built; .venv and runs/ stay
# PYTHON names another interpreter (3.11 or newer); PIP_ARGS is handed to pip.

.DEFAULT_GOAL := help
SHELL := /bin/sh

IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c '$(IS_NEW_ENOUGH)' 2>/dev/null && echo "$$name" && break; done)
PIP_ARGS ?=
PYTEST_ARGS ?=
DEMO_ARGS ?=

BIN := .venv/bin
# Two threads on two busy cores can be five times slower than one, so tests and tools take one a process.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
# Byte-compiling everything pip unpacks would take longer than unpacking it.
INSTALL := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

.PHONY: help demo test slow check lint types layers architecture configs doctest wheel format docs bench clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# ---- set-up ----------------------------------------------------------------------------------------------------

.venv/pyvenv.cfg:
	@if [ -z "$(PYTHON)" ]; then \
		echo "steprs needs Python 3.11 or newer and found none; install one, or name it: make PYTHON=/path/to/python3.12" >&2; \
		exit 1; fi
	@"$(PYTHON)" -c '$(IS_NEW_ENOUGH)' || { \
		echo "steprs needs Python 3.11 or newer, and $(PYTHON) is $$("$(PYTHON)" --version 2>&1); name a newer one: make PYTHON=/path/to/python3.12" >&2; \
		exit 1; }
	@echo "Creating .venv with $$("$(PYTHON)" --version 2>&1) ..."
	@"$(PYTHON)" -m venv .venv || { rm -rf .venv; \
		echo "this Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

.venv/.installed-core: .venv/pyvenv.cfg pyproject.toml constraints.txt
	@echo "Installing torch ..."
	@$(INSTALL) torch
	@echo "Installing steprs, transformers and the rest of what a run needs ..."
	@$(INSTALL) -e '.[plots]'
	@touch $@

.venv/.installed-dev: .venv/.installed-core
	@echo "Installing the tools that test and check ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@

.venv/.installed-docs: .venv/.installed-core
	@echo "Installing the documentation tools ..."
	@$(INSTALL) -e '.[docs]'
	@touch $@

# ---- what people run -------------------------------------------------------------------------------------------

demo: .venv/.installed-core
	@$(BIN)/python -m steprs demo $(DEMO_ARGS)

test: .venv/.installed-dev
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal $(PYTEST_ARGS)

slow: .venv/.installed-dev
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -m slow $(PYTEST_ARGS)

bench: .venv/.installed-dev
	@for script in bench/*.py; do echo; echo "== $$script"; $(ONE_THREAD) $(BIN)/python "$$script" || exit 1; done

docs: .venv/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "documentation: site/index.html"

format: .venv/.installed-dev
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet . ; $(BIN)/python tools/file_map.py ; $(BIN)/python tools/made_pages.py

clean:
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- what continuous integration runs --------------------------------------------------------------------------

check: lint types layers architecture configs doctest wheel
	@echo "make check: everything passed"

lint: .venv/.installed-dev
	@echo "ruff ..."
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .

types: .venv/.installed-dev
	@echo "mypy ..."
	@$(BIN)/mypy --no-error-summary

layers: .venv/.installed-dev
	@echo "import-linter ..."
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

architecture: .venv/.installed-dev
	@echo "architecture ..."
	@$(ONE_THREAD) $(BIN)/python -m pytest -q tests/architecture

configs: .venv/.installed-dev
	@echo "shipped configurations ..."
	@$(ONE_THREAD) $(BIN)/python -m pytest -q tests/e2e/test_shipped_configs.py

doctest: .venv/.installed-dev
	@echo "examples in docstrings and pages ..."
	@$(ONE_THREAD) $(BIN)/python -m pytest -q --doctest-modules --doctest-glob='*.md' src/steprs README.md docs

wheel: .venv/.installed-dev
	@echo "wheel ..."
	@$(ONE_THREAD) $(BIN)/python tools/check_wheel.py
