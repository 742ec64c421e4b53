"""Quotes of delimited text, checked before anything is read, so that no stray quote swallows rows.

A field is quoted if it begins with a quote; inside, two quotes are one. A quote in the middle of another field is a
character like any other, which Polars sees otherwise: such lines are written anew, their fields quoted.
"""
import contextlib
import csv
import dataclasses
import io
import re
from typing import Optional, Union

from absl import logging

from clrec_tf.errors import DataError
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files.room import Room
from clrec_tf.tabular_files.room import Writer

_WINDOW = 2**26  # bytes that are matched in one go
_SAMPLE = 2**18  # bytes of lines by which a line break inside of a field is judged


@dataclasses.dataclass(frozen=True)
class Records:
    """What the quotes of a text make of its lines.

    Attributes:
      data: the text, or a file of it, where it had to be written anew, else None.
      count: records, those of empty lines and of a header too; None where there is no quote.
      breaks: (line from 0, further lines) of each record of several lines.
    """
    data: Union[bytes, str, None] = None
    count: Optional[int] = None
    breaks: tuple[tuple[int, int], ...] = ()


class _Grammar:
    """Patterns of a delimiter, one byte."""

    def __init__(self, delimiter: bytes):
        mark = re.escape(delimiter)
        # As many lines as have no quote, or only fields that are quoted as they should be, in one go.
        field = rb'(?:"(?:[^"\n]++|"")*+"\r?|[^"\n' + mark + rb']*+)'
        self.clean = re.compile(rb'(?:[^"\n]*+\n|(?:' + field + mark + rb')*+' + field + rb'\n)*+')
        self.quoted = re.compile(rb'"((?:[^"]++|"")*+)"(?=\r?(?:\n|\Z)|' + mark + rb')')
        self.escaped = re.compile(rb'"((?:[^"\\]++|\\.|"")*+)"(?=\r?(?:\n|\Z)|' + mark + rb')', re.S)
        self.plain = re.compile(rb'[^\n' + mark + rb']*+')
        self.delimiter = delimiter


def check(view, delimiter: bytes, columns: int, path: str, trusted: bool, room: Room) -> Records:
    """Checks every quote of a text.

    Args:
      view: bytes or mapped file, UTF-8.
      delimiter: one byte.
      columns: that a line has.
      path: for messages.
      trusted: --quote=double: fields of several lines may hold lines that look like rows.
      room: for text that is written anew.

    Raises:
      DataError: naming the line of a quote that does not close, closes inside of a field, or swallows rows.
    """
    if all(b'"' not in chunk for chunk in contents.chunks(view)):
        return Records()
    grammar, size = _Grammar(delimiter), len(view)
    position, written, breaks, inside, anew = 0, 0, [], [], room.writer()
    counted, line = 0, 0  # place and line, from 0, of the last break: no part is counted twice
    while position < size:
        start = grammar.clean.match(view, position, min(position + _WINDOW, size)).end()
        contents.release(view, position, start)
        if start > position and start < size:
            position = start
            continue
        if view.find(b'"', start) < 0:
            break
        fields, stop, literal = _record(view, start, grammar, path)
        raw = view[start:stop]
        if len(fields) > columns and b'\\"' in raw:  # a backslash in front may have kept a quote from closing
            with contextlib.suppress(DataError):
                other = _record(view, start, grammar, path, escapes=True)
                if len(other[0]) == columns and other[1] == stop:
                    fields, stop, literal = other
        lines = raw.rstrip(b"\n").split(b"\n")
        if len(lines) > 1:
            if not trusted:
                _check_lines(view, start, lines, grammar, columns, path)
            counted, line = start, line + _count(view, start, counted)
            breaks.append((line, len(lines) - 1))
        if literal:
            inside.append(start)
            _copy(view, written, start, anew)
            anew.write(_quoted(fields, delimiter))
            written = stop
        position = stop
    if inside:
        logging.info("%s: quotes in the middle of a field are taken as characters, as those behind a backslash (%d "
                     "lines, the first is line %d)",
                     path, len(inside), _line(view, inside[0]))
        _copy(view, written, size, anew)
    ends = _count(view, size) + (view[size - 1:size] != b"\n")
    rows = ends - sum(extra_lines for _, extra_lines in breaks)
    return Records(anew.close() if inside else None, rows, tuple(breaks))


def _copy(view, begin: int, end: int, anew: Writer) -> None:
    for start in range(begin, end, _WINDOW):
        anew.write(view[start:min(start + _WINDOW, end)])
        contents.release(view, start, min(start + _WINDOW, end))


def _record(view, start: int, grammar: _Grammar, path: str, escapes: bool = False) -> tuple[list[bytes], int, bool]:
    """One record: its fields, where it ends (behind the line feed), and whether a quote is a mere character in it.

    Quotes behind a backslash are characters where a field can be read in no other way, or `escapes` says so.
    """
    fields, position, literal = [], start, False
    while True:
        if view[position:position + 1] == b'"':
            match = None if escapes else grammar.quoted.match(view, position)
            text = match and match[1]
            if match is None:
                match = grammar.escaped.match(view, position)
                if match is None or not escapes and b'\\"' not in match[1]:
                    _refuse(view, start, position, path)
                text, literal = re.sub(rb'\\(["\\])', rb"\1", match[1]), True
            fields.append(text.replace(b'""', b'"'))
            position = match.end() + (view[match.end():match.end() + 1] == b"\r")
        else:
            match = grammar.plain.match(view, position)
            literal = literal or b'"' in match[0]
            fields.append(match[0].rstrip(b"\r"))
            position = match.end()
        if view[position:position + 1] != grammar.delimiter:
            return fields, min(position + 1, len(view)), literal
        position += 1


def _refuse(view, start: int, position: int, path: str):
    closed = re.compile(rb'"(?:[^"]|"")*+"').match(view, position)
    shown = view[start:position + 80].split(b"\n")[0].decode("utf-8", "replace")
    what = "opens a quote that is never closed" if closed is None else "has text behind a closing quote"
    raise DataError(f"{path}, line {_line(view, start)} {what}: {shown!r}; if quotes are plain characters there, give "
                    "--quote=none, else correct the line")


def _check_lines(view, start: int, lines: list[bytes], grammar: _Grammar, columns: int, path: str) -> None:
    """`DataError` where a record of several lines holds a line that could be a row of its own."""
    marks = [line.count(grammar.delimiter) for line in lines]
    swallowed = [number for number, count in enumerate(marks) if number and count == columns - 1]
    if swallowed and not _begin_with_words(view, grammar):
        first = [line.split(grammar.delimiter)[0].strip() for line in lines]
        swallowed = [number for number in swallowed if len(first[number].split()) < 2]
    if swallowed:
        line = _line(view, start)
        raise DataError(
            f"{path}, line {line}: a quote opens there and closes on line {line + len(lines) - 1}, and between them "
            f"are {len(swallowed)} lines that look like rows, such as line {line + swallowed[0]}: "
            f"{lines[swallowed[0]][:80].decode('utf-8', 'replace')!r}. If quotes are plain characters give "
            "--quote=none; if the field really has these lines, --quote=double")


def _begin_with_words(view, grammar: _Grammar) -> bool:
    """Whether lines without quotes begin with a field of several words, as prose does and ids do not."""
    lines = view[:_SAMPLE].split(b"\n")[1:-1]
    return any(len(line.split(grammar.delimiter)[0].split()) > 1 for line in lines
               if b'"' not in line and grammar.delimiter in line)


def _quoted(fields: list[bytes], delimiter: bytes) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter.decode(), quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(
        [field.decode("utf-8", "surrogateescape") for field in fields])
    return out.getvalue().encode("utf-8", "surrogateescape")


def _line(view, position: int) -> int:
    """Line number, from 1, of a place."""
    return _count(view, position) + 1


def _count(view, end: int, begin: int = 0) -> int:
    """Line feeds from one place to another."""
    return sum(view[start:min(start + 2**24, end)].count(b"\n") for start in range(begin, end, 2**24))
