"""Header lines: recognised where a form has none, and doubted where they look like a row."""
import re
from typing import Optional, Sequence

from absl import logging

from clrec_tf.errors import UserError
from clrec_tf.tabular_files import file_sets
from clrec_tf.tabular_files import texts

SAMPLE = 1000  # lines by which a form is judged
_WHO = "user|session|visitor|customer|client|member|reviewer|account|author|reader|viewer|buyer|u|uid|sid"
_WHAT = ("item|product|movie|asin|sku|article|book|song|track|artist|video|news|poi|business|goods|content|history|"
         "sequence|click|interaction|i|iid")
_USER = re.compile(f"(?:{_WHO})s?(?:_?ids?|_?idx|_?no|_?code|_?index)?", re.I)
_ITEM = re.compile(f"(?:{_WHAT}|parent_?asin)s?(?:_?ids?|_?idx|_?no|_?code|_?index)?", re.I)
# Without plain words such as `movie`, which may be titles.
_ITEM_ID = re.compile(
    r"id|iid|item|asin|parent_?asin|sku|(?:item|product|movie|article|book|song|track|video|news|goods|content|"
    r"business|poi|artist|recipe|game|anime|restaurant)_?(?:id|idx|no|code)", re.I)
_TIME = re.compile(r".*(?:time|date|stamp|when|created).*|ts|unix.*", re.I)
COLUMNS = (_USER, _ITEM, _TIME)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|\d{4}-\d\d-\d\d.*", re.I)


def peek(path: str, encoding: str = "", count: int = SAMPLE) -> list[str]:
    """The first lines of a log that are not blank, of the first file where it has several."""
    return [line for line in texts.peek(file_sets.find(path)[0].path, encoding, count) if line.strip()]


def is_number(text: str) -> bool:
    """Whether text is a number or a date: a value, and no name of a column."""
    return bool(_NUMBER.fullmatch(text.strip()))


def stands_above(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of some rows (user, item, …) is a header: by its names, or above rows of integers alone."""
    if not rows or len(rows[0]) < 2:
        return False
    first, below = [field.strip().partition(":")[0] for field in rows[0][:2]], rows[1:]
    if _USER.fullmatch(first[0]) and _ITEM.fullmatch(first[1]):
        return True
    whole = lambda field: field.strip().lstrip("-").isdecimal()
    return bool(below) and not any(map(whole, first)) and all(whole(field) for row in below for field in row[:2])


def further_down(path: str, name: str, encoding: str = "") -> int:
    """Number, from 2, of a line below the first with the name among its fields; 0 where none of the first 100 has."""
    lines = texts.peek(file_sets.find(path)[0].path, encoding, 100)
    fields = [[field.strip(' "') for field in re.split(r"[,;|\t]", line)] for line in lines]
    return next((number for number, found in enumerate(fields[1:], 2) if len(found) > 1 and name in found), 0)


def stand_in_quotes(ids: Sequence[Optional[str]]) -> str:
    """One of some ids, all of which stand in double quotes; "" where not all do."""
    known = [text.strip() for text in ids if text and text.strip()]
    return known[0] if known and all(len(text) > 1 and text[0] == text[-1] == '"' for text in known) else ""


def noted(path: str, line: str) -> None:
    """Says that a header was left out."""
    logging.info("%s: line 1 is taken for a header and left out: %r", path, line[:100])


def names_users(name: str) -> bool:
    """Whether a column is called like the ids of users."""
    return bool(_USER.fullmatch(name.strip()))


def item_id_column(columns: Sequence[str], named: str, log_column: str, path: str,
                   flag: str = "item_features") -> str:
    """The column of an item file that holds ids.

    Args:
      columns: of the file.
      named: --item_features_id; "" where it is not given.
      log_column: --item_column, which is taken if the file has it.
      path: of the file.
      flag: that names the file; of another than --item_features the column can be named by `log_column` alone.

    Raises:
      UserError: it is not evident which.
    """
    listed = ", ".join(repr(name) if name.strip() != name or not name else name for name in columns)
    if stand_in_quotes(columns):
        raise UserError(f"--{flag}={path}: its columns {listed} stand in quotes: give --quote=double")
    if named:
        if named not in columns:
            raise UserError(f"{path} has no column {named!r}: give --item_features_id as one of {listed}")
        return named
    if log_column in columns:
        return log_column
    known = [name for name in columns if _ITEM_ID.fullmatch(name.strip())]
    known = [name for name in known if name.strip().lower().startswith("item")] or known  # the plainest name
    if len(known) == 1:
        return known[0]
    numbers = [name for name in columns if is_number(name)]
    remedy = "give --item_features_id" if flag == "item_features" else f"call it {log_column}"
    why = (f"its first line looks like a row and no header ({listed}): put a line with the columns' names above it"
           if numbers else f"of its columns {listed}, {'several' if known else 'none'} could be the item's id: "
           f"{remedy}, or if the file has no header put a line of names above it")
    raise UserError(f"--{flag}={path}: {why}")


def doubt(columns: Sequence[str], wanted: Sequence[str], rows: Sequence[dict[str, str]], path: str) -> None:
    """`UserError` where the header of a text file looks like a row.

    Args:
      columns: as the first line has them.
      wanted: those that flags name.
      rows: wanted column -> value, of the first rows below it.
      path: of the file.
    """
    named = [name for name in wanted if is_number(name)]
    counted = list(columns) == [str(number) for number in range(len(columns))]  # how pandas names columns
    # A row with all names is the header again, as where files are put behind one another.
    again = next((name for row in rows for name in wanted if row[name] == name
                  and any(row[other] != other for other in wanted)), None)
    if (named and not counted) or again:
        why = f"{named[0]!r} is a number" if named and not counted else f"{again!r} is a value below it, too"
        raise UserError(f"{path}: the first line, {','.join(columns)[:100]!r}, looks like a row and no header, since "
                        f"{why}. {remedy(len(columns))}")


def remedy(count: Optional[int] = None) -> str:
    """How to name the columns of a file without a header."""
    names = dict(enumerate(("user,item", "user,item,time", "user,item,rating,time"), 2)).get(count, "user,item,…")
    return f"If the file has no header, name its columns from left to right, such as --columns={names}"
