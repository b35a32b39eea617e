# What is needed: make, and Python 3.11 or newer as `python3` (or PYTHON=/path/to/python make …).
# Everything is installed into .venv; a stamp file there keeps the second run from installing again.

PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
RUN := $(BIN)/python -m

# Settings of the caller's shell that would send packages, or imports, somewhere else.
unexport PYTHONHOME PYTHONPATH PIP_PREFIX PIP_TARGET PIP_USER

.PHONY: demo test real lint docs-test full clean

# A tour of the memory on a store in a temporary folder.
demo: $(VENV)/installed
	$(BIN)/nanomem demo

# Everything that must hold before a change is handed in.
test: lint
	$(RUN) pytest -n auto

# The tests that ask real models. Their servers are installed once (0.9 GB), in ~/.cache/nanomem-tests or the folder
# that NANOMEM_TEST_SERVICES names.
real: $(VENV)/installed-dev
	$(RUN) tests.services.models $(RUN) pytest -m real tests/real

# Form, types and import directions.
lint: $(VENV)/installed-dev
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(RUN) mypy --config-file contrib/nanomem-bench/pyproject.toml
	$(RUN) mypy --config-file contrib/nanomem-fastembed/pyproject.toml
	$(BIN)/lint-imports --no-logo

# Only the examples of README.md and docs/.
docs-test: $(VENV)/installed-dev
	$(RUN) pytest tests/test_docs.py

# The tests with the long fault runs: more kills, more power losses.
full: export NANOMEM_FULL := 1
full: test

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, but $(PYTHON) is %d.%d. Name another one: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml
	$(RUN) pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/created pyproject.toml contrib/nanomem-bench/pyproject.toml contrib/nanomem-fastembed/pyproject.toml
	$(RUN) pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable 'contrib/nanomem-bench[segmentation]' --editable 'contrib/nanomem-fastembed[testing]'
	touch $(VENV)/installed $@
