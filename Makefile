.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-quick test-full test-wide test-ui test-next check format bench wheels sbom audit clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.7
PACKAGES := $(wildcard packages/*)
EXAMPLES := $(patsubst %/,%,$(dir $(wildcard examples/*/pyproject.toml)))
STAMP := $(VENV)/.synced
# Tests wait for processes and disks about a third of the time: one worker more than cores.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest
# Empty, or the options that measure coverage, which takes a third longer: CI gives them.
COVERAGE ?=
NEXT := .venv-next
# They replace the version bounds of the packages; extras must be repeated.
NEXT_OVERRIDES := dagster-webserver "pyiceberg[pyiceberg-core,sql-sqlite]" "pyspark[connect]"
NEXT_COMPILE = $(UV) pip compile --quiet --python $(NEXT)/bin/python --prerelease allow --no-header --no-annotate --no-emit-index-url
NAMES := floe-core floe-iceberg floe-polaris floe-spark floe-dagster floe-runtime

help:  ## Show these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name words; do printf '  make %-10s %s\n' "$$name" "$$words"; done

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Floe needs Python 3.10 or newer: install it, or name it with 'make PYTHON=python3.12 ...'."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r bootstrap.lock

$(STAMP): requirements.lock $(wildcard packages/*/pyproject.toml examples/*/pyproject.toml) | $(UV)
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation $(addprefix -e ,$(PACKAGES) $(EXAMPLES))
	@touch $(STAMP)

setup: $(STAMP)  ## Create .venv from the lock

lock: $(UV)  ## Resolve requirements.lock; pins stay unless ARGS="--upgrade" or ARGS="--upgrade-package NAME"
	$(UV) pip compile --quiet --universal --generate-hashes --python-version 3.10 --all-extras --group pyproject.toml:dev \
		--no-header --no-annotate --no-emit-index-url $(addprefix --no-emit-package ,$(NAMES)) \
		$(addsuffix /pyproject.toml,$(PACKAGES)) $(ARGS) -o requirements.lock
	echo "uv==$(UV_VERSION)" | $(UV) pip compile --quiet --universal --generate-hashes --python-version 3.10 \
		--no-header --no-annotate --no-emit-index-url - -o bootstrap.lock

demo: java $(STAMP)  ## Fill a small retailer's lakehouse and tell its story
	@$(BIN)/floe demo --dir .demo $(ARGS)

test-quick: $(STAMP)  ## Run the unit tests: no Java, a minute
	@$(PYTEST) -m "not full and not wide" $(or $(ARGS),-n $(WORKERS) --dist loadgroup) tests/unit

test: java $(STAMP)  ## Run the suite everyone runs; ARGS="-k name" for a part of it
	@$(PYTEST) -m "not full and not wide" $(or $(ARGS),-n $(WORKERS) --dist loadgroup $(COVERAGE))
ifneq ($(COVERAGE),)
	@for name in core iceberg polaris spark dagster runtime; do \
		total=$$($(BIN)/coverage report --include="*/floe_$$name/*" --format=total) && \
		echo "coverage of floe_$$name: $$total %" && [ "$$total" -ge 85 ] || { echo "floe_$$name is under 85 %"; exit 1; }; \
	done
endif

test-full: java chromium $(STAMP)  ## Run the slow and destructive rest
	@$(PYTEST) -m "full and not wide" $(or $(ARGS),-n $(WORKERS) --dist loadgroup)

test-wide: java $(STAMP)  ## Run the whole product of promises, engines, catalogs and kinds: before a release
	@$(PYTEST) -m wide $(or $(ARGS),-n $(WORKERS) --dist loadgroup)

test-ui: java chromium $(STAMP)  ## Drive the web UI in a real browser
	@$(BIN)/python -m pytest -m full tests/ui $(ARGS)

test-next: java $(UV)  ## Run the suite on the newest releases of everything; ARGS="-k name" for a part of it
	$(UV) venv --quiet --clear --python $(BIN)/python $(NEXT)
	printf '%s\n' $(NEXT_OVERRIDES) > $(NEXT)/overrides.txt
	@# An override lifts the web server's own pin too, and both must be one release.
	echo dagster-webserver | $(NEXT_COMPILE) --no-deps - | sed 's/-webserver//' >> $(NEXT)/overrides.txt
	$(NEXT_COMPILE) --overrides $(NEXT)/overrides.txt --all-extras --group pyproject.toml:dev \
		$(addprefix --no-emit-package ,$(NAMES)) $(addsuffix /pyproject.toml,$(PACKAGES)) -o $(NEXT)/requirements.txt
	$(UV) pip sync --quiet --python $(NEXT)/bin/python $(NEXT)/requirements.txt
	$(UV) pip install --quiet --python $(NEXT)/bin/python --no-deps --no-build-isolation $(addprefix -e ,$(PACKAGES) $(EXAMPLES))
	@grep -E '^(dagster|dagster-webserver|pyiceberg|pyspark)==' $(NEXT)/requirements.txt
	@FLOE_UNTESTED_VERSIONS=1 $(NEXT)/bin/python -m pytest -m "not full and not wide" $(or $(ARGS),-n $(WORKERS) --dist loadgroup)

check: $(STAMP)  ## Format check, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy packages/*/src examples/*/src tests benchmarks tools
	$(BIN)/lint-imports

format: $(STAMP)  ## Format, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: java $(STAMP)  ## Measure Floe beside the bare engines
	@$(BIN)/python -m benchmarks $(ARGS)

# Files in a wheel carry the time of the commit, so that two builds of it have identical bytes.
wheels: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),1580601600)
wheels: $(STAMP)  ## Build the six wheels into dist/, reproducibly
	@rm -rf dist && set -e && for package in $(PACKAGES); do $(BIN)/python -m build --quiet --no-isolation --wheel --outdir dist $$package; done

sbom: $(STAMP)  ## List what Floe depends on as CycloneDX JSON in dist/
	@$(BIN)/python -m tools.sbom dist/floe.cdx.json

# Strict: a package that the service does not know is a failure, not a clean result.
audit: $(STAMP)  ## Look for known vulnerabilities; offline with DB=FILE, an export of OSV
ifdef DB
	@$(BIN)/python -m tools.audit $(DB)
else
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements.lock
endif

.PHONY: java
java:
	@$(PYTHON) -I packages/floe-core/src/floe_core/java.py

# The tests that need it fail where it is missing and cannot be installed; the others run.
.PHONY: chromium
chromium:
	@installed() { command -v chromium > /dev/null && command -v chromedriver > /dev/null; }; \
	installed || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && echo "Installing Chromium for the browser tests." && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver > /dev/null; }; \
	installed || echo "The browser tests need Chromium; on Debian, as root: apt-get install chromium chromium-driver"

clean:  ## Remove the environment and what the demo left
	rm -rf $(VENV) $(NEXT) .demo .bench dist
