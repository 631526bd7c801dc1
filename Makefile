# NetReduce: `make demo` and `make test` from a clean clone. `make help` lists the rest.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed
# More options for installing PyTorch, e.g. --index-url with PyTorch's index of CPU builds where pip's own
# choice would bring gigabytes of CUDA along.
TORCH_OPTIONS ?=

.PHONY: help setup demo test lint p4 wire proto clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make .venv with pinned dependencies and build the native parts

$(VENV)/.dependencies: constraints.txt requirements.txt
	@command -v $(PYTHON) >/dev/null || { echo "netreduce: $(PYTHON) not found; install Python 3.11 or set PYTHON=" >&2; exit 1; }
	@command -v g++ >/dev/null && command -v gcc >/dev/null || { echo "netreduce: gcc and g++ are needed; on Debian: apt-get install build-essential" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH_OPTIONS) torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements.txt
	@touch $@

NATIVE = setup.py pyproject.toml softswitch/csrc/shm_port.h $(shell find host_agent/csrc -name '*.h' -o -name '*.cc')

$(STAMP): $(VENV)/.dependencies $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
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
