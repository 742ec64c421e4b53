"""Item files that are one JSON object: {id: {feature: value or list}} or {id: [values]}."""
from typing import Optional, Sequence

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system import json_files
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files import file_sets
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files import json_tables
from clrec_tf.tabular_files import table_parts
from clrec_tf.tabular_files import texts
from clrec_tf.tabular_files import values

_HEAD = 2**16  # bytes that tell what a file is


def is_object(path: str) -> bool:
    """Whether a file is one JSON value and no table, by its beginning, or by its name where it is damaged."""
    file = file_sets.find(path)[0].path
    if contents.open_content(file, _HEAD).kind != contents.TEXT:
        return False
    lines = texts.peek(file, count=5)
    begins = "".join(lines).lstrip()[:1]
    if begins not in ("{", "["):
        return table_parts.stem_extension(file) == "json"
    head = contents.Content(file, contents.TEXT, "\n".join(lines).encode())
    return not json_tables.is_lines(texts.Text(head))


def read(path: str, wanted: dict[str, bool], separator: str, settings: PrepareConfig) -> tuple:
    """Frame, features and columns as `item_features.ItemTable` has them; features are all, or those wanted.

    Raises:
      DataError: the file is damaged or of another form.
    """
    items, title, nulls = _items(path, settings), settings.title_column, settings.null_values
    is_list = {}
    for _, row in items:
        for name, value in row.items():
            is_list[name] = is_list.get(name, False) or isinstance(value, list)
    names = tuple(name for name in is_list if name != title)
    features = {name: several for name, several in wanted.items() if name in is_list} or {
        name: is_list[name] for name in names}
    columns = {"item": pl.Series([_text(item, nulls) for item, _ in items], dtype=pl.String)}
    if title in is_list:
        columns["title"] = pl.Series([_text(row.get(title), nulls) for _, row in items], dtype=pl.String)
    for name, several in features.items():
        entries = [row.get(name) for _, row in items]
        long = next((entry for entry in entries if isinstance(entry, list) and len(entry) > 1), None)
        if long and not several:
            raise UserError(f"{path}: entry {name!r} holds lists such as {str(long)[:80]}: name it in "
                            "--multi_feature_columns")
        if several and all(entry is None or isinstance(entry, str) for entry in entries):
            text = pl.Series(entries, dtype=pl.String)
            columns[f"f:{name}"] = values.several(text, separator, nulls, f"{path}: entry {name!r}")
        else:
            columns[f"f:{name}"] = _feature(entries, several, separator, nulls)
    return pl.DataFrame(columns), features, names


def _items(path: str, settings: PrepareConfig) -> list[tuple[str, dict]]:
    """(item id, feature -> value or list) of each entry; `DataError` where the file is damaged or of another form."""
    try:
        with contents.readable(path), frames.open_text(path, settings.encoding) as file:
            # Pairs, since a dict would swallow an id that stands twice.
            pairs = json_files.parse(file.read(), object_pairs_hook=list)
    except ValueError as error:
        if isinstance(error, UnicodeError):
            raise
        raise DataError(f"{path} is not JSON ({error}): restore or correct the file") from error
    if not (isinstance(pairs, list) and pairs and all(isinstance(pair, tuple) for pair in pairs)):
        raise DataError(f"{path} is not an object of item ids: give {{id: {{feature: value}}}} or {{id: [values]}}")
    # {id: [values]} holds one feature without a name; {id: {feature: value}} arrives as pairs.
    only = (list(settings.multi_feature_columns) or ["attributes"])[0]
    return [(item, dict(row) if isinstance(row, list) and row and isinstance(row[0], tuple) else {only: row} if row
             else {}) for item, row in pairs]


def _feature(entries: list, several: bool, separator: str, nulls: Sequence[str]) -> pl.Series:
    """A feature's values by item, from entries that are values or lists: lists where there are several, else text."""
    split = lambda entry: entry.split(separator) if several and isinstance(entry, str) else [entry]
    lists = [[text for value in (entry if isinstance(entry, list) else split(entry))
              if (text := _text(value, nulls)) is not None] for entry in entries]
    if several:
        return pl.Series(lists, dtype=pl.List(pl.String))
    return pl.Series([texts_of_item[0] if texts_of_item else None for texts_of_item in lists], dtype=pl.String)


def _text(value, nulls: Sequence[str]) -> Optional[str]:
    """One value as stripped text; None where it is missing."""
    text = None if value is None or value != value else str(value).strip()
    return None if text is None or text in ("", *nulls) else text
