"""Values read from a file, held against what their dataclass declares."""
import dataclasses
import typing

from clrec_tf.system.finite import EXACT
from clrec_tf.system.finite import is_number

_MOST_TEXT = 100_000  # characters


def check_declared(value) -> None:
    """Checks the fields of a dataclass, and of those within: no file of another program, or a hostile one, gets further.

    Integers are from 0 to 2^53, floats are finite, text has a bounded length, and everything is of the type that is
    declared.
    What is declared as a plain dict is not looked into.

    Raises:
      ValueError: naming the field.
    """
    hints = typing.get_type_hints(type(value))
    for field in dataclasses.fields(value):
        _check(f"{type(value).__name__}.{field.name}", getattr(value, field.name), hints[field.name])


def _check(name, value, hint):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:  # Optional
        if value is not None:
            _check(name, value, arguments[0])
    elif origin is tuple:
        _require(isinstance(value, tuple), name, value, "a list")
        several = arguments[1:] == (...,)
        _require(several or len(value) == len(arguments), name, value, f"a list of {len(arguments)}")
        for number, part in enumerate(value):
            _check(f"{name}[{number}]", part, arguments[0 if several else number])
    elif dict in (origin, hint):
        _require(isinstance(value, dict), name, value, "an object")
        for key, part in value.items() if arguments else ():
            _check(f"{name} of {str(key)[:50]!r}", part, arguments[1])
    elif dataclasses.is_dataclass(hint):
        _require(isinstance(value, hint), name, value, "an object")
        check_declared(value)
    elif hint is int:
        _require(type(value) is int and 0 <= value <= EXACT, name, value, "a number from 0 to 2^53")
    elif hint is float:
        _require(is_number(value), name, value, "a finite number")
    elif hint is bool:
        _require(type(value) is bool, name, value, "true or false")
    elif hint is str:
        _require(isinstance(value, str) and len(value) <= _MOST_TEXT, name, value, "a text")
    else:
        raise TypeError(f"{name} is declared as {hint}, which nobody checks")


def _require(holds, name, value, what):
    if not holds:
        raise ValueError(f"{name} is {str(value)[:50]!r} where {what} is expected")
