"""Where the columns of an impression log stand: one that the server wrote, or one with the columns of the click log."""
import dataclasses

import polars as pl

from clrec_tf.data.impression_columns import is_served_log
from clrec_tf.data.impression_columns import ITEM
from clrec_tf.data.impression_columns import TIME
from clrec_tf.data.impression_columns import USER
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import logs
from clrec_tf.preparation.log_source import Source
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files import file_sets
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files import values


@dataclasses.dataclass(frozen=True)
class ImpressionSource:
    """An impression log, or one of its files, that has not been read yet.

    Attributes:
      source: its rows that name a user; of a log that the server did not write, all rows.
      settings: that read it.
      rows, named: of a log that the server wrote, how many rows it has and how many name a user; 0 of others, whose
        rows without a user are bad rows.
    """
    source: Source
    settings: PrepareConfig
    rows: int = 0
    named: int = 0


def open_impressions(settings: PrepareConfig) -> ImpressionSource:
    """Finds the columns of --impressions.

    Raises:
      UserError: no file, no time stamps, or a column is missing; DataError: a file is damaged.
    """
    path = settings.impressions
    if not file_sets.exists(path):
        raise UserError(f"--impressions={path} does not exist: give the log of what was shown")
    if not settings.timestamp_column:
        raise UserError(f"--impressions={path} needs time stamps, to know what a user had clicked before: give "
                        "--timestamp_column")
    plain, served = _plain(settings)
    try:
        source = logs.open_log(plain)
    except UserError as error:  # whose remedies for logs without time stamps or of another format are none here
        text = str(error).split(", or --timestamp_column=")[0]
        text = text.replace("give --format=lists", "give a row per item shown")
        raise UserError(f"--impressions: {text}") from error
    if not served:
        return ImpressionSource(source, plain)
    # A client that does not know its user may say so by a text, as over gRPC, where every value has to be sent.
    user = values.text(pl.col("user"), source.clicks.collect_schema()["user"], settings.null_values)
    named = source.clicks.filter(user.is_not_null())
    with frames.readable(path):
        counts = [lazy.select(pl.len()).collect(engine="streaming").item() for lazy in (source.clicks, named)]
    return ImpressionSource(dataclasses.replace(source, clicks=named), plain, *counts)


def check_named(rows: int, named: int, path: str) -> None:
    """`DataError` where no row names a user. Args: see `ImpressionSource`; `path`: of the log."""
    if rows and not named:
        raise DataError(f"--impressions={path}: none of its {rows} rows names a user: send `user_id` with requests, as "
                        "the click log has it")


def _plain(settings: PrepareConfig) -> tuple[PrepareConfig, bool]:
    """Settings that read the log as --format=columns, and whether the server wrote it."""
    columns = _columns(settings)
    served, own_header = is_served_log(columns), settings.columns and settings.user_column in columns
    plain = dataclasses.replace(
        settings, format="columns", input=settings.impressions, event_column="", dwell_column="", order_column="",
        feature_columns=(), multi_feature_columns=(), context_columns=(), title_column="",
        columns=() if own_header or served else settings.columns)
    if served:  # whose columns are called as the server calls them, whatever those of the click log are
        plain = dataclasses.replace(plain, user_column=USER, item_column=ITEM, timestamp_column=TIME,
                                    timestamp_unit="auto", timestamp_format="")
    return plain, served


def _columns(settings: PrepareConfig) -> tuple[str, ...]:
    """Names in the header; where --columns says that there may be none, what stands at its place."""
    path, reading = settings.impressions, frames.reading_of(settings)
    if not settings.columns:
        return frames.open_table(path, delimiter=settings.delimiter, reading=reading).columns
    paths = [part.path for part in file_sets.find(path)]
    first = next((one for one in paths if not contents.open_content(one, 1).is_empty()), paths[0])
    try:
        return frames.open_table(first, delimiter=settings.delimiter, reading=reading).columns
    except DataError:  # a row that has a value twice is no header
        return ()
