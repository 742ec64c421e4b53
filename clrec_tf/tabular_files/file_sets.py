"""Files that a flag names: one, several separated by commas, a pattern, or a folder of parts."""
import dataclasses
import glob
import hashlib
import os
import re
from typing import Optional
from urllib.parse import unquote

from absl import logging

from clrec_tf.errors import UserError
from clrec_tf.system import atomic
from clrec_tf.tabular_files import contents

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # how Spark and Hive write a missing value
_HIDDEN = ("_", ".")  # names of what is no part: _SUCCESS, .crc
_FEW, _FEW_TYPED = 256, 4096  # bytes of a file that may hold no row: a header line; Parquet and Arrow
_UNFINISHED = ("~", ".tmp", ".crdownload", ".partial", ".swp")
# Folder in a table -> what the table is, some of whose files may hold deleted rows or older versions of others.
_LAKES = {"_delta_log": "Delta", ".hoodie": "Hudi"}
SEVERAL = "a file, several separated by commas, a pattern such as day_*.csv, or a folder of parts"


@dataclasses.dataclass(frozen=True)
class Part:
    """One file of a set.

    Attributes:
      path: of the file.
      partition: column -> value, from the names of its folders (`day=2024-05-01`).
    """
    path: str
    partition: tuple[tuple[str, Optional[str]], ...] = ()


def exists(value: str) -> bool:
    """Whether there is any file of that name."""
    return os.path.exists(value) or bool(_several(value))


def find(value: str, flag: str = "") -> list[Part]:
    """The files of `value`, in order of their names; those separated by commas in the order given.

    What exists under the name as it stands is meant: brackets and stars of folders are no patterns then.

    Raises:
      UserError: there is none.
    """
    named = f"--{flag}={value}" if flag else value
    if os.path.isdir(value):
        parts = _parts(value)
        if not parts:
            raise UserError(f"{named} is a folder without files: give {SEVERAL}")
        return parts
    if os.path.exists(value):
        return [Part(value, _partition(os.path.dirname(value)))]
    parts = _several(value)
    if not parts:
        raise UserError(f"{named} does not exist: give {SEVERAL}")
    return parts


def digest(value: str) -> str:
    """sha256 of the file, or of those of a set and of their partitions; warns of copies among them."""
    parts = find(value)
    sums, seen = [], {}
    for part in parts:
        with contents.readable(part.path), open(part.path, "rb") as file:
            sums.append(hashlib.file_digest(file, "sha256").hexdigest())
            file.seek(0)
            large = os.path.getsize(part.path) > (_FEW_TYPED if file.read(4) in (b"PAR1", b"ARRO") else _FEW)
        other = seen.setdefault((sums[-1], part.partition), part.path)
        if large and other != part.path:
            logging.warning("%s and %s hold the same bytes, so that all rows of them count twice: if one is a copy, "
                            "move it away", other, part.path)
    if len(parts) == 1:
        return sums[0]
    named = [(checksum, part.partition) for checksum, part in zip(sums, parts)]
    return hashlib.sha256(repr(named).encode()).hexdigest()


def _several(value: str) -> list[Part]:
    """Files of a pattern, or of names and patterns separated by commas, each of which must exist."""
    parts, seen = [], set()
    for name in [value] if "," not in value else [name.strip() for name in value.split(",") if name.strip()]:
        if os.path.exists(name):
            paths = [name]
        else:
            paths = sorted((path for path in glob.glob(name, recursive=True)
                            if not os.path.basename(path).startswith(_HIDDEN) and not atomic.is_incomplete(path)),
                           key=_in_order)
        if not paths:
            if parts or name != value:
                raise UserError(f"{value}: {name!r} does not exist: give {SEVERAL}")
            return []
        for path in paths:
            parts += _parts(path) if os.path.isdir(path) else [Part(path, _partition(os.path.dirname(path)))]
    for part in parts:
        if os.path.realpath(part.path) in seen:
            raise UserError(f"{value} names {part.path} twice: name each file once")
        seen.add(os.path.realpath(part.path))
    return parts


def _parts(folder: str) -> list[Part]:
    """All files below a folder that Spark or a person would take for data."""
    parts = []
    for place, folders, names in os.walk(folder):
        lake = next((kind for name, kind in _LAKES.items() if name in folders), "")
        if os.path.basename(place) == "metadata" and any(name.endswith(".metadata.json") for name in names):
            place, lake = os.path.dirname(place), "Iceberg"
        if lake:
            raise UserError(f"{place} is a table of {lake}, some of whose files may hold deleted rows or older "
                            "versions: write its rows as Parquet")
        folders[:] = sorted((name for name in folders if not name.startswith(_HIDDEN)), key=_in_order)
        names = [name for name in names if not (name.startswith(_HIDDEN) or atomic.is_incomplete(name))]
        if unfinished := next((name for name in names if name.endswith(_UNFINISHED)), ""):
            raise UserError(f"{os.path.join(place, unfinished)} looks like an unfinished file or a copy of an editor: "
                            "move it away, or name the files that are meant")
        parts += [Part(os.path.join(place, name), _partition(place)) for name in sorted(names, key=_in_order)]
    return parts


def _in_order(name: str) -> list:
    """By which names are sorted: numbers in them as numbers, so that part-2 comes before part-10."""
    return [int(text) if text.isdecimal() else text for text in re.split(r"(\d+)", name)]


def _partition(folder: str) -> tuple[tuple[str, Optional[str]], ...]:
    """Columns that are written as folders `name=value`."""
    pairs = [name.partition("=") for name in folder.split(os.sep) if "=" in name.strip("=")]
    return tuple((unquote(name), None if value == _NO_VALUE else unquote(value)) for name, _, value in pairs)
