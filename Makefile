# make train | quick | report | test | check | clean      everything runs in .venv, which is made when it is missing
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: train quick report test check clean

train: $(READY)
	$(BIN)/python train.py $(ARGS)

# a run of under a minute that shows every link of the chain; too short to learn much
quick: $(READY)
	$(BIN)/python train.py --steps 10 --sft.steps 120 --sft.demonstrations 4096 --run.eval-problems 64 --run.test-problems 64 $(ARGS)

# the question in a quarter of an hour: twelve runs, then a page of figures with intervals in sweeps/quick/report
report: $(READY)
	$(BIN)/python -m experiments sweep quick $(ARGS)
	$(BIN)/python -m experiments report sweeps/quick/store

# in two processes; the tests of a file share what they make
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# venv works also where the system's Python forbids global installs; the constraints name what was tested
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)
