.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-full test-ui check format bench wheels sbom audit clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.7
PACKAGES := $(wildcard packages/*)
EXAMPLES := $(patsubst %/,%,$(dir $(wildcard examples/*/pyproject.toml)))
STAMP := $(VENV)/.synced
WORKERS ?= 2
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

test: java $(STAMP)  ## Run the suite everyone runs; ARGS="-k name" for a part of it
ifdef ARGS
	@$(BIN)/python -m pytest -m "not full" $(ARGS)
else
	@$(BIN)/python -m pytest -m "not full" -n $(WORKERS) --dist loadfile --cov --cov-report=
	@for name in core iceberg polaris spark dagster runtime; do \
		total=$$($(BIN)/coverage report --include="*/floe_$$name/*" --format=total) && \
		echo "coverage of floe_$$name: $$total %" && [ "$$total" -ge 85 ] || { echo "floe_$$name is under 85 %"; exit 1; }; \
	done
endif

test-full: java chromium $(STAMP)  ## Run the slow and destructive rest
	@$(BIN)/python -m pytest -m full $(or $(ARGS),-n $(WORKERS) --dist loadfile)

test-ui: java chromium $(STAMP)  ## Drive the web UI in a real browser
	@$(BIN)/python -m pytest -m full tests/ui $(ARGS)

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
	rm -rf $(VENV) .demo .bench dist
