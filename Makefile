# Each target does all of its own set-up, in .venv. It needs Python 3.10 or newer, git, and for torch.compile a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Of the tests: more than half of their time is waiting.
WORKERS ?= 2

.PHONY: demo test lint lab site bench efficiency screens pins clean

demo: $(READY) ## the main job on this machine's CPU: a table, results/demo.nc and results/demo.html
	$(BIN)/ngbkit demo

test: $(READY) ## the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lab: $(READY) ## JupyterLab on the quick start
	$(BIN)/jupyter lab notebooks/01-quickstart.ipynb $(ARGS)

site: $(READY) ## the notebooks and the reference as a site, in site/, without measuring anything
	$(BIN)/ngbkit publish notebooks -o site $(ARGS)

bench: $(READY) ## how fast ngbkit itself is; run it on a quiet machine
	$(BIN)/python tests/benchmarks/speed.py

efficiency: $(READY) ## how much of a sweep's time is timed calls, and what --precision saves; on a quiet machine
	$(BIN)/python tests/benchmarks/efficiency.py $(ARGS)

screens: $(READY) ## the README's pictures of the panels; on a quiet machine, with chromium
	$(BIN)/python tests/screens.py

pins: ## renew binder/requirements.txt
	$(PYTHON) -m venv $(VENV)-pins && $(VENV)-pins/bin/pip install -q uv
	$(VENV)-pins/bin/uv pip compile --upgrade --universal --python-version 3.10 pyproject.toml --extra all --group dev \
		--no-annotate --no-header --quiet --output-file binder/requirements.txt
	rm -rf $(VENV)-pins

clean:
	rm -rf $(VENV)

$(READY): pyproject.toml binder/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(f"ngbkit needs Python 3.10 or newer; $(PYTHON) is {sys.version.split()[0]}. Name another: make PYTHON=python3.12 demo" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint binder/requirements.txt --editable '.[all]' --group dev
	touch $(READY)
