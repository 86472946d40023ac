# Everything a newcomer needs: `make run` and `make test`.  Both make .venv first.
# Where there is an NVIDIA GPU they install what CUDA takes, and `make gpu-test` uses it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

GPU    := $(shell if [ -e /proc/driver/nvidia ] || command -v nvidia-smi >/dev/null 2>&1; then echo yes; fi)
comma  := ,
WITH   := $(if $(GPU),tune$(comma))report

.PHONY: run test thorough docs browser gpu-test gpu-stress gpu-sanitize gpu-sanitize-memcheck \
	gpu-sanitize-racecheck gpu-sanitize-rescheduled lint clean

run: $(VENV)/.installed
	$(BIN)/tilewright quickstart

# Two at a time, a file's tests by the same one: kernels on a CPU device take the other cores.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile

# The cases that make test leaves out: an hour; after changing a stencil, the tuner or reschedule.
thorough: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 -m "thorough and not alone"

# A browser for the tests that open the report; without one they are skipped and say so.
# Playwright's own, or the distribution's where its servers cannot be reached.
CHROMIUM := chromium chromium-browser google-chrome google-chrome-stable
browser: $(VENV)/.installed-test
	@for name in $(CHROMIUM); do command -v $$name && exit 0; done; \
	timeout 300 $(BIN)/playwright install chromium >/dev/null 2>&1 && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  (timeout 300 apt-get update && \
	   timeout 300 apt-get install --yes --no-install-recommends chromium) >/dev/null 2>&1 && exit 0; \
	fi; \
	echo "no browser could be installed: the tests that need one will be skipped"

# Only what needs a GPU; without one it fails instead of skipping everything.  Most tests share the
# GPU with those of other processes; those that measure have it to themselves, afterwards.
GPU_PROCESSES ?= 12
GPU_PYTEST := TILEWRIGHT_REQUIRE_GPU=1 $(BIN)/python -m pytest
gpu-test: $(VENV)/.installed-test
	$(GPU_PYTEST) -n $(GPU_PROCESSES) --dist worksteal -m "gpu and not alone and not thorough"
	$(GPU_PYTEST) -m "gpu and alone and not thorough"

# 100,000 calls of two processes at once: two minutes at most, and the GPU to itself.
gpu-stress: $(VENV)/.installed-test
	$(GPU_PYTEST) -m thorough tests/serve/test_stress_gpu.py

# Stray accesses, races, reads of what nobody wrote and barriers that not all reach, in pieces of
# some minutes: the portable stencil through CUDA, one variant of each precision; copies that begin
# anywhere; a small rescheduled kernel.
SANITIZE := compute-sanitizer --error-exitcode 1 --tool
PORTABLE := tests/stencil/portable/test_gpu.py -k 'cuda and (snn or dtn or cct or znt)'
ANYWHERE := tests/stencil/simt_async/test_gpu.py -k 'test_columns_may_begin_anywhere and sN'
RESCHEDULED := tests/reschedule/test_bits_gpu.py -k sanitizer
gpu-sanitize: gpu-sanitize-memcheck gpu-sanitize-racecheck gpu-sanitize-rescheduled
gpu-sanitize-memcheck: $(VENV)/.installed-test
	$(SANITIZE) memcheck $(BIN)/python -m pytest -q -m gpu $(PORTABLE)
	$(SANITIZE) memcheck $(BIN)/python -m pytest -q -m gpu $(ANYWHERE)
gpu-sanitize-racecheck: $(VENV)/.installed-test
	$(SANITIZE) racecheck $(BIN)/python -m pytest -q -m gpu $(PORTABLE)
gpu-sanitize-rescheduled: $(VENV)/.installed-test
	for tool in memcheck racecheck initcheck synccheck; do \
	  $(SANITIZE) $$tool $(BIN)/python -m pytest -q -m gpu $(RESCHEDULED) || exit 1; \
	done

# The site in site/; a warning is an error.  NVRTC is for what the reference imports.
docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -q -E -W --keep-going -d $(VENV)/doctrees -b html docs site
	@echo site/index.html

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

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(WITH),docs]'
	touch $@

clean:
	rm -rf $(VENV) site docs/reference
