# Each target sets up .venv by itself. It needs Python 3.10 or newer with its headers, git, and a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PINS := constraints.txt
BINDER := binder/requirements.txt
# Named by content: a checkout or a restored cache does not outdate an environment.
READY := $(VENV)/ready-$(shell cat pyproject.toml $(PINS) | cksum | cut -d " " -f 1)

# Twice the cores, since tests wait half of their time, and no more than memory allows.
WORKERS ?= $(shell $(PYTHON) -c 'import os; memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"); \
	print(max(1, min(8, 2 * len(os.sched_getaffinity(0)), memory // (3 << 30))))')
# After a crash, xdist would give that worker's files to the others, with the test that crashed, and wait for ever.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

COMPILE := $(BIN)/uv pip compile pyproject.toml --no-annotate --no-header --quiet

# A thousand processes import the same modules: let the first write their byte code.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: environment demo test test-all test-changed pythons resolutions check lint lab site bench screens gallery recordings pages pins clean

environment: $(READY) ## set up .venv for the other targets

demo: $(READY) ## measure on this machine's CPU: a table, results/demo.nc and results/demo.html
	$(BIN)/ngbkit demo

test: $(READY) ## run the tests: short ones and guards, or all tests of the files in ARGS
	$(PYTEST) --short $(ARGS)

test-all: $(READY) ## run all tests; if they pass, .ci/tested names the commit
	$(PYTEST) --record-durations $(ARGS)
	$(if $(filter --last-failed,$(ARGS)),,git rev-parse HEAD >.ci/tested)

test-changed: $(READY) ## run the long tests of the rooms that changed since the commit in .ci/tested
	$(PYTEST) --long-since $(shell cat .ci/tested) $(ARGS) || [ $$? = 5 ] # no test is left

pythons: $(READY) ## run the device side's tests on the oldest and the newest Python, without torch
	$(BIN)/python tests/pythons.py

resolutions: $(READY) ## measure with the lowest and the highest packages on the oldest and the newest Python; gigabytes
	$(BIN)/python tests/resolutions.py $(ARGS)

# Quick tests compute and wait for nothing: a worker a core.
check: lint ## run after each change: ruff, mypy, and the quick tests
	$(PYTEST) -n auto --quick $(ARGS)

lint: $(READY) ## run ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lab: $(READY) ## open JupyterLab on the quick start
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks/01-quickstart.ipynb $(ARGS)

site: $(READY) ## build the site of the notebooks and the API reference in site/, without measuring
	$(BIN)/ngbkit publish notebooks -o site $(ARGS)

bench: $(READY) ## measure how fast ngbkit itself is; on a quiet machine
	$(BIN)/python tests/bench/speed.py

screens: $(READY) ## take the pictures of the README and of the site; on a quiet machine, with chromium
	$(BIN)/python tests/screens.py $(ARGS)

gallery: $(READY) ## take screenshots of every figure in results/gallery, light and dark; with chromium
	$(BIN)/python tests/gallery.py $(ARGS)

recordings: $(READY) ## measure the sweeps of notebooks and documents that have no recording; on a quiet machine
	$(BIN)/ngbkit publish notebooks -o site --measure missing
	NGBKIT_MEASURE=missing $(BIN)/python -m pytest --timeout 0 tests/notebooks/test_documents.py

pages: $(READY) ## write the pages of options and of metrics from their declarations
	PYTHONPATH=tests $(BIN)/python tests/pages.py

pins: $(READY) ## renew constraints.txt, and what Binder installs of it
	$(COMPILE) --upgrade --universal --python-version 3.10 --extra all --extra testing --group dev --output-file $(PINS)
	$(COMPILE) --python-version $(subst python-,,$(shell cat binder/runtime.txt)) --extra lab --extra onnxruntime --extra openvino \
		--constraint $(PINS) --output-file $(BINDER)

clean:
	rm -rf $(VENV)

# uv installs in seconds, pip in minutes. uv does not read pip's settings, so make passes on pip's mirror.
ifndef UV_DEFAULT_INDEX
export UV_DEFAULT_INDEX := $(or $(PIP_INDEX_URL),$(shell $(PYTHON) -m pip config get global.index-url 2>/dev/null))
endif

$(READY): pyproject.toml $(PINS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "ngbkit needs Python 3.10 or newer, and $(PYTHON) is" \
		"none that runs here ($$($(PYTHON) --version 2>&1)). Name another: make PYTHON=/usr/bin/python3.12 demo" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint $(PINS) "pip>=25.1" uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint $(PINS) --editable '.[all,testing]' --group dev
	@rm -f $(VENV)/ready-* && touch $(READY)
