# Needs Python 3.11 or newer, pip and make. Uses uv where it is on the PATH.
PYTHON ?= python3
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null)
PIP := -m pip --disable-pip-version-check --quiet

.PHONY: help install run test check fix bench quality soak foreign
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

install: .venv/.installed ## Set up .venv (again only when pyproject.toml has changed)

run: install ## Start the gateway; the first run writes a config and prints a token
	@$(BIN)/pointsman serve

test: install foreign ## Run all tests
	$(BIN)/python -m pytest

check: install ## Format, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src/pointsman tests bench
	$(BIN)/lint-imports

fix: install ## Repair what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## Measure calls, discovery, start and memory; prints figures, asserts none
	$(BIN)/python -m bench

quality: install ## Does search find the right tool? On the sets that POINTSMAN_TOOL_SEARCH_DATA names
	$(BIN)/python -m bench.quality

soak: install ## 10,000 calls and 1,000 abandoned sessions: does memory come back?
	$(BIN)/python -m bench.soak

.venv/.installed: pyproject.toml
ifdef UV
	uv venv --quiet --allow-existing --python $(if $(filter file,$(origin PYTHON)),'>=3.11',$(PYTHON)) .venv
	uv pip install --quiet --python $(BIN)/python --editable . --group dev
else
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Pointsman needs Python 3.11 or newer. Name one: make $(or $(MAKECMDGOALS),install) PYTHON=python3.12" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) install --upgrade 'pip>=25.1'
	$(BIN)/python $(PIP) install --editable . --group dev
endif
	@touch $@

# Servers from PyPI and npm for the end-to-end tests. Where one cannot be installed, its tests say so and are skipped.
foreign: .foreign/python/.installed .foreign/node/.installed ## Install the foreign servers that the tests use

.foreign/python/.installed: tests/e2e/foreign/requirements.txt | .venv/.installed
	@echo "Installing servers from PyPI for the end-to-end tests"
ifdef UV
	@{ uv venv --quiet --allow-existing --python $(BIN)/python $(@D) \
	  && uv pip install --quiet --python $(@D)/bin/python --requirement $< && touch $@; } \
	  || echo "Not installed: the tests with servers from PyPI will be skipped" >&2
else
	@{ $(BIN)/python -m venv $(@D) \
	  && $(@D)/bin/python $(PIP) install --requirement $< && touch $@; } \
	  || echo "Not installed: the tests with servers from PyPI will be skipped" >&2
endif

.foreign/node/.installed: tests/e2e/foreign/package.json
	@echo "Installing servers from npm for the end-to-end tests"
	@{ command -v npm >/dev/null && mkdir -p $(@D) && cp $< $(@D)/ \
	  && npm install --prefix $(@D) --silent --ignore-scripts --no-audit --no-fund --no-package-lock && touch $@; } \
	  || echo "Not installed: the tests with servers from npm will be skipped (is Node there?)" >&2
