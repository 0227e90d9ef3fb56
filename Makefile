# make demo: everything from nothing to a report.   make test: the quick check. make test-all: the whole one.   make help: the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Containers often set it: each of the hundreds of processes that tests start would compile all anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo check check-types check-text check-rules check-rules-0 check-rules-1 test test-all test-slow test-long fuzz lab lab-quick docs clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# What is installed and what builds it are pinned; pip from 25.3 on asks for the two apart.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
       $(BIN)/pip install --quiet --disable-pip-version-check

SCANNER := hatch_build.py $(wildcard advisor/ingest/readers/kineto/native/*.[ch])

$(VENV)/.installed: pyproject.toml constraints.txt $(SCANNER)
	@echo 'Installing into $(VENV): downloads torch and others, minutes on a slow network, silent meanwhile ...'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[profile,tune]'
	@touch $@

# Of twenty thousand modules a twentieth is ever imported: each is compiled when it first is.
$(VENV)/.developed: pyproject.toml constraints.txt $(SCANNER)
	@echo 'Installing into $(VENV), with what tests and documentation need: minutes, silent meanwhile ...'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --editable '.[profile,tune,ray,dev,docs,lightning,transformers]'
	@touch $(VENV)/.installed $@

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

# In two halves, each with its core.
RULES := $(sort $(basename $(notdir $(wildcard rules/*.yaml))))
check-rules: check-rules-1 check-rules-0

check-rules-0 check-rules-1:
	@$(BIN)/advisor rules --test $(shell printf '%s\n' $(RULES) | awk 'NR % 2 == $(lastword $(subst -, ,$@))')

# Three, as tests that wait for processes leave one of two cores free.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal
# test-all has test run first, unless it has passed for every file as it is now.
PASSED  := build/test.passed
# What test reads and diagnoses of recordings, test-all need not.
KEPT    := build/read-once
READ    := advisor rules workloads tests fixtures benchmarks docs $(wildcard *.toml *.txt *.yml *.py *.md) Makefile
CHANGED = find $(READ) -newer $(PASSED) -type f ! -path '*/__pycache__/*' ! -name '*.so' -print -quit

test: ## format, lint, types, layers, rule examples, units, a real recording (in minutes)
	@mkdir -p build && rm -rf $(PASSED) $(KEPT) && touch build/test.begun
	@$(MAKE) --no-print-directory check
	ADVISOR_TEST_KEPT=$(KEPT) $(PYTEST) -m 'not slow and not chromium and not long'
	@mv build/test.begun $(PASSED)

test-all: ## test, and processes, Chromium, Ray, wheels, strategies, documentation
	@test -e $(PASSED) && test -z "$$($(CHANGED))" || $(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory --jobs 2 docs test-slow

test-slow:
	ADVISOR_TEST_KEPT=$(KEPT) $(PYTEST) -m '(slow or chromium) and not long'

# Counting coverage costs a quarter of the time: here alone, of these and the quick tests.
test-long: $(VENV)/.developed ## what shows more of the same, and coverage: before a release, and beside make fuzz
	ADVISOR_TEST_EXAMPLES=long $(PYTEST) --cov=advisor --cov-report=term:skip-covered \
	  -m 'long or hypothesis or not (slow or chromium)'

SEED ?= $(shell date +%s)

fuzz: $(VENV)/.installed ## every fuzzer, with another seed each time: ten minutes of processor time
	$(BIN)/python -m benchmarks.fuzz.kineto --inputs 100000 --seed $(SEED)
	$(BIN)/python -m benchmarks.fuzz.readers --minutes 8 --seed $(SEED)
	$(BIN)/python -m benchmarks.fuzz.sanitized --inputs 300000 --seed $(SEED)

lab: $(VENV)/.installed ## root: record faults and healthy runs for real (40 min), score the diagnosis
	$(BIN)/python -m benchmarks.lab record
	$(BIN)/python -m benchmarks.lab score

lab-quick: $(VENV)/.installed ## root: the same for a few cases, under 5 minutes
	$(BIN)/python -m benchmarks.lab record --quick --out build/lab-quick
	$(BIN)/python -m benchmarks.lab score build/lab-quick --results build/lab-quick/results.json

docs: $(VENV)/.developed ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean: ## remove what was built, not .venv
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache site
