"""Arrays of a request -> the lists that JSON would hold."""
import numpy as np


def plain(values: np.ndarray):
    """An array as lists, or its only value if it has no dimensions; bytes as text."""
    if values.dtype.kind in "SO":
        return np.vectorize(_text, otypes=[object])(values).tolist() if values.size else values.tolist()
    return values.tolist()


def _text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
