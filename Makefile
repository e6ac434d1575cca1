# Needs Python 3.11 or newer, pip and make; everything else goes into .venv, once.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
BENCH_READY := .venv/.ready-bench
DOCS_READY := .venv/.ready-docs

# pyright comes whole from pip; it need not look for newer versions of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: studies test calibrate bench docs gallery format clean

studies: $(READY)
	$(BIN)/sumout studies

# Tests of one file share what they have compiled and run.
test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pytest -n 2 --dist loadfile

calibrate: $(READY)
	$(BIN)/pytest -n 2 -m calibration

bench: $(BENCH_READY)
	$(BIN)/python -m benchmarks.imports
	$(BIN)/python -m benchmarks.gibbs_sweep
	$(BIN)/python -m benchmarks.marginal
	$(BIN)/python -m benchmarks.gradients
	$(BIN)/python -m benchmarks.loops
	$(BIN)/python -m benchmarks.ecology
	$(BIN)/python benchmarks/large_supports.py
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.pymc_models
	$(BIN)/python -m benchmarks $(BENCH)
	@echo "python -m benchmarks.pages --take makes the tables of the docs from what was measured."

# Into site/, without the network; a warning is an error.
docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Runs the scripts of the gallery and draws its pictures again.
gallery: $(READY)
	$(BIN)/python docs/draw_gallery.py
	$(BIN)/python docs/draw_structures.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .pytest_cache .ruff_cache build dist site

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e ".[test,plots]"
	touch $@

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install -c constraints.txt -e ".[bench]"
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install -c constraints.txt -e ".[docs]"
	touch $@
