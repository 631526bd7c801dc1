# NetReduce: `make demo` and `make test` from a clean clone. `make help` lists the rest.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed
# More options for installing PyTorch, e.g. --extra-index-url with PyTorch's index of CPU builds where pip's own
# choice would bring gigabytes of CUDA along.
TORCH_OPTIONS ?=

.PHONY: help setup demo test lint p4 wire proto clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make .venv with pinned dependencies and build the native parts

# What would otherwise fail minutes later, or with somebody else's words.
define CHECK_MACHINE
@command -v $(PYTHON) >/dev/null || { echo "netreduce: $(PYTHON) not found; install Python 3.11 or newer, or set PYTHON=" >&2; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "netreduce: $(PYTHON) is $$($(PYTHON) -V); Python 3.11 or newer is needed: set PYTHON=" >&2; exit 1; }
@test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || { echo "netreduce: $(PYTHON) has no C headers; on Debian: apt-get install python3-dev" >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "netreduce: $(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
@command -v g++ >/dev/null && command -v gcc >/dev/null || { echo "netreduce: gcc and g++ are needed; on Debian: apt-get install build-essential" >&2; exit 1; }
endef

PIP_INSTALL = $(BIN)/pip install --disable-pip-version-check

$(VENV)/.dependencies: constraints.txt requirements.txt
	$(CHECK_MACHINE)
	@echo "setup 1/3: PyTorch, the largest download"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -c constraints.txt $(TORCH_OPTIONS) torch
	@echo "setup 2/3: the other dependencies"
	@$(PIP_INSTALL) --quiet -c constraints.txt -r requirements.txt
	@touch $@

NATIVE = setup.py pyproject.toml softswitch/csrc/shm_port.h $(shell find host_agent/csrc -name '*.h' -o -name '*.cc')

$(STAMP): $(VENV)/.dependencies $(NATIVE)
	@echo "setup 3/3: compiling the host agent, which takes a minute or two"
	@$(PIP_INSTALL) --quiet --no-build-isolation --no-deps -e .
	@touch $@

demo: setup  ## Train a classifier with 4 workers whose gradients the switch sums
	$(BIN)/python -m netreduce.topologies.demo

test: setup  ## Run the whole test suite
	$(BIN)/python -m pytest

lint: setup  ## Check style
	$(BIN)/ruff check .

p4: setup  ## Recompile the P4 program (needs p4c on PATH)
	$(BIN)/python -m netreduce.p4.compile

wire: setup  ## Regenerate the P4 and C++ wire constants from p4src/wire.py
	$(BIN)/python -m netreduce.p4.generate

proto: setup  ## Regenerate the gRPC code from controller/api/job_service.proto
	$(BIN)/python -m netreduce.controller.api.generate

clean:  ## Remove what the other targets made
	rm -rf $(VENV) build *.egg-info host_agent/*.so results .pytest_cache .hypothesis .ruff_cache
