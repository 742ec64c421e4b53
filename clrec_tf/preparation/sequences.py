"""Logs that are sequences: lines of user and item, a line per user, and rows with lists."""
from collections import Counter
import re

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import log_source
from clrec_tf.preparation.log_source import Source
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import delimiters
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import ROW
from clrec_tf.tabular_files.frames import Table
from clrec_tf.tabular_files import headers
from clrec_tf.tabular_files.table_parts import EXTRA
from clrec_tf.tabular_files import list_texts

_PAIR = r"^\s*(\S+)(?:\s+(\S+))?(?:\s+(\S.*?))?\s*$"


def open_sequence(settings: PrepareConfig) -> Source:
    """Lines of user and item.

    Raises:
      UserError: the lines have other fields.
    """
    log_source.refuse_names(settings)
    lines, rows, mark, header = _sample(settings)
    path = settings.input
    body = rows[header:]
    if body and len(body[0]) > 2:
        ragged = len(Counter(map(len, body))) > 1
        line = lines[0] if header else "\t".join(body[0]) if mark == " " else lines[header]
        hint = ("if each line is one user and the items, give --format=sequence_per_user; else " if ragged else "")
        raise UserError(f"{path}: its lines, such as {lines[header][:100]!r}, have {len(body[0])} fields and not two, "
                        f"user and item: {hint}{log_source.as_columns(line)}")
    _check_cut(path, body, lines[header:], mark)
    if mark == " ":
        table = log_source.whole_lines(path, settings, header)
        groups = pl.col("line").str.extract_groups(_PAIR)
        field = lambda number: groups.struct.field(str(number))
        clicks = log_source.select(table, line="line").select(ROW, field(3).alias(EXTRA), user=field(1), item=field(2))
        return Source(table, clicks)
    table = frames.open_table(path, ("user", "item"), mark, quoted=False, skip_header=header,
                              reading=frames.reading_of(settings))
    _check_inner(table, lines[header:], mark)
    return Source(table, log_source.select(table, user="user", item="item"))


def open_per_user(settings: PrepareConfig) -> Source:
    """Lines of a user and the items in time order.

    Raises:
      UserError: the lines are evidently clicks.
    """
    log_source.refuse_names(settings)
    lines, rows, mark, header = _sample(settings)
    path, body = settings.input, rows[header:]
    lengths = Counter(map(len, body))
    if set(lengths) == {1}:
        _check_cut(path, body, lines[header:], mark)
    if len(lengths) == 1 and 2 < len(body[0]) < 6 and len({row[0] for row in body}) < len(body):
        line = lines[0] if header else "\t".join(body[0]) if mark == " " else lines[header]
        raise UserError(f"{path}: all lines, such as {lines[header][:100]!r}, have {len(body[0])} fields, and users "
                        f"stand on several of them: they look like clicks; {log_source.as_columns(line)}")
    if mark != " " and set(lengths) == {2}:
        _check_inner(frames.open_table(path, ("user", "item"), mark, quoted=False, skip_header=header,
                                       reading=frames.reading_of(settings)), lines[header:], mark)
    table = log_source.whole_lines(path, settings, header)
    line = pl.col("line").str.strip_chars(" \r" if mark == "\t" else None)
    if mark == " ":
        line = line.str.replace_all(r"\s+", " ")
    ids = line.str.strip_chars_end(mark + " ").str.split(mark)
    clicks = log_source.select(table, line="line").select(ROW, EXTRA, user=ids.list.first(), item=ids.list.slice(1))
    return Source(table, clicks.explode("item"))


def exploded(clicks: pl.LazyFrame, table: Table, separator: str) -> pl.LazyFrame:
    """Rows with lists -> a row per element.

    Args:
      clicks: `ROW`, user, item and others; item, and those of the others that are lists too, are Parquet lists or
        lists as text.
      table: that they are of.
      separator: inside of lists as text, which may have brackets and quotes.

    Raises:
      UserError: no row has a list of items; DataError: lists of one row differ in length.
    """
    schema = clicks.collect_schema()
    as_list = lambda series: pl.Series([None if text is None else list_texts.loose_list(text.strip(), separator)
                                        for text in series], dtype=pl.List(pl.String))
    lists = [name for name, dtype in schema.items() if isinstance(dtype, (pl.List, pl.Array)) and name != "user"]
    with frames.readable(table.path):
        head = clicks.head(headers.SAMPLE).collect()
        texts = [name for name, dtype in schema.items() if dtype == pl.String
                 and name not in (ROW, EXTRA, "user", "title") and _are_lists(head[name], separator, name == "item")]
        if "item" not in (*lists, *texts):
            example = head["item"][0] if len(head) else ""
            raise UserError(f"{table.path}: its items, such as {example!r}, are no lists: give --format=columns")
        _check_elements(head["item"] if "item" in texts else head["item"].head(0), table.path)
        clicks = clicks.with_columns(pl.col(name).map_batches(as_list, return_dtype=pl.List(pl.String))
                                     for name in texts)
        clicks = clicks.with_columns(pl.col(name).arr.to_list() for name in lists if isinstance(schema[name], pl.Array))
        together = [name for name in (*lists, *texts) if not name.startswith("f:")]
        lengths = [pl.col(name).list.len().fill_null(0) for name in together]
        odd = clicks.filter(pl.any_horizontal([pl.lit(False), *(length != lengths[0] for length in lengths)]))
        clicks = clicks.filter(lengths[together.index("item")] > 0)
        unequal = odd.select(ROW, *together).head(1).collect()
    if len(unequal):
        counts = ", ".join(f"{'no' if unequal[name][0] is None else len(unequal[name][0])} of {name}"
                           for name in together)
        raise DataError(f"{table.path}, {table.where(unequal[ROW][0])}: the lists differ in length ({counts}): correct "
                        "it")
    return clicks.explode(together)


def _check_elements(items: pl.Series, path: str) -> None:
    """`UserError` or `DataError` where the elements of the first lists, as text, are no ids."""
    for text in items.drop_nulls():
        if list_texts.is_nested(text.strip()):
            raise UserError(f"{path}: its items, such as {text[:80]!r}, are records or lists in lists: write one list "
                            "of ids for each user")
        if list_texts.is_shortened(text.strip()):
            raise DataError(f"{path}: the middle of its lists is missing, as in {text[:80]!r}: write them whole")


def _are_lists(column: pl.Series, separator: str, loose: bool) -> bool:
    """Whether text is lists, in brackets or between separators; of numbers, or where `loose`, also between spaces."""
    present = [text.strip() for text in column.drop_nulls()]
    if not present:
        return False
    brackets = [text[:1] in "[({" and text[-1:] in "])}" for text in present]
    # A date and time has a space, too.
    loose = loose or all(headers.is_number(word) for text in present for word in text.split())
    marks = (separator, ",", "|", ";") + ((" ",) if loose else ())
    return all(brackets) or any(mark in text for text in present for mark in marks)


def _sample(settings: PrepareConfig) -> tuple[list[str], list[list[str]], str, bool]:
    """First lines, their fields, the delimiter, and whether the first line is a header, which is said."""
    lines = headers.peek(settings.input, settings.encoding)
    given = delimiters.plain(settings.delimiter)
    first = lines[0] if lines else ""
    mark = given or next((mark for mark in ("\t", ",") if mark in first), " ")
    _check_plain(settings, lines)
    rows = [line.split() if mark == " " else [field.strip() for field in line.split(mark)] for line in lines]
    header = headers.stands_above(rows)
    if header:
        headers.noted(settings.input, lines[0])
    return lines, rows, mark, header


def _check_plain(settings: PrepareConfig, lines: list[str]) -> None:
    """`UserError` where the lines are JSON, or their fields stand in quotes or brackets, which would belong to ids."""
    form, path = settings.format, settings.input
    stripped = [line.strip() for line in lines]
    if stripped and all(line[0] in "{[" and line[-1] in "}]" for line in stripped):
        raise UserError(f"{path}: its lines, such as {stripped[0][:100]!r}, are JSON: give --format=columns, or of "
                        "lists --format=lists, and name the columns by flags; write lists without names as plain text")
    if len(stripped) > 1 and all(re.fullmatch(r"[^\s,]+[\s,:;]+[\[({].*[\])}]", line) for line in stripped[1:]):
        raise UserError(f"{path}: its lines, such as {stripped[1][:100]!r}, hold lists in brackets: put a tab before "
                        "them, and give --format=lists --columns=user,item --user_column=user --item_column=item "
                        "--timestamp_column=")
    if len(stripped) > 1 and all(line[0] == line[-1] == '"' for line in stripped[1:]):
        raise UserError(f"{path}: the fields of its lines, such as {stripped[1][:100]!r}, stand in quotes, which "
                        f"--format={form} does not read: give --format=columns --columns=user,item --user_column=user "
                        "--item_column=item --timestamp_column=, or take the quotes away")


def _check_cut(path: str, rows: list[list[str]], lines: list[str], mark: str) -> None:
    """`UserError` where the delimiter separates nothing."""
    if rows and len(rows[0]) == 1:
        other = next((other for other in ("::", ";", "|", ":", ",", "\t", " ") if other in lines[0]), None)
        remedy = f"give --delimiter={delimiters.shown(other)}" if other else "each line must have a user and an item"
        raise UserError(f"{path}: its first line, {lines[0][:100]!r}, is one field, cut at {mark!r}: {remedy}")


def inner_delimiter(table: Table, user: str, item: str) -> str:
    """What separates items inside a column, where each user stands on one row and every item holds it; else ""."""
    with frames.readable(table.path):
        head = table.rows.select(user, item).drop_nulls().head(headers.SAMPLE).collect()
        marks = [mark for mark in (",", "|", ";", " ") if len(head) > 1
                 and all(mark in text.strip() for text in head[item].cast(pl.String))]
        if not marks or not head[user].is_unique().all():
            return ""
        # The first rows of a log in time order may be of different users, too.
        rows, users = table.rows.select(pl.col(user).drop_nulls().len(), pl.col(user).drop_nulls().n_unique().alias("n")
                                        ).collect().row(0)
    return marks[0] if users == rows else ""


def _check_inner(table: Table, lines: list[str], mark: str) -> None:
    """`UserError` where a line is a user and a list with a delimiter of its own."""
    inner = inner_delimiter(table, "user", "item")
    if inner:
        delimiter = "" if mark in "\t," else f" --delimiter={delimiters.shown(mark)}"
        raise UserError(f"{table.path}: each line, such as {lines[0][:100]!r}, is a user and a list of items: give "
                        f"--format=lists{delimiter} --columns=user,item --user_column=user --item_column=item "
                        f"--timestamp_column= --multi_separator='{inner}'")
