"""The impression log beside the clicks: its files are read as those of clicks, and joined to the clicks by user."""
import dataclasses
import os
import secrets
from typing import Iterable, Iterator

import numpy as np
import polars as pl

from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.preparation.beam_runner.counting import Counted
from clrec_tf.preparation.beam_runner.counting import Group
from clrec_tf.preparation.beam_runner.facts import PLACE
from clrec_tf.preparation.beam_runner.job import Job
from clrec_tf.preparation.beam_runner.job import UNFINISHED
from clrec_tf.preparation.beam_runner import reading
from clrec_tf.preparation.beam_runner.reading import Form
from clrec_tf.preparation.beam_runner.steps import Fact
from clrec_tf.preparation import impression_source
from clrec_tf.preparation import impressions
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import DAY
from clrec_tf.tabular_files.tally import tally

CLICKS, SHOWN = "clicks", "shown"  # what is joined


@dataclasses.dataclass(frozen=True)
class ImpressionForm:
    """How the files of the impression log are understood.

    Attributes:
      job: whose settings read them.
      form: of their rows.
      nameless: rows beside those, which name no user.
    """
    job: Job
    form: Form
    nameless: int


def job_of(job: Job) -> Job:
    """A job whose files are those of the impression log."""
    return dataclasses.replace(job, files=job.impressions)


def read_file(job: Job, element: tuple[int]) -> Iterator:
    """As `reading.read_file`, of the impression log."""
    [number] = element
    if reading.is_left_out(job, number):
        return
    found = impression_source.open_impressions(dataclasses.replace(job.settings, impressions=job.files[number]))
    yield Fact("tally named", tally(dict(rows=found.rows, named=found.named)))
    yield Fact("list settings", [(number, found.settings)])
    yield from reading.rows_of(job, number, found.source)


def settle_form(job: Job, facts: dict) -> ImpressionForm:
    """As `reading.settle_form`. Raises `DataError` where no row of a log that the server wrote names a user."""
    path = job.settings.impressions
    _, settings = min(facts.get("list settings", [(0, job.settings)]), key=lambda one: one[0])
    job = dataclasses.replace(job, settings=dataclasses.replace(settings, input=path, impressions=path))
    reading.files_alike(job, facts)
    rows, named = (facts["tally named"].count(name) for name in ("rows", "named"))
    impression_source.check_named(rows, named, path)
    return ImpressionForm(job, reading.settle_form(job, facts), rows - named)


def check_rows(job: Job, element: tuple[int, pl.DataFrame], log: ImpressionForm) -> Iterator:
    """As `reading.check_rows`."""
    del job
    yield from reading.check_rows(log.job, element, log.form)


def settle_rows(job: Job, facts: dict, log: ImpressionForm) -> dict:
    """Refuses bad rows as one process does. Returns what `impressions.report_of` asks of rows."""
    del job
    report = reading.judged(log.job, facts)
    return dict(rows=report["rows"], bad_rows=report["bad_rows"], examples=report["bad_row_examples"],
                nameless=log.nameless)


def trained_on(element: tuple[int, Group]) -> tuple[int, tuple[np.ndarray, Clicks]]:
    """(group of users, their clicks) -> (group, numbers of its users and what they clicked in training)."""
    number, group = element
    clicks = group.clicks.where(group.mask)
    return number, (group.users, Clicks(clicks.user, clicks.item, clicks.timestamp))


def join(job: Job, element: tuple[int, dict[str, Iterable]], counted: Counted, rows: dict) -> Iterator:
    """(group of users, clicks and impressions) -> (day, the impressions that stay), and facts about all of them."""
    del rows  # that they were judged is what is waited for
    of_group = {name: list(found) for name, found in element[1].items()}
    if not of_group[SHOWN]:
        return
    shown = pl.concat(of_group[SHOWN]).sort(PLACE)
    yield Fact("head shown", shown.select(PLACE, "user", "item").head(3))
    none = np.zeros(0, np.int32)
    [(users, clicks)] = of_group[CLICKS] or [(none, Clicks(none, none, none.astype(np.int64)))]
    kept, counts = impressions.exposed(shown, counted.users.gather(users), counted.item_ids,
                                       counted.tables.vocabulary.item_id, clicks,
                                       impressions.first_second(job.settings))
    yield Fact("tally exposures", counts)
    kept = kept.select("timestamp", PLACE, "after", "shown", day=pl.col("timestamp") // DAY)
    for [day], of_day in kept.partition_by("day", as_dict=True, include_key=False).items():
        yield day, of_day


def settle(job: Job, facts: dict, counted: Counted, rows: dict) -> dict:
    """What the report says of impressions; `DataError` where none is kept."""
    counts = facts["tally exposures"]
    impressions.check_any(counts, rows["rows"], facts["head shown"].sort(PLACE), counted.users, counted.item_ids,
                          job.settings.impressions)
    return impressions.report_of(counts, **rows)


def write(job: Job, element: tuple[int, Iterable[pl.DataFrame]], dealt) -> Iterator[Fact]:
    """(day, its impressions) -> a file of them in order; a bundle that is tried again writes the same file again."""
    del dealt  # without a refusal
    day, frames = element
    shown = pl.concat(list(frames)).sort("timestamp", PLACE)
    unfinished = f"{_path(job, day)}-{secrets.token_hex(8)}"
    with open(unfinished, "wb") as file:
        np.save(file, impressions.pairs(shown))
    os.replace(unfinished, _path(job, day))
    yield Fact("list days", [(day, len(shown))])


def joined(job: Job, facts: dict, kept: int) -> np.ndarray:
    """int32 [N,2], see `impressions.exposures_of_log`; `DataError` where one of `kept` impressions is missing."""
    days = sorted(set(facts.get("list days", [])))
    if sum(count for _, count in days) != kept:
        raise DataError(f"--runner=beam has written {sum(count for _, count in days)} of {kept} impressions: run again")
    # NumPy lays the rows of several arrays out in either order, and the file has the order of `impressions.pairs`.
    return np.asfortranarray(np.concatenate([np.load(_path(job, day), allow_pickle=False) for day, _ in days]))


def _path(job: Job, day: int) -> str:
    return os.path.join(job.folder, f"{schema_lib.IMPRESSIONS_FILE}{UNFINISHED}{day}")
