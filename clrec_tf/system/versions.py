"""Versions of what a result depends on, recorded in data sets, runs and bundles."""
import platform
from importlib import metadata

import clrec_tf

PACKAGES = ("tensorflow", "tf-keras", "numpy", "scann", "polars", "tensorflow-serving-api")


def versions() -> dict[str, str]:
    """Name -> version of this package, Python and the packages that matter; "" for one that is not installed."""
    numbers = {"clrec_tf": clrec_tf.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            numbers[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            numbers[package] = ""
    return numbers
