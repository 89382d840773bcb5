# The door to everything. .venv is made at the first use, from CPython 3.10 (README: why 3.10).
#
#   make demo        compile the digits model, run the generated C, compare it with TVM
#   make test        all tests but the slow ones, or some: make test ARGS="tests/plan -k memory"
#   make test-slow   the tests that are marked slow
#   make fuzz        look for wrong results, crashes and foreign errors: make fuzz SECONDS=3600 SEED=1 JOBS=2
#   make lint        ruff and mypy
#   make format      let ruff format the sources and fix what it can
#   make bench       compile time, memory, schedules, tuning, cycles end to end: the tables of docs/benchmarks.md and the README
#   make notebooks   run the notebooks; with their outputs in out/notebooks
#   make demo-relax  the demo with the current TVM, Relax, in an environment of CPython 3.11, 3.12 or 3.13
#   make test-relax  the tests that need no Relay and are not slow, in that environment
#   make docs        the site of docs/, in out/site
#   make wheel       dist/byoc_hw-*.whl
#   make clean       remove .venv, .venv-relax and everything else that was generated
#
# PYTHON=/path/to/python3.10 makes .venv from that one, and PYTHON_RELAX=/path/to/python3.12 .venv-relax, or the
# environment that RELAX=.venv-relax-3.12 names.

PYTHON ?=
PYTHON_RELAX ?=
RELAX ?= .venv-relax
ARGS ?=
SECONDS := 60
SEED := 0
JOBS := $(shell nproc)
BIN := .venv/bin
PYTEST := -m pytest -n auto --dist worksteal

.PHONY: demo demo-relay demo-relax test test-relay test-relax test-slow fuzz lint format bench notebooks docs wheel clean compiler
.DEFAULT_GOAL := demo

demo test:
	+@$(with_the_tvm_of_this_machine)

demo-relay: .venv/ready compiler
	$(BIN)/python -m byoc_hw.demo --output-dir out/digits $(ARGS)

test-relay: .venv/ready compiler
	$(BIN)/python $(PYTEST) -m 'not slow' $(ARGS)

test-slow: .venv/ready compiler
	$(BIN)/python $(PYTEST) -m slow $(ARGS)

demo-relax: $(RELAX)/ready compiler
	$(RELAX)/bin/python -m byoc_hw.demo --output-dir out/digits-relax $(ARGS)

test-relax: $(RELAX)/tests compiler
	$(RELAX)/bin/python $(PYTEST) -m 'not slow' $(ARGS)

fuzz: .venv/fuzz compiler
	$(BIN)/python tests/fuzz --seconds $(SECONDS) --seed $(SEED) --jobs $(JOBS) $(ARGS)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/ready compiler
	for name in compile_time memory schedule tuning end_to_end; do $(BIN)/python benchmarks/$$name.py --update $(ARGS) || exit 1; done

notebooks: .venv/ready compiler
	$(BIN)/python notebooks/execute.py --output-dir out/notebooks

docs: .venv/ready
	$(BIN)/python -m mkdocs build

wheel: .venv/ready
	$(BIN)/python -m build --wheel

clean:
	rm -rf .venv .venv-relax* out build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache .pkl_memoize_py3
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The pip that comes with CPython 3.10 takes half as long again to find the packages. Without the newer one make goes on.
PIP := -m pip --disable-pip-version-check
NEW_PIP := pip==26.3

# New when the dependencies change. A failed install leaves no .venv/ready behind.
.venv/ready: setup.cfg pyproject.toml
	@$(find_python); echo "making .venv with $$python"; rm -rf .venv; "$$python" -m venv .venv
	-$(BIN)/python $(PIP) install -qq $(NEW_PIP)
	$(BIN)/python $(PIP) install -qq -e '.[test,notebooks,docs]'
	@touch $@

$(RELAX)/ready: setup.cfg pyproject.toml
	@$(find_newer_python); echo "making $(RELAX) with $$python"; rm -rf $(RELAX); "$$python" -m venv $(RELAX)
	-$(RELAX)/bin/python $(PIP) install -qq $(NEW_PIP)
	$(RELAX)/bin/python $(PIP) install -qq -e '.[relax]'
	@touch $@

$(RELAX)/tests: $(RELAX)/ready
	$(RELAX)/bin/python $(PIP) install -qq -e '.[relax,test-relax]'
	@touch $@

.venv/fuzz: .venv/ready
	$(BIN)/python $(PIP) install -qq -e '.[fuzz]'
	@touch $@

compiler:
	@command -v gcc > /dev/null || { echo "gcc is missing: sudo apt install gcc (or your system's package)" >&2; exit 1; }

# Runs a target with Relay where there is .venv or a CPython 3.10 for it, else with Relax.
define with_the_tvm_of_this_machine
if [ -e .venv/ready ] || [ -n '$(PYTHON)' ] || ( $(find_python) ) > /dev/null 2>&1; then \
  $(MAKE) --no-print-directory $@-relay; \
else \
  { echo "CPython 3.10 is not there: $@ runs with Relax (docs/relax.md)."; \
    echo "For all features: uv python install 3.10, or pyenv install 3.10, and run make again."; } >&2; \
  $(MAKE) --no-print-directory $@-relax; \
fi
endef

# The first of the usual places that has a CPython 3.10 which can make environments.
define find_python
python=; \
for candidate in $(if $(PYTHON),'$(PYTHON)',python3.10 python3 python \
    "$$(uv python find 3.10 2> /dev/null)" \
    "$$(pyenv prefix "$$(pyenv latest 3.10 2> /dev/null)" 2> /dev/null)/bin/python" \
    "$$HOME"/.pyenv/versions/3.10.*/bin/python); do \
  if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 10))' > /dev/null 2>&1; then \
    python=$$candidate; break; \
  fi; \
done; \
if [ -z "$$python" ]; then \
  { echo "CPython 3.10 with venv is missing$(if $(PYTHON), ($(PYTHON) is none)): the TVM wheel is for that version. Install it with one of"; \
    echo "  uv python install 3.10"; \
    echo "  pyenv install 3.10"; \
    echo "  sudo apt install python3.10 python3.10-venv     (Ubuntu 22.04)"; \
    echo "and run make again, or make PYTHON=/path/to/python3.10"; } >&2; \
  exit 1; \
fi
endef

# The first CPython of 3.11, 3.12 and 3.13; says which of them are not there.
define find_newer_python
python=; missing=; \
for version in $(if $(PYTHON_RELAX),given,3.11 3.12 3.13); do \
  found=; \
  for candidate in $(if $(PYTHON_RELAX),'$(PYTHON_RELAX)',"python$$version" "$$(uv python find "$$version" 2> /dev/null)" \
      "$$HOME"/.pyenv/versions/"$$version".*/bin/python); do \
    if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
        > /dev/null 2>&1; then found=$$candidate; break; fi; \
  done; \
  if [ -z "$$found" ]; then missing="$$missing $$version"; elif [ -z "$$python" ]; then python=$$found; fi; \
done; \
if [ -n "$$missing" ]; then echo "not there: CPython$$missing" >&2; fi; \
if [ -z "$$python" ]; then \
  { echo "CPython 3.11, 3.12 or 3.13 with venv is missing: current TVM is for those. Install one with"; \
    echo "  uv python install 3.12     or     pyenv install 3.12"; \
    echo "and run make again, or make PYTHON_RELAX=/path/to/python3.12"; } >&2; \
  exit 1; \
fi
endef
