"""JSON lines, and JSON arrays of objects, as lazy frames of strings."""
import json

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.system import json_files
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files.contents import Content
from clrec_tf.tabular_files.texts import Text

LINE = "__line__"  # the whole line
_SAMPLE = 500  # lines in which columns are looked for
_MOST_INNER = 8  # entries of an object in an object that are columns, too
_NOT_JSON = r"([:\[,]\s*)(?:NaN|-?Infinity)\b"  # which Python writes and JSON does not know


def is_lines(text: Text) -> bool:
    """Whether a text is a JSON object a line, or an array of objects."""
    head = text.head(4096).lstrip()
    if head.startswith(b"["):
        return head[1:].lstrip().startswith(b"{")
    if not head.startswith(b"{"):
        return False
    first, *others = [line for line in text.first_lines(5) if line.strip()]
    if _object(first) is None:  # damaged, where all others are objects
        return len(others) > 1 and all(map(_object, others))
    return bool(others) or not _nested(first)


def as_lines(text: Text) -> Text:
    """An array of objects as lines; lines as they are."""
    if not text.head(4096).lstrip().startswith(b"["):
        return text
    with contents.readable(text.path), text.content.view() as view:
        try:
            rows = json_files.parse(bytes(view))
        except ValueError as error:
            raise DataError(f"{text.path} is not JSON ({error}): restore or correct the file") from error
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return Text(Content(text.path, contents.TEXT, data), text.encoding, len(rows))


def columns(text: Text) -> tuple[str, ...]:
    """Names of the entries of the first objects; of an object in an object behind its name and a dot."""
    names, inner = {}, {}
    for line in text.first_lines(_SAMPLE):
        value = _object(line) or {}
        names |= dict.fromkeys(value)
        inner |= dict.fromkeys(f"{name}.{entry}" for name, entries in value.items()
                               if isinstance(entries, dict) and len(entries) <= _MOST_INNER for entry in entries)
    return (*names, *(name for name in inner if name not in names))


def column(name: str) -> pl.Expr:
    """An entry of each line as text, null where it is missing, null or NaN, or the line is not JSON."""
    line, (outer, _, inner) = pl.col(LINE), name.partition(".")
    step = lambda entry: "[" + json.dumps(entry, ensure_ascii=False) + "]"
    paths = [f"${step(name)}", *([f"${step(outer)}{step(inner)}"] if inner else [])]
    match = lambda text: pl.coalesce(text.str.json_path_match(path) for path in paths)
    read, mended = match(line), match(line.str.replace_all(_NOT_JSON, "${1}null"))
    return pl.when(line.str.contains(_NOT_JSON)).then(pl.coalesce(read, mended)).otherwise(read).alias(name)


def _object(line: str):
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _nested(line: str) -> bool:
    """Whether one object holds others, so that it is a table of its own and no row."""
    return any(isinstance(value, (dict, list)) for value in _object(line).values())
