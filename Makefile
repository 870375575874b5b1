# Signalbox: `make demo` shows it, `make test` proves it. Both set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check lint format types architecture unit rules accuracy lab lock clean
LAB ?= /tmp/lab

demo: $(READY)  ## set up, and diagnose the incident that ships with the project
	@$(BIN)/signalbox demo

test: check unit  ## set up, and pass all checks and tests

check: lint types architecture rules

$(READY): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(READY)
	$(BIN)/mypy

architecture: $(READY)  ## the floors of docs/architecture.md
	$(BIN)/lint-imports

rules: $(READY)  ## every rule file is sound and speaks, or is silent, where its own logs say so
	$(BIN)/signalbox rules lint
	$(BIN)/signalbox rules test
	$(BIN)/signalbox rules lock --check
	$(BIN)/signalbox rules docs --check

unit: $(READY)
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile

accuracy: $(READY)  ## the figures on ../shared/benchmark
	$(BIN)/python bench/accuracy.py

lab: $(READY)  ## record the lab's bundles anew: 20 minutes, PyTorch for recording only, root for the full disk
	@test -x $(LAB)/bin/python || $(PYTHON) -m venv $(LAB)
	@$(LAB)/bin/python -m pip install --quiet torch==2.13.0 numpy py-spy
	$(BIN)/python bench/lab/lab.py --python $(LAB)/bin/python --out tests/bundles
	$(BIN)/python bench/lab/judge.py

lock:  ## resolve requirements.lock anew
	$(BIN)/uv pip compile -q pyproject.toml --extra postgres --extra re2 --extra s3 --extra github --extra ray requirements-dev.in --generate-hashes --no-emit-index-url \
	  --python-version 3.11 --universal -o requirements.lock
	$(BIN)/uv pip compile -q pyproject.toml --extra postgres --extra re2 --extra s3 --extra github --constraint requirements.lock --generate-hashes \
	  --no-emit-index-url --python-version 3.11 --universal -o requirements-service.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
