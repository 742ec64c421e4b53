"""Sequences of each group of users, dealt to shards as one process deals them, and the data folder."""
import dataclasses
import os
import secrets
from typing import Iterator, Optional

import numpy as np
import polars as pl

from clrec_tf.data.schema import Shard
from clrec_tf.errors import DataError
from clrec_tf.preparation.beam_runner.counting import Counted
from clrec_tf.preparation.beam_runner.counting import Group
from clrec_tf.preparation.beam_runner import exposures
from clrec_tf.preparation.beam_runner.job import Job
from clrec_tf.preparation.beam_runner.job import UNFINISHED
from clrec_tf.preparation.beam_runner.steps import Fact
from clrec_tf.preparation import data_folder
from clrec_tf.preparation import data_set
from clrec_tf.preparation.data_set import Dataset
from clrec_tf.preparation import foresight
from clrec_tf.preparation import plausibility
from clrec_tf.preparation import sizes
from clrec_tf.preparation.splits import Sequences
from clrec_tf.preparation import tables as tables_lib


@dataclasses.dataclass(frozen=True)
class Dealt:
    """Where each sequence goes.

    Attributes:
      dataset: without sequences.
      users: part -> [R] users that have a sequence of it, ascending.
      places: part -> [R] place of each of these sequences among the records.
    """
    dataset: Dataset
    users: dict[str, np.ndarray]
    places: dict[str, np.ndarray]

    def shards(self, split: str, per_shard: int) -> int:
        """How many shards a part has."""
        return -(-len(self.users[split]) // per_shard)


def _sequences(group: Group, counted: Counted) -> dict[str, Sequences]:
    """Sequences of a group, whose users are numbered as in the log."""
    clicks = dataclasses.replace(group.clicks, context=counted.context(group.clicks.context))
    found = data_set.sequences_of(clicks, group.part, group.mask, counted.tables.vocabulary)
    return {split: dataclasses.replace(own, user=group.users[own.user].astype(np.int32))
            for split, own in found.items()}


def sizes_of(job: Job, element: tuple[int, Group], counted: Counted) -> Iterator[Fact]:
    """(group of users, their clicks) -> facts about their sequences."""
    del job
    group, vocabulary = element[1], counted.tables.vocabulary
    sequences = _sequences(group, counted)
    yield Fact("tally sizes", sizes.counts(group.clicks, group.part, group.mask, sequences, vocabulary))
    rows = dict(zip(counted.feature_names, counted.tables.feature_rows))
    numbers = group.users[group.clicks.user]
    for name, pairs in foresight.pairs_of_features(group.clicks, group.mask, numbers, rows).items():
        yield Fact(f"counts pairs of {name}", pairs)
    for split, own in sequences.items():
        yield Fact(f"rows users of {split}", pl.DataFrame({"user": own.user}))


def settle_places(job: Job, facts: dict, counted: Counted, impressions: Optional[dict] = None) -> Dealt:
    """The whole report, and the place of each record in its part. Holds a number for each sequence.

    Args:
      job, facts, counted: see there.
      impressions: what the report says of them; None without.
    """
    report, tables = dict(counted.report), counted.tables
    pairs = {name: foresight.summed(facts[f"counts pairs of {name}"]) for name in counted.feature_names}
    tables_lib.report_of(tables, facts["tally sizes"], pairs, report)
    report.update({} if impressions is None else dict(impressions=impressions))
    dataset = data_set.dataset_of(tables, {}, None, report)
    plausibility.add(report, counted.lines, dataset.largest_dense_value, job.settings)
    users = {split: np.sort(facts[f"rows users of {split}"]["user"].to_numpy()) for split in data_set.PARTS}
    orders = data_folder.dealt({split: len(own) for split, own in users.items()}, job.seed)
    return Dealt(dataset, users, {split: np.argsort(order) for split, order in orders.items()})


def records(job: Job, element: tuple[int, Group], counted: Counted, dealt: Dealt) -> Iterator:
    """(group of users, their clicks) -> ((part, shard), (place, clicks, record)) of each sequence."""
    per_shard = job.settings.shard_records
    for split, own in _sequences(element[1], counted).items():
        places = dealt.places[split][np.searchsorted(dealt.users[split], own.user)]
        events = np.diff(own.offsets)
        for rows in data_folder.blocks(own):
            for row, record in zip(rows.tolist(), data_folder.sequence_examples(dealt.dataset, own, rows)):
                yield (split, int(places[row] // per_shard)), (int(places[row]), int(events[row]), record)


def write(job: Job, element: tuple, dealt: Dealt) -> Iterator[Fact]:
    """((part, shard), its records) -> the shard's entry; a bundle that is tried again writes the same file again."""
    (split, number), found = element[0], sorted(element[1])
    name = data_folder.shard_name(split, number, dealt.shards(split, job.settings.shard_records))
    unfinished = f"{name}{UNFINISHED}{secrets.token_hex(8)}"
    shard = data_folder.write_shard(job.folder, unfinished, [record for _, _, record in found],
                                    sum(events for _, events, _ in found))
    os.replace(os.path.join(job.folder, unfinished), os.path.join(job.folder, name))
    yield Fact("list shards", [(split, dataclasses.replace(shard, name=name))])


def finish(job: Job, facts: dict, dealt: Dealt) -> Dataset:
    """Writes what is not of sequences, the manifest last; `DataError` where a shard, a record or an impression is
    missing."""
    entries = dict.fromkeys(shard for shard in sorted(facts.get("list shards", []), key=lambda one: one[1].name))
    shards: dict[str, list[Shard]] = {split: [] for split in dealt.users}
    for split, shard in entries:
        shards[split].append(shard)
    for split, own in shards.items():
        found, wanted = sum(shard.records for shard in own), len(dealt.users[split])
        if found != wanted or len(own) != dealt.shards(split, job.settings.shard_records):
            raise DataError(f"--runner=beam has written {found} of {wanted} sequences of the {split} part: run again")
    dataset = dealt.dataset
    if job.impressions:
        kept = dataset.report["impressions"]["kept"]
        dataset = dataclasses.replace(dataset, exposures=exposures.joined(job, facts, kept))
    data_folder.complete(job.folder, dataset, shards)
    return dealt.dataset
