# Everything happens in .venv, which is made on first use and again when the dependencies change.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
RIVALS := .venv/.rivals
SITE := .venv/.site

.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(READY) ## make the virtual environment

demo: $(READY) ## train on two moons in about a minute; numbers, samples and a picture in runs/demo
	rm -rf runs/demo
	$(BIN)/pscd train moon --gamma 1 --seed 0 --out runs/demo

test: lint ## lint, type-check and test (under 5 minutes on 2 cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

test-slow: $(READY) ## the long scientific checks
	$(BIN)/python -m pytest -m slow

test-browser: $(READY) ## reports in a real browser; needs Chromium from the system's packages
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,browser]'
	$(BIN)/python -m pytest -m browser -rs

$(RIVALS): $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

bench: $(RIVALS) ## speed beside other libraries, in docs/results/speed.md (over an hour, of an idle machine)
	$(BIN)/python -m benchmarks.speed

$(SITE): $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
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

.PHONY: help setup demo test test-slow test-browser bench docs lint clean
