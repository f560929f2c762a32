# Needs Python 3.11 or newer with venv and pip; everything else is installed into .venv by the first target that needs it.

PYTHON ?= python3
VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

# Hundreds of tests start a Python: what it imports is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-servers soak mutants check bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed ## watch jobs keep to their limits
	@$(BIN)/python -m paceline demo

test: check ## all checks, then all tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-servers: $(VENV)/.installed ## the same on Debian's PostgreSQL, PgBouncer and Redis, and on a Redis cluster (installs them; needs root)
	@.ci/install-servers
	@$(BIN)/python -m pytest tests/installed
	@PACELINE_TEST_POSTGRES_BINARIES="$$(ls -d /usr/lib/postgresql/* | sort -V | tail -1)" $(BIN)/python -m pytest -n 2 --dist worksteal tests/stores tests/postgres -k postgres
	@PACELINE_TEST_REDIS_SERVER="$$(command -v redis-server)" $(BIN)/python -m pytest -n 2 --dist worksteal tests/stores tests/redis -k redis
	@PACELINE_TEST_REDIS_CLUSTER=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/stores -k "redis and (claim or limit or group or lease)"

soak: $(VENV)/.installed ## new random histories and programs on every store (SECONDS=3600); keeps what goes wrong for `make test`
	@$(BIN)/python -m tests.soak --seconds $(or $(SECONDS),3600)

mutants: $(VENV)/.installed ## plant bugs in Python, SQL and Lua and see each caught (ENGINE=lua: there only); writes docs/internals/mutants.md
	@$(BIN)/python -m tests.mutants $(if $(ENGINE),--engine $(ENGINE))

check: $(VENV)/.installed ## style, types, SQL and who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy src
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/sqlfluff lint --disable-progress-bar -q src/paceline/stores/postgres/sql
	@$(BIN)/python -m tests.lua

bench: $(BENCH_VENV)/.installed ## speed and exactness beside other systems, and the pictures in docs/ (QUICK=1: less, in 3 minutes)
	@$(BENCH_VENV)/bin/python -m bench.run $(if $(QUICK),--quick)

clean: ## remove the environment, caches and build output
	rm -rf $(VENV) $(BENCH_VENV) bench/node/node_modules build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path "./.git/*" -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found; name another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Paceline needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1); name another one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -e '.[test,lint,cli]'
	@touch $@

# Of its own, because one of the peers needs Python 3.12: one that is newer than $(PYTHON) is taken if there is one.
$(BENCH_VENV)/.installed: pyproject.toml constraints.txt bench/find-python
	@echo "Installing into $(BENCH_VENV) ..."
	@test -x $(BENCH_VENV)/bin/python || $$(sh bench/find-python $(PYTHON)) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[test,cli,bench]'
	@touch $@
