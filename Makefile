# `make demo` and `make test` need only Python >= 3.11, make and a C compiler: each sets itself up first.
#
#   make setup PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#
# picks torch's small CPU build on Linux machines without a GPU.

PYTHON ?= python3
PIP_ARGS ?=
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test quick docs format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up, then all of it in under two minutes: automata, models, explanations, a report"
	@echo "make test    set up, then check format, lint, types and all tests (about 10 minutes on two cores)"
	@echo "make quick   set up, then check format, lint and the tests that are not slow (90 seconds on two cores);"
	@echo "             leaves out types, browser, wheel, demo, documentation, benchmark scripts, killed processes"
	@echo "make docs    the documentation as a site: site/index.html"
	@echo "make setup   only the environment in $(VENV)"
	@echo "make format  rewrite the sources in the project's style"
	@echo "make clean   remove the environment, caches and build outputs"

setup: $(STAMP)

# The stamp comes last, so that an interrupted install starts again, and a changed requirement installs anew.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"rrnn needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e ".[dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# One OpenMP thread per worker: the workers already fill the cores, and more threads would only wait for each other.
# `worksteal` gives each worker a run of neighbouring tests, so that a module's fixtures are seldom made twice.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal

test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(PYTEST) -m "not gpu"

# A test that is listed at the end and takes more than a few seconds should be marked slow, or made faster.
quick: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(PYTEST) -q -m "not gpu and not slow" --hypothesis-profile quick --durations 10 --durations-min 2

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist site demo-output .pytest_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
