"""Lists and records that stand in a cell as text, as JSON, Python, NumPy, PostgreSQL and Spark write them."""
import ast
import csv
import json
import re
from typing import Optional

_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_CALL = re.compile(r"(?:array|WrappedArray|ArraySeq|ArrayBuffer|List|Vector|Set|Index|list|tuple|set|frozenset|deque)"
                   r"\((.*?)(?:, dtype=[\w' ]+)?\)", re.S)
_SHORTENED = re.compile(r"""[\[({]\s*['"\d-].*[\s,](?:\.\.\.|…)(?:[\s,].*)?[\])}]""", re.S)
_STRIPPED = " \t\r\n\v\f\u00a0\u200b\ufeff'\""


def parsed_list(value: str) -> Optional[list[str]]:
    """The elements of text that is a list of texts or numbers, without missing ones; None of other text."""
    elements = _elements(value)
    return None if elements is None else [element for element in elements if element is not None]


def loose_list(value: str, separator: str) -> list[Optional[str]]:
    """The elements of a list of ids as text: with brackets and quotes or without, cut at the separator.

    A missing element, or dots in place of some, is None, and an empty one between two separators empty.
    """
    value = _inside_of_call(value)
    elements = _elements(value)
    if elements is None:
        inner = value[1:-1] if len(value) > 1 and _BRACKETS.get(value[0]) == value[-1] else value
        mark = next((mark for mark in (separator, ",", "|", ";") if mark in inner), None)
        elements = [text.strip(_STRIPPED) for text in (inner.split(mark) if mark else inner.split())]
        if mark and not elements[-1]:
            del elements[-1]
    return [None if element in ("...", "…") else element for element in elements]


def braced_list(value: str) -> list[str]:
    """The elements of an array as PostgreSQL writes it: {a,"b c"}."""
    return next(csv.reader([value[1:-1]], escapechar="\\", skipinitialspace=True), [])


def is_quoted_list(value: str) -> bool:
    """Whether text is evidently a list: of texts in quotes, in brackets."""
    return value[1:2] in ("'", '"') and bool(parsed_list(value))


def is_shortened(value: str) -> bool:
    """Whether text is a list of which a program has written the ends alone: [1 2 ... 9]."""
    return bool(_SHORTENED.fullmatch(value))


def is_nested(value: str) -> bool:
    """Whether text is an object with entries, {"id": 1}, or a list of such or of lists."""
    if not re.match(r"[{\[]\s*[{\[\"']", value):
        return False
    read = _read(value)
    first = next(iter(read), None) if isinstance(read, list) else read
    return isinstance(first, dict) and bool(first) or isinstance(read, list) and isinstance(first, list)


def _read(value: str):
    """What JSON or Python makes of text; None where neither can read it."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return None


def _elements(value: str) -> Optional[list[Optional[str]]]:
    """`parsed_list` with None for each missing element."""
    if len(value) < 2 or _BRACKETS.get(value[0]) != value[-1]:
        return None
    if words := _numpy_texts(value[1:-1]):
        return words
    # A set of Python is read as a list, whose order is that of the text.
    read = _read(value if value[0] != "{" else f"[{value[1:-1]}]")
    if read is None:
        return _numpy_list(value[1:-1].split()) if value[0] == "[" else None
    if not isinstance(read, (list, tuple)) or not all(
            isinstance(element, (str, int, float, type(None))) for element in read):
        return None
    return [None if element is None or element != element else str(element) for element in read]  # NaN


def _inside_of_call(value: str) -> str:
    """What stands in array([1, 2], dtype=object) or WrappedArray(a, b), in brackets; other text as it is."""
    call = _CALL.fullmatch(value)
    if call is None:
        return value
    return call[1] if _BRACKETS.get(call[1][:1]) == call[1][-1:] != "" else f"[{call[1]}]"


def _numpy_texts(inner: str) -> list[str]:
    """NumPy writes texts without commas, which Python would take for one text: ['a' 'b']."""
    quoted = re.findall(_QUOTED, inner) if "," not in re.sub(_QUOTED, "", inner) else []
    return [text[1:-1] for text in quoted] if len(quoted) > 1 and not re.sub(_QUOTED, "", inner).strip() else []


def _numpy_list(words: list[str]) -> Optional[list[str]]:
    """NumPy writes numbers without commas: [1 2]."""
    try:
        return [word.rstrip(".") for word in words if float(word) == float(word)]
    except ValueError:
        return None
