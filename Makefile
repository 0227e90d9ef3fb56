# make demo: everything from nothing to a report.   make test: the quick check. make test-all: the whole one.   make help: the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo check check-types check-text check-rules test test-all lab lab-quick docs clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

SCANNER := hatch_build.py $(wildcard advisor/ingest/readers/kineto/native/*.[ch])

$(VENV)/.installed: pyproject.toml constraints.txt $(SCANNER)
	@echo 'Installing into $(VENV): downloads torch and others, minutes on a slow network, silent meanwhile ...'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[profile,tune]'
	@touch $@

$(VENV)/.developed: $(VENV)/.installed
	$(PIP) --editable '.[profile,tune,ray,dev,docs,lightning,transformers]'
	@touch $@

demo: $(VENV)/.installed ## profile a tiny GPT-2 on two processes, diagnose it, write report.html
	$(BIN)/advisor demo
	@echo 'The commands above work after: source $(VENV)/bin/activate'

check: $(VENV)/.developed
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check-types check-text check-rules

check-types:
	$(BIN)/mypy

check-text:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

check-rules:
	$(BIN)/advisor rules --test

PYTEST := $(BIN)/pytest -n 2 --dist worksteal

test: check ## format, lint, types, layers, rule examples, units, a real recording (under 4 minutes)
	$(PYTEST) -m 'not slow and not chromium'

test-all: check ## all tests: processes, Chromium, Ray, wheels, strategies, documentation, coverage
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(PYTEST) --cov=advisor --cov-report=term:skip-covered

lab: $(VENV)/.installed ## root: record faults and healthy runs for real (40 min), score the diagnosis
	$(BIN)/python -m benchmarks.lab record
	$(BIN)/python -m benchmarks.lab score

lab-quick: $(VENV)/.installed ## root: the same for a few cases, under 5 minutes
	$(BIN)/python -m benchmarks.lab record --quick --out build/lab-quick
	$(BIN)/python -m benchmarks.lab score build/lab-quick --results build/lab-quick/results.json

docs: $(VENV)/.developed ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove what was built, not .venv
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache site
