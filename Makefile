# Everything runs in .venv, which each target creates if it is not there.
# One thread a process: torch's pool is many times slower when processes share the cores.
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1
export NO_MKDOCS_2_WARNING = 1

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Not nproc, which counts one core where OMP_NUM_THREADS is 1.
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

.PHONY: demo test test-slow coverage mutants lint types imports docs bench bench-peers soak build clean test-versions

demo: $(STAMP)
	$(BIN)/fcco demo

test: $(STAMP)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --durations=10

# The same tests, a sixth slower.
coverage: $(STAMP)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --cov --cov-report=
	$(BIN)/coverage report --skip-covered --fail-under=95

test-slow: $(STAMP)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m slow

# Small faults, one at a time, that the tests must notice. MUTANTS=gain: those of one room or file.
MUTANTS ?=
mutants: $(STAMP)
	$(BIN)/python tools/mutants.py --only "$(MUTANTS)"

# One cell of the promised versions, in an environment of its own (6 GB with torch's usual wheel):
# make test-versions PYTHON=python3.13 TORCH=2.8.0
TORCH ?= 2.8.0
VERSIONS ?= .venv/versions
VERSIONS_TESTS ?= tests/unit tests/losses tests/trajectory tests/conformance tests/distributed
CELL = $(VERSIONS)/$(notdir $(PYTHON))-torch$(TORCH)
ifeq ($(OS),Windows_NT)
CELL_BIN = $(CELL)/Scripts
else
CELL_BIN = $(CELL)/bin
endif
test-versions:
	$(PYTHON) -m venv $(CELL)
	grep -v '^torch==' constraints.txt > $(CELL)/constraints.txt
	$(CELL_BIN)/python -m pip install -q -c $(CELL)/constraints.txt torch==$(TORCH) -e '.[dev]'
	$(CELL_BIN)/python -m pytest -q --durations=5 $(VERSIONS_TESTS)

lint: types imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

docs: $(STAMP)
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

# BENCH=--quick: a minute or so each, and noisier. RESULTS: where the figures go, as JSON.
BENCH ?=
RESULTS ?= runs/bench

# KEEP_MEMORY=1: freed memory stays with the process. Handing it back and faulting it in again takes
# a quarter of a CNN's time and scatters; but it is what users pay, and more for whoever allocates
# more, so it is not left out unless asked for.
ifdef KEEP_MEMORY
bench bench-peers: export MALLOC_MMAP_THRESHOLD_ = 8589934592
bench bench-peers: export MALLOC_TRIM_THRESHOLD_ = 8589934592
bench bench-peers: export MALLOC_TOP_PAD_ = 268435456
endif
# The profiler that counts memory warns of what it did not see allocated, which does not count.
bench: export TORCH_CPP_LOG_LEVEL = ERROR
bench: $(STAMP)
	mkdir -p $(RESULTS)
	$(BIN)/python benchmarks/step_cost.py $(BENCH) --output $(RESULTS)/step_cost.json
	$(BIN)/python benchmarks/any_m.py $(BENCH) --output $(RESULTS)/any_m.json
	$(BIN)/python benchmarks/ranks.py --output $(RESULTS)/ranks.json
	$(BIN)/python benchmarks/objective_cost.py $(BENCH) --output $(RESULTS)/objective_cost.json

bench-peers: $(STAMP)
	mkdir -p $(RESULTS)
	$(BIN)/python benchmarks/peers.py $(BENCH) --output $(RESULTS)/peers.json

soak: $(STAMP)
	$(BIN)/python benchmarks/soak.py

# The wheel, and proof that it works beside torch alone.
build: $(STAMP)
	$(BIN)/pip install -q -c constraints.txt build
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --installer pip
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install -q -c constraints.txt dist/*.whl
	cd .venv-wheel && PYTHONPATH=../tests bin/python -W ignore -m support.smoke
	rm -rf .venv-wheel

clean:
	rm -rf .venv .venv-wheel dist site .coverage* .mypy_cache .ruff_cache .pytest_cache

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
