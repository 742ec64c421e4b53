"""The package as a Python library: from data frames to a data set, a run and a loaded model (docs/python.md)."""
