# Needs Python 3.11 or newer, pip and make. Uses uv where it is on the PATH.
PYTHON ?= python3
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null)

.PHONY: install run test check fix

install: .venv/.installed

.venv/.installed: pyproject.toml
ifdef UV
	uv venv --quiet --allow-existing --python $(PYTHON) .venv
	uv pip install --quiet --python $(BIN)/python --editable . --group dev
else
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
endif
	touch $@

run: install
	$(BIN)/pointsman serve

test: install
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src/pointsman tests
	$(BIN)/lint-imports

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
