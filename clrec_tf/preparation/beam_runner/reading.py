"""From files to checked rows: each file is read by itself, and judged by what all files show."""
import dataclasses
from typing import Iterator, Optional

import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import bad_rows
from clrec_tf.preparation.beam_runner.facts import HEAD
from clrec_tf.preparation.beam_runner.facts import PLACE
from clrec_tf.preparation.beam_runner.job import FILE_ROWS
from clrec_tf.preparation.beam_runner.job import Job
from clrec_tf.preparation.beam_runner.steps import Fact
from clrec_tf.preparation import events
from clrec_tf.preparation.log_source import Source
from clrec_tf.preparation import logs
from clrec_tf.preparation import vocabulary
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import ROW
from clrec_tf.tabular_files.table_parts import EXTRA
from clrec_tf.tabular_files import time_units
from clrec_tf.tabular_files import times
from clrec_tf.tabular_files import values

BATCH = 500_000  # rows of an element


@dataclasses.dataclass(frozen=True)
class FileForm:
    """How a file was read: what all files of a log must have in common, and how many lines and rows it has."""
    number: int
    columns: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    first_line: int
    header: tuple[str, ...]
    features: dict[str, bool]
    others: tuple[str, ...]
    lines: Optional[int]
    rows: int


@dataclasses.dataclass(frozen=True)
class Form:
    """How the rows of all files are understood.

    Attributes:
      of_file: the form of the first file.
      lines, rows: of all files; lines None of Parquet.
      head: `timestamp` of the first rows that have one, by which their form is told; None without time stamps.
      unit: of numeric time stamps; "" of others.
      whole: those of user and item whose ids are whole numbers written as fractions.
    """
    of_file: FileForm
    lines: Optional[int]
    rows: int
    head: Optional[pl.DataFrame]
    unit: str
    whole: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Checked:
    """What the checks of all rows say.

    Attributes:
      form: of the files.
      report: of prepare, begun.
      kept_events: behaviours that stay; None: all.
    """
    form: Form
    report: dict
    kept_events: Optional[list[str]]


def settings_of(job: Job, number: int) -> PrepareConfig:
    """Settings that read one file alone."""
    return dataclasses.replace(job.settings, input=job.files[number])


def read_file(job: Job, element: tuple[int]) -> Iterator:
    """(number of a file) -> (number, frame of `cleaned` rows with their `PLACE`), and facts about its form."""
    [number] = element
    if not is_left_out(job, number):
        yield from rows_of(job, number, logs.open_log(settings_of(job, number)))


def is_left_out(job: Job, number: int) -> bool:
    """Whether a file of several is empty, as Spark writes of an empty partition."""
    content = contents.open_content(job.files[number], 1)
    if len(job.files) > 1 and content.is_empty():
        content.check_not_cut()
        return True
    return False


def rows_of(job: Job, number: int, source: Source) -> Iterator:
    """`read_file` of a source."""
    clicks, count = logs.cleaned(source, job.settings), 0
    with frames.readable(source.table.path):
        for frame in clicks.collect_batches(chunk_size=BATCH, maintain_order=True, engine="streaming"):
            begin = number * FILE_ROWS + count
            frame = frame.with_columns(pl.Series(PLACE, np.arange(begin, begin + len(frame))))
            count += len(frame)
            yield from _signs(frame, job)
            yield number, frame
        source.table.check_records()
    yield Fact("list files", [_form(number, source, clicks, count)])


def _form(number: int, source: Source, clicks: pl.LazyFrame, rows: int) -> FileForm:
    types = tuple((name, str(dtype)) for name, dtype in clicks.collect_schema().items())
    return FileForm(number, source.table.columns, types, source.table.first_line, source.header, source.features,
                    source.columns, source.table.lines, rows)


def _signs(frame: pl.DataFrame, job: Job) -> Iterator[Fact]:
    """What shows how ids and time stamps are written."""
    for name in ("user", "item"):
        yield Fact(f"counts ids of {name}", frame.select(name, PLACE).drop_nulls(name).group_by(name).agg(
            pl.col(PLACE).min()))
    if "timestamp" not in frame.columns:
        return
    yield Fact("head times", frame.select(PLACE, "timestamp").drop_nulls().head(HEAD))
    dtype = frame.schema["timestamp"]
    if dtype.is_numeric() or dtype == pl.String:
        numbers = frame.select(times.as_numbers(pl.col("timestamp"), dtype))["timestamp"]
        yield Fact("tally units", time_units.tally(numbers, job.clock))


def settle_form(job: Job, facts: dict) -> Form:
    """How all files are read. Raises `UserError` where they differ in a way that one process would not mind."""
    path, files = job.settings.input, files_alike(job, facts)
    rows, head, unit = sum(form.rows for form in files), facts.get("head times"), ""
    logs.check_not_empty(rows, path)
    if head is not None:
        head = head.sort(PLACE).select("timestamp")
        if times.to_seconds(head.lazy(), job.settings, path)[1]:
            unit = time_units.settled(facts["tally units"], job.settings.timestamp_unit, path, job.clock)
    whole = tuple(name for name in ("user", "item")
                  if values.are_whole(facts[f"counts ids of {name}"][name], name, path))
    lines = [form.lines for form in files]
    return Form(files[0], None if None in lines else sum(lines), rows, head, unit, whole)


def files_alike(job: Job, facts: dict) -> list[FileForm]:
    """Forms of all files in order. Raises `UserError` where they differ, or there are none."""
    files = sorted(facts.get("list files", []), key=lambda form: form.number)
    if not files:
        raise DataError(f"{job.settings.input} holds nothing but empty files: give the files of the log")
    first, remedy = files[0], "write all files in one form, or prepare with --runner=local"
    for form in files[1:]:
        names = [f"{job.files[one.number]}" for one in (form, first)]
        if form.first_line != 1 and set(form.columns) != set(first.columns):  # objects of JSON may lack entries
            raise DataError(f"{job.settings.input}: {names[0]} has the columns {', '.join(form.columns)}, and "
                            f"{names[1]} {', '.join(first.columns)}: give all parts the same header, or if they have "
                            "none --columns")
        if form.types != first.types:
            if len(form.types) != len(first.types):  # text has a column of surplus fields
                raise DataError(f"{job.settings.input}: {names[0]} and {names[1]} are of two kinds, such as text and "
                                "Parquet: give files of one kind, such as by a pattern *.csv")
            odd = next(one for one in zip(form.types, first.types) if one[0] != one[1])
            raise UserError(f"--runner=beam reads each file by itself, and {names[0]} has {odd[0][0]} as {odd[0][1]}, "
                            f"{names[1]} as {odd[1][1]}: {remedy}")
        if form.first_line != first.first_line:
            raise UserError(f"--runner=beam reads each file by itself, and of {names[0]} and {names[1]} one alone has "
                            f"a header: {remedy}")
    nested = next((name for name, dtype in first.types
                   if name.startswith("c:") and dtype.startswith(("List", "Array"))), None)
    if nested:
        raise UserError(f"--runner=beam does not read --context_columns that hold lists, such as {nested[2:]}: write "
                        "them as text with --multi_separator, or prepare with --runner=local")
    return files


def check_rows(job: Job, element: tuple[int, pl.DataFrame], form: Form) -> Iterator:
    """(number of a file, `cleaned` rows) -> (group of users, their good rows), and facts about bad ones."""
    number, frame = element
    settings, path = job.settings, job.settings.input
    clicks, of_a_unit = logs.typed(frame.lazy(), settings, path, None if form.head is None else form.head.lazy())
    frame = clicks.collect()
    frame = frame.with_columns(values.without_fractions(frame[name]) for name in form.whole)
    if of_a_unit:
        frame = frame.with_columns(time_units.convert(frame["timestamp"], form.unit, job.clock.offset))
    frame = frame.with_columns(
        bad_rows.reason(frame.columns, settings, job.clock, form.of_file.header).alias("reason")).drop(
            EXTRA, strict=False)
    yield Fact("tally rows", bad_rows.counts(frame))
    yield from _examples(job, number, frame)
    good = frame.filter(pl.col("reason") == 0).drop("reason")
    if settings.id_type != "string":
        yield Fact("counts places of items", good.group_by("item").agg(
            pl.col(PLACE).min(), (pl.col(ROW).cast(pl.Int64).min() + number * FILE_ROWS).alias("row")))
    if "timestamp" in good.columns:
        yield Fact("tally times", times.span(good["timestamp"]))
    if "event" in good.columns:
        yield Fact("counts events", good.group_by("event").agg(count=pl.len()))
    yield from _grouped(good.drop(ROW), job.partitions)


def _grouped(frame: pl.DataFrame, groups: int) -> Iterator[tuple[int, pl.DataFrame]]:
    users = frame["user"].unique()
    of_users = pl.DataFrame({"user": users, "group": [vocabulary.bucket(user, groups) for user in users]},
                            {"user": pl.String, "group": pl.Int64})
    frame = frame.join(of_users, on="user", how="left", maintain_order="left")
    for [group], rows in frame.partition_by("group", as_dict=True, include_key=False).items():
        yield group, rows


def _examples(job: Job, number: int, frame: pl.DataFrame) -> Iterator[Fact]:
    bad = frame.filter(pl.col("reason") > 0).head(bad_rows.EXAMPLES)
    if len(bad):
        shown = bad_rows.shown(logs.open_log(settings_of(job, number)).table, bad.select(ROW, "reason"))
        yield Fact("head examples", pl.DataFrame({PLACE: bad[PLACE], "text": [
            job.with_place(text, number * FILE_ROWS) for text in shown]}))


def judged(job: Job, facts: dict) -> dict:
    """Refuses bad rows as one process does; what the report says of rows."""
    settings, found, path = job.settings, facts["tally rows"], job.settings.input
    examples = facts["head examples"]["text"].to_list()[:bad_rows.EXAMPLES] if "head examples" in facts else []
    bad_rows.check(found, examples, path, settings)
    report = dict(rows=found.count("rows"), bad_rows=found.count("bad"), bad_row_examples=examples)
    if "counts places of items" in facts:
        items = facts["counts places of items"].sort(PLACE).rename({"row": ROW})
        text_ids = logs.text_ids_of(items, path, lambda row: _where(job, row))
        report |= dict(ids_are_text_since=text_ids) if text_ids else {}
    if "tally times" in facts:
        times.check_plausible(facts["tally times"], path)
    return report


def settle_rows(job: Job, facts: dict, form: Form) -> Checked:
    """Judges all rows, and begins the report."""
    settings, report = job.settings, judged(job, facts)
    present = events.present(facts["counts events"]["event"]) if "counts events" in facts else None
    kept = events.kept(settings.keep_events, present) if settings.keep_events else None
    times.between(settings, form.head is not None)  # refuses bounds without time stamps
    return Checked(form, report, kept)


def _where(job: Job, row: int) -> str:
    number, own = divmod(row, FILE_ROWS)
    return job.with_place(logs.open_log(settings_of(job, number)).table.where(own), row)
