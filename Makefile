# Every target does its own set-up: a machine with python3, venv and make is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# What a node needs, and what working on it needs besides: two stamps in one environment, made in any order.
NODE   := $(VENV)/.node
STAMP  := $(VENV)/.ready
PIP    := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Peers of the measurements: optional, in an environment of their own, so that ours is measured as users have it.
PEERS  := .venv-peers
# Stories wait as much as they compute: three at a time keep two cores busy. Full counts are switched on by make test-all.
PYTEST := $(BIN)/python -m pytest
TESTS  := $(PYTEST) -n 3 --dist worksteal
# What runs in the test's own process: lines that only other processes reach are not counted.
COVERED := $(filter-out tests/stories/ tests/mutants/,$(wildcard tests/*/))
# The stories start a thousand processes: compiling all modules in each of them would take as long as the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install setup demo test test-one test-all tests coverage attack check format lint types contracts page wheel browser reference picture client stubs peers bench clean

help:            ## what can be made
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(NODE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Holdfast needs Python 3.11 or newer, this is %s" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[gateway,blobs]'
	@touch $@

$(STAMP): $(NODE)
	$(PIP) --upgrade pip
	$(PIP) --group dev
	@touch $@

install: $(NODE)  ## build .venv with .venv/bin/holdfast and what a node needs

setup: $(STAMP)  ## the same, with what working on it needs

demo: install    ## about a minute: an agent and the node are killed, the archive refuses, and every job has one result
	$(BIN)/holdfast demo

test: lint contracts  ## format check, lint, types, import contracts, then the tests with reduced counts
	@# Each process of the tests loads all of them: one compiles them before, on the processor that mypy leaves idle.
	$(PYTEST) --collect-only -qq >/dev/null & $(BIN)/mypy && wait
	$(TESTS)

check: test      ## the same as make test

tests: setup     ## the tests alone, reduced counts
	$(TESTS)

test-one: setup  ## some tests, one process, with their output: make test-one T=tests/core/lease or T="-k fence"
	@test -n "$(T)" || { echo 'name them: make test-one T=tests/core/lease'; exit 2; }
	$(PYTEST) -x --tb=short -s $(T)

test-all: lint types contracts  ## full counts, then a coverage report
	HOLDFAST_FULL=1 $(TESTS) --timeout 1800
	$(MAKE) coverage

coverage: setup  ## which lines the tests of one process reach; HTML in .coverage-html
	$(TESTS) --cov=holdfast --cov-report=term:skip-covered --cov-report=html:.coverage-html $(COVERED)

format: setup    ## rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

attack: setup    ## all abuse cases together, both stores, kills in between: an hour, or ATTACK_S seconds a store
	HOLDFAST_FULL=1 ATTACK_S=$(or $(ATTACK_S),1800) $(PYTEST) -s tests/stories/faults/test_attack.py --timeout 7200

page: install    ## build the page at / of a node; Node and npm packages come by themselves
	$(PIP) --upgrade pip
	$(PIP) --group page
	$(BIN)/python -m tools.build_page

wheel: page      ## build dist/*.whl with the page in it
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

browser:         ## install Debian's Chromium, with which the tests look at the page (as root)
	apt-get update -qq && apt-get install -y -qq chromium

reference: setup ## write docs/reference from the code
	$(BIN)/python -m tools.generate_reference

picture: setup page  ## photograph the page for README.md, with Chromium (make browser)
	$(BIN)/python -m tools.picture_page

client: setup    ## make the blocking client from the asynchronous one
	$(BIN)/python tools/generate_sync.py

stubs: setup     ## make src/holdfast/wire/gen from the .proto files
	$(BIN)/python -m tools.generate_stubs

$(PEERS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	PIP_CONSTRAINT=constraints.txt $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	PIP_CONSTRAINT=constraints.txt $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --group bench
	@command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix $(PEERS)/node pg-boss graphile-worker pg \
		|| echo 'no npm: pg-boss and graphile-worker will not be measured'
	@touch $@

peers: setup $(PEERS)/.ready  ## install the peers that make bench measures beside Holdfast

bench: peers     ## measure ours, the baselines and the peers on a quiet machine: tables in bench/out, plots in docs/plots
	$(BIN)/python -m bench --wait-quiet

clean:           ## remove what make made
	rm -rf $(VENV) $(PEERS) .page-build src/holdfast/api/dashboard/static bench/out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage-html
