# The two commands are `make demo` and `make test`; both set up .venv when it is missing or out of date.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where Python is told to keep no bytecode, each of the dozens of processes that tests start compiles polyfed anew (2 s).
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-rest test-all test-deploy test-chaos test-trackers test-floor dist lint format scale docs site bench torch fedjax pfl flower browser faketime clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/'

setup: $(READY) ## create .venv and install polyfed with its pinned dependencies

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "polyfed needs Python 3.11 or newer; set PYTHON=/path/to/python3.11 (found: $$($(PYTHON) --version 2>&1))"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(abspath constraints.txt) $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(READY) ## compare methods on embedded data; ends with a table and a report page
	$(BIN)/polyfed demo

# A file's tests run in one worker: there they find its fixtures, and the programs that the first of them traced.
# Files go in their order: by default those with the fewest tests come last, and these are often the longest.
# A worker has one core: small products of NumPy take many times as long where threads of both wait for each other.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(READY) ## run the tests that a contributor needs, in minutes: units, and one method of each shape
	$(PYTEST) -m 'not full and not deploy'

test-rest: $(READY) ## run the tests that `make test` leaves out: every method, long runs
	$(PYTEST) -m 'full and not deploy'

test-all: $(READY) ## run both
	$(PYTEST) -m 'not deploy'

test-deploy: $(READY) ## run the tests of deployed runs, with real processes that are killed and restarted
	$(BIN)/python -m pytest tests/deploy

test-chaos: $(READY) faketime ## run federations of five sites through random faults for 10 minutes; ARGS="--hours 2", "--seed 7 --replay"
	$(BIN)/python -m tests.deploy.chaos $(ARGS)

faketime: ## install libfaketime, for clocks that jump, where the system's package manager is apt
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || ! command -v apt-get >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libfaketime >/dev/null; }

test-trackers: $(READY) ## install MLflow, Weights & Biases and flwr-datasets, which other tests do without, and run the tests that need them
	PIP_CONSTRAINT=$(abspath constraints.txt) $(BIN)/python -m pip install --quiet --editable '.[huggingface,mlflow,wandb]'
	$(BIN)/python -m pytest tests/track tests/data/formats/test_hugging_face.py

test-floor: $(READY) ## every command with the lowest and the newest allowed dependencies; ARGS="--python 3.11 --bounds lowest"
	$(BIN)/python -m tests.package.floor $(ARGS)

DIST := .venv-dist/bin
dist: $(READY) ## build the wheel and the sdist, check both, and run the demo from the wheel in a fresh environment
	test -x $(DIST)/twine || { $(PYTHON) -m venv .venv-dist && $(DIST)/python -m pip install --quiet build twine; }
	rm -rf dist build/fresh
	$(DIST)/python -m build --outdir dist .
	$(DIST)/twine check --strict dist/*
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/python -m pip install --quiet dist/*.whl
	$(BIN)/python -m tests.package.check_dist dist build/fresh/bin/python

lint: $(READY) ## ruff, pyright, and the layers of the packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(READY) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

scale: $(READY) ## measure a million clients and what grows with what, and renew docs/scale.md; on a quiet machine
	$(BIN)/polyfed bench scale --growth --writers --picture docs/images/scale.png --record docs/scale.json
	$(BIN)/python docs/build.py

docs: $(READY) ## renew the generated tables of the docs, check their links, run their examples
	$(BIN)/python docs/build.py

DOCS_READY := .venv-docs/.ready
SOURCES := $(shell find src -name '*.py')
BOOKS := $(patsubst docs/%,build/%,$(wildcard docs/notebooks/*.ipynb))

$(DOCS_READY): pyproject.toml constraints.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	PIP_CONSTRAINT=$(abspath constraints.txt) .venv-docs/bin/python -m pip install --quiet --editable '.[docs]'
	@touch $@

build/report/report.html: $(DOCS_READY) $(SOURCES)
	.venv-docs/bin/polyfed demo --quiet --out build/report

build/notebooks/%.ipynb: docs/notebooks/%.ipynb docs/site/execute.py $(DOCS_READY) $(SOURCES)
	.venv-docs/bin/python docs/site/execute.py $< $@

site: $(READY) build/report/report.html $(BOOKS) ## build the docs as a site, build/site, with the outputs of its notebooks, and look at it in Chromium
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	$(BIN)/python -m tests.package.look_at_site build/site

bench: $(READY) torch fedjax pfl flower ## every framework on the same work, in turns; writes docs/benchmarks.md and its chart
	$(BIN)/python benchmarks/run.py $(ARGS)

torch: ## an environment with PyTorch, for the loops that `make bench` and `polyfed bench` run beside ours
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet 'torch==2.13.0' numpy

fedjax: ## an environment with FedJAX and the JAX that it runs on
	test -x .venv-fedjax/bin/python || $(PYTHON) -m venv .venv-fedjax
	.venv-fedjax/bin/python -m pip install --quiet 'fedjax==0.0.17' 'jax==0.4.25' 'jaxlib==0.4.25' 'numpy<2' \
	  'dm-haiku<0.0.13' 'scipy<1.13'

pfl: ## an environment with pfl; PyTorch comes first, pinned, as the unpinned one may bring CUDA
	test -x .venv-pfl/bin/python || $(PYTHON) -m venv .venv-pfl
	.venv-pfl/bin/python -m pip install --quiet 'torch==2.13.0'
	.venv-pfl/bin/python -m pip install --quiet 'pfl[pytorch]==0.6.0'

flower: ## an environment with Flower's simulation and Ray
	test -x .venv-flower/bin/python || $(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet 'torch==2.13.0'
	.venv-flower/bin/python -m pip install --quiet 'flwr[simulation]==1.41.0'

browser: ## install headless Chromium where the system's package manager is apt
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; }

clean: ## remove what the build made
	rm -rf $(VENV) .venv-torch .venv-fedjax .venv-pfl .venv-flower .venv-docs .venv-dist build dist .pytest_cache .ruff_cache .hypothesis
