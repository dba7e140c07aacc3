# Every target does its own set-up: a machine with python3, venv and make is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
# Stories wait as much as they compute: three at a time keep two cores busy. Full counts are switched on by make test-all.
PYTEST := $(BIN)/python -m pytest
# The stories start a thousand processes: compiling all modules in each of them would take as long as the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-all check format lint types contracts stubs bench clean

help:            ## what can be made
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Holdfast needs Python 3.11 or newer, this is %s" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev --editable .
	@touch $@

setup: $(STAMP)  ## build .venv with .venv/bin/holdfast, nothing else

demo: setup      ## less than a minute: an agent and the node are killed, and every job has one result
	$(BIN)/holdfast demo

test: setup      ## the tests, reduced counts
	$(PYTEST) -n 3 --dist worksteal

test-all: setup  ## the tests, full counts
	HOLDFAST_FULL=1 $(PYTEST) -n 3 --dist worksteal --timeout 1800

format: setup    ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

check: lint types contracts test  ## format, lint, types, import contracts, tests

stubs: setup     ## make src/holdfast/wire/gen from the .proto files
	$(BIN)/python -m holdfast.wire.make

bench: setup     ## measure ours and the baselines: tables in bench/out, plots in docs/plots
	$(BIN)/python -m bench

clean:           ## remove what make made
	rm -rf $(VENV) bench/out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
