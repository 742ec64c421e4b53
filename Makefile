# The commands that set up, show and test the project: `make help` lists them.
# Each makes .venv first, from requirements.lock, unless it is complete.
# make RUNS=folder quickstart writes elsewhere; make WORKERS=8 test runs as many processes.
WORKERS ?= 2
RUNS ?= runs/quickstart
VENV := .venv
PYTHON := $(VENV)/bin/python
COMPLETE := $(VENV)/requirements.lock
PYTEST := $(PYTHON) -m pytest --durations=20
PARALLEL := -n $(WORKERS) --dist=worksteal

.DEFAULT_GOAL := help
.PHONY: help environment system quickstart quickstart-tf220 test test-cluster test-all test-ci test-tf220 test-attacks \
  audit

help:  ## list these commands
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name line; do \
	  printf 'make %-16s %s\n' "$$name" "$$line"; done

environment: $(COMPLETE)  ## make .venv from requirements.lock (Python 3.11)

$(COMPLETE): requirements.lock setup.py pyproject.toml .ci/environment
	.ci/environment $(VENV)

.venv-tf220/requirements.lock: requirements-tf220.lock setup.py pyproject.toml .ci/environment
	.ci/environment .venv-tf220 requirements-tf220.lock

system:
	@.ci/system

quickstart: environment  ## generate a log, train, evaluate, export, show; into runs/quickstart
	$(PYTHON) -m clrec_tf.train --flagfile=configs/quickstart.flags --data_dir=$(RUNS)/data --workdir=$(RUNS)/model

test: environment system  ## the quick tests: all but those marked slow, long or cluster (pytest.ini)
	$(PYTEST) $(PARALLEL) -m "not cluster and not slow and not long"

test-cluster: environment  ## the tests that start clusters of processes, one after another
	$(PYTEST) -m cluster

test-all: environment system  ## all tests, the slow ones and those of clusters too
	$(PYTEST) $(PARALLEL)

test-tf220: .venv-tf220/requirements.lock system  ## all tests but those of clusters, on TensorFlow 2.20
	.venv-tf220/bin/python -m pytest --durations=20 $(PARALLEL) -m "not cluster"

quickstart-tf220: .venv-tf220/requirements.lock  ## doctor and quickstart on TensorFlow 2.20
	.venv-tf220/bin/python -m clrec_tf.doctor
	.venv-tf220/bin/python -m clrec_tf.train --flagfile=configs/quickstart.flags --data_dir=$(RUNS)/data --workdir=$(RUNS)/model

test-ci: environment system  ## all tests but those marked long, as CI runs them
	$(PYTEST) $(PARALLEL) -m "not long"

audit:  ## compare the locks with the database of known vulnerabilities; 3 if it cannot be reached
	@.ci/audit

test-attacks: environment system  ## attack commands, readers of files and the server for at most 20 minutes; print a table
	ATTACKS=full timeout --signal=INT 1200 $(PYTHON) -m pytest tests/attacks
