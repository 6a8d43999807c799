# Everything happens in .venv, which is made on first use and again when the dependencies change.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
RIVALS := .venv/.rivals
SITE := .venv/.site
RUNS ?= 1
SEED ?= 0

.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

PIP := $(BIN)/python -m pip install -q --disable-pip-version-check

# Environments that keep Python from writing bytecode make pytest rewrite all assertions in every run: ten seconds a worker.
unexport PYTHONDONTWRITEBYTECODE

# Every package is checked by its checksum, but torch, of which there are many builds: it is chosen by exact version.
# PSCD_HASHES=0 installs the same versions without looking at checksums, for an index with builds of its own.
$(READY): pyproject.toml constraints.txt requirements.txt
	$(PYTHON) -m venv .venv
ifeq ($(PSCD_HASHES),0)
	$(PIP) -c constraints.txt -e '.[dev]'
else
	$(PIP) --require-hashes --no-deps -r requirements.txt
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
endif
	@touch $@

setup: $(READY) ## make the virtual environment

demo: $(READY) ## train on two moons in about a minute; numbers, samples and a picture in runs/demo
	rm -rf runs/demo
	$(BIN)/pscd train moon --gamma 1 --seed 0 --out runs/demo

test: lint ## lint, type-check and test (under 5 minutes on 2 cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(READY) ## the long scientific checks, and property-based tests with many random examples
	$(BIN)/python -m pytest -m slow
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest tests/properties

test-stress: $(READY) ## all tests in random order, with two copies of them for company; RUNS=20 for more
	$(BIN)/python scripts/stress.py --runs $(RUNS)

faults: $(READY) ## kill, fill, flip and cut: 800 faults on purpose, counted in docs/reliability.md (10 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m studies faults --write

fuzz: $(READY) ## 100,000 wrong files for everything that is read, counted in docs/reliability.md (an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m studies fuzz --write

hashes: ## write requirements.txt from constraints.txt, after a version has changed
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install -q --disable-pip-version-check uv
	grep -v '^torch==' constraints.txt | build/tools/bin/uv -q pip compile - -o build/hashes.txt \
		--universal --python-version 3.11 --no-deps --generate-hashes --no-annotate --no-header
	{ grep '^#' requirements.txt; cat build/hashes.txt; } > build/requirements.txt
	mv build/requirements.txt requirements.txt

licences: $(READY) ## docs/licences.md: the licences of all dependencies
	$(BIN)/python scripts/dependencies.py licences

sbom: $(READY) ## a bill of materials of the wheel (CycloneDX), in dist
	$(BIN)/python scripts/dependencies.py sbom

# --strict: packages that the database does not know, or a database that cannot be had, are no all-clear.
audit: ## known weaknesses of the dependencies, from the index's database
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install -q --disable-pip-version-check pip-audit
	build/tools/bin/pip-audit -r requirements.txt --disable-pip --no-deps --strict

test-browser: $(READY) ## reports in a real browser; needs Chromium from the system's packages
	$(PIP) -c constraints.txt -e '.[dev,browser]'
	$(BIN)/python -m pytest -m browser -rs

test-scale: $(READY) ## real clusters of Dask and Ray on this machine (about 5 minutes)
	$(PIP) -c constraints.txt -e '.[dev,dask,ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m scale -rs

reproduce: $(READY) ## reproduce a study, for example NAME=toys-2d; without a name, list them
	$(BIN)/python -m studies $(NAME)

$(RIVALS): $(READY)
	$(PIP) -c constraints.txt -e '.[dev,bench]'
	@touch $@

bench: $(RIVALS) ## speed beside other libraries, in docs/results/speed.md (over an hour, of an idle machine)
	$(BIN)/python -m studies speed

$(SITE): $(READY) docs/constraints.txt
	$(PIP) -c constraints.txt -c docs/constraints.txt -e '.[dev,docs]'
	@touch $@

docs: $(SITE) ## build the site in build/site: gallery, API, doctests, links; warnings are errors (about 5 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -j auto -d build/doctrees docs build/site
	$(BIN)/python scripts/check_site.py build/site
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest docs --doctest-glob='*.md' --ignore docs/gallery --ignore docs/conf.py
	@echo "the site: build/site/index.html"

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## remove the environment, builds and caches; runs stay
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache docs/gallery docs/api/generated

.PHONY: help setup demo reproduce test test-slow test-browser test-scale test-stress faults fuzz hashes licences sbom audit bench \
	docs lint clean
