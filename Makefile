# Every verb sets up what it needs; nothing is fetched when nothing has changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup

.PHONY: help setup demo run check test load-test cluster-test bench lock
.DEFAULT_GOAL := help

help: ## Show the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1	/' | expand -t 14

setup: $(SETUP) ## Make the virtual environment from the locked dependencies

# The stamp is touched last, so that a set-up that was cut off starts again.
$(SETUP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 to 3.13 is needed; PYTHON=... names one" if not (3, 11) <= sys.version_info[:2] <= (3, 13) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(SETUP)

demo: $(SETUP) ## Start the platform, run the examples through /v1, stop it
	@$(BIN)/python examples/demo.py

run: $(SETUP) ## Serve in the foreground until Ctrl-C
	@exec $(BIN)/python manage.py serve

check: $(SETUP) ## Lint, types, layers, Django's checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	DJANGO_SECRET_KEY=$$($(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(64))') $(BIN)/python -W error manage.py check --deploy --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run

# In order of name: xdist would keep files of few tests for the end, and those take longest.
test: $(SETUP) ## Run the tests that need nothing more
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

load-test: $(SETUP) ## Repeat what must hold under load as often as is promised, one test at a time
	$(BIN)/pytest --full-counts -m load $(PYTEST_ARGS)

cluster-test: $(SETUP) ## Run the tests against the real cluster that KUBECONFIG names
	@if [ -n "$$KUBECONFIG" ]; then $(BIN)/pytest --with-e2e -m e2e $(PYTEST_ARGS); \
	else echo "Skipped: KUBECONFIG names no cluster. CONTRIBUTING.md says what these tests need."; fi

bench: $(SETUP) ## Measure, each figure against a baseline (BENCH_ARGS selects)
	$(BIN)/python -m bench $(BENCH_ARGS)

lock: ## Resolve the dependencies anew (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
