# `make demo` shows Signalbox, `make test` runs all checks and the quick tests, `make test-all` the slow ones too. They set up what
# they need in .venv: the first the run-time dependencies (requirements.lock), the others also the development tools
# (requirements-dev.lock).
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEV := .venv/.ready-dev
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# uv installs in seconds what takes pip a minute; where it cannot be had, or knows less of the machine's indexes, pip does it
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
INSTALL = { test -x $(BIN)/uv && $(UV) $(1); } || $(PIP) $(1)

.PHONY: demo test test-all check checks lint format types architecture unit rules docs accuracy bench bench-full soak lab lock clean
LAB ?= /tmp/lab
# processes of the tests: one more than cores, since some wait for the systems that they start
WORKERS ?= $(shell expr $$(nproc) + 1)
# which tests: `make test-all` leaves none out
TESTS ?= -m "not slow"
MINUTES ?= 60
PARTS ?=
COMPILE := $(BIN)/uv pip compile -q pyproject.toml --generate-hashes --no-emit-index-url --python-version 3.11 --universal
SERVICE := --extra postgres --extra s3 --extra github

demo: $(READY)  ## set up, and diagnose the incident that ships with the project
	@$(BIN)/signalbox demo
	@echo; echo 'The command is $(BIN)/signalbox; `. $(BIN)/activate` puts it on your PATH.'

test: $(DEV)  ## set up, and run all checks and the quick tests
	@$(MAKE) --no-print-directory -j2 --keep-going unit checks

test-all: $(DEV)  ## the same with the slow tests and the documentation site: before a release
	@$(MAKE) --no-print-directory -j2 --keep-going unit checks docs TESTS=

check: lint types architecture rules

checks: $(DEV)  ## check beside the tests: its output is shown at once, at its end
	@shown=$$($(MAKE) --no-print-directory check 2>&1); status=$$?; echo "$$shown"; exit $$status

$(READY): requirements-uv.lock requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --require-hashes -r requirements-uv.lock || echo "no uv here: pip installs, which takes a minute longer"
	@$(call INSTALL,--require-hashes -r requirements.lock)
	@$(call INSTALL,--no-deps --no-build-isolation --editable .)
	@touch $@

$(DEV): requirements-dev.lock $(READY)
	@$(call INSTALL,--no-compile --require-hashes -r requirements-dev.lock)  # most of it is never imported
	@touch $@

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell  # misspellings, and words that docs/make/wordlist.txt replaces

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(DEV)
	$(BIN)/mypy

architecture: $(DEV)  ## the layers of docs/architecture.md
	$(BIN)/lint-imports

rules: $(DEV)  ## every rule file is valid; tests check what rules match, and that their lock and pages are current
	$(BIN)/signalbox rules lint

docs: $(DEV)  ## the documentation site, in build/docs/site; fails where a link or an anchor leads nowhere
	@$(BIN)/python docs/make/website.py

unit: $(DEV)
	env -u MAKEFLAGS -u MFLAGS -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal $(TESTS)

accuracy: $(DEV)  ## the figures on ../shared/benchmark
	$(BIN)/python bench/accuracy.py

bench: $(DEV)  ## how fast logs are read, 2 GB, beside ripgrep where it is installed: minutes; writes the README's figures
	$(BIN)/python bench/scan.py --size 2G --quick --figures

bench-full: bench  ## 6 and 16.92 GB too, whose logs are deleted afterwards: 40 GB of disk at most
	$(BIN)/python bench/scan.py --size 6G 16.92G --quick --deep --delete --figures

soak: $(DEV)  ## an hour of fuzz, kills, floods, live scenes and upgrades; shorter with MINUTES=5, single parts with PARTS=fuzz,kills
	$(BIN)/python bench/soak/soak.py --minutes $(MINUTES) --parts "$(PARTS)" --lab $(LAB)/bin/python

lab: $(DEV)  ## record the lab's bundles again: 20 minutes, PyTorch for recording only, root for the full disk
	@test -x $(LAB)/bin/python || $(PYTHON) -m venv $(LAB)
	@$(LAB)/bin/python -m pip install --quiet torch==2.13.0 numpy py-spy
	$(BIN)/python bench/lab/lab.py --python $(LAB)/bin/python --out tests/bundles
	$(BIN)/python bench/lab/judge.py

lock: $(READY)  ## resolve the lock files again: one resolution, of which the run-time ones are parts, and its installer
	@test -x $(BIN)/uv || $(PIP) uv
	echo uv | $(BIN)/uv pip compile -q - --no-header --generate-hashes --no-emit-index-url -o requirements-uv.lock
	$(COMPILE) --group build $(SERVICE) --extra ray requirements-dev.in -o requirements-dev.lock
	$(COMPILE) --group build --constraint requirements-dev.lock -o requirements.lock
	$(COMPILE) $(SERVICE) --constraint requirements-dev.lock -o requirements-service.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
