# The commands that README names, for those who like make.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python)

.PHONY: test-attacks
# Attacks on the commands and the service; at most 15 minutes, then a table of what was tried, held and lost.
test-attacks:
	ATTACKS=full timeout --signal=INT 900 $(PYTHON) -m pytest tests/attacks
