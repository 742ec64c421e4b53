"""Flags as keywords, checked before anything runs: whether a function reads them, and whether their values fit."""
import dataclasses
import difflib
import numbers
import os
import typing
from typing import Any, Mapping

import numpy as np

from clrec_tf.config import plug_sections
from clrec_tf.config import SECTIONS
from clrec_tf.errors import UserError

# Function -> sections, or "section.setting", that it reads.
READS = {
    "prepare": ("paths.data_dir", "paths.seed", "prepare", "stores"),
    "train": ("paths.workdir", "paths.seed", "model", "loss", "train", "operations.metrics_port",
              "operations.metrics_host", "operations.profile_steps", "operations.run_id", "stores"),
    "Run.evaluate": ("evaluate", "dial", "stores"),
    "Run.export": ("paths.export_dir", "export", "dial", "serve.model_name", "serve.max_k", "evaluate.filter_seen",
                   "evaluate.list_length", "stores"),
}
_FOR_COMMANDS = ("input", "item_features", "dry_run", "stages")  # what the functions have arguments for, or do not do
_WANTED = {bool: "True or False", int: "an integer", float: "a number", str: "a text"}
_ALIKE = .7  # difflib's ratio, from which a flag is offered for an unknown name
_SHOWN = 40  # characters of a value in a message


def settings(function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that keywords mean, for `Config.of`: numbers and sequences of flags with several values as text.

    Args:
      function: of `READS`.
      given: keyword -> value; None stands for the flag's default.

    Raises:
      UserError: naming a keyword that is no flag, that the function does not read, or whose value is of another type.
    """
    known = _hints()
    for name in given:
        if not _reads(function, name, known):
            raise UserError(f"{function}() does not read {name!r}: {_remedy(function, name, known)}")
    return {name: checked(name, value, known[name][1]) for name, value in given.items() if value is not None}


def checked(name: str, value: Any, hint: Any) -> Any:
    """A value as a setting of type `hint` takes it: numbers of NumPy as Python's, sequences as tuples of texts.

    Raises:
      UserError: it is of another type; it names both.
    """
    if hint is bool and isinstance(value, (bool, np.bool_)):
        return bool(value)
    if hint is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if hint is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    if hint is str and isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if hint not in (bool, int, float, str):
        values = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
        if all(isinstance(one, (str, numbers.Real)) and not isinstance(one, bool) for one in values):
            return tuple(map(str, values))
    raise UserError(f"{name}={repr(value)[:_SHOWN]} is of type {type(value).__name__}: give "
                    f"{_WANTED.get(hint, 'a list of texts or numbers')}")


def _hints() -> dict[str, tuple[str, Any]]:
    """Setting -> its section and type."""
    return {field.name: (key, typing.get_type_hints(cls)[field.name]) for key, section in SECTIONS.items()
            for cls in (section, *plug_sections(key).values()) for field in dataclasses.fields(cls)}


def _reads(function, name, known) -> bool:
    if name not in known or name in _FOR_COMMANDS:
        return False
    section = known[name][0]
    return section in READS[function] or f"{section}.{name}" in READS[function]


def _remedy(function, name, known) -> str:
    readers = [reader for reader in READS if _reads(reader, name, known)]
    if readers:
        return f"give it to {' or '.join(f'{reader}()' for reader in readers)}"
    if name in known:
        return "it is a flag of commands alone (python -m clrec_tf.…)"
    alike = difflib.get_close_matches(name, [other for other in known if _reads(function, other, known)], 1,
                                      _ALIKE)
    command = function.rpartition(".")[2]
    return f"did you mean {alike[0]!r}?" if alike else f"it is no flag; `clrec {command} --help` lists them"
