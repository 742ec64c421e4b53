"""Numbers of JSON, whose integers may be longer than any float: `math.isfinite` and NumPy raise `OverflowError` there."""
from typing import Any
from typing import Sequence

import numpy as np

EXACT = 2**53  # from there on several whole numbers are one 64-bit float
_MOST = float(np.finfo(np.float64).max)


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float, no bool, and within the floats."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MOST


def as_floats(values: Sequence[int | float]) -> np.ndarray:
    """Numbers [N] as float64 [N]; what is not within the floats is not finite."""
    try:
        return np.array(values, np.float64)
    except OverflowError:
        return np.array([value if is_number(value) else np.nan for value in values], np.float64)
