"""JSON in files: written whole, read with errors a person can act on, and sealed by a checksum of its own."""
import hashlib
import json
import os
import stat
from typing import Any

from clrec_tf.errors import DataError
from clrec_tf.system import atomic

_MOST_BYTES = 2**32
SEAL, SEALED = "checksum", "has_checksum"


def parse(text, **settings) -> Any:
    """`json.loads`, for which whatever cannot be read, too deep a nesting too, is a `ValueError`."""
    try:
        return json.loads(text, **settings)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def save_json(path: str, value) -> None:
    """Writes JSON through a temporary file and a rename, so that a half-written file never bears the name."""
    # What no UTF-8 has, such as the bytes of an old file name, becomes a JSON escape.
    with atomic.new_file(path) as name, open(name, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(value, file, indent=1, sort_keys=True, ensure_ascii=False)


def load_json(path: str, missing: str, damaged: str) -> dict:
    """Reads a JSON object.

    Raises:
      DataError: with the remedy `missing` where there is no file, `damaged` where it holds no object.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            raise ValueError(f"it is no file, or larger than {_MOST_BYTES} bytes")
        with open(path, encoding="utf-8") as file:
            value = parse(file.read())
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: {missing}") from error
    except ValueError as error:
        raise DataError(f"{path} is not readable JSON ({error}): {damaged}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a {type(value).__name__} where an object is expected: {damaged}")
    return value


def sealed(values: dict) -> dict:
    """The values and a sha256 of them, in place of one that they have."""
    values = _values(values) | {SEALED: True}
    return values | {SEAL: _digest(values)}


def unsealed(values: dict) -> dict:
    """The values without their seal; `ValueError` where it is not theirs. Files older than seals have none."""
    # Two entries, since the name of one may be what is damaged.
    if SEAL in values or SEALED in values:
        if values.get(SEAL) != _digest({name: value for name, value in values.items() if name != SEAL}):
            raise ValueError("it does not match its own checksum")
    return _values(values)


def _values(values):
    return {name: value for name, value in values.items() if name not in (SEAL, SEALED)}


def _digest(values):
    as_read = json.loads(json.dumps(values))  # numbers as keys are text then, and sorted as such
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()
