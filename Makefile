# Two commands do everything on a machine with Python 3.11 or newer and nothing else:
#   make play    install, fetch the model, open the game (without a terminal: play the first trial)
#   make test    install, fetch the model, run every check and every test
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: play test check lint-story model bench snapshots clean

play: $(VENV)/.play model
	@if [ -t 0 ] && [ -t 1 ]; then exec $(BIN)/latency-wall; \
	else echo "No terminal here: playing the first trial headless."; \
	     exec $(BIN)/latency-wall trial gate; fi

test: check model
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

check: $(VENV)/.test
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m story.lint

model: | $(VENV)/.play
	@$(BIN)/latency-wall model fetch

bench: $(VENV)/.test model
	$(BIN)/latency-wall bench
	$(BIN)/python benchmarks/decode_vs_transformers.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/interface_speed.py

snapshots: $(VENV)/.test
	LATENCY_WALL_UPDATE_SNAPSHOTS=1 $(BIN)/python -m pytest tests/game/screens

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Latency Wall needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)."; \
	  echo "Name another with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed: on Debian and Ubuntu, apt install python3-venv."; exit 2; }
	@touch $@

$(VENV)/.play: $(VENV)/.python pyproject.toml constraints.txt
	@echo "Installing (the first time takes some minutes: torch is large) ..."
	@$(PIP) -e . || { \
	  echo "Installing failed: the lines above say why. Without a network nothing can be installed."; \
	  exit 2; }
	@touch $@

$(VENV)/.test: $(VENV)/.play
	@echo "Installing the checks and the oracles ..."
	@$(PIP) -e '.[dev,oracle,report]' || { echo "Installing failed: the lines above say why."; exit 2; }
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info
