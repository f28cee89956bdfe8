# Everything runs in .venv, which each target creates if it is not there.
# One thread a process: torch's pool is many times slower when processes share the cores.
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1
export NO_MKDOCS_2_WARNING = 1

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test test-slow coverage lint types imports docs bench build clean

demo: $(STAMP)
	$(BIN)/fcco demo

test: $(STAMP)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --cov --cov-report= --durations=10
	$(BIN)/coverage report --skip-covered --fail-under=95

test-slow: $(STAMP)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m slow

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

bench: $(STAMP)
	$(BIN)/python benchmarks/step_cost.py
	$(BIN)/python benchmarks/objective_cost.py

# The wheel, and proof that it works beside torch alone.
build: $(STAMP)
	$(BIN)/pip install -q -c constraints.txt build
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --installer pip
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install -q -c constraints.txt dist/*.whl
	cd .venv-wheel && bin/python -W ignore -m fcco.testing.smoke
	rm -rf .venv-wheel

clean:
	rm -rf .venv .venv-wheel dist site .coverage* .mypy_cache .ruff_cache .pytest_cache

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
