# Each target makes what it needs: a virtual environment with the tested versions of constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check bench docs clean

demo: $(VENV)/.train
	$(BIN)/diaulos demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.train
	$(BIN)/python benchmarks/planner.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/sleeping.py
	$(BIN)/python benchmarks/slow_reduction.py
	$(BIN)/python benchmarks/pipelining.py
	$(BIN)/python benchmarks/overhead.py

docs: $(VENV)/.dev
	$(BIN)/python docs/refresh.py README.md docs/*.md

clean:
	rm -rf $(VENV) runs dist

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.train: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) --editable '.[train]'
	touch $@

$(VENV)/.dev: $(VENV)/.train
	$(INSTALL) --editable '.[train,dev]'
	touch $@
