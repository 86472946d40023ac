# Everything a newcomer needs: `make run` and `make test`.  Both make .venv first.
# Where there is an NVIDIA GPU they install what CUDA takes, and `make gpu-test` uses it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

GPU    := $(shell if [ -e /proc/driver/nvidia ] || command -v nvidia-smi >/dev/null 2>&1; then echo yes; fi)
comma  := ,
WITH   := $(if $(GPU),cuda$(comma))report

.PHONY: run test gpu-test gpu-sanitize lint clean

run: $(VENV)/.installed
	$(BIN)/tilewright quickstart

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest

# Only what needs a GPU; without one it fails instead of skipping everything.
gpu-test: $(VENV)/.installed-test
	TILEWRIGHT_REQUIRE_GPU=1 $(BIN)/python -m pytest -m gpu

# Stray accesses and races of the portable stencil: one variant of each precision, through CUDA.
gpu-sanitize: $(VENV)/.installed-test
	for tool in memcheck racecheck; do \
	  compute-sanitizer --tool $$tool --error-exitcode 1 $(BIN)/python -m pytest -q -m gpu \
	    tests/stencil/test_portable_gpu.py -k 'cuda and (snn or dtn or cct or znt)' || exit 1; \
	done

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(WITH)]'
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(WITH),test]'
	touch $@

$(VENV)/.installed-lint: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(WITH),test,lint]'
	touch $@

clean:
	rm -rf $(VENV)
